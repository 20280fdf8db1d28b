//! Deletion of snapshots and branches, none of them open.
//!
//! Nothing here waits for the space of what is deleted. What programs use of a snapshot that they found by its name they go on
//! using ([`ShowsSnapshots`]): its space comes back behind them, as that of a file does which is removed.

use std::sync::Weak;

use holdfast_base::{Timestamp, show};
use holdfast_store::StoreError;

use crate::which::name_of;
use crate::*;

/// A deletion that has failed, or that the device keeps from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDeletion {
    /// The number of the snapshot, which has no name any more.
    pub number: u64,
    /// The number of the branch that it was taken of, which may be gone, if that can be read.
    pub branch: Option<u64>,
    /// What happened, and that it waits.
    pub why: String,
}

impl FileSystem {
    /// From now on this is told before a snapshot of the volume is deleted, and of each name.
    pub fn shown_by(&self, shows: Weak<dyn ShowsSnapshots>) {
        self.volume.volume.showing.add(shows);
    }

    /// Deletes a snapshot that is not open. Its name is gone when this returns; its space comes back in the background, or
    /// with the next calls of [`FileSystem::commit`], when it has no [view](FileSystem::view) any more.
    ///
    /// # Errors
    /// [`FsError::InUse`] while it is open.
    pub fn delete_snapshot<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
    ) -> Result<()> {
        self.expect_changeable()?;
        let (branch, snapshot) = (branch.into(), snapshot.into());
        let volume = &self.volume.volume;
        loop {
            let number = self.snapshot_no(branch, snapshot)?;
            volume.showing.keep(number);
            let _still = volume.lock_opening();
            if self.snapshot_no(branch, snapshot)? != number {
                continue;
            }
            self.expect_not_open(number, &self.tree(number)?.name)?;
            volume.store.delete_snapshot(number)?;
            volume.deletions.begin();
            return Ok(());
        }
    }

    /// Deletes a branch with its snapshots, none of them open; space and errors as with [`FileSystem::delete_snapshot`]. They are shown nowhere:
    /// a mount that would is of the branch, or of one of them.
    pub fn delete_branch<'a>(&self, branch: impl Into<Which<'a>>) -> Result<()> {
        self.expect_changeable()?;
        let (branch, volume) = (branch.into(), &self.volume.volume);
        let number = self.branch_no(branch)?;
        self.expect_closed(number)?;
        // Others are opened meanwhile: it is as long as the branch has snapshots.
        let mut looked = volume.store.look_before_deletion(number)?;
        loop {
            let still = volume.lock_opening();
            if self.branch_no(branch)? != number {
                drop(still);
                return self.delete_branch(branch);
            }
            self.expect_closed(number)?;
            if volume.store.delete_looked(&mut looked, Timestamp::now())? {
                break;
            }
            drop(still);
            volume.store.look_again(&mut looked)?;
        }
        volume.deletions.begin();
        Ok(())
    }

    /// Fails if a branch or a snapshot of it is open.
    fn expect_closed(&self, number: u64) -> Result<()> {
        let name = name_of(self.tree(number)?);
        self.expect_not_open(number, &name)?;
        for open in self.volume.volume.all_open() {
            let of = self.tree(open)?;
            if of.branch == number {
                return Err(FsError::InUse(show::name(&[&name, &b"@"[..], &of.name].concat())));
            }
        }
        Ok(())
    }

    /// What deletions have waited for is over: something has no view any more.
    pub fn go_on_with_deletions(&self) {
        self.volume.volume.go_on_with_deletions();
    }

    /// Goes on with deletions until nothing is left that can be deleted now, and makes the space usable. Never required: the
    /// background does it. Fails if one of them has failed, when the others are done.
    pub fn finish_deletions(&self) -> Result<()> {
        self.expect_changeable()?;
        self.volume.volume.showing.tidy();
        self.volume.volume.deletions.finish()?;
        match self.core.store.failed_deletions().first() {
            Some((_, why)) => Err(StoreError::Refused(why.clone()).into()),
            None => Ok(()),
        }
    }

    /// Deletions that have failed since the volume was opened, which others do not wait for: see
    /// [`holdfast_store::Inner::failed_deletions`].
    pub fn failed_deletions(&self) -> Vec<FailedDeletion> {
        let store = self.core.store.store();
        let failed = store.failed_deletions().into_iter();
        let branch_of = |number| store.tree(number).ok().map(|of| of.branch);
        failed
            .map(|(number, why)| FailedDeletion { number, branch: branch_of(number), why })
            .collect()
    }

    pub(super) fn expect_not_open(&self, number: u64, name: &[u8]) -> Result<()> {
        match self.volume.volume.is_open(number) {
            true => Err(FsError::InUse(show::name(name))),
            false => Ok(()),
        }
    }
}
