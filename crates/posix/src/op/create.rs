//! New inodes with a name.

#![allow(unused_imports)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;

use crate::*;

impl FileSystem {
    /// Makes a file, directory, pipe, socket or device with a name that must not exist.
    pub fn mknod(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _name: &[u8],
        _new: NewNode,
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _name: &[u8],
        _perm: u32,
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _name: &[u8],
        _target: &[u8],
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, _inode: InodeNo) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Makes a regular file and opens it. With `exclusive` the name must not exist; otherwise an existing file is opened.
    pub fn create(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _name: &[u8],
        _perm: u32,
        _flags: OpenFlags,
        _exclusive: bool,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        unimplemented!()
    }

    /// Makes a regular file without a name and opens it (O_TMPFILE). It vanishes when closed unless linked.
    pub fn tmpfile(
        &self,
        _caller: &Caller,
        _parent: InodeNo,
        _perm: u32,
        _flags: OpenFlags,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        unimplemented!()
    }
}
