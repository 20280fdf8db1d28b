//! History made durable.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// fsync, or fdatasync with `data_only`. Reports a write error of this file that this handle has not seen yet (P7), also when nothing is dirty.
    pub fn fsync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        unimplemented!()
    }

    /// fsync of a directory (P2), or of an inode without a handle.
    pub fn fsync_inode(&self, _inode: InodeNo) -> Result<()> {
        unimplemented!()
    }

    /// Everything that was done before this call is durable when it returns.
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }
}
