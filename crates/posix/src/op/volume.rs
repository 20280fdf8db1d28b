//! Making, mounting and leaving a volume.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Makes an empty volume with a root directory (mode 755) on the whole device.
    pub fn mkfs(_device: &Arc<dyn holdfast_store::Device>, _options: &MkfsOptions) -> Result<()> {
        unimplemented!()
    }

    /// Opens the store, collects orphans, and starts the background commit.
    pub fn mount(
        _device: Arc<dyn holdfast_store::Device>,
        _options: MountOptions,
    ) -> Result<FileSystem> {
        unimplemented!()
    }

    /// Writes everything, makes it durable and ends the threads. Dropping without this is like a crash.
    pub fn unmount(self) -> Result<()> {
        unimplemented!()
    }

    /// The statistics.
    pub fn counters(&self) -> &Counters {
        unimplemented!()
    }

    /// Why the volume turned read-only after an error (P7), if it did.
    pub fn stop_reason(&self) -> Option<String> {
        unimplemented!()
    }

    /// The present superblock.
    pub fn superblock(&self) -> holdfast_format::Superblock {
        unimplemented!()
    }
}
