//! Where data is and where it is not.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// The next data or hole at or after `offset`. Allocated but unwritten blocks count as holes.
    pub fn seek(&self, _file: &OpenFile, _offset: u64, _whence: Seek) -> Result<u64> {
        unimplemented!()
    }
}
