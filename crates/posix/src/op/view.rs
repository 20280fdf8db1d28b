//! A branch as it is at one moment, or a snapshot, opened to be read and in no call's way.
//!
//! A view is not in the list of what is open: what it shows may be deleted, rolled back, renamed, opened and closed by others. It is
//! pinned, so it shows the same as long as it lives; space of what was deleted comes back behind it.

use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_format::item::TreeKind;
use holdfast_format::item::lineage::MAIN;
use holdfast_store::{Branch, Pin};

use super::open_branch::{load, start};
use super::settle::with_branch;
use crate::open_volume::OpenVolume;
use crate::*;

impl FileSystem {
    /// A view of a branch as it is now, with each write that had returned; or of a snapshot of it.
    ///
    /// Of a branch a snapshot without a name is taken, which goes with the view, or after a crash. A volume that is only read, or has
    /// stopped (P7), needs none.
    ///
    /// # Errors
    /// There is no branch or snapshot of this name; what [`FileSystem::snapshot`] says.
    pub fn view<'a>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: Option<Which<'_>>,
    ) -> Result<FileSystem> {
        let branch = self.branch_no(branch.into())?;
        let find = snapshot.map(|of| move || self.snapshot_no(Which::Numbered(branch), of));
        view(&self.volume, branch, find, self.options().clone())
    }

    /// Whether both show branches or snapshots of one open volume, so that numbers mean the same.
    pub fn is_of_volume_of(&self, other: &FileSystem) -> bool {
        Arc::ptr_eq(&self.volume, &other.volume)
    }

    /// As [`FileSystem::changes`], from what is open there to what is open here, both of this volume. Views stay as they are;
    /// a branch that may be written is compared as it is now.
    pub fn changes_from(&self, old: &FileSystem, ranges: bool) -> Result<Changes> {
        if !self.is_of_volume_of(old) {
            return Err(FsError::Invalid("the other one is of another volume"));
        }
        let old = old.pin_open()?;
        match self.pin_open() {
            Ok(new) => Ok(Changes::new(old, new, ranges)),
            Err(error) => {
                drop(old);
                self.volume.volume.go_on_with_deletions();
                Err(error)
            }
        }
    }

    fn pin_open(&self) -> Result<Pin> {
        let (volume, store) = (&self.volume.volume, &self.core.store);
        match &self.pin {
            Some(pin) => Ok(pin.clone()),
            None if store.is_snapshot() || volume.stands_still() => {
                Ok(store.pin_number(store.number())?)
            }
            None => pin_now(&self.volume, store.number()),
        }
    }
}

impl Keeper {
    /// See [`FileSystem::view`]; by numbers, as [`Keeper::find`] says them.
    pub fn view(
        &self,
        branch: u64,
        snapshot: Option<u64>,
        options: MountOptions,
    ) -> Result<FileSystem> {
        let volume = self.volume();
        let find = snapshot.map(|number| {
            move || match volume.volume.store.tree(number)? {
                // One without a name was deleted meanwhile.
                of if of.kind == TreeKind::Snapshot && !of.name.is_empty() => Ok(number),
                _ => {
                    Err(StoreError::Lineage(LineageError::Gone(format!("number {number}"))).into())
                }
            }
        });
        view(volume, branch, find, options)
    }

    /// Something by which the whole volume is reached, for calls that are about no branch. It keeps no moment of one, and no space: what
    /// it shows goes on changing.
    pub fn door(&self, options: MountOptions) -> Result<FileSystem> {
        let volume = self.volume();
        open_pinned(volume, volume.volume.store.pin_number(MAIN)?, options)
    }
}

fn view(
    of: &Arc<OpenVolume>,
    branch: u64,
    snapshot: Option<impl FnOnce() -> Result<u64>>,
    options: MountOptions,
) -> Result<FileSystem> {
    let volume = &of.volume;
    let store = &volume.store;
    let pin = match snapshot {
        Some(find) => {
            // Nothing is deleted meanwhile.
            let _still = volume.lock_opening();
            store.pin_number(find()?)?
        }
        None if volume.stands_still() => store.pin_number(branch)?,
        None => pin_now(of, branch)?,
    };
    open_pinned(of, pin, options)
}

fn open_pinned(of: &Arc<OpenVolume>, pin: Pin, options: MountOptions) -> Result<FileSystem> {
    let volume = &of.volume;
    let store = &volume.store;
    let options = MountOptions { branch: None, snapshot: None, read_only: true, ..options };
    let opened = Branch::open_number(store.clone(), pin.number());
    let made = opened.map_err(FsError::from).and_then(|tree| load(volume, options, tree));
    match made.and_then(|core| start(core, of.clone())) {
        Ok(mut fs) => {
            fs.pin = Some(pin);
            Ok(fs)
        }
        Err(error) => {
            drop(pin);
            volume.go_on_with_deletions();
            Err(error)
        }
    }
}

/// Pins what a branch is now. One that is open to be read only has nothing in memory that is not in its tree.
fn pin_now(of: &OpenVolume, branch: u64) -> Result<Pin> {
    let volume = &of.volume;
    let now = Timestamp::now();
    {
        let _still = volume.lock_opening();
        if volume.find(branch).is_some_and(|core| core.options.read_only) {
            return Ok(volume.store.pin_now(branch, now)?);
        }
    }
    with_branch(volume, branch, |store, _| Ok(store.pin_now(branch, now)?))
}
