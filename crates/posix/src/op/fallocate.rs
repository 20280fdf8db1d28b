//! Space ahead of data, holes, zeros.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Allocates, punches or zeroes a range, as `flags` say.
    pub fn fallocate(
        &self,
        _file: &OpenFile,
        _flags: FallocateFlags,
        _offset: u64,
        _len: u64,
    ) -> Result<()> {
        unimplemented!()
    }
}
