//! More names for an inode.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Gives `inode` one more name. Directories may not have two. An O_TMPFILE inode gets its first.
    pub fn link(
        &self,
        _caller: &Caller,
        _inode: InodeNo,
        _parent: InodeNo,
        _name: &[u8],
    ) -> Result<Attr> {
        unimplemented!()
    }
}
