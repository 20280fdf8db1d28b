//! A fork is promoted: the branch becomes what the fork is.
//!
//! What a program did in a fork is the branch's in one step (P12): before it nothing of it is, behind it all. The fork is gone
//! then, and its snapshots are those of the branch.

use holdfast_base::{Timestamp, show};
use holdfast_store::{Inodes, Store};

use crate::core::Core;
use crate::which::name_of;
use crate::*;

impl FileSystem {
    /// Promotes a fork: the branch becomes what `fork` is, which is not open and goes. What the branch was is kept as a snapshot of the name
    /// `keep`, or deleted. With `unchanged` the branch must be what the fork has begun with; otherwise it is
    /// [`FsError::Diverged`], and nothing has happened. Access times are no change.
    ///
    /// For what is open or remembered of the branch this is a rollback, see [`FileSystem::watch_rollback`].
    pub fn promote<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        fork: impl Into<Which<'b>>,
        keep: Option<&[u8]>,
        unchanged: bool,
    ) -> Result<()> {
        self.expect_changeable()?;
        let (branch, fork) = (self.branch_no(branch.into())?, self.branch_no(fork.into())?);
        let volume = &self.volume.volume;
        let done = self.with_branch(branch, |_, open| {
            // Nobody opens the fork; of a branch that is not open nothing is opened anyway.
            let _still = open.map(|_| volume.lock_opening());
            self.promote_still((branch, open), fork, keep, unchanged)
        });
        volume.deletions.begin();
        done
    }

    /// The branch stands still, and nothing is opened meanwhile.
    fn promote_still(
        &self,
        (branch, open): (u64, Option<&Core>),
        fork: u64,
        keep: Option<&[u8]>,
        unchanged: bool,
    ) -> Result<()> {
        let store = &self.volume.volume.store;
        self.expect_not_open(fork, &name_of(self.tree(fork)?))?;
        if unchanged && self.has_diverged(store, branch, fork)? {
            return Err(FsError::Diverged(show::name(&name_of(self.tree(branch)?))));
        }
        let turn = || Ok(store.promote(branch, fork, keep, Timestamp::now())?);
        let Some(core) = open else { return turn() };
        if keep.is_some() {
            // Writes that came since are part of what is kept.
            core.write_back()?;
        }
        rollback::roll_back(core, different(core, store, fork), turn)
    }

    /// Whether a branch is otherwise than its fork was in the beginning, or is not of its lineage.
    fn has_diverged(&self, store: &Store, branch: u64, fork: u64) -> Result<bool> {
        let Some(base) = store.common_ancestor(branch, fork)? else { return Ok(true) };
        let old = store.pin_number(base)?;
        let new = store.pin_now(branch, Timestamp::now())?;
        let mut changes = Changes::new(old, new, false);
        Ok(self.next_change(&mut changes)?.is_some())
    }
}

/// Inodes that may be otherwise in one than in the other.
fn different(core: &Core, store: &Store, fork: u64) -> holdfast_store::Result<Option<Inodes>> {
    let branch = core.store.number();
    let Some(base) = store.common_ancestor(branch, fork)? else { return Ok(None) };
    let here = core.store.changed_since(base)?;
    let there = store.changed_since(fork, base)?;
    Ok(here.zip(there).map(|(here, there)| here.and(there)))
}
