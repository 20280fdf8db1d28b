//! Deletion of snapshots and branches, none of them open.
//!
//! Nothing here waits for the space of what is deleted. A mount keeps snapshots open that programs have looked at: before a
//! deletion it closes those that no program uses ([`CloseIdle`]).

use std::sync::Weak;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::{Timestamp, show, wait};
use holdfast_store::StoreError;
use holdfast_sync::thread;

use crate::which::name_of;
use crate::*;

/// How long a deletion waits for what is open to be closed. A program whose file is closed goes on before the kernel has told
/// the server of that file, and a request about it may be on its way: a snapshot looks open then that nobody uses.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks whether it is closed by now.
const STEP: Duration = Duration::from_millis(1);
/// Looks that there are in any case: while the whole machine stands still, time passes and nothing is closed.
const LOOKS: u32 = 10;

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

/// What is in use, so that it or its branch is not deleted.
struct InUse {
    number: u64,
    name: Vec<u8>,
}

impl FileSystem {
    /// From now on this is asked to close what nobody uses before anything of the volume is deleted.
    pub fn close_before_deletions(&self, idle: Weak<dyn CloseIdle>) {
        self.volume.volume.idle.add(idle);
    }

    /// Has what nobody uses closed by those who [keep it open](FileSystem::close_before_deletions), so that lists do not show it as
    /// open.
    pub fn close_idle(&self) {
        self.volume.volume.idle.close(None);
    }

    /// Deletes a snapshot that is not open. Its name is gone when this returns; its space comes back in the background, or
    /// with the next calls of [`FileSystem::commit`].
    ///
    /// # Errors
    /// [`FsError::InUse`] while it is open. Where something is [closed for deletions](FileSystem::close_before_deletions),
    /// only after half a second.
    pub fn delete_snapshot<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
    ) -> Result<()> {
        self.expect_changeable()?;
        let (branch, snapshot) = (branch.into(), snapshot.into());
        self.when_closed(|| {
            let volume = &self.volume.volume;
            let _still = volume.lock_opening();
            let number = self.snapshot_no(branch, snapshot)?;
            if volume.is_open(number) {
                return Ok(Some(InUse { number, name: self.tree(number)?.name }));
            }
            volume.store.delete_snapshot(number)?;
            volume.deletions.begin();
            Ok(None)
        })
    }

    /// Deletes a branch with its snapshots, none of them open; space and errors as with [`FileSystem::delete_snapshot`].
    pub fn delete_branch<'a>(&self, branch: impl Into<Which<'a>>) -> Result<()> {
        self.expect_changeable()?;
        let number = self.branch_no(branch.into())?;
        // One that is mounted stays so: only its snapshots are waited for.
        self.expect_not_open(number, &name_of(self.tree(number)?))?;
        self.when_closed(|| {
            let volume = &self.volume.volume;
            let _still = volume.lock_opening();
            let number = self.branch_no(number.into())?;
            let name = name_of(self.tree(number)?);
            self.expect_not_open(number, &name)?;
            for of in self.snapshots_of_number(number)? {
                if volume.is_open(of.number) {
                    let name = [&name, &b"@"[..], &of.name].concat();
                    return Ok(Some(InUse { number: of.number, name }));
                }
            }
            volume.store.delete_branch(number, Timestamp::now())?;
            volume.deletions.begin();
            Ok(None)
        })
    }

    /// Goes on with deletions until nothing is left that can be deleted now, and makes the space usable. Never required: the
    /// background does it. Fails if one of them has failed, when the others are done.
    pub fn finish_deletions(&self) -> Result<()> {
        self.expect_changeable()?;
        self.volume.volume.deletions.finish()?;
        match self.core.store.failed_deletions().first() {
            Some((_, why)) => Err(StoreError::Refused(why.clone()).into()),
            None => Ok(()),
        }
    }

    /// Deletions that have failed since the volume was opened, which others do not wait for: see
    /// [`holdfast_store::Store::failed_deletions`].
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

    /// Deletes when what is only kept open is closed, and tries again for a moment while `delete` finds something in use.
    fn when_closed(&self, delete: impl Fn() -> Result<Option<InUse>>) -> Result<()> {
        let volume = &self.volume.volume;
        let until = Deadline::after(PATIENCE);
        let (mut looks, mut only) = (0, None);
        loop {
            let closes_some = volume.idle.close(only);
            looks += 1;
            let Some(of) = delete()? else { return Ok(()) };
            if !closes_some || looks >= LOOKS && until.is_over() {
                return Err(FsError::InUse(show::name(&of.name)));
            }
            // The others stay open for those who look at them.
            only = Some(of.number);
            wait::will_wait();
            thread::sleep(STEP);
        }
    }
}
