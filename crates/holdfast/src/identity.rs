//! What a superblock says of a volume beside its files, the far copy of it, and a smaller size: for volumes at rest.

use std::io;
use std::sync::Arc;

use holdfast_device::Device;
use holdfast_posix::{FileSystem, MountOptions, Shrinking};

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

/// Makes a volume at rest smaller, rounded down to whole blocks, and returns the bytes that it has then: what lies behind the new end moves
/// in front of it, and branches and snapshots share what they have shared. The device stays as long as it is; a file may be cut to that length
/// afterwards. After a crash meanwhile the volume has its old size or the new one. `tell` hears how far it has come.
///
/// # Errors
/// Those of opening the volume for writing; a sentence with about the smallest size that there can be, if too little would be free. Then the volume is what
/// it was.
pub fn shrink(
    device: &Arc<dyn Device>,
    bytes: u64,
    mut tell: impl FnMut(Shrinking),
) -> io::Result<u64> {
    FileSystem::shrink(device, bytes, &mut tell).map_err(volume_error)
}

/// Writes the far copy of the superblock, at the end of the volume, into its slot: for a volume that has lost both slots.
/// `holdfast fsck` looks first whether it leads to whole trees.
///
/// # Errors
/// When a slot is valid, or the far copy is not.
pub fn restore_superblock(device: &dyn Device) -> io::Result<()> {
    FileSystem::restore_superblock(device).map_err(volume_error)
}
