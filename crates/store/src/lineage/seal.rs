//! What changes the lineage together with a commit: a snapshot, a rollback, a branch that goes (S2, S5, S6).
//!
//! ```text
//!  freeze: plan > items into the space tree > roots, groups > bytes > turn the open trees > seal
//! ```
//!
//! All of it is of one moment, in which no operation runs, and durable with the commit's flush. If a node is missing on the
//! way, the freeze ends, all that are missing are read, and all is planned once more: the items are put again, as they are then. No batch of
//! the log holds what comes behind, before the commit is durable: a replay never has to seal.

use std::sync::atomic::Ordering;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Lsn, Timestamp};
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::item::{OriginItem, RootItem};
use holdfast_format::{ItemKind, Key};
use parking_lot::MutexGuard;

use super::deleters::Walks;
use super::new_branch::NewTree;
use super::plan::{Items, Plan, PlanResult, Planned, TurnTo};
use super::{Made, names};
use crate::apply::{Halt, Slots};
use crate::log::Moved;
use crate::room::{keep_roots, slots_at_most, slots_of_new_tree};
use crate::space::alloc::Space;
use crate::space::slots::NodeSlots;
use crate::step;
use crate::transaction::Changes;
use crate::tree::open::{Ancestry, OpenTree};
use crate::tree::{Forest, MissingSet, Root, TreeNo};
use crate::{Inner, Result, StoreError};

/// A change of the lineage that a commit makes.
pub(crate) struct Sealing<'a> {
    plan: &'a mut dyn FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    /// What the items were that were put.
    before: Items,
    planned: Option<Planned>,
    /// The open trees as they were, until the commit is sure.
    turned: Vec<(TreeNo, OpenTree)>,
    main_inodes: u64,
    /// The tree of a branch that has grown out of nothing.
    new_tree: Option<NewTree>,
}

/// How often a change gives way to checkpoints that begin before it. Behind that it waits for one, and others for the lineage.
const TURNS_MAX: u32 = 16;

/// Whether a change may wait for a checkpoint of another caller while the lineage is locked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// It gives way.
    Free,
    /// It has given way [often](TURNS_MAX).
    Waits,
}

/// Why nothing was sealed.
#[derive(Debug)]
pub(super) enum NotSealed {
    /// A checkpoint is being made or left over: the lineage is to be free meanwhile.
    Checkpoint,
    Failed(StoreError),
}

impl From<StoreError> for NotSealed {
    fn from(error: StoreError) -> NotSealed {
        NotSealed::Failed(error)
    }
}

impl Inner {
    /// Takes a snapshot of a branch. It is durable when this returns (P12).
    pub(crate) fn snapshot(&self, branch: u64, name: &[u8], now: Timestamp) -> Result<Made> {
        self.seal_with(&mut |plan| plan.take(branch, name, now))
    }

    /// As [`Inner::snapshot`], of what is a copy of snapshots of other volumes.
    pub(crate) fn snapshot_of_copy(
        &self,
        branch: u64,
        name: &[u8],
        of: &[OriginItem],
        now: Timestamp,
    ) -> Result<Made> {
        self.seal_with(&mut |plan| plan.take_copy(branch, name, of, now))
    }

    /// Makes a branch out of another as it is now.
    pub(crate) fn fork_live(&self, branch: u64, name: &[u8], now: Timestamp) -> Result<Made> {
        self.seal_with(&mut |plan| {
            let snapshot = plan.take(branch, b"", now)?;
            let fork = plan.fork(snapshot, name, now)?;
            // It has no name: it goes as soon as one of the two is all that has grown out of it.
            plan.begin_walk(snapshot);
            Ok(fork)
        })
    }

    /// Takes a snapshot of a branch, without a name, which goes: its deletion has begun when it is there, and goes on
    /// behind `then`.
    pub(crate) fn passing_snapshot<T>(
        &self,
        branch: u64,
        now: Timestamp,
        then: impl FnOnce(u64) -> Result<T>,
    ) -> Result<T> {
        let (walks, made) = self.with_sealing_room(|turn| {
            let mut walks = self.lineage.lock();
            let made = self.seal_locked(&mut walks, turn, &mut |plan| {
                let snapshot = plan.take(branch, b"", now)?;
                plan.begin_walk(snapshot);
                Ok(snapshot)
            })?;
            Ok((walks, made))
        })?;
        let done = then(made.number);
        drop(walks);
        done
    }

    /// Takes a branch back to a snapshot; what it was is kept as a snapshot of this name, or deleted.
    pub(crate) fn roll_back(
        &self,
        branch: u64,
        to: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Made> {
        self.seal_with(&mut |plan| plan.roll_back(branch, to, kept_as, now))
    }

    pub(super) fn seal_with(
        &self,
        plan: &mut dyn FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> Result<Made> {
        self.with_sealing_room(|turn| self.seal_locked(&mut self.lineage.lock(), turn, &mut *plan))
    }

    /// Runs what locks the lineage and seals. What others would wait for, who want to look at it, comes before: the rest of the last
    /// checkpoint, and room. `seal` is run again where a checkpoint has begun in between.
    pub(super) fn with_sealing_room<R>(
        &self,
        mut seal: impl FnMut(Turn) -> std::result::Result<R, NotSealed>,
    ) -> Result<R> {
        self.check_running()?;
        self.expect_rings()?;
        for tries in 1.. {
            drop(self.lock_checkpoints()?);
            let turn = if tries < TURNS_MAX { Turn::Free } else { Turn::Waits };
            let done = self.with_room(|| match seal(turn) {
                Ok(done) => Ok(Some(done)),
                Err(NotSealed::Checkpoint) => Ok(None),
                Err(NotSealed::Failed(error)) => Err(error),
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        unreachable!("the last turn waits");
    }

    /// No checkpoint is being made, or left over, and none begins while this is held.
    fn no_checkpoint(&self) -> Option<MutexGuard<'_, ()>> {
        let one = self.one_checkpoint.try_lock()?;
        self.left_over.lock().is_none().then_some(one)
    }

    /// The caller [makes room](Inner::with_sealing_room).
    pub(super) fn seal_locked(
        &self,
        walks: &mut Walks,
        turn: Turn,
        plan: &mut dyn FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> std::result::Result<Made, NotSealed> {
        self.seal_tree(walks, turn, plan, None)
    }

    /// As [`Inner::seal_with`], with a new tree.
    pub(super) fn seal_tree(
        &self,
        walks: &mut Walks,
        turn: Turn,
        plan: &mut dyn FnMut(&mut Plan<'_>) -> PlanResult<u64>,
        new_tree: Option<&dyn Fn() -> NewTree>,
    ) -> std::result::Result<Made, NotSealed> {
        let one = match turn {
            Turn::Free => self.no_checkpoint().ok_or(NotSealed::Checkpoint)?,
            Turn::Waits => self.lock_checkpoints()?,
        };
        let mut sealing = Sealing::new(plan, new_tree.map(|tree| tree()));
        let sealed = self.seal_by_commit(one, &mut sealing);
        // Also after a failure: a list that is being read may contain what was taken back.
        walks.changes(sealing.before.keys().copied());
        let (planned, before) = (sealed?, sealing.before);
        walks.snapshots.follow(&planned.changes);
        self.walks_begin(walks, &planned.begun);
        self.idle.stir();
        self.lineage_changed(names::named(&planned.changes, &before));
        Ok(Made { number: planned.number, lsn: Lsn(self.lsn.load(Ordering::Acquire)) })
    }

    /// The log for the time of the freeze. A sealing has no operation of its own: by its numbers alone, what comes behind would fit the
    /// trees from before.
    pub(crate) fn log_for_sealing(&self) -> Moved<'_> {
        self.logging.without_a_number(&self.pending)
    }

    /// Makes the commit, and returns the change.
    fn seal_by_commit(
        &self,
        one: MutexGuard<'_, ()>,
        sealing: &mut Sealing<'_>,
    ) -> Result<Planned> {
        self.checkpoint_with(one, sealing)?;
        match sealing.planned.take() {
            Some(planned) => Ok(planned),
            None => Err(StoreError::Stopped("a change of branches was lost".into())),
        }
    }

    /// Puts the items into the space tree, as they are at this moment.
    pub(crate) fn put_items(
        &self,
        sealing: &mut Sealing<'_>,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<(), Halt> {
        let lsn = Lsn(self.lsn.load(Ordering::Acquire));
        let mut planned = {
            let mut plan = Plan::new(forest, lsn, space.inodes).again(&sealing.before);
            let number = (sealing.plan)(&mut plan)?;
            plan.done(number)
        };
        let of_tree = sealing.new_tree.as_ref().map_or(0, NewTree::changes);
        let slots = slots_at_most(forest, TreeNo::SPACE, planned.changes.len() + 1);
        let slots = slots + slots_of_new_tree(forest, of_tree);
        space.expect_slots(slots).map_err(MissingSet::from)?;
        if let Some(tree) = &mut sealing.new_tree {
            let root = tree.root(planned.number, forest, space)?;
            planned.changes.put(RootItem::key(planned.number), &root.bytes());
        }
        forest.prepare_all(TreeNo::SPACE, &planned.changes)?;
        if !self.has_slots(forest, space, TreeNo::SPACE, &planned.changes, NodeSlots::none()) {
            return Err(StoreError::NoSpace.into());
        }
        for change in planned.changes.iter() {
            let before = forest.get(TreeNo::SPACE, &change.key)?.map(<[u8]>::to_vec);
            sealing.before.entry(change.key).or_insert(before);
        }
        let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
        forest.carry_out_all(TreeNo::SPACE, &planned.changes, slots);
        sealing.planned = Some(planned);
        Ok(())
    }

    /// The open trees are what the change makes of them. Nothing fails.
    pub(crate) fn turn(&self, sealing: &mut Sealing<'_>, forest: &mut Forest, space: &mut Space) {
        sealing.main_inodes = space.inodes;
        let turns = sealing.planned.iter().flat_map(|planned| &planned.turns);
        for turn in turns {
            let Some(tree) = forest.trees.find(turn.branch) else { continue };
            sealing.turned.push((tree, *forest.trees.get(tree)));
            match turn.to {
                TurnTo::Child { snapshot, epoch } => {
                    forest.trees.get_mut(tree).ancestry =
                        Ancestry { snapshot, parent: epoch, walk: None };
                }
                TurnTo::Rolled { snapshot, epoch, root, inodes, referenced } => {
                    forest.replace_root(tree, root);
                    let of = forest.trees.get_mut(tree);
                    if !mutants::is(Mutant::RollbackKeepsParent) {
                        of.ancestry = Ancestry { snapshot, parent: epoch, walk: None };
                    }
                    of.judged_from = epoch;
                    (of.carried, of.inodes, of.inodes_carried) = (root, inodes, inodes);
                    (of.referenced, of.referenced_carried) = (referenced, referenced);
                    if tree == TreeNo::MAIN {
                        space.inodes = inodes;
                    }
                }
                TurnTo::Gone => {}
            }
        }
        // What is listed with its turn counts for no next change any more.
        keep_roots(forest, space);
    }

    /// The commit has no room, and comes again as a checkpoint: the open trees are as they were.
    pub(crate) fn turn_back(
        &self,
        sealing: &mut Sealing<'_>,
        forest: &mut Forest,
        space: &mut Space,
    ) {
        for (tree, before) in sealing.turned.drain(..).rev() {
            forest.replace_root(tree, before.root);
            let of = forest.trees.get_mut(tree);
            // What is listed stays so until a commit looks at it.
            *of = OpenTree { is_listed: of.is_listed, ..before };
        }
        space.inodes = sealing.main_inodes;
        keep_roots(forest, space);
    }

    /// The commit is sure: what is gone is forgotten.
    pub(crate) fn turned(&self, sealing: &mut Sealing<'_>, forest: &mut Forest) {
        sealing.turned.clear();
        for turn in sealing.planned.iter().flat_map(|planned| &planned.turns) {
            if let TurnTo::Gone = turn.to {
                forest.trees.forget(turn.branch);
            }
        }
    }

    /// The change has failed on its way: the items are what they were, or nothing may be written any more.
    /// No commit comes between: the caller holds the journal.
    pub(crate) fn put_back(&self, sealing: &mut Sealing<'_>) {
        let has_done = !sealing.before.is_empty() || sealing.new_tree.is_some();
        if !has_done || self.stop.is_stopped() {
            return;
        }
        let done = self.stop_changers(|forest, space| {
            if let Some(tree) = &mut sealing.new_tree {
                tree.take_back(forest, space);
            }
            let mut changes = Changes::default();
            for (key, value) in &sealing.before {
                let carried = carried_root(forest, key);
                match carried.as_deref().or(value.as_deref()) {
                    Some(value) => changes.put(*key, value),
                    None => changes.delete(*key),
                }
            }
            forest.prepare_all(TreeNo::SPACE, &changes)?;
            let slots = slots_at_most(forest, TreeNo::SPACE, changes.len());
            space.expect_slots(slots).map_err(MissingSet::from)?;
            let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
            forest.carry_out_all(TreeNo::SPACE, &changes, slots);
            Ok(())
        });
        if let Err(error) = done {
            step::stop(&self.stop, format!("a change of branches cannot be taken back: {error}"));
        }
    }
}

/// The item of the root of an open branch as the last commit, or one that was tried since, has carried it. Writers of other
/// branches go on between two tries of a change: what the item was before the first may be an older root.
fn carried_root(forest: &Forest, key: &Key) -> Option<Vec<u8>> {
    let number = key.inode.0.checked_sub(LINEAGE).filter(|_| key.kind == ItemKind::Root)?;
    let of = forest.trees.get(forest.trees.find(number)?);
    let Root { pointer, level } = of.carried;
    Some(RootItem::of(pointer, level, of.inodes_carried, of.referenced_carried).bytes().to_vec())
}

impl<'a> Sealing<'a> {
    pub(super) fn new(
        plan: &'a mut dyn FnMut(&mut Plan<'_>) -> PlanResult<u64>,
        new_tree: Option<NewTree>,
    ) -> Sealing<'a> {
        let (before, turned) = (Items::new(), Vec::new());
        Sealing { plan, before, planned: None, turned, main_inodes: 0, new_tree }
    }

    /// Whether the epoch ends with it.
    pub(crate) fn seals(&self) -> bool {
        self.planned.as_ref().is_some_and(|planned| planned.seals)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::InodeNo;

    use super::super::lies_tests::{made, put};
    use super::*;
    use crate::{Branch, OpenOptions, Store};

    /// The deletion of a branch, and a rollback, fail when they were tried twice, and a writer of the branch, and a commit, came
    /// in between: the item of its root is that of the commit.
    #[test]
    fn a_change_that_is_taken_back_leaves_the_root_that_was_carried_last() {
        for deletes in [true, false] {
            let (device, store) = made();
            let now = Timestamp::default();
            let snapshot = store.snapshot(1, b"s", now).unwrap();
            let fork = store.fork(snapshot, b"fork", now).unwrap();
            let branch = Branch::open(store.clone(), b"fork", None).unwrap();
            let write = |no: u64| {
                let tree = store.inner.forest.read().trees.find(fork).unwrap();
                put(&store, tree, &[(Key::inode(InodeNo(no)), vec![no as u8])]);
            };
            let inner = &store.inner;
            write(20);
            store.checkpoint().unwrap();
            let mut plan = |plan: &mut Plan<'_>| match deletes {
                true => plan.delete_branch(fork, false, now),
                false => plan.roll_back(fork, snapshot, None, now),
            };
            let mut sealing = Sealing::new(&mut plan, None);
            let mut try_it = |inner: &Inner| {
                inner.stop_changers(|forest, space| {
                    inner.carry_roots(forest, space)?;
                    inner.put_items(&mut sealing, forest, space)
                })
            };
            try_it(inner).unwrap();
            write(21);
            try_it(inner).unwrap();
            inner.put_back(&mut sealing);
            let item = inner.get(TreeNo::SPACE, &RootItem::key(fork)).unwrap().unwrap();
            let forest = inner.forest.read();
            let root = forest.root(forest.trees.find(fork).unwrap());
            assert_eq!(RootItem::decode(&item).unwrap().pointer(), root.pointer, "{deletes}");
            drop(forest);
            inner.commit_steps().unwrap();
            drop((branch, store));
            let options = OpenOptions { threads: false, ..OpenOptions::default() };
            let store =
                std::sync::Arc::new(Store::open(device, &options, Default::default()).unwrap());
            let branch = Branch::open(store, b"fork", None).unwrap();
            for no in [20, 21] {
                assert_eq!(branch.get(&Key::inode(InodeNo(no))).unwrap(), Some(vec![no as u8]));
            }
        }
    }
}
