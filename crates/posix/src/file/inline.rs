//! Files so small that their content is an item of the tree.
//!
//! Invariant: a file with an inline item has no extents, the item is as long as the file's size in the tree, and that
//! is at most [`size_max`]. An operation that makes such a file larger brings its content into the first page, so that
//! the next writeback writes a block and deletes the item.

use holdfast_base::InodeNo;
use holdfast_format::item::InodeItem;
use holdfast_format::{ItemKind, Key, Malformed};
use holdfast_store::StoreError;

use crate::core::Core;
use crate::error::damaged_item;

/// Larger content is cheaper in a block of its own: rewriting it would dirty half a block of tree.
const INLINE_BYTES_MAX: u64 = 2048;

/// Largest size of a file that is kept inline, in bytes.
pub(crate) fn size_max(core: &Core) -> u64 {
    (core.store.value_max() as u64).min(INLINE_BYTES_MAX)
}

/// The key of the item.
pub(crate) fn key(inode: InodeNo) -> Key {
    Key::new(inode, ItemKind::Inline, 0)
}

/// Whether a file with this item in the tree may have an inline item.
pub(crate) fn may_exist(core: &Core, disk: &InodeItem) -> bool {
    // Not `size_max`: a volume written with a larger limit can be read as well.
    disk.blocks == 0 && disk.size > 0 && disk.size <= core.store.value_max() as u64
}

/// The inline content of a file of `size` bytes, if it has one.
pub(crate) fn load(core: &Core, inode: InodeNo, size: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(bytes) = core.store.get(&key(inode))? else {
        return Ok(None);
    };
    if bytes.len() as u64 != size {
        let why = format!("{} bytes for a file of {size}", bytes.len());
        let what = format!("the inline content of {}", core.called(inode));
        return Err(damaged_item(&core.store, what, Malformed::new("inline content", why)));
    }
    Ok(Some(bytes))
}
