//! File data in memory, on its way to the device.

pub(crate) mod commit;
pub(crate) mod writeback;

use crate::core::Core;
use crate::inode::Inode;

/// What writeback shares between all files of a volume.
#[derive(Debug, Default)]
pub(crate) struct Shared {}

/// The content of one file in memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {}

impl FileData {
    /// Whether nothing is dirty and nothing is being written. Takes no lock.
    pub(crate) fn is_clean(&self) -> bool {
        true
    }
}

/// Drops what is dirty of an inode that nobody can reach. When it returns nothing is being written
/// any more, and nothing of it will be published. Called without any state locked.
pub(crate) fn discard(_core: &Core, _inode: &Inode) {}
