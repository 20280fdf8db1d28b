//! A branch that goes: its snapshots follow it, some at a time (S5, S6a).
//!
//! ```text
//!  look at all snapshots, some at a time -> commit: the branch goes -> by the log, some at a time: its item changes
//!  (deletion: does anything keep one?       (deletion: no name         (deletion: its name is gone, a walk begins
//!   promotion: is a name in both?)           is seen; promotion: all    promotion: its name is one of the other branch)
//!                                            are another branch's)   -> in memory, with a commit: the branch's item is gone
//! ```
//!
//! Others change the lineage between two parts of the look: what they have changed is looked at once more. So a caller looks first, while the
//! branch goes on, and where it stands still there is little left ([`LookedAt`]). Nothing here is longer
//! under a lock than for some snapshots, however many there are; but for the first list of them, which is made without the lock of the lineage.
//! Each search for a name in a branch looks at what has joined it as well. So only one joins at a time: a branch that is deleted or promoted, or into
//! which a fork is, takes in the one before first.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{Lsn, Timestamp};
use holdfast_format::ItemKind;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{TreeItem, TreeKind};
use parking_lot::MutexGuard;

use super::Made;
use super::deleters::{Look, Walks};
use super::names::NameChange;
use super::plan::{Plan, PlanResult, trees_span};
use crate::apply::Slots;
use crate::error::LineageError;
use crate::room::slots_at_most;
use crate::space::slots::NodeSlots;
use crate::tree::{MissingSet, TreeNo};
use crate::{Inner, Need, Result, StoreError};

/// Snapshots that are looked at, or follow their branch, in one step.
pub(super) const SOME: usize = 64;
/// Changes of items for each that follows.
const CHANGES_EACH: u32 = 3;
/// Steps of a look for which others may have to wait.
const STEPS: usize = 2;
/// So often it begins anew while others go on, if more is left than that: then all of it is looked at, whatever waits.
const AGAIN_MAX: u32 = 4;

/// A branch that is to go, when its snapshots were looked at while others changed the lineage.
#[derive(Debug)]
pub struct LookedAt {
    branch: u64,
    /// What its snapshots become those of; 0: they are deleted.
    to: u64,
    look: Look,
    /// The youngest snapshot that both have grown out of.
    common_ancestor: Option<u64>,
    /// What each had grown out of then.
    parents: [u64; 2],
    /// So often it had to be looked at again.
    again: u32,
}

impl LookedAt {
    /// The youngest snapshot that the branch and what it becomes have grown out of; as it was when that was looked at.
    pub fn common_ancestor(&self) -> Option<u64> {
        self.common_ancestor
    }

    /// It must be looked at again, for more than some steps. Returns whether that is so no more, as it was too often.
    fn is_refused(&mut self) -> bool {
        self.again = self.again.saturating_add(1);
        self.again > AGAIN_MAX
    }

    /// Nothing may join one of these meanwhile.
    fn taking(&self) -> Vec<u64> {
        [self.to, self.branch].into_iter().filter(|of| *of != 0).collect()
    }

    fn judge(&self, plan: &Plan<'_>, some: &[u64]) -> PlanResult<()> {
        match self.to {
            0 => some.iter().try_for_each(|one| plan.expect_unkept(self.branch, *one)),
            to => plan.expect_apart(to, self.branch, some),
        }
    }
}

impl Inner {
    /// The same before [`crate::Store::delete_looked`].
    pub fn look_before_deletion(&self, branch: u64) -> Result<LookedAt> {
        if branch == MAIN {
            return Err(LineageError::First.into());
        }
        self.begin_look(branch, 0)
    }

    /// Looks at all snapshots of a fork, and for what it and the branch have grown out of, before [`crate::Store::promote_looked`]: the branch goes on
    /// meanwhile.
    pub fn look_before_promotion(&self, branch: u64, fork: u64) -> Result<LookedAt> {
        self.look_at(|plan| plan.expect_fork(branch, fork))?;
        self.begin_look(fork, branch)
    }

    fn begin_look(&self, branch: u64, to: u64) -> Result<LookedAt> {
        self.find_going()?;
        let look = self.lock_listed()?.look_begins();
        let (common_ancestor, parents, again) = (None, [0; 2], 0);
        let mut looked = LookedAt { branch, to, look, common_ancestor, parents, again };
        self.look_again(&mut looked)?;
        Ok(looked)
    }

    /// Looks at what has changed since.
    pub fn look_again(&self, looked: &mut LookedAt) -> Result<()> {
        self.find_common_ancestor(looked)?;
        self.lock_looked(looked, usize::MAX).map(drop)
    }

    fn find_common_ancestor(&self, looked: &mut LookedAt) -> Result<()> {
        while looked.to != 0 {
            looked.parents = self.parents_of(looked)?;
            looked.common_ancestor = self.common_ancestor(looked.to, looked.branch)?;
            // If they are the same behind it, it is of one moment.
            if self.parents_of(looked)? == looked.parents {
                break;
            }
        }
        Ok(())
    }

    /// Whether [`LookedAt::common_ancestor`] is so still. Where others have changed it again and again it is looked for once more, and so is.
    pub fn has_same_ancestor(&self, looked: &mut LookedAt) -> Result<bool> {
        if self.parents_of(looked)? == looked.parents {
            return Ok(true);
        }
        let must_be = looked.is_refused();
        if must_be {
            self.find_common_ancestor(looked)?;
        }
        Ok(must_be)
    }

    fn parents_of(&self, looked: &LookedAt) -> Result<[u64; 2]> {
        let parent = |of: u64| self.tree_item(of).map(|item| item.parent);
        Ok([parent(looked.to)?, parent(looked.branch)?])
    }

    /// Deletes a branch and its snapshots. `None`: so much is left to look at that this is to be done [again](Inner::look_again) before.
    pub(crate) fn delete_looked(
        &self,
        looked: &mut LookedAt,
        now: Timestamp,
    ) -> Result<Option<Made>> {
        let branch = looked.branch;
        self.with_sealing_room(|turn| {
            let Some(mut walks) = self.lock_looked_soon(looked)? else { return Ok(None) };
            let snapshots = walks.snapshots.of(branch);
            let has_snapshots = !snapshots.is_empty();
            let plan = &mut |plan: &mut Plan<'_>| plan.delete_branch(branch, has_snapshots, now);
            let made = self.seal_locked(&mut walks, turn, plan)?;
            walks.snapshots.gone(branch);
            if has_snapshots {
                walks.goes(branch, 0, snapshots);
            }
            self.counters.deletions_left.set(walks.left());
            Ok(Some(made))
        })
    }

    /// Promotes a fork: a branch becomes what it is, and it goes; what the branch was is kept as a snapshot of this name, or deleted. The
    /// fork's snapshots are the branch's. `None` as with [`Inner::delete_looked`].
    pub(crate) fn promote_looked(
        &self,
        looked: &mut LookedAt,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Option<Made>> {
        let (branch, fork) = (looked.to, looked.branch);
        self.with_sealing_room(|turn| {
            let Some(mut walks) = self.lock_looked_soon(looked)? else { return Ok(None) };
            let snapshots = walks.snapshots.of(fork);
            let has_snapshots = !snapshots.is_empty();
            let made = self.seal_locked(&mut walks, turn, &mut |plan| {
                plan.promote(branch, fork, has_snapshots, kept_as, now)
            })?;
            walks.snapshots.gone(fork);
            if has_snapshots {
                walks.goes(fork, branch, snapshots);
                self.name_listener.tell(&NameChange::Joined { from: fork, to: branch });
            }
            Ok(Some(made))
        })
    }

    /// Locks the lineage, with the snapshots of each branch listed.
    pub(super) fn lock_listed(&self) -> Result<MutexGuard<'_, Walks>> {
        let look = {
            let mut walks = self.lineage.lock();
            if walks.snapshots.are_known() {
                return Ok(walks);
            }
            walks.look_begins()
        };
        let mut all = self.snapshots_of_all()?;
        let mut walks = self.lock_when_seen(look, |number| {
            match self.look_at(|plan| plan.item(number)) {
                Ok((item, _)) if item.kind == TreeKind::Snapshot => {
                    all.insert(number, item.branch);
                }
                Ok(_) | Err(StoreError::Lineage(_)) => drop(all.remove(&number)),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        walks.snapshots.are(all.into_iter().map(|(number, branch)| (branch, number)));
        Ok(walks)
    }

    /// All snapshots, and the branch of each that its item says.
    fn snapshots_of_all(&self) -> Result<BTreeMap<u64, u64>> {
        let (mut all, mut wrong) = (BTreeMap::new(), None);
        let (from, to) = trees_span();
        self.scan(TreeNo::SPACE, &from, &to, &mut |key, value| {
            if key.kind != ItemKind::Tree {
                return ControlFlow::Continue(());
            }
            match TreeItem::decode(value) {
                Ok(item) if item.kind == TreeKind::Snapshot => {
                    all.insert(key.inode.0.saturating_sub(LINEAGE), item.branch);
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

    /// Locks the lineage when all snapshots of a branch were looked at, and what has changed since, and nothing joins it any more, nor what
    /// it becomes. `None`: that takes more than so many steps.
    fn lock_looked(
        &self,
        looked: &mut LookedAt,
        steps: usize,
    ) -> Result<Option<MutexGuard<'_, Walks>>> {
        for _ in 0..steps {
            let walks = self.lock_listed()?;
            if let Some(joins) = walks.joins(&looked.taking()) {
                drop(walks);
                self.step_of_going(joins)?;
                continue;
            }
            let (some, is_end) = walks.look_on(&mut looked.look, looked.branch, SOME);
            self.look_at(|plan| looked.judge(plan, &some))?;
            if is_end {
                return Ok(Some(walks));
            }
            MutexGuard::unlock_fair(walks);
        }
        Ok(None)
    }

    /// The same within some steps, unless it has failed too often: others may have to wait.
    fn lock_looked_soon(&self, looked: &mut LookedAt) -> Result<Option<MutexGuard<'_, Walks>>> {
        match self.lock_looked(looked, STEPS)? {
            None if looked.is_refused() => self.lock_looked(looked, usize::MAX),
            soon => Ok(soon),
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

    /// Some snapshots follow their branch, or it is over. The caller does not hold the lineage: there may be no room before a checkpoint.
    pub(super) fn step_of_going(&self, branch: u64) -> Result<()> {
        if self.with_room(|| self.end_if_gone(branch))? {
            return Ok(());
        }
        let need = |some: usize| Need::Delete { changes: CHANGES_EACH * some as u32 };
        let (mut room, most) = match self.reserve_now(TreeNo::SPACE, need(SOME))? {
            Some(room) => (room, SOME),
            None => (self.reserve(TreeNo::SPACE, need(1))?, 1),
        };
        self.with_room(|| {
            let walks = &mut *self.lineage.lock();
            let some = walks.following(branch, most);
            if some.is_empty() {
                // Another call has made this step.
                return Ok(());
            }
            self.log_change(walks, &mut room, |plan| plan.follow(branch, &some).map(|()| branch))?;
            walks.followed(branch, &some);
            Ok(())
        })
    }

    /// Ends a branch that goes if all its snapshots have followed it; whether they have.
    fn end_if_gone(&self, branch: u64) -> Result<bool> {
        let mut walks = self.lineage.lock();
        if !walks.following(branch, 1).is_empty() {
            return Ok(false);
        }
        self.end_going(branch)?;
        walks.is_gone(branch);
        walks.has_freed();
        Ok(true)
    }

    fn end_going(&self, branch: u64) -> Result<()> {
        self.stop_changers(|forest, space| {
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
        })
    }
}
