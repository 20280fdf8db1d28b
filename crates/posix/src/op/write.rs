//! Bytes into a file.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

/// What a single write adds to how its file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// Durable before it returns, whatever the handle says.
    pub sync: bool,
    /// At the end of the file, whatever the handle says.
    pub append: bool,
    /// Clear set-id bits (FUSE KILL_SUIDGID).
    pub kill_suid_sgid: bool,
}

impl FileSystem {
    /// Writes at `offset` (at the end with APPEND). Buffered unless the handle is SYNC or DSYNC. Space is decided now (P8).
    pub fn write(
        &self,
        _caller: &Caller,
        _file: &OpenFile,
        _offset: u64,
        _bytes: &[u8],
        _how: WriteHow,
    ) -> Result<usize> {
        unimplemented!()
    }
}
