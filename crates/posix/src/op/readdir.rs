//! The names of a directory.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Calls `visit` for the entries after `cookie` (0: from the start), until it answers false. Every entry that exists all the time is seen once; others may be. `visit` may call the filesystem.
    pub fn readdir(
        &self,
        _dir: InodeNo,
        _cookie: u64,
        _visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        unimplemented!()
    }
}
