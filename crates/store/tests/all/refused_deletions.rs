//! Deletions on a device that does not read what they need: nothing is lost by that, and nothing is written down as damage (P7).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::sim::{Action, Call, Faults, SimDevice, When};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{Key, NodeView};
use holdfast_store::{Branch, Need, Store, StoreError, Transaction};

use crate::branches::{make, now, open};

const NODE: usize = 4096;

/// Fills the inodes anew, so that no leaf is what it was.
fn change_all(branch: &Branch) {
    for inode in 0..300 {
        let mut room = branch.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
        let mut transaction = Transaction::new();
        transaction.put(Key::inode(InodeNo(20 + inode)), [7; 8]);
        branch.apply(transaction, &mut room).unwrap();
    }
}

/// A volume on which three snapshots have leaves of their own and the deletions of the first and the last have begun, as a kill
/// leaves it; their numbers, and the byte at which a leaf of each begins.
fn deleted() -> (MemoryDevice, [(u64, u64); 2]) {
    let image = make(8192, NODE);
    let device: Arc<dyn Device> = image.clone();
    let store = open(&device);
    let main = Branch::main(store.clone());
    let taken = [b"one", b"two", b"six"].map(|name| {
        change_all(&main);
        store.snapshot(1, name, now()).unwrap()
    });
    change_all(&main);
    store.checkpoint().unwrap();
    let ends = [taken[0], taken[2]];
    let leaves = ends.map(|number| {
        let root = store.tree(number).unwrap().root;
        let mut bytes = vec![0; NODE];
        image.read(root.block.byte_offset().unwrap(), &mut bytes).unwrap();
        (number, NodeView::trusted(&bytes).child(2).block.byte_offset().unwrap())
    });
    ends.iter().for_each(|number| store.delete_snapshot(*number).unwrap());
    store.checkpoint().unwrap();
    (image.snapshot(), leaves)
}

fn on_faults(image: &MemoryDevice) -> (Arc<SimDevice>, Arc<Store>) {
    let sim = Arc::new(SimDevice::new(image));
    let device: Arc<dyn Device> = sim.clone();
    (sim, open(&device))
}

/// Both deletions are over, without a report of damage.
fn is_over(store: &Store, what: &str) {
    assert_eq!(store.failed_deletions(), [], "{what}");
    assert_eq!(store.trees().unwrap().len(), 2, "{what}");
    assert_eq!(store.counters().deletions_failed.get(), 0, "{what}");
    store.checkpoint().unwrap();
    assert_eq!((store.stop_reason(), store.superblock().fault), (None, None), "{what}");
}

/// EIO at each read of two walks, once: the call says it or another read has brought what was wanted, and a later call goes on.
#[test]
fn a_read_that_fails_once_ends_no_deletion() {
    let (image, _) = deleted();
    let (mut refused, mut nth) = (0, 0);
    loop {
        nth += 1;
        let what = format!("read {nth}");
        let (sim, store) = on_faults(&image);
        sim.set_faults(Faults::fail_once(Call::Read, nth));
        let done = loop {
            match store.work_off_deletions(1) {
                Ok(true) => {}
                done => break done,
            }
        };
        if let Err(error) = done {
            assert!(matches!(error, StoreError::Device(_)), "{what}: {error}");
            refused += 1;
            while store.work_off_deletions(9).unwrap() {}
        }
        is_over(&store, &what);
        if sim.faults_fired() == 0 {
            break;
        }
    }
    println!("{nth} reads, {refused} refused");
    assert!(nth > 4 && refused > 0, "{nth} reads, {refused} refused");
}

/// While the device does not read a leaf of one, the other goes on to its end; and the first as soon as it reads.
#[test]
fn another_deletion_goes_on_meanwhile() {
    let (image, leaves) = deleted();
    for (number, leaf) in leaves {
        let (sim, store) = on_faults(&image);
        let inside =
            When::Inside { start: leaf, end: leaf + NODE as u64, skip: 0, times: u64::MAX };
        sim.set_faults(Faults::none().with(Call::Read, inside, Action::Fail));
        for _ in 0..3 {
            let refused = loop {
                match store.work_off_deletions(9) {
                    Ok(true) => {}
                    Ok(false) => panic!("the deletion of {number} cannot be over"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, StoreError::Device(_)), "{refused}");
            let failed = store.failed_deletions();
            assert_eq!((failed.len(), failed[0].0), (1, number), "{failed:?}");
            assert_eq!(store.trees().unwrap().len(), 3, "the other one is over");
        }
        sim.set_faults(Faults::none());
        while store.work_off_deletions(9).unwrap() {}
        is_over(&store, &format!("snapshot {number}"));
    }
}
