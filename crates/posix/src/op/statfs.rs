//! How full the volume is.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Space and inodes.
    pub fn statfs(&self) -> StatFs {
        unimplemented!()
    }
}
