//! How a branch stands still while its head is taken or turned.

use std::sync::Arc;

use holdfast_base::show;
use holdfast_store::{Store, StoreError};

use crate::core::Core;
use crate::gate::Closed;
use crate::volume::Volume;
use crate::which::name_of;
use crate::*;

/// No change of the branch is under way, and none begins.
pub(super) struct Settled<'a> {
    core: &'a Core,
    closed: Option<Closed<'a>>,
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        drop(self.closed.take());
        self.core.collect_left();
    }
}

impl Core {
    /// Writes what is delayed and closes the gate. What had been written when this was called is in the tree, and no page
    /// waits for a block that is reserved: a snapshot would share it, and no other is promised (P8).
    pub(super) fn settle(&self) -> Result<Settled<'_>> {
        {
            let _inside = self.gate.enter();
            self.write_back()?;
        }
        // The last change of the lineage may have left it: it would be completed first, and nothing could change.
        self.store.store().complete_checkpoint()?;
        let settled = Settled { core: self, closed: Some(self.gate.close()) };
        match atime::write_all(self) {
            // They wait on; the snapshot shows older ones.
            Ok(()) | Err(FsError::Store(StoreError::NoSpace)) => {}
            Err(error) => return Err(error),
        }
        // What was written since: a snapshot has a write only together with all before it.
        self.write_back()?;
        match self.data.waits_in_place() {
            true => Err(FsError::Io("data for reserved blocks could not be written".into())),
            false => Ok(settled),
        }
    }

    pub(crate) fn expect_writable(&self) -> Result<()> {
        if !self.options.read_only {
            return Ok(());
        }
        let item = self.store.store().tree(self.store.number());
        Err(match item {
            Ok(item) => FsError::OpenReadOnly(show::name(&name_of(item))),
            // Damage is met elsewhere, and told there.
            Err(_) => StoreError::ReadOnly.into(),
        })
    }
}

/// How often a branch goes on while others are opened: for ever it would not get its turn.
const WAITS_MAX: u32 = 8;

/// Runs `act` while a branch stands still: open, with all in its tree that had been written; or closed, and not opened meanwhile.
pub(crate) fn with_branch<T>(
    volume: &Volume,
    branch: u64,
    act: impl FnOnce(&Store, Option<&Core>) -> Result<T>,
) -> Result<T> {
    if volume.options.read_only {
        return Err(StoreError::ReadOnly.into());
    }
    for wait in 0.. {
        let open = volume.find(branch);
        open.as_ref().map(|core| core.expect_writable()).transpose()?;
        // Before what is open must stay so: it may take long, and others are opened meanwhile.
        let settled = open.as_ref().map(|core| core.settle()).transpose()?;
        // While another branch is opened, which may take long, programs that use this one go on.
        let _still = match volume.try_lock_opening() {
            Some(still) => still,
            None if wait < WAITS_MAX => {
                drop(settled);
                drop(volume.lock_opening());
                continue;
            }
            None => volume.lock_opening(),
        };
        // It was neither opened nor closed until it stood still, nor closed and opened anew: then other changes of it are
        // under way, or it has others in memory.
        let is_as_found = match (&open, volume.find(branch)) {
            (None, None) => true,
            (Some(core), Some(now)) => Arc::ptr_eq(core, &now),
            _ => false,
        };
        if is_as_found {
            return act(&volume.store, open.as_deref());
        }
    }
    unreachable!("it goes on until it returns")
}
