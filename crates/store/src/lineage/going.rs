//! A branch that goes: its snapshots follow it, some at a time (S5).
//!
//! ```text
//!  look at all snapshots, some at a time -> commit: the branch goes -> by the log, some at a time: a name is gone, a walk begins
//!  (does anything keep one of them?)        (no name is seen)          -> in memory, with a commit: its item is gone
//! ```
//!
//! Others change the lineage between two parts of the look: what they have changed is looked at once more. Nothing here is longer
//! under a lock than for some snapshots, however many there are; but for the first list of them, which is made without the lock of the lineage.

use holdfast_base::{Lsn, Timestamp};
use holdfast_format::item::TreeKind;
use holdfast_format::item::lineage::MAIN;
use parking_lot::MutexGuard;

use super::Made;
use super::plan::Plan;
use super::walks::Walks;
use crate::apply::Slots;
use crate::error::LineageError;
use crate::room::{Tries, slots_at_most};
use crate::space::slots::NodeSlots;
use crate::tree::{MissingSet, TreeNo};
use crate::{Inner, Need, Result, StoreError};

/// Snapshots that are looked at, or follow their branch, in one step.
pub(super) const SOME: usize = 64;
/// Changes of items for each that follows.
const CHANGES_EACH: u32 = 3;

impl Inner {
    /// Deletes a branch and its snapshots.
    pub(crate) fn delete_branch(&self, branch: u64, now: Timestamp) -> Result<Made> {
        if branch == MAIN {
            return Err(LineageError::First.into());
        }
        let mut walks = self.lock_unkept(branch)?;
        let snapshots = walks.snapshots.of(branch);
        let has_snapshots = !snapshots.is_empty();
        let made = self
            .seal_locked(&mut walks, &mut |plan| plan.delete_branch(branch, has_snapshots, now))?;
        walks.snapshots.gone(branch);
        if has_snapshots {
            walks.goes(branch, snapshots);
        }
        self.counters.deletions_left.set(walks.left());
        Ok(made)
    }

    /// Locks the lineage, with the snapshots of each branch listed.
    pub(super) fn lock_listed(&self) -> Result<MutexGuard<'_, Walks>> {
        loop {
            let mut walks = self.lineage.lock();
            if walks.snapshots.are_known() {
                return Ok(walks);
            }
            walks.look_begins(Walks::ALL);
            drop(walks);
            let all = self.trees();
            let mut walks = self.lineage.lock();
            let changed = walks.look_ends(Walks::ALL);
            let all = all?.into_iter().filter(|tree| tree.item.kind == TreeKind::Snapshot);
            let mut branches: Vec<_> = all.map(|tree| (tree.item.branch, tree.number)).collect();
            // Another call has ended the look, with a list or without.
            let Some(changed) = changed else { continue };
            branches.retain(|(_, number)| !changed.contains(number));
            for number in changed {
                match self.tree_item(number) {
                    Ok(item) if item.kind == TreeKind::Snapshot => {
                        branches.push((item.branch, number));
                    }
                    Ok(_) | Err(StoreError::Lineage(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            walks.snapshots.are(branches);
            return Ok(walks);
        }
    }

    /// Locks the lineage, with nothing that keeps a snapshot of a branch.
    fn lock_unkept(&self, branch: u64) -> Result<MutexGuard<'_, Walks>> {
        let mut behind = 0;
        loop {
            let mut walks = self.lock_listed()?;
            let (some, is_end) = walks.look_on(branch, &mut behind, SOME);
            let looked = self.look_at(|plan| {
                some.iter().try_for_each(|snapshot| plan.expect_unkept(branch, *snapshot))
            });
            if looked.is_err() || is_end {
                walks.look_ends(branch);
                looked?;
                return Ok(walks);
            }
            MutexGuard::unlock_fair(walks);
        }
    }

    /// Finds the branches that go, once.
    pub(super) fn find_going(&self) -> Result<()> {
        if self.lineage.lock().has_found_going() {
            return Ok(());
        }
        let look = || Ok::<_, StoreError>(self.look_at(|plan| plan.children(0, usize::MAX))?.0);
        let mut walks = if look()?.is_empty() { self.lineage.lock() } else { self.lock_listed()? };
        for branch in look()? {
            let snapshots = walks.snapshots.of(branch);
            walks.snapshots.gone(branch);
            walks.goes(branch, snapshots);
        }
        walks.has_all_going();
        Ok(())
    }

    /// Some snapshots follow their branch, or it is over.
    pub(super) fn step_of_going(&self, walks: &mut Walks, branch: u64) -> Result<()> {
        let mut some = walks.following(branch, SOME);
        if some.is_empty() {
            self.end_going(branch)?;
            walks.is_gone(branch);
            walks.has_freed();
            return Ok(());
        }
        let need = |some: &[u64]| Need::Delete { changes: CHANGES_EACH * some.len() as u32 };
        let mut room = match self.reserve_now(TreeNo::SPACE, need(&some))? {
            Some(room) => room,
            None => {
                some.truncate(1);
                self.reserve(TreeNo::SPACE, need(&some))?
            }
        };
        self.log_change(walks, &mut room, |plan| plan.follow(branch, &some).map(|()| branch))?;
        walks.followed(branch, &some);
        Ok(())
    }

    fn end_going(&self, branch: u64) -> Result<()> {
        let mut tries = Tries::default();
        loop {
            let done = self.stop_changers(|forest, space| {
                self.check_damage(space)?;
                let mut plan = Plan::new(forest, Lsn(0), 0);
                plan.end_going(branch);
                let changes = plan.done(branch).changes;
                forest.prepare_all(TreeNo::SPACE, &changes)?;
                if !self.has_slots(forest, space, TreeNo::SPACE, &changes, NodeSlots::none()) {
                    return Err(StoreError::NoSpace.into());
                }
                let slots = slots_at_most(forest, TreeNo::SPACE, changes.len());
                space.expect_slots(slots).map_err(MissingSet::from)?;
                let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
                forest.carry_out_all(TreeNo::SPACE, &changes, slots);
                Ok(())
            });
            match done {
                Err(StoreError::NoSpace) if self.make_room(&mut tries)? => {}
                done => return done,
            }
        }
    }
}
