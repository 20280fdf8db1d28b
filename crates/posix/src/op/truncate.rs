//! A new size.

use std::sync::Arc;

use holdfast_base::Timestamp;

use crate::core::Core;
use crate::inode::Inode;
use crate::{FsError, Result};

/// Gives a regular file a new size, and `now` as its mtime and ctime.
pub(crate) fn set_size(
    _core: &Core,
    _inode: &Arc<Inode>,
    _new_size: u64,
    _now: Timestamp,
) -> Result<()> {
    Err(FsError::NotSupported)
}
