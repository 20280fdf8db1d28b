//! What a superblock says of a volume beside its files, and the far copy of it: for volumes that nobody uses.

use std::io;
use std::sync::Arc;

use holdfast_device::Device;
use holdfast_posix::{FileSystem, MountOptions};

use crate::error::volume_error;

/// Gives a volume another id or label. After a crash meanwhile it has the old ones, or the new ones.
///
/// # Errors
/// Those of opening the volume for writing.
pub fn set_identity(
    device: Arc<dyn Device>,
    uuid: Option<[u8; 16]>,
    label: Option<&str>,
) -> io::Result<()> {
    let fs = FileSystem::mount(device, MountOptions::default()).map_err(volume_error)?;
    let done = fs.set_identity(uuid, label);
    let closed = fs.unmount();
    done.and(closed).map_err(volume_error)
}

/// Forgets what was found damaged, after a check of everything has found nothing else.
///
/// # Errors
/// Those of opening the volume for writing.
pub fn clear_fault(device: Arc<dyn Device>) -> io::Result<()> {
    let fs = FileSystem::mount(device, MountOptions::default()).map_err(volume_error)?;
    let done = fs.clear_fault();
    let closed = fs.unmount();
    done.and(closed).map_err(volume_error)
}

/// Writes the far copy of the superblock, at the end of the volume, into its slot: for a volume that has lost both slots.
/// `holdfast fsck` looks first whether it leads to whole trees.
///
/// # Errors
/// When a slot is valid, or the far copy is not.
pub fn restore_superblock(device: &dyn Device) -> io::Result<()> {
    FileSystem::restore_superblock(device).map_err(volume_error)
}
