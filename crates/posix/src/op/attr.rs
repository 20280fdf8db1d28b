//! What stat shows and chmod, chown, utimens and truncate change.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// The attributes of an inode.
    pub fn getattr(&self, _inode: InodeNo) -> Result<Attr> {
        unimplemented!()
    }

    /// Changes attributes. With a `file` opened for writing, its permission to change the size counts.
    pub fn setattr(
        &self,
        _caller: &Caller,
        _inode: InodeNo,
        _file: Option<&OpenFile>,
        _change: SetAttr,
    ) -> Result<Attr> {
        unimplemented!()
    }
}
