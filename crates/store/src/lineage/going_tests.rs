//! Branches with many snapshots that are deleted, or become another one: step by step, and as one for all that look.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, Timestamp};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::{HoldItem, TreeItem, TreeKind};
use holdfast_format::{ItemKind, Key};

use super::going::SOME;
use super::lies_tests::{made, put};
use super::plan::{Plan, PlanResult, trees_span};
use crate::error::LineageError;
use crate::tree::TreeNo;
use crate::{Branch, OpenOptions, Store, StoreError};

/// Less than the items of the lineage take.
const CACHE: usize = 64 << 10;

pub(super) fn now() -> Timestamp {
    Timestamp::default()
}

pub(super) fn open(device: &Arc<dyn Device>) -> Arc<Store> {
    let options = OpenOptions { threads: false, cache_bytes: CACHE, ..OpenOptions::default() };
    let counters = Arc::new(Counters::default());
    Arc::new(Store::open(device.clone(), &options, counters).unwrap())
}

/// A volume with a branch `work` and that many snapshots of it, and the numbers of all.
pub(super) fn with_snapshots(count: u64) -> (Arc<dyn Device>, u64, Vec<u64>) {
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

/// Snapshots that have a name and are of this branch still, as their items say.
pub(super) fn named_of(store: &Store, branch: u64) -> usize {
    let mut named = 0;
    let (from, to) = trees_span();
    let scanned = store.inner.scan(TreeNo::SPACE, &from, &to, &mut |key, value| {
        if key.kind == ItemKind::Tree {
            let item = TreeItem::decode(value).unwrap();
            let is_snapshot = item.kind == TreeKind::Snapshot && item.branch == branch;
            named += usize::from(is_snapshot && !item.name.is_empty());
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

pub(super) fn is_gone<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    use LineageError::{Gone, NoBranch, NoSnapshot};
    let Err(StoreError::Lineage(NoBranch(_) | NoSnapshot(_) | Gone(_))) = answer else {
        panic!("{answer:?}");
    };
}

/// With the first step nothing is seen of the branch and its snapshots, in this life and in the next one, and nothing can be made of
/// them. No step changes the items of more than some. Each life goes on with it, and in the end nothing is left.
#[test]
fn a_branch_goes_step_by_step() {
    let (device, work, taken) = with_snapshots(3 * SOME as u64 + 5);
    let store = open(&device);
    store.delete_branch(work, now()).unwrap();
    assert_eq!(named_of(&store, work), taken.len(), "the commit is as large for one snapshot");
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
            let now = named_of(&store, work);
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
    assert_eq!((all.len(), named_of(&store, work)), (1, 0), "{all:?}");
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
    let mut left = named_of(&store, work);
    while left > 0 {
        let before = reads();
        store.work_off_deletions(1).unwrap();
        let read = reads() - before;
        let now = named_of(&store, work);
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

pub(super) fn exists<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Lineage(LineageError::Exists(_)))), "{answer:?}");
}

/// All is seen with the commit, in this life and in the next one: the snapshots are those of the branch, and change as such. No step
/// changes the items of more than some, and each life goes on with it, be its steps in the log or in a commit.
#[test]
fn a_fork_with_many_snapshots_is_promoted_step_by_step() {
    let (device, work, taken) = with_snapshots(3 * SOME as u64 + 5);
    let store = open(&device);
    store.promote(1, work, Some(b"before"), now()).unwrap();
    assert_eq!(named_of(&store, work), taken.len(), "the commit is as large for one snapshot");
    drop(store);
    let mut left = taken.len();
    for life in 0.. {
        let store = open(&device);
        is_gone(store.find_tree(b"work", None));
        is_gone(store.find_snapshot(work, b"s7"));
        assert!(store.tree(work).is_err());
        for at in [7, taken.len() / 2, taken.len() - 1] {
            assert_eq!(
                store.find_tree(b"main", Some(format!("s{at}").as_bytes())).unwrap(),
                taken[at]
            );
            assert_eq!(store.tree(taken[at]).unwrap().branch, 1);
            exists(store.snapshot(1, format!("s{at}").as_bytes(), now()));
        }
        let seen = store.trees().unwrap().into_iter().filter(|tree| !tree.is_deleted);
        assert_eq!(
            seen.filter(|tree| tree.item.branch == 1).count(),
            taken.len() + 1 + usize::from(life > 0)
        );
        if life == 0 {
            // One that its step has not come to.
            store.rename_tree(taken[0], b"other").unwrap();
            store.hold(taken[2], b"mine", now()).unwrap();
            store.delete_snapshot(taken[1]).unwrap();
            store.snapshot(1, b"s0", now()).unwrap();
            store.snapshot(1, b"s1", now()).unwrap();
            left -= 2;
            assert_eq!(named_of(&store, work), left);
        }
        assert_eq!(store.find_snapshot(1, b"other").unwrap(), taken[0]);
        assert_eq!(store.inner.look_at(|plan| plan.holds(taken[2])).unwrap().0.len(), 1);
        for _ in 0..SOME {
            store.work_off_deletions(1).unwrap();
            let now = named_of(&store, work);
            assert!(left - now <= SOME, "{left} and then {now}");
            if std::mem::replace(&mut left, now) != now {
                break;
            }
        }
        let goes_on = left > 0 || store.work_off_deletions(50).unwrap();
        // What a life has done is in a commit, or in the log.
        let last = store.inner.hold(taken[3], format!("{life}").as_bytes(), now()).unwrap().lsn;
        match life % 2 {
            0 => store.inner.commit_upto(last).unwrap(),
            _ => drop(store.inner.sync(last, InodeNo::ROOT).unwrap()),
        }
        is_sound(&device);
        if !goes_on {
            break;
        }
    }
    let store = open(&device);
    while store.work_off_deletions(50).unwrap() {}
    let going = store.inner.look_at(|plan| plan.children(0, 9)).unwrap().0;
    assert_eq!(going, [], "no branch goes any more");
    assert_eq!(store.inner.look_at(|plan| plan.children(1, 9)).unwrap().0, []);
    store.checkpoint().unwrap();
    is_sound(&device);
}

/// A branch takes in one fork's snapshots at a time, and all before it goes itself; one of the same name is refused at once.
#[test]
fn what_joins_a_branch_follows_it_wherever_that_goes() {
    let (device, work, taken) = with_snapshots(2 * SOME as u64);
    let store = open(&device);
    let [next, last] = [b"next", b"last"].map(|name| store.fork(1, name, now()).unwrap());
    let own = store.snapshot(next, b"s3", now()).unwrap();
    exists(store.promote(next, work, None, now()));
    assert_eq!(store.find_snapshot(work, b"s3").unwrap(), taken[3], "nothing has happened");
    exists(store.promote(next, work, Some(b"s9"), now()));
    store.rename_tree(own, b"own").unwrap();
    exists(store.promote(next, work, Some(b"s9"), now()));
    store.promote(next, work, None, now()).unwrap();
    assert_eq!(named_of(&store, work), taken.len());
    store.promote(last, next, None, now()).unwrap();
    assert_eq!((named_of(&store, work), named_of(&store, next)), (0, taken.len() + 1));
    let more = store.fork(1, b"more", now()).unwrap();
    store.snapshot(more, b"more", now()).unwrap();
    store.promote(last, more, None, now()).unwrap();
    assert_eq!((named_of(&store, next), named_of(&store, more)), (0, 1));
    for (name, number) in [("own", own), ("s3", taken[3])] {
        assert_eq!(store.find_snapshot(last, name.as_bytes()).unwrap(), number);
    }
    assert!(store.find_snapshot(last, b"more").is_ok());
    store.delete_branch(last, now()).unwrap();
    is_gone(store.find_tree(b"last", Some(b"s3")));
    while store.work_off_deletions(50).unwrap() {}
    let all = store.inner.trees().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    store.checkpoint().unwrap();
    is_sound(&device);
}

/// Cold, and with less memory than the items take: it reads a few nodes for each snapshot, and the commit as many for one as for all.
#[test]
fn a_promotion_needs_little_memory() {
    const COUNT: u64 = 2000;
    let (device, work, taken) = with_snapshots(COUNT);
    let store = open(&device);
    let before = store.inner.counters.nodes_read.get();
    store.promote(1, work, None, now()).unwrap();
    let read = store.inner.counters.nodes_read.get() - before;
    assert!(read < 8 * COUNT, "{read} nodes were read of {COUNT} snapshots");
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
    assert!(goes_on.is_some() && named_of(&store, work) == 3, "{goes_on:?}");
    assert!(store.inner.tree_item(taken[1]).is_ok());
}

/// A snapshot of the branch that comes between two parts of the look has a name of its own, or one of both is refused.
#[test]
fn a_snapshot_beside_a_promotion_has_a_name_of_its_own() {
    let (device, work, taken) = with_snapshots(2 * SOME as u64 + 5);
    let store = open(&device);
    for at in (0..taken.len()).step_by(9) {
        let name = format!("s{at}").into_bytes();
        let start = std::sync::Barrier::new(2);
        let (promoted, own) = std::thread::scope(|scope| {
            let promotes = scope.spawn(|| {
                start.wait();
                store.promote(1, work, None, now())
            });
            start.wait();
            let own = store.snapshot(1, &name, now());
            (promotes.join().unwrap(), own)
        });
        match (promoted, own) {
            (Ok(()), own) => {
                assert_eq!(store.find_snapshot(1, &name).unwrap(), taken[at]);
                return exists(own);
            }
            (promoted, Ok(own)) => {
                exists(promoted);
                store.delete_snapshot(own).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Others wait for a commit: what it changes is as much for a few snapshots of a branch as for many.
#[test]
fn a_commit_changes_as_much_for_a_few_snapshots_as_for_many() {
    let [few, many] = [2, 5 * SOME as u64].map(|count| {
        let (device, work, taken) = with_snapshots(count);
        let store = open(&device);
        let changes = |plan: &dyn Fn(&mut Plan<'_>) -> PlanResult<u64>| {
            store.inner.look_at(plan).unwrap().1.changes.len()
        };
        [
            changes(&|plan| plan.take(work, b"more", now())),
            changes(&|plan| plan.roll_back(work, taken[0], Some(b"kept"), now())),
            changes(&|plan| plan.promote(1, work, true, Some(b"kept"), now())),
            changes(&|plan| plan.delete_branch(work, true, now())),
        ]
    });
    assert_eq!(few, many);
}
