//! Branches with many snapshots that are deleted: step by step, and as one for all who look.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, Timestamp};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::{HoldItem, TreeItem, TreeKind};
use holdfast_format::{ItemKind, Key};

use super::going::SOME;
use super::lies_tests::{made, put};
use super::plan::trees_span;
use crate::error::LineageError;
use crate::tree::TreeNo;
use crate::{Branch, OpenOptions, Store, StoreError};

/// Less than the items of the lineage take.
const CACHE: usize = 64 << 10;

fn now() -> Timestamp {
    Timestamp::default()
}

fn open(device: &Arc<dyn Device>) -> Arc<Store> {
    let options = OpenOptions { threads: false, cache_bytes: CACHE, ..OpenOptions::default() };
    let counters = Arc::new(Counters::default());
    Arc::new(Store::open(device.clone(), &options, counters).unwrap())
}

/// A volume with a branch `work` and that many snapshots of it, and the numbers of all.
fn with_snapshots(count: u64) -> (Arc<dyn Device>, u64, Vec<u64>) {
    let (device, store) = made();
    let work = store.fork(1, b"work", now()).unwrap();
    let branch = Branch::open(store.clone(), b"work", None).unwrap();
    let taken = (0..count).map(|number| {
        let tree = store.inner.forest.read().trees.find(work).unwrap();
        put(&store, tree, &[(Key::inode(InodeNo(20 + number % 7)), vec![number as u8])]);
        store.snapshot(work, format!("s{number}").as_bytes(), now()).unwrap()
    });
    let taken = taken.collect();
    drop(branch);
    store.checkpoint().unwrap();
    (device, work, taken)
}

/// Snapshots that have their names still, as their items say.
fn named(store: &Store) -> usize {
    let mut named = 0;
    let (from, to) = trees_span();
    let scanned = store.inner.scan(TreeNo::SPACE, &from, &to, &mut |key, value| {
        if key.kind == ItemKind::Tree {
            let item = TreeItem::decode(value).unwrap();
            named += usize::from(item.kind == TreeKind::Snapshot && !item.name.is_empty());
        }
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    named
}

fn is_sound(device: &Arc<dyn Device>) {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::from_image(&bytes));
    let report = holdfast_check::check(&*copy, &Default::default()).unwrap();
    // What is in the trees are no files.
    let wrong = report.findings.iter().filter(|found| !matches!(found.id, 300..600));
    assert!(wrong.clone().next().is_none(), "{:?}", wrong.collect::<Vec<_>>());
}

fn is_gone<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Lineage(LineageError::NotFound(_)))), "{answer:?}");
}

/// With the first step nothing is seen of the branch and its snapshots, in this life and in the next one, and nothing can be made of
/// them. No step changes the items of more than some. Each life goes on with it, and in the end nothing is left.
#[test]
fn a_branch_goes_step_by_step() {
    let (device, work, taken) = with_snapshots(3 * SOME as u64 + 5);
    let store = open(&device);
    store.delete_branch(work, now()).unwrap();
    assert_eq!(named(&store), taken.len(), "the commit is as large for one snapshot");
    drop(store);
    let mut left = taken.len();
    for life in 0.. {
        let store = open(&device);
        let seen = store.trees().unwrap().into_iter().filter(|tree| !tree.is_deleted);
        assert_eq!(seen.map(|tree| tree.number).collect::<Vec<_>>(), [1]);
        is_gone(store.find_tree(b"work", None));
        is_gone(store.tree(work));
        for number in [taken[0], taken[taken.len() / 2]] {
            is_gone(store.fork(number, b"fork", now()));
            is_gone(store.hold(number, b"mine", now()));
            is_gone(store.rename_tree(number, b"other"));
            is_gone(store.delete_snapshot(number));
            is_gone(store.roll_back(1, number, None, now()));
            assert!(store.pin_whole(number).unwrap().is_none());
            assert_eq!(store.tree(number).map_or(Vec::new(), |item| item.name), b"");
        }
        if life == 0 {
            let again = store.fork(1, b"work", now()).unwrap();
            store.delete_branch(again, now()).unwrap();
        }
        let mut goes_on = true;
        for _ in 0..40 {
            goes_on = store.work_off_deletions(1).unwrap();
            let now = named(&store);
            assert!(left - now <= SOME, "{left} and then {now} snapshots have names");
            left = now;
            if !goes_on {
                break;
            }
        }
        store.checkpoint().unwrap();
        is_sound(&device);
        if !goes_on {
            break;
        }
    }
    let store = open(&device);
    let all = store.inner.trees().unwrap();
    assert_eq!((all.len(), named(&store)), (1, 0), "{all:?}");
    let going = store.inner.look_at(|plan| plan.children(0, 9)).unwrap().0;
    assert_eq!(going, [], "no branch goes any more");
}

/// Cold, and with less memory than the items take: each node is read a few times, and a step reads what it changes.
#[test]
fn a_branch_goes_with_little_memory() {
    const COUNT: u64 = 2000;
    let (device, work, _) = with_snapshots(COUNT);
    let store = open(&device);
    let reads = || store.inner.counters.nodes_read.get();
    let before = reads();
    store.delete_branch(work, now()).unwrap();
    let read = reads() - before;
    assert!(read < COUNT, "{read} nodes were read of {COUNT} snapshots");
    let mut left = named(&store);
    while left > 0 {
        let before = reads();
        store.work_off_deletions(1).unwrap();
        let read = reads() - before;
        let now = named(&store);
        let most = if now < left { 8 * SOME as u64 } else { 64 };
        assert!(read < most, "{read} nodes were read in a step, {left} and {now} have names");
        left = now;
    }
}

/// A fork that comes between two parts of the look keeps the snapshot, or is refused.
#[test]
fn a_fork_beside_a_deletion_is_refused_or_keeps_the_branch() {
    let (device, work, taken) = with_snapshots(2 * SOME as u64 + 5);
    let store = open(&device);
    for (round, snapshot) in taken.iter().enumerate().step_by(9) {
        let name = format!("fork{round}").into_bytes();
        let start = std::sync::Barrier::new(2);
        let (gone, fork) = std::thread::scope(|scope| {
            let deletes = scope.spawn(|| {
                start.wait();
                store.delete_branch(work, now())
            });
            start.wait();
            let fork = store.fork(*snapshot, &name, now());
            (deletes.join().unwrap(), fork)
        });
        match (gone, fork) {
            (Ok(()), fork) => return is_gone(fork),
            (Err(StoreError::Lineage(LineageError::HasForks { .. })), Ok(fork)) => {
                store.delete_branch(fork, now()).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A promotion of a fork with many snapshots, cold, is planned a few times, and not once for each node that it misses.
#[test]
fn a_promotion_misses_nodes_side_by_side() {
    let (device, work, taken) = with_snapshots(1000);
    let store = open(&device);
    let mut tries = 0;
    let promoted = store.inner.seal_with(&mut |plan| {
        tries += 1;
        plan.promote(1, work, &taken, None, now())
    });
    promoted.unwrap();
    assert!(tries < 30, "it was planned {tries} times");
    assert_eq!(store.find_snapshot(1, b"s7").unwrap(), taken[7]);
}

/// A hold that is there nevertheless, on a damaged volume, ends no data: the branch does not go on, and the deletion beside it does.
#[test]
fn a_held_snapshot_does_not_follow_its_branch() {
    let (device, work, taken) = with_snapshots(3);
    let store = open(&device);
    store.delete_branch(work, now()).unwrap();
    let hold = HoldItem { tag: b"mine".to_vec(), created: now() };
    put(&store, TreeNo::SPACE, &[(HoldItem::key(taken[1], b"mine"), hold.encode())]);
    let goes_on = (0..40).find(|_| !store.work_off_deletions(1).unwrap());
    assert!(goes_on.is_some() && named(&store) == 3, "{goes_on:?}");
    assert!(store.inner.tree_item(taken[1]).is_ok());
}
