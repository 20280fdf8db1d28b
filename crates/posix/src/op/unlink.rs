//! Fewer names.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Removes a name of anything but a directory. The inode goes with its last name, or with its last handle.
    pub fn unlink(&self, _caller: &Caller, _parent: InodeNo, _name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, _caller: &Caller, _parent: InodeNo, _name: &[u8]) -> Result<()> {
        unimplemented!()
    }
}
