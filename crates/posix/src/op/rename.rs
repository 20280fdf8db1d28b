//! A name moves, as one step (P4).

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Moves a name. Replaces, refuses or exchanges as POSIX and `flags` say.
    pub fn rename(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _name: &[u8],
        _new_parent: InodeNo,
        _new_name: &[u8],
        _flags: RenameFlags,
    ) -> Result<()> {
        unimplemented!()
    }
}
