//! Items of branches and snapshots that are sound and not true (P10): an answer, and nothing is given twice or freed.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo, Timestamp};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::crc64;
use holdfast_format::item::lineage::{MAIN_NAME, name_key};
use holdfast_format::item::{Extent, HoldItem, LineageItem, WalkItem, WalkPlace};
use holdfast_format::limits::{COUNTER_MAX, value_max};
use holdfast_format::{Geometry, ItemKind, Key};

use crate::error::LineageError;
use crate::tree::TreeNo;
use crate::{Branch, CreateOptions, Need, OpenOptions, Store, StoreError, Transaction};

const NODE: usize = 4096;

fn now() -> Timestamp {
    Timestamp::default()
}

pub(crate) fn made() -> (Arc<dyn Device>, Arc<Store>) {
    made_of(32 << 20)
}

/// A new volume of so many bytes.
pub(crate) fn made_of(size: u64) -> (Arc<dyn Device>, Arc<Store>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
    let options = CreateOptions {
        geometry: Geometry::for_device(size, NODE).unwrap(),
        uuid: uuid::Uuid::from_bytes([7; 16]),
        label: String::new(),
        hash_seed: 1,
        node_tag: [5; 8],
        created: now(),
    };
    Store::create(&device, &options).unwrap();
    // However slow the machine is, no estimate of a recovery wants a commit.
    let recover = Duration::from_secs(3600);
    let options = OpenOptions { threads: false, recover, ..OpenOptions::default() };
    let store = Store::open(device.clone(), &options, Arc::new(Counters::default())).unwrap();
    (device, Arc::new(store))
}

/// Puts something into a tree, whatever it means.
pub(crate) fn put(store: &Store, tree: TreeNo, items: &[(Key, Vec<u8>)]) {
    let changes = items.len() as u32;
    let mut room = store.inner.reserve(tree, Need::Grow { changes, blocks: 0 }).unwrap();
    let mut transaction = Transaction::new();
    items.iter().for_each(|(key, value)| transaction.put(*key, value));
    store.inner.apply(tree, transaction, &mut room).unwrap();
}

fn next(store: &Store, next: u64) {
    let item = LineageItem { next, reserved: [0; 8] };
    put(store, TreeNo::SPACE, &[(LineageItem::KEY, item.bytes().to_vec())]);
}

/// No number is given twice: not to a fork, by the log, and not to a snapshot, by a commit.
#[test]
fn a_next_number_that_is_in_use_is_damage() {
    for lie in [2, 3, COUNTER_MAX / 2 + 1, COUNTER_MAX] {
        let (_, store) = made();
        let first = store.snapshot(1, b"first", now()).unwrap();
        let fork = store.fork(first, b"fork", now()).unwrap();
        assert_eq!((first, fork), (2, 3));
        next(&store, lie);
        let answers = [
            store.fork(first, b"b", now()),
            store.snapshot(1, b"b", now()),
            store.fork(1, b"b", now()),
        ];
        for answer in answers {
            let Err(StoreError::Item { what, .. }) = answer else { panic!("{lie}: {answer:?}") };
            assert!(what.contains("lineage"), "{what}");
        }
        assert_eq!(store.trees().unwrap().len(), 3);
        assert_eq!(store.stop_reason(), None);
        next(&store, 4);
        assert_eq!(store.snapshot(1, b"b", now()).unwrap(), 4);
    }
}

/// Names by which nothing is found that is there.
#[test]
fn a_name_that_leads_to_strangers_is_damage() {
    let (_, store) = made();
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    let strangers: Vec<u8> = (500..510).flat_map(u64::to_le_bytes).collect();
    put(&store, TreeNo::SPACE, &[(name_key(0, b"fork"), strangers)]);
    let answer = store.fork(snapshot, b"fork", now());
    assert!(matches!(answer, Err(StoreError::Item { .. })), "they are not there: {answer:?}");
    assert!(store.fork(snapshot, b"other", now()).is_ok());
    assert_eq!(store.stop_reason(), None);
}

/// Two names that have one sum, in each branch.
fn of_one_sum() -> [Vec<u8>; 2] {
    let bits = crc64(&[1]) ^ crc64(&[0]);
    let is_fine = |byte: &u8| *byte > b' ' && !b"/@:\x7f\xc2".contains(byte);
    let differ = [1].into_iter().chain(bits.to_le_bytes());
    let pairs = differ.map(|bits| {
        let byte = (0..=255).find(|byte| is_fine(byte) && is_fine(&(byte ^ bits))).unwrap();
        [byte, byte ^ bits]
    });
    let pairs: Vec<[u8; 2]> = pairs.collect();
    [0, 1].map(|which| pairs.iter().map(|pair| pair[which]).collect())
}

/// A name that has the sum of another is refused where it is given, and where branches would become one: no list of names is ever
/// full, so no promotion stands still for one.
#[test]
fn a_name_with_the_sum_of_another_is_refused() {
    let [one, other] = of_one_sum();
    assert!(one != other && (0..4).all(|of| name_key(of, &one) == name_key(of, &other)));
    let is_refused = |answer: Result<u64, StoreError>| match answer {
        Err(StoreError::Lineage(LineageError::Name(_))) => {}
        answer => panic!("{answer:?}"),
    };
    let (_, store) = made();
    let snapshot = store.snapshot(1, &one, now()).unwrap();
    is_refused(store.snapshot(1, &other, now()));
    let fork = store.fork(snapshot, &one, now()).unwrap();
    is_refused(store.fork(snapshot, &other, now()));
    let of_fork = store.snapshot(fork, &other, now()).unwrap();
    is_refused(store.promote(1, fork, None, now()).map(|()| 0));
    store.rename_tree(of_fork, b"apart").unwrap();
    is_refused(store.promote(1, fork, Some(&other), now()).map(|()| 0));
    store.promote(1, fork, None, now()).unwrap();
    is_refused(store.snapshot(1, &other, now()));
    while store.work_off_deletions(100).unwrap() {}
    assert_eq!(store.failed_deletions(), []);
    assert_eq!(store.find_tree(b"main", Some(b"apart")).unwrap(), of_fork);
}

/// The first branch gets its item, and its name into the list, with the first snapshot.
#[test]
fn the_list_of_the_first_name_may_be_full_or_have_it() {
    let numbers = |of: std::ops::Range<u64>| of.flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let key = name_key(0, MAIN_NAME);
    let (_, store) = made();
    put(&store, TreeNo::SPACE, &[(key, numbers(2..2 + value_max(NODE) as u64 / 8))]);
    let answer = store.snapshot(1, b"s", now());
    assert!(matches!(answer, Err(StoreError::Lineage(LineageError::Name(_)))), "{answer:?}");
    put(&store, TreeNo::SPACE, &[(key, numbers(1..2))]);
    store.snapshot(1, b"s", now()).unwrap();
    assert_eq!(store.find_tree(MAIN_NAME, Some(b"s")).unwrap(), 2);
}

/// A snapshot that has a name or is held stays, though an item says that it is being deleted.
#[test]
fn what_is_kept_is_not_deleted() {
    for is_held in [false, true] {
        let (device, store) = made();
        let key = Key::inode(InodeNo(20));
        put(&store, TreeNo::MAIN, &[(key, vec![1; 40])]);
        let snapshot = store.snapshot(1, b"s", now()).unwrap();
        put(&store, TreeNo::MAIN, &[(key, vec![2; 40])]);
        let (key_of, value) = match is_held {
            false => {
                let walk = WalkItem::at(&WalkPlace::start());
                (WalkItem::key(snapshot), walk.bytes().to_vec())
            }
            true => {
                store.delete_snapshot(snapshot).unwrap();
                let hold = HoldItem { tag: b"mine".to_vec(), created: now() };
                (HoldItem::key(snapshot, b"mine"), hold.encode())
            }
        };
        put(&store, TreeNo::SPACE, &[(key_of, value)]);
        store.commit().unwrap();
        drop(store);
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let store = Store::open(device, &options, Arc::default()).unwrap();
        assert!(matches!(store.work_off_deletions(100), Ok(false)));
        let failed = store.failed_deletions();
        assert!(failed.len() == 1 && failed[0].1.contains("a name or holds"), "{failed:?}");
        let of = store.inner.open_tree(snapshot).unwrap();
        assert_eq!(store.inner.get(of.no, &key).unwrap(), Some(vec![1; 40]));
    }
}

/// Extents that no writer makes, in a snapshot that is deleted and in the tree beside it: an answer.
#[test]
fn extents_that_cannot_be_are_met_by_a_deletion() {
    let extent = |block: u64, count: u64, written: bool| {
        let sums = if written { vec![1; count as usize] } else { Vec::new() };
        let blocks = BlockRange::new(BlockNo(block), count);
        Extent { birth: holdfast_base::Epoch(1), ..Extent::new(blocks, sums) }.encode()
    };
    let first = 4000;
    let extents = [
        (0, extent(first, 125, true)),
        (0, extent(first, u32::MAX.into(), false)),
        (0, extent((1 << 56) - 1, u32::MAX.into(), false)),
        (u64::MAX - 4095, extent(first, 9, false)),
        (u64::MAX, extent(first, u32::MAX.into(), false)),
        (17, extent(first, 40_000, false)),
    ];
    for (case, (offset, value)) in extents.iter().enumerate() {
        for is_shared in [false, true] {
            let (_, store) = made();
            let key = Key::new(InodeNo(20), ItemKind::Extent, *offset);
            // Another one below it, so that the tree beside is asked for what overlaps.
            let below =
                Key::new(InodeNo(20), ItemKind::Extent, offset / BLOCK_BYTES / 2 * BLOCK_BYTES);
            put(&store, TreeNo::MAIN, &[(below, extent(first, 3, false)), (key, value.clone())]);
            let snapshot = store.snapshot(1, b"s", now()).unwrap();
            let changed = if is_shared { extent(first + 1, 70_000, false) } else { value.clone() };
            put(&store, TreeNo::MAIN, &[(key, changed), (Key::inode(InodeNo(9)), vec![1])]);
            store.delete_snapshot(snapshot).unwrap();
            let used = store.space_use();
            let answer = store.work_off_deletions(100);
            assert!(matches!(answer, Ok(false)), "case {case}, shared {is_shared}: {answer:?}");
            assert_eq!(store.stop_reason(), None, "case {case}");
            assert!(store.space_use().free <= used.free + 8, "case {case}: only nodes are freed");
            let main = Branch::main(store.clone());
            assert!(main.get(&Key::inode(InodeNo(9))).unwrap().is_some());
        }
    }
}

/// What the next commit copies for the roots of branches is kept from the first change of each on, and given back by the commit.
#[test]
fn each_branch_that_has_changed_keeps_room_for_its_root() {
    let (_, store) = made();
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    let kept = || store.inner.space.lock().promises.roots.nodes();
    let levels = || u64::from(store.inner.forest.read().root(TreeNo::SPACE).level) + 1;
    for number in 0..5u64 {
        let name = format!("f{number}").into_bytes();
        store.fork(snapshot, &name, now()).unwrap();
    }
    store.commit().unwrap();
    assert_eq!(kept(), 0);
    for number in 0..5u64 {
        let fork = Branch::open(store.clone(), format!("f{number}").as_bytes(), None).unwrap();
        for inode in 0..3 {
            put(&store, fork_tree(&store, &fork), &[(Key::inode(InodeNo(20 + inode)), vec![1])]);
        }
        assert_eq!(kept(), (number + 1) * levels());
    }
    store.commit().unwrap();
    assert_eq!(kept(), 0);
}

fn fork_tree(store: &Store, fork: &Branch) -> TreeNo {
    store.inner.forest.read().trees.find(fork.number()).unwrap()
}
