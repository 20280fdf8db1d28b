//! Content items of a file: all of it, or none of it.

use holdfast_base::InodeNo;
use holdfast_format::{Key, Kind};
use holdfast_store::{Batch, Reservation};

use crate::core::Core;
use crate::{FsError, Result};

/// Appends the removal of up to `items_max` content items and of their blocks; true when nothing is left.
pub(crate) fn plan_removal(
    _core: &Core,
    _inode: InodeNo,
    _batch: &mut Batch,
    _items_max: usize,
) -> Result<bool> {
    Ok(true)
}

/// Writes a whole small content, and returns the blocks that it takes.
pub(crate) fn store_whole(
    core: &Core,
    inode: InodeNo,
    bytes: &[u8],
    _reservation: &mut Reservation,
    batch: &mut Batch,
) -> Result<u64> {
    if bytes.len() > core.store.value_max() {
        return Err(FsError::NotSupported);
    }
    batch.put(Key::new(inode, Kind::Inline, 0), bytes.to_vec());
    Ok(0)
}

/// Reads a whole content of `size` bytes.
pub(crate) fn load_whole(core: &Core, inode: InodeNo, _size: u64) -> Result<Vec<u8>> {
    Ok(core
        .store
        .get(&Key::new(inode, Kind::Inline, 0))?
        .unwrap_or_default())
}
