//! Extended attributes.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// The value of an attribute.
    pub fn getxattr(&self, _caller: &Caller, _inode: InodeNo, _name: &[u8]) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// The names of all attributes that `caller` may see.
    pub fn listxattr(&self, _caller: &Caller, _inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        unimplemented!()
    }

    /// Sets an attribute.
    pub fn setxattr(
        &self,
        _caller: &Caller,
        _inode: InodeNo,
        _name: &[u8],
        _value: &[u8],
        _flags: XattrFlags,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Removes an attribute.
    pub fn removexattr(&self, _caller: &Caller, _inode: InodeNo, _name: &[u8]) -> Result<()> {
        unimplemented!()
    }
}
