//! Handles.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

/// An open file. The inode lives at least as long as the handle.
#[derive(Debug)]
pub struct OpenFile {}

impl OpenFile {
    /// The inode.
    pub fn inode(&self) -> InodeNo {
        unimplemented!()
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        unimplemented!()
    }
}

impl FileSystem {
    /// Opens a regular file; with TRUNCATE it is emptied.
    pub fn open(
        &self,
        _caller: &Caller,
        _inode: InodeNo,
        _flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        unimplemented!()
    }
}
