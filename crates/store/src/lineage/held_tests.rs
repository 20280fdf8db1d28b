//! Reads and writes of the device under the lineage's lock, which all other users of the lock wait for.

use std::sync::{Arc, OnceLock, Weak};

use holdfast_base::{BlockNo, InodeNo};
use holdfast_device::{Device, DeviceError, forward};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::{ItemKind, Key};
use holdfast_sync::atomic::{AtomicU64, Ordering};

use super::deleter::Next;
use super::going::SOME;
use super::going_tests::{named_of, now, open, with_snapshots};
use super::lies_tests::{made, put};
use crate::commit::Committed;
use crate::sealed::LeftOver;
use crate::tree::TreeNo;
use crate::{Branch, Need, Store, StoreError, Transaction};

/// Calls of one kind: those for which the lineage is held, and all.
#[derive(Debug, Default)]
struct Calls {
    held: AtomicU64,
    all: AtomicU64,
}

impl Calls {
    fn count(&self, is_held: bool) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(is_held.into(), Ordering::Relaxed);
    }

    /// What has come since this was asked last.
    fn take(&self) -> [u64; 2] {
        [&self.held, &self.all].map(|of| of.swap(0, Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Watching {
    under: Arc<dyn Device>,
    store: OnceLock<Weak<Store>>,
    reads: Calls,
    writes: Calls,
    /// Writes of superblocks: the end of a checkpoint.
    superblocks: Calls,
}

impl Watching {
    /// A store on what is watched.
    fn over(under: Arc<dyn Device>) -> (Arc<Watching>, Arc<Store>) {
        let [reads, writes, superblocks] = Default::default();
        let store = OnceLock::new();
        let watching = Arc::new(Watching { under, store, reads, writes, superblocks });
        let device: Arc<dyn Device> = watching.clone();
        let store = open(&device);
        watching.store.set(Arc::downgrade(&store)).unwrap();
        (watching, store)
    }

    fn is_held(&self) -> Option<bool> {
        let store = self.store.get().and_then(Weak::upgrade)?;
        Some(store.inner.lineage.try_lock().is_none())
    }
}

impl Device for Watching {
    forward!(under: flush, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if let Some(is_held) = self.is_held() {
            self.reads.count(is_held);
        }
        self.under.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), DeviceError> {
        if let Some(is_held) = self.is_held() {
            self.writes.count(is_held);
            if SUPERBLOCK_SLOTS.iter().any(|slot| slot.0 * 4096 == at) {
                self.superblocks.count(is_held);
            }
        }
        self.under.write(at, from)
    }
}

/// A commit is wanted before the next change: the lineage's lock is free while that is written, before a change by the
/// log and before a step of a branch that goes.
#[test]
fn a_commit_before_a_change_is_made_before_the_lineage_is_locked() {
    let (device, work, taken) = with_snapshots(2 * SOME as u64 + 5);
    let (watching, store) = Watching::over(device);
    let own = store.snapshot(1, b"own", now()).unwrap();
    let writes_of = |what: &str, change: &dyn Fn()| {
        store.hold(own, b"mine", now()).unwrap();
        store.unhold(own, b"mine").unwrap();
        store.inner.throttle.want_commit();
        let commits = store.inner.counters.commits.get();
        watching.writes.take();
        change();
        let [held, all] = watching.writes.take();
        assert!(store.inner.counters.commits.get() > commits && all > 0, "{what}: no commit");
        assert_eq!(held, 0, "{what}: of {all} writes");
    };
    writes_of("a hold", &|| store.hold(taken[0], b"mine", now()).unwrap());
    store.unhold(taken[0], b"mine").unwrap();
    store.delete_branch(work, now()).unwrap();
    for _ in 0..20 {
        writes_of("a branch that goes", &|| assert!(store.work_off_deletions(1).unwrap()));
    }
    assert!(named_of(&store, work) < taken.len(), "it has gone on");
}

/// Another caller's checkpoint is left over when a change has its turn: it is completed while the lineage is free.
#[test]
fn a_checkpoint_that_is_left_over_is_completed_before_the_lineage_is_locked() {
    let (device, store) = made();
    drop(store);
    let (watching, store) = Watching::over(device);
    let inner = &store.inner;
    let leave_over = || {
        put(&store, TreeNo::MAIN, &[(Key::inode(InodeNo(40)), vec![1])]);
        let mut journal = inner.journal.lock();
        let done = inner.commit(&mut journal, true, None).unwrap();
        let Committed::Done(Some(sealed)) = done else { panic!("nothing was sealed") };
        *inner.left_over.lock() = Some(LeftOver::of(*sealed));
    };
    let mut turns = 0;
    let made = inner.with_sealing_room(|turn| {
        turns += 1;
        if turns == 1 {
            leave_over();
        }
        let mut walks = inner.lineage.lock();
        inner.seal_locked(&mut walks, turn, &mut |plan| plan.take(1, b"own", now()))
    });
    made.unwrap();
    let [held, all] = watching.superblocks.take();
    assert!(all > held, "{held} of {all} superblocks");
    assert_eq!(turns, 2);
}

#[test]
fn a_list_is_read_while_others_have_the_lineage() {
    let (device, ..) = with_snapshots(6 * SOME as u64);
    let (watching, store) = Watching::over(device);
    assert!(store.trees().unwrap().len() > 6 * SOME);
    let [held, all] = watching.reads.take();
    assert!(held == 0 && all > 10, "{held} of {all} reads");
}

/// What others change while it is read is in it, or not, as if it had been read at its end.
#[test]
fn a_list_is_of_the_moment_in_which_it_ends() {
    let (device, work, taken) = with_snapshots(SOME as u64 + 5);
    let store = open(&device);
    let gone = store.fork(taken[9], b"gone", now()).unwrap();
    store.snapshot(gone, b"s", now()).unwrap();
    let closed = store.fork(taken[8], b"closed", now()).unwrap();
    let branch = Branch::open(store.clone(), b"closed", None).unwrap();
    let look = store.inner.lineage.lock().look_begins();
    let list = store.inner.list(&look).unwrap();
    let tree = store.inner.forest.read().trees.find(closed).unwrap();
    let items = (0..20).map(|number| (Key::inode(InodeNo(90 + number)), vec![1; 1000]));
    put(&store, tree, &items.collect::<Vec<_>>());
    drop(branch);
    store.checkpoint().unwrap();
    store.inner.give_back_memory();
    assert!(store.inner.forest.read().trees.find(closed).is_none(), "it is open still");
    store.hold(taken[0], b"mine", now()).unwrap();
    store.rename_tree(taken[1], b"other").unwrap();
    store.delete_snapshot(taken[3]).unwrap();
    while store.work_off_deletions(9).unwrap() {}
    store.fork(taken[4], b"fork", now()).unwrap();
    store.delete_snapshot(taken[5]).unwrap();
    store.limit(work, 1 << 20).unwrap();
    store.delete_branch(gone, now()).unwrap();
    store.promote(1, work, Some(b"was"), now()).unwrap();
    store.work_off_deletions(1).unwrap();
    let ended = store.inner.list_of_now(list, look).unwrap();
    let [ended, anew] = [ended, store.trees().unwrap()].map(|list| format!("{list:#?}"));
    assert_eq!(ended, anew);
}

/// Deletions that wait are passed over some at a time.
#[test]
fn deletions_that_wait_are_looked_at_some_at_a_time() {
    let (device, _, taken) = with_snapshots(SOME as u64 + 5);
    let store = open(&device);
    for number in &taken[..taken.len() - 1] {
        store.fork(*number, format!("f{number}").as_bytes(), now()).unwrap();
        store.delete_snapshot(*number).unwrap();
    }
    drop(store);
    let (watching, store) = Watching::over(device);
    store.inner.find_deletions(&mut None).unwrap();
    assert_eq!(watching.reads.take()[0], 0, "they are found while others have the lineage");
    let next = store.inner.next_walk(&mut store.inner.lineage.lock(), &mut None).unwrap();
    assert!(matches!(next, Next::Others));
    assert_eq!(store.inner.counters.deletions_looked_at.get(), SOME as u64);
    assert!(!store.work_off_deletions(9).unwrap(), "all wait");
    // And the snapshot that the branch was made of.
    assert_eq!(store.inner.counters.deletions_looked_at.get(), taken.len() as u64);
}

/// Takes all blocks that data can have.
fn fill(branch: &Branch) {
    for want in [512, 64, 8, 1] {
        for number in 0.. {
            let need = Need::Grow { changes: 1, blocks: want };
            let mut room = match branch.reserve(need) {
                Ok(room) => room,
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            };
            let mut transaction = Transaction::new();
            let key = Key::new(InodeNo(50 + want), ItemKind::Extent, number * 4096 * want);
            let placed = branch.allocate(&mut room, want, Some(BlockNo(0))).unwrap();
            let extent = transaction.publish_unwritten(placed);
            transaction.put(key, extent.encode());
            match branch.apply(transaction, &mut room) {
                Err(StoreError::NoSpace) => break,
                done => drop(done.unwrap()),
            }
        }
    }
}

/// Where a volume is full, room for a change of the lineage, or a step of a deletion, comes with a checkpoint. None is made, and none is
/// completed that the last change has left, while the lineage is held.
#[test]
fn room_is_made_while_others_have_the_lineage() {
    let (device, store) = made();
    drop(store);
    let (watching, store) = Watching::over(device);
    let name = |number: u64| format!("{number:0>200}").into_bytes();
    let taken = (0..1200).map(|number| store.snapshot(1, &name(number), now()).unwrap());
    let taken: Vec<u64> = taken.collect();
    fill(&Branch::main(store.clone()));
    watching.superblocks.take();
    for number in &taken {
        store.delete_snapshot(*number).unwrap();
    }
    let [held, all] = watching.superblocks.take();
    assert!(held == 0 && all > 0, "names: {held} of {all} superblocks");
    while store.work_off_deletions(5000).unwrap() {}
    let [held, all] = watching.superblocks.take();
    assert!(held == 0 && all > 0, "deletions: {held} of {all} superblocks");
    assert_eq!(store.trees().unwrap().len(), 1, "only main is left");
}
