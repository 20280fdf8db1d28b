//! A journal that makes no sense at some commit (P10): the volume is not written, and an opening for reading gets
//! everything before it. A journal that cannot be read is not opened at all: it may be read another time. A checkpoint
//! that no commit says is missed when it is gone (P6).

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::switch::Dirty;
use holdfast_base::{BlockNo, InodeNo};
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::journal::{FrameHeader, JournalMark};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, CreateOptions, Need, OpenOptions, Result, Store, Transaction};

const BYTES: u64 = 32 << 20;
const BLOCK: u64 = 4096;
const COMMITS: u64 = 4;

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number), ItemKind::Extent, 0)
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Result<Branch> {
    let options = OpenOptions { read_only, cache_bytes: 1 << 20, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn create(device: &Arc<dyn Device>, node_size: usize) {
    let options = CreateOptions {
        geometry: Geometry::for_device(device.len(), node_size).unwrap(),
        uuid: uuid::Uuid::from_u128(7),
        label: "test".into(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    };
    Store::create(device, &options).unwrap();
}

/// A volume with an item in each of some commits, the marks before each of them and behind the last, and the
/// root that the superblock names.
fn crashed() -> (MemoryDevice, Vec<JournalMark>, BlockNo) {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = device.clone();
    create(&shared, 4096);
    let store = open(shared, false).unwrap();
    for number in 0..COMMITS {
        put(&store, number, 900);
        store.commit().unwrap();
    }
    let image = device.snapshot();
    // Each commit here has one frame, found by following the sums.
    let mut marks = vec![store.superblock().journal];
    for _ in 0..COMMITS {
        let before = *marks.last().unwrap();
        let header = header(&image, before.next);
        assert_eq!((header.commit, header.prior), (before.commit.0 + 1, before.sum));
        assert_eq!(header.frames, 1);
        marks.push(JournalMark {
            commit: before.commit.next(),
            next: BlockNo(before.next.0 + header.blocks()),
            sum: header.sum,
        });
    }
    (image, marks, store.superblock().files.block)
}

fn put(store: &Branch, number: u64, len: usize) {
    let mut transaction = Transaction::new();
    transaction.put(key(number), vec![number as u8; len]);
    let mut room = store.reserve(Need::Grow { changes: transaction.changes(), blocks: 0 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
}

fn header(image: &MemoryDevice, at: BlockNo) -> FrameHeader {
    let mut block = [0; BLOCK as usize];
    image.read(at.0 * BLOCK, &mut block).unwrap();
    FrameHeader::decode(&block).unwrap()
}

/// How many of the items a reader finds: all before the first one that is missing.
fn found(device: Arc<dyn Device>) -> u64 {
    let store = open(device, true).unwrap();
    let there: Vec<bool> =
        (0..COMMITS).map(|number| store.get(&key(number)).unwrap().is_some()).collect();
    let first = there.iter().take_while(|there| **there).count();
    assert!(!there[first..].contains(&true), "{there:?} is no moment (P3)");
    first as u64
}

#[test]
fn a_commit_that_makes_no_sense_keeps_no_reader_out() {
    let (image, marks, _) = crashed();
    let at = marks[COMMITS as usize - 1].next;
    let header = header(&image, at);
    let mut frame = Vec::new();
    // Whole and in its place, and nothing that was ever written.
    header.encode(&[0xA5; 5000], &mut frame);
    image.write(at.0 * BLOCK, &frame).unwrap();
    let writer = open(Arc::new(image.snapshot()), false).map(drop);
    let error = writer.expect_err("nobody may write to it").to_string();
    assert!(
        error.contains(&format!("commit {} of the journal", marks[COMMITS as usize].commit)),
        "{error}"
    );
    assert_eq!(found(Arc::new(image)), COMMITS - 1);
}

#[test]
fn a_commit_that_cannot_be_read_is_an_error() {
    let (image, marks, _) = crashed();
    for (before, mark) in marks.iter().take(COMMITS as usize).enumerate() {
        let at = mark.next.0 * BLOCK;
        let inside = When::Inside { start: at, end: at + BLOCK, skip: 0, times: u64::MAX };
        let faults = Faults::none().with(Call::Read, inside, Action::Fail);
        let device =
            || -> Arc<dyn Device> { Arc::new(SimDevice::with_faults(&image, faults.clone())) };
        assert!(open(device(), false).is_err(), "commit {before} may be lost by writing");
        assert!(open(device(), true).is_err(), "an older state passes for the newest");
    }
}

#[test]
fn a_base_that_rots_keeps_no_reader_out() {
    // The first commit changes a copy of the root.
    let (image, _, root) = crashed();
    let at = root.0 * BLOCK;
    let mut node = [0; BLOCK as usize];
    image.read(at, &mut node).unwrap();
    node[70] ^= 1;
    image.write(at, &node).unwrap();
    // Nothing is left to be shown here; that is an answer as well.
    for read_only in [false, true] {
        match open(Arc::new(image.snapshot()), read_only) {
            Ok(store) => assert!(read_only && store.get(&key(0)).is_err()),
            Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        }
    }
}

/// What a commit or a batch changes lies in a node that has rotted: readers lose that node, and nothing else of history. Of
/// the space tree they need nothing.
#[test]
fn a_node_that_rots_costs_a_reader_what_was_in_it() {
    const KEYS: u64 = 48;
    let device = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = device.clone();
    create(&shared, 4096);
    let store = open(shared, false).unwrap();
    let mut told = vec![900; KEYS as usize];
    (0..KEYS).for_each(|number| put(&store, number, 900));
    store.checkpoint().unwrap();
    let mut change = |numbers: &mut dyn Iterator<Item = u64>, len: usize| {
        for number in numbers {
            put(&store, number, len);
            told[number as usize] = len;
        }
    };
    change(&mut (0..KEYS / 2), 901);
    store.commit().unwrap();
    change(&mut (0..KEYS).step_by(3), 902);
    store.sync(store.latest(), InodeNo(20)).unwrap();
    let image = device.snapshot();
    let mut kinds = [0; 3];
    for at in (0..BYTES).step_by(BLOCK as usize) {
        let mut node = [0; BLOCK as usize];
        image.read(at, &mut node).unwrap();
        let (level, tree) = (node[4], usize::from(node[5]));
        if !node.starts_with(b"hfNd") || level > 0 {
            continue;
        }
        let rotten = image.snapshot();
        node[1000] ^= 1;
        rotten.write(at, &node).unwrap();
        let rotten: Arc<dyn Device> = Arc::new(rotten);
        if open(rotten.clone(), false).is_ok() {
            // It is an older one.
            continue;
        }
        let store = open(rotten, true).unwrap();
        let missing = store.missing().unwrap().to_owned();
        let found: Vec<_> = (0..KEYS).map(|number| store.get(&key(number))).collect();
        let is_lost = |number: &u64| found[*number as usize].is_err();
        let lost: Vec<u64> = (0..KEYS).filter(is_lost).collect();
        let most = if tree == 1 { 1..=4 } else { 0..=0 };
        assert!(most.contains(&lost.len()), "{at}: {lost:?} of tree {tree}; {missing}");
        for (found, told) in found.into_iter().flatten().zip(without(&told, &lost)) {
            assert_eq!(found.map(|value| value.len()), Some(told), "{at}: {missing}");
        }
        kinds[tree] += 1;
    }
    assert!(kinds[1] > 8 && kinds[2] > 0, "{kinds:?}");
}

/// A node that is lost between two commits, and given up by the second, is missed by nothing: a writer opens such a volume, and fsck
/// has nothing to say of its journal. Where one is left, both refuse.
#[test]
fn a_node_that_was_lost_only_between_commits_is_missed_by_neither_check_nor_mount() {
    const KEYS: u64 = 48;
    let device = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = device.clone();
    create(&shared, 4096);
    let store = open(shared, false).unwrap();
    (0..KEYS).for_each(|number| put(&store, number, 900));
    store.checkpoint().unwrap();
    (0..KEYS).step_by(2).for_each(|number| put(&store, number, 901));
    store.commit().unwrap();
    let mut transaction = Transaction::new();
    (0..KEYS / 2).for_each(|number| transaction.delete(key(number)));
    let mut room = store.reserve(Need::Shrink { changes: KEYS as u32 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
    store.commit().unwrap();
    let image = device.snapshot();
    let (mut refused, mut healed) = (0, 0);
    for at in (0..BYTES).step_by(BLOCK as usize) {
        let mut node = [0; BLOCK as usize];
        image.read(at, &mut node).unwrap();
        if !node.starts_with(b"hfNd") || node[4..6] != [0, 1] {
            continue;
        }
        // Whose value the node holds is the byte that it is full of.
        let holds = node[BLOCK as usize - 100];
        node[1000] ^= 1;
        let rotten = Arc::new(image.snapshot());
        rotten.write(at, &node).unwrap();
        let report = holdfast_check::check(&*rotten, &Default::default()).unwrap();
        let is_found = report.findings.iter().any(|it| (800..1000).contains(&it.id));
        match open(rotten.clone(), false) {
            Err(error) => {
                assert!(error.to_string().contains("builds on"), "{at}: {error}");
                assert!(is_found, "{at}: fsck is silent where a mount refuses: {error}");
                refused += 1;
            }
            Ok(store) => {
                assert!(!is_found, "{at}: {:?}", report.findings);
                (0..KEYS / 2).for_each(|number| assert_eq!(store.get(&key(number)).unwrap(), None));
                healed += u64::from(u64::from(holds) < KEYS / 2);
            }
        }
    }
    assert!(refused > 2 && healed > 2, "{refused} {healed}");
}

fn without(told: &[usize], lost: &[u64]) -> Vec<usize> {
    let left = (0..).zip(told).filter(|(number, _)| !lost.contains(number));
    left.map(|(_, len)| *len).collect()
}

/// A commit without room becomes a checkpoint. Should its superblock rot, the one before it is no newest state.
#[test]
fn a_checkpoint_that_no_commit_says_is_missed() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let shared: Arc<dyn Device> = device.clone();
    create(&shared, 65536);
    let how = OpenOptions { dirty: Dirty::Whole, ..OpenOptions::default() };
    let store =
        Store::open(shared, &how, Arc::new(Counters::default())).map(Store::into_main).unwrap();
    // More leaves than the smallest journal has room for.
    for number in 0..160 {
        put(&store, number, 3000);
    }
    store.commit().unwrap();
    assert!(store.counters().journal_full.get() > 0, "the commits had room");
    let image = device.snapshot();
    let slot = SUPERBLOCK_SLOTS[store.superblock().epoch.0 as usize % 2].0 * BLOCK;
    let mut block = [0; 512];
    image.read(slot, &mut block).unwrap();
    block[100] ^= 1;
    image.write(slot, &block).unwrap();
    match open(Arc::new(image.snapshot()), false) {
        // The last one had room again, and says the rest.
        Ok(store) => (0..160).for_each(|number| {
            assert!(
                store.get(&key(number)).unwrap().is_some(),
                "an older state passes for the newest"
            );
        }),
        Err(error) => {
            assert!(error.to_string().contains("was durable and is gone"), "{error}");
        }
    }
}
