//! Bytes out of a file.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Reads at `offset` into `into`; fewer bytes only at the end of the file. Data that fails its checksum is EIO (P6).
    pub fn read(&self, _file: &OpenFile, _offset: u64, _into: &mut [u8]) -> Result<usize> {
        unimplemented!()
    }
}
