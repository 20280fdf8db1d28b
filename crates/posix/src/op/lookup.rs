//! From names to inodes, and how long an inode is kept.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// The inode that `name` leads to in `parent`. `.` and `..` work. Does not count as a kernel reference.
    pub fn lookup(&self, _caller: &Caller, _parent: InodeNo, _name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }

    /// Keeps `inode` known for `count` more references (FUSE lookups): an unlinked inode lives until they are forgotten.
    pub fn remember(&self, _inode: InodeNo, _count: u64) {
        unimplemented!()
    }

    /// Takes `count` references back.
    pub fn forget(&self, _inode: InodeNo, _count: u64) {
        unimplemented!()
    }

    /// Whether `caller` may do all of `access` with `inode`.
    pub fn access(&self, _caller: &Caller, _inode: InodeNo, _access: Access) -> Result<()> {
        unimplemented!()
    }
}
