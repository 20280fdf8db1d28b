//! Branches and snapshots: what has grown out of what, and how that changes.
//!
//! ```text
//!  plan (what the items become) -> by the log:      fork of a snapshot, names, holds, a deletion begins
//!                               -> with a commit:   snapshot, rollback, a branch goes
//!  going (its snapshots follow, step by step): by the log
//!  walk (a deletion, step by step): in memory, durable with the next commit
//! ```
//!
//! Rules S1 to S9 are in docs/BRANCHES.md. Here is what carries them: items in the space tree
//! ([`holdfast_format::item::lineage`]), and of each open tree what it owns ([`crate::tree::open::Ancestry`]).

mod beside;
mod going;
mod list;
pub(crate) mod look;
mod carried_roots;
mod names;
mod new_branch;
mod plan;
mod seal;
mod since;
mod deleter;
mod deleter_data;
mod deleter_descent;
mod deleters;
mod deleter_cursor;

pub(crate) use deleters::Walks;
pub use going::LookedAt;
pub use look::TreeInfo;
pub(crate) use names::NameListener;
pub use names::{NameChange, SnapshotNamed};
pub(crate) use seal::Sealing;

use holdfast_base::{Lsn, Timestamp};
use holdfast_format::ItemKind;
use holdfast_sync::atomic::Ordering;

use crate::space::promise::LINEAGE_CHANGES;
use crate::transaction::Changes;
use crate::tree::TreeNo;
use crate::{Inner, Need, Reservation, Result, Transaction};
use plan::{Items, Plan, PlanResult};

/// What a caller is told of a change that waits for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// The number of the branch or snapshot.
    pub(crate) number: u64,
    /// It is durable with this operation.
    pub(crate) lsn: Lsn,
}

impl Inner {
    /// Carries out what `plan` makes of the lineage, as an ordinary operation.
    fn by_the_log(&self, plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>) -> Result<Made> {
        self.by_the_log_for(Need::Shrink { changes: LINEAGE_CHANGES }, plan)
    }

    fn by_the_log_for(
        &self,
        need: Need,
        mut plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> Result<Made> {
        let mut room = self.reserve(TreeNo::SPACE, need)?;
        self.with_room(|| self.log_change(&mut self.lineage.lock(), &mut room, &mut plan))
    }

    /// The same, under the lock, with room for it. What was reserved may be too little.
    fn log_change(
        &self,
        walks: &mut Walks,
        room: &mut Reservation,
        plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> Result<Made> {
        let planned = self.plan(plan)?;
        let changes: Changes = planned.changes;
        let mut before = Items::new();
        for change in changes.iter().filter(|change| change.key.kind == ItemKind::Tree) {
            before.insert(change.key, self.get(TreeNo::SPACE, &change.key)?);
        }
        let named = names::named(&changes, &before);
        walks.changes(changes.iter().map(|change| change.key));
        let transaction = Transaction { changes, ..Transaction::default() };
        let lsn = self.apply_now(TreeNo::SPACE, transaction, room)?;
        self.walks_begin(walks, &planned.begun);
        self.lineage_changed(named);
        Ok(Made { number: planned.number, lsn })
    }

    /// A change of branches and snapshots is seen, which has made this of names. Bumps the generation: results cached under an older one are stale.
    fn lineage_changed(&self, named: Vec<SnapshotNamed>) {
        self.lineage_changes.fetch_add(1, Ordering::Release);
        named.into_iter().for_each(|of| self.name_listener.tell(&NameChange::Snapshot(of)));
    }

    /// Makes a branch out of a snapshot (S3).
    pub(crate) fn fork(&self, snapshot: u64, name: &[u8], now: Timestamp) -> Result<Made> {
        let need = Need::Grow { changes: LINEAGE_CHANGES, blocks: 0 };
        self.by_the_log_for(need, |plan| plan.fork(snapshot, name, now))
    }

    /// Gives a branch or snapshot another name.
    pub(crate) fn rename_tree(&self, number: u64, name: &[u8]) -> Result<Made> {
        self.by_the_log(|plan| plan.rename(number, name))
    }

    /// Holds a snapshot under a tag: a snapshot that is held is not deleted.
    pub(crate) fn hold(&self, snapshot: u64, tag: &[u8], now: Timestamp) -> Result<Made> {
        self.by_the_log(|plan| plan.hold(snapshot, tag, now))
    }

    /// Ends a hold.
    pub(crate) fn unhold(&self, snapshot: u64, tag: &[u8]) -> Result<Made> {
        self.by_the_log(|plan| plan.unhold(snapshot, tag))
    }

    /// Limits what a branch may refer to; 0: no limit.
    pub(crate) fn limit(&self, branch: u64, blocks: u64) -> Result<Made> {
        let made = self.by_the_log(|plan| plan.limit(branch, blocks))?;
        // Read again: another call may have come between.
        let _one = self.lineage.lock();
        let item = self.tree_item(branch)?;
        let mut forest = self.forest.write();
        if let Some(tree) = forest.trees.find(branch) {
            forest.trees.get_mut(tree).limit = item.limit;
        }
        Ok(made)
    }

    /// Begins the deletion of a snapshot (S4): its name is gone.
    pub(crate) fn delete_snapshot(&self, snapshot: u64) -> Result<Made> {
        let need = Need::Delete { changes: LINEAGE_CHANGES };
        self.by_the_log_for(need, |plan| plan.delete_snapshot(snapshot))
    }
}

#[cfg(test)]
mod evicted_tests;
#[cfg(test)]
#[cfg(not(feature = "steered"))]
mod going_tests;
#[cfg(test)]
#[cfg(not(feature = "steered"))]
mod held_tests;
#[cfg(test)]
#[cfg(not(feature = "steered"))]
mod looked_tests;
#[cfg(test)]
pub(crate) mod lies_tests;
#[cfg(test)]
mod open_tests;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_base::counters::Counters;
    use holdfast_base::{InodeNo, Timestamp};
    use holdfast_device::{Device, MemoryDevice};
    use holdfast_format::{Geometry, Key};

    use super::lies_tests;
    use crate::{Branch, CreateOptions, Need, OpenOptions, Store, Transaction};

    fn open(device: &Arc<dyn Device>) -> Arc<Store> {
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let counters = Arc::new(Counters::default());
        Arc::new(Store::open(device.clone(), &options, counters).unwrap())
    }

    fn put(store: &Arc<Store>, no: u64) {
        let main = Branch::main(store.clone());
        let mut room = main.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
        let mut transaction = Transaction::new();
        transaction.put(Key::inode(InodeNo(no)), [1]);
        main.apply(transaction, &mut room).unwrap();
    }

    /// A volume with `main`, which has changed between two snapshots and behind the second.
    fn with_two_snapshots() -> (Arc<dyn Device>, Arc<Store>, [u64; 2]) {
        let (device, store) = lies_tests::made();
        let taken = [b"first".as_slice(), b"second"].map(|name| {
            put(&store, 20 + name.len() as u64);
            store.snapshot(1, name, Timestamp::default()).unwrap()
        });
        put(&store, 40);
        (device, store, taken)
    }

    /// A deletion has come to its end, and no commit says so: a recovery would find the snapshot. What is as old is joined
    /// with nothing younger, not made unwritten, and not written in place (S1, S2).
    #[test]
    fn a_parent_that_has_gone_counts_until_a_commit_says_so() {
        let (_, store, [first, second]) = with_two_snapshots();
        let main = Branch::main(store.clone());
        let epoch = |number: u64| store.tree(number).unwrap().epoch;
        let (before, between) = (epoch(first), epoch(second));
        store.delete_snapshot(second).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        assert_eq!(store.tree(1).unwrap().parent, first, "it has gone");
        assert_eq!(main.parent_epoch(), between);
        assert!(!main.owns(between) && main.owns(between.next()));
        store.commit_deletions().unwrap();
        assert_eq!(main.parent_epoch(), before);
        assert!(main.owns(between) && !main.owns(before));
    }

    /// A fork, the whole deletion of its snapshot and a rename go into one batch of the log, which has the last value of the
    /// fork's item. The replay begins with a commit in which the snapshot is there: it is the parent still.
    #[test]
    fn a_fork_keeps_the_snapshot_that_a_replay_finds_as_its_parent() {
        let size = 32 << 20;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
        let options = CreateOptions {
            geometry: Geometry::for_device(size, 4096).unwrap(),
            uuid: uuid::Uuid::from_bytes([7; 16]),
            label: String::new(),
            hash_seed: 1,
            node_tag: [5; 8],
            created: Timestamp::default(),
        };
        Store::create(&device, &options).unwrap();
        let store = open(&device);
        let now = Timestamp::default();
        put(&store, 20);
        let first = store.snapshot(1, b"first", now).unwrap();
        put(&store, 21);
        let second = store.snapshot(1, b"second", now).unwrap();
        store.roll_back(1, first, None, now).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        store.checkpoint().unwrap();
        // No call waits for the log here, as if each were of a thread of its own that waits.
        let fork = store.inner.fork(second, b"fork", now).unwrap().number;
        store.inner.delete_snapshot(second).unwrap();
        while store.inner.work_off_deletions(9).unwrap() {}
        assert_eq!(store.tree(fork).unwrap().parent, first);
        let last = store.inner.rename_tree(fork, b"renamed").unwrap();
        store.inner.sync(last.lsn, InodeNo::ROOT).unwrap();
        drop(store);
        let store = open(&device);
        assert_eq!(store.tree(fork).unwrap().name, b"renamed");
        assert_eq!(store.tree(fork).unwrap().parent, second, "a replay finds the snapshot");
        while store.work_off_deletions(9).unwrap() {}
        assert_eq!(store.tree(fork).unwrap().parent, first);
    }
}
