//! How full the volume is.

use holdfast_base::units::BLOCK_SIZE;
use holdfast_format::limits::NAME_MAX;

use crate::*;

/// Inodes that a free block is said to give room for: an empty file takes about 200 bytes of tree
/// with its name, and half-full leaves twice that.
const INODES_PER_BLOCK: u64 = 8;

impl FileSystem {
    /// Space and inodes. Inodes are made as needed, so those free follow from the free space.
    pub fn statfs(&self) -> StatFs {
        let space = self.core.store.space_use();
        let inodes_free = space.available.saturating_mul(INODES_PER_BLOCK);
        StatFs {
            block_size: BLOCK_SIZE as u32,
            blocks: space.total,
            blocks_free: space.free,
            blocks_available: space.available,
            inodes: self.core.store.inode_count().saturating_add(inodes_free),
            inodes_free,
            name_max: NAME_MAX as u32,
        }
    }
}
