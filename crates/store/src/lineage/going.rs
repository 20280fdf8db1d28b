//! A branch that goes: its snapshots follow it, some at a time (S5, S6a).
//!
//! ```text
//!  look at all snapshots, some at a time -> commit: the branch goes -> by the log, some at a time: its item changes
//!  (deletion: does anything keep one?       (deletion: no name         (deletion: its name is gone, a walk begins
//!   promotion: is a name in both?)           is seen; promotion: all    promotion: its name is one of the other branch)
//!                                            are another branch's)   -> in memory, with a commit: the branch's item is gone
//! ```
//!
//! Others change the lineage between two parts of the look: what they have changed is looked at once more. Nothing here is longer
//! under a lock than for some snapshots, however many there are; but for the first list of them, which is made without the lock of the lineage.
//! Each search for a name in a branch looks at what has joined it as well. So only one joins at a time: a branch that is deleted or promoted, or into
//! which a fork is, takes in the one before first.

use std::ops::ControlFlow;

use holdfast_base::{Lsn, Timestamp};
use holdfast_format::ItemKind;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{TreeItem, TreeKind};
use parking_lot::MutexGuard;

use super::Made;
use super::names::NameChange;
use super::plan::{Plan, PlanResult, trees_span};
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
        let unkept = |plan: &mut Plan<'_>, some: &[u64]| {
            some.iter().try_for_each(|snapshot| plan.expect_unkept(branch, *snapshot))
        };
        let mut walks = self.lock_looked(branch, &[branch], unkept)?;
        let snapshots = walks.snapshots.of(branch);
        let has_snapshots = !snapshots.is_empty();
        let made = self
            .seal_locked(&mut walks, &mut |plan| plan.delete_branch(branch, has_snapshots, now))?;
        walks.snapshots.gone(branch);
        if has_snapshots {
            walks.goes(branch, 0, snapshots);
        }
        self.counters.deletions_left.set(walks.left());
        Ok(made)
    }

    /// Promotes a fork: a branch becomes what it is, and it goes; what the branch was is kept as a snapshot of this name, or deleted. The
    /// fork's snapshots are the branch's.
    pub(crate) fn promote(
        &self,
        branch: u64,
        fork: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Made> {
        self.look_at(|plan| plan.expect_fork(branch, fork))?;
        let apart = |plan: &mut Plan<'_>, some: &[u64]| plan.expect_apart(branch, fork, some);
        let mut walks = self.lock_looked(fork, &[branch, fork], apart)?;
        let snapshots = walks.snapshots.of(fork);
        let has_snapshots = !snapshots.is_empty();
        let made = self.seal_locked(&mut walks, &mut |plan| {
            plan.promote(branch, fork, has_snapshots, kept_as, now)
        })?;
        walks.snapshots.gone(fork);
        if has_snapshots {
            walks.goes(fork, branch, snapshots);
            self.name_listener.tell(&NameChange::Joined { from: fork, to: branch });
        }
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
            let all = self.snapshots_of_all();
            let mut walks = self.lineage.lock();
            let changed = walks.look_ends(Walks::ALL);
            let mut branches = all?;
            // Another call has ended the look, with a list or without.
            let Some(changed) = changed else { continue };
            branches.retain(|(_, number)| !changed.contains(number));
            for number in changed {
                match self.look_at(|plan| plan.item(number)) {
                    Ok((item, _)) if item.kind == TreeKind::Snapshot => {
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

    /// All snapshots, each behind the branch that its item says.
    fn snapshots_of_all(&self) -> Result<Vec<(u64, u64)>> {
        let (mut all, mut wrong) = (Vec::new(), None);
        let (from, to) = trees_span();
        self.scan(TreeNo::SPACE, &from, &to, &mut |key, value| {
            if key.kind != ItemKind::Tree {
                return ControlFlow::Continue(());
            }
            match TreeItem::decode(value) {
                Ok(item) if item.kind == TreeKind::Snapshot => {
                    all.push((item.branch, key.inode.0.saturating_sub(LINEAGE)));
                }
                Ok(_) => {}
                Err(source) => {
                    wrong = Some(StoreError::Item { what: format!("{key:?}"), source });
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        wrong.map_or(Ok(all), Err)
    }

    /// Locks the lineage when all snapshots of a branch were looked at, `with` some of them at a time, and what has changed since, and nothing
    /// joins one of these branches any more.
    fn lock_looked(
        &self,
        branch: u64,
        taking: &[u64],
        with: impl Fn(&mut Plan<'_>, &[u64]) -> PlanResult<()>,
    ) -> Result<MutexGuard<'_, Walks>> {
        self.find_going()?;
        let mut behind = 0;
        loop {
            let mut walks = self.lock_listed()?;
            let (done, is_end) = match walks.joins(taking) {
                Some(joins) => (self.step_of_going(&mut walks, joins), false),
                None => {
                    let (some, is_end) = walks.look_on(branch, &mut behind, SOME);
                    (self.look_at(|plan| with(plan, &some)).map(drop), is_end)
                }
            };
            if done.is_err() || is_end {
                walks.look_ends(branch);
                done?;
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
            let Some(to) = self.look_at(|plan| plan.goes_to(branch))?.0 else { continue };
            let snapshots = walks.snapshots.of(branch);
            walks.goes(branch, to, snapshots);
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
                plan.end_going(branch)?;
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
