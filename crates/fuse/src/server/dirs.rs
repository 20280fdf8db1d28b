//! The names of a directory.
//!
//! There are no directory handles: the position is a cookie that the
//! filesystem understands at any time, so opening a directory needs no
//! message at all.

use std::time::Duration;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{Attr, DirEntry, FsError};

use super::Server;
use crate::ops::{Answer, DirSink};

impl Server {
    /// Gives the entries after `cookie` to `sink` until it is full. With `attrs` each comes with its
    /// attributes, and all but `.` and `..` are counted as references.
    pub fn readdir(
        &self,
        dir: InodeNo,
        cookie: u64,
        attrs: bool,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        let fs = self.fs()?;
        fs.readdir(dir, cookie, &mut |entry| {
            if !attrs || entry.name == b"." || entry.name == b".." {
                return sink.add(&entry, None);
            }
            let (attr, ttl) = match fs.getattr(entry.inode) {
                Ok(attr) => (attr, self.ttl),
                // Removed a moment ago.
                Err(FsError::NotFound) => return true,
                // Unreadable: the name is shown all the same; who needs more gets the error.
                Err(_) => (type_only(&entry), Duration::ZERO),
            };
            // Counted first: once the entry is in the answer, the kernel may use it.
            fs.remember(entry.inode, 1);
            let taken = sink.add(&entry, Some((&attr, ttl)));
            if !taken {
                fs.forget(entry.inode, 1);
            }
            taken
        })?;
        Ok(())
    }
}

/// Attributes of which only number and type are true.
fn type_only(entry: &DirEntry<'_>) -> Attr {
    Attr {
        inode: entry.inode,
        file_type: entry.file_type,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        blocks: 0,
        rdev: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
    }
}
