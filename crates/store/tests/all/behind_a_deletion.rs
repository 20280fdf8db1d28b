//! The deletion of a snapshot has come to its end in memory, and no commit says so: power fails, and a recovery finds the
//! snapshot. What the branch has done meanwhile with blocks that are as old must be right beside it (S1, S2).

use std::sync::Arc;

use holdfast_base::{BlockRange, InodeNo};
use holdfast_device::sim::{Event, Policy};
use holdfast_device::{Device, SimDevice};
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Branch, Need, Store, Transaction};

use crate::branches::{make, now, open};

const FILE: InodeNo = InodeNo(21);
const BLOCK: u64 = 4096;

fn key(block: u64) -> Key {
    Key::new(FILE, ItemKind::Extent, block * BLOCK)
}

fn extent(branch: &Branch, block: u64) -> Option<Extent> {
    branch.get(&key(block)).unwrap().map(|bytes| Extent::decode(&bytes).unwrap())
}

/// Writes `block` of the file behind the extent that begins it, which it joins as a file would: if that belongs to the branch
/// alone. It is durable by the log. Returns how many blocks the first extent has.
fn append(branch: &Branch, block: u64) -> u64 {
    let first = extent(branch, 0);
    let end = first.as_ref().and_then(|first| first.blocks.end());
    let mut room = branch.reserve(Need::Grow { changes: 2, blocks: 1 }).unwrap();
    let placed = branch.allocate(&mut room, 1, end).unwrap();
    assert!(end.is_none_or(|end| placed.blocks().start == end), "nobody else takes blocks");
    let written = branch.write(placed, &[block as u8 + 1; BLOCK as usize]).unwrap();
    let mut transaction = Transaction::new();
    let new = transaction.publish(written);
    let count = match first.filter(|first| first.birth > branch.parent_epoch()) {
        Some(Extent { blocks, mut sums, .. }) => {
            sums.extend(new.sums);
            let blocks = BlockRange::new(blocks.start, blocks.count + 1);
            transaction.put(key(0), Extent { blocks, sums, birth: new.birth }.encode());
            blocks.count
        }
        None => {
            transaction.put(key(block), new.encode());
            1
        }
    };
    let lsn = branch.apply(transaction, &mut room).unwrap();
    branch.sync(lsn, FILE).unwrap();
    count
}

/// The file goes, and all that is left of snapshots: each of its blocks is freed once.
fn clear(store: &Arc<Store>, what: &str) {
    let main = Branch::main(store.clone());
    if let Ok(second) = store.find_snapshot(1, b"second") {
        store.delete_snapshot(second).unwrap();
    }
    while store.work_off_deletions(9).unwrap() {}
    store.commit_deletions().unwrap();
    for block in 0..2 {
        let Some(old) = extent(&main, block) else { continue };
        let mut bytes = vec![0; old.blocks.count as usize * BLOCK as usize];
        main.read(old.blocks, &mut bytes).unwrap();
        let is_whole = |(at, byte): (usize, &u8)| u64::from(*byte) == block + at as u64 / BLOCK + 1;
        assert!(bytes.iter().enumerate().all(is_whole), "{what}: block {block} has other bytes");
        let mut transaction = Transaction::new();
        transaction.free(old.blocks, old.birth, key(block));
        transaction.delete(key(block));
        let mut room = main.reserve(Need::Shrink { changes: 1 }).unwrap();
        main.apply(transaction, &mut room)
            .unwrap_or_else(|error| panic!("{what}: block {block} cannot be freed: {error}"));
    }
    store.delete_snapshot(store.find_snapshot(1, b"first").unwrap()).unwrap();
    while store.work_off_deletions(9).unwrap() {}
    store.checkpoint().unwrap();
    assert_eq!(store.failed_deletions(), [], "{what}");
    assert_eq!(store.trees().unwrap().len(), 1, "{what}");
    main.invariants();
}

#[test]
fn what_is_joined_behind_the_end_of_a_deletion_is_freed_once() {
    let device = Arc::new(SimDevice::new(&make(2048, 4096)));
    let under: Arc<dyn Device> = device.clone();
    let store = open(&under);
    let main = Branch::main(store.clone());
    store.snapshot(1, b"first", now()).unwrap();
    let before = store.space_use().free;
    append(&main, 0);
    let second = store.snapshot(1, b"second", now()).unwrap();
    device.mark(0);
    store.delete_snapshot(second).unwrap();
    while store.work_off_deletions(9).unwrap() {}
    assert!(store.tree(second).is_err(), "the deletion has come to its end");
    let joined = append(&main, 1);
    let recording = device.recording();
    let mut images = 0;
    let begin = recording.events.iter().position(|event| matches!(event, Event::Mark(_))).unwrap();
    for at in begin..=recording.events.len() {
        for image in recording.cut_at(at).images(&Policy::default()) {
            let found: Arc<dyn Device> = Arc::new(image.device());
            let store = open(&found);
            clear(
                &store,
                &format!("{joined} in the first extent, call {at}: {}", image.describe()),
            );
            // The tree of the lineage may have a node more.
            assert!(store.space_use().free + 8 >= before, "call {at}: blocks stay in use");
            images += 1;
        }
    }
    assert!(images > 4, "power was cut {images} times");
    // With the commit it is the branch's alone.
    store.commit_deletions().unwrap();
    clear(&store, "without a cut");
}
