//! A volume that stays open, whichever of its branches are open.

use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_format::Superblock;
use holdfast_format::item::lineage::MAIN;

use crate::open_volume::OpenVolume;
use crate::{FileSystem, MountOptions, Result};

/// Keeps a volume open: its store, its space and its history go on when its last branch is closed, and others can be opened.
/// To be [closed](Keeper::close) after all branches; dropping it then is like a crash.
#[derive(Debug)]
pub struct Keeper {
    volume: Arc<OpenVolume>,
}

impl FileSystem {
    /// Keeps the volume open beyond the last of its branches.
    pub fn keep(&self) -> Keeper {
        Keeper { volume: Arc::clone(&self.volume) }
    }
}

impl Keeper {
    pub(crate) fn volume(&self) -> &Arc<OpenVolume> {
        &self.volume
    }

    /// The present superblock.
    pub fn superblock(&self) -> Superblock {
        self.volume.volume.store.superblock()
    }

    /// When and why the volume stopped writing after an error (P7), if it did.
    pub fn stopped(&self) -> Option<(Timestamp, String)> {
        let store = &self.volume.volume.store;
        store.stopped_since().zip(store.stop_reason())
    }

    /// The numbers of a branch and of a snapshot of it, by the names that they have now. `None` in place of a branch: the one
    /// that the volume was made with.
    pub fn find(
        &self,
        branch: Option<&[u8]>,
        snapshot: Option<&[u8]>,
    ) -> Result<(u64, Option<u64>)> {
        let store = &self.volume.volume.store;
        let branch = branch.map_or(Ok(MAIN), |name| store.find_tree(name, None))?;
        let snapshot = snapshot.map(|name| store.find_snapshot(branch, name)).transpose()?;
        Ok((branch, snapshot))
    }

    /// Opens a branch or a snapshot, by its number. See [`FileSystem::open_branch`].
    pub fn open(&self, number: u64, options: MountOptions) -> Result<FileSystem> {
        FileSystem::open_number(&self.volume, number, options)
    }

    /// Closes the volume; if branches are still open, it is closed with the last of them.
    pub fn close(self) -> Result<()> {
        Arc::into_inner(self.volume).map_or(Ok(()), OpenVolume::close)
    }
}
