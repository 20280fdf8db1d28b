//! The names of a directory.
//!
//! There are no directory handles: the position is a cookie that the
//! filesystem understands at any time, so opening a directory needs no
//! message at all.

use std::time::Duration;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{Attr, DirEntry, FsError};

use super::Server;
use crate::interface::{Answer, DirSink};
use crate::statistics::Operation;

/// Names that an answer with attributes holds, more or less.
const ANSWER: u64 = 200;

impl Server {
    /// Gives the entries after `cookie` to `sink` until it is full. With `attrs` each comes with its
    /// attributes, and all but `.` and `..` are counted as references.
    ///
    /// The kernel always wants attributes at first, and later only if names are looked up meanwhile. Inodes
    /// lie by their numbers and names by their hashes: for a part of a large directory nearly all its inodes would be
    /// read. So the first answer about one has only attributes that are in memory.
    pub fn readdir(
        &self,
        dir: InodeNo,
        cookie: u64,
        attrs: bool,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
        let _timed = self.timed(Operation::List);
        let fs = self.fs()?;
        let turn = fs.turns();
        let only_known = attrs && cookie == 0 && fs.getattr(dir)?.size > ANSWER;
        fs.readdir(dir, cookie, &mut |entry| {
            if !attrs || entry.name == b"." || entry.name == b".." {
                return sink.add(&entry, None);
            }
            let found = match only_known {
                true => match fs.getattr_in_memory(entry.inode) {
                    Some(attr) => Ok(attr),
                    None => return sink.add(&entry, None),
                },
                false => fs.getattr(entry.inode),
            };
            let (attr, ttl) = match found {
                Ok(attr) => (attr, self.ttl),
                // Removed a moment ago.
                Err(FsError::NotFound) => return true,
                // Unreadable: the name is shown all the same; a caller that needs more gets the error.
                Err(_) => (type_only(&entry), Duration::ZERO),
            };
            // Counted first: once the entry is in the answer, the kernel may use it.
            fs.remember(entry.inode, 1);
            let ttl = ttl.min(self.ttl_since(&fs, turn));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_posix::{Caller, FileSystem, FileType, NewNode};

    use super::*;
    use crate::server::fresh;

    /// Takes so many entries; which of them had attributes, and where to go on.
    struct Sink {
        room: usize,
        known: Vec<bool>,
        cookie: u64,
    }

    impl DirSink for Sink {
        fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
            if self.room == 0 {
                return false;
            }
            self.room -= 1;
            self.cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                self.known.push(attr.is_some());
            }
            true
        }
    }

    /// A directory of `count` names in a volume of which nothing has been read yet.
    fn cold(count: usize) -> (Arc<FileSystem>, Server, InodeNo) {
        let device = fresh::volume();
        let fs = fresh::mount(&device);
        let dir = fs.mkdir(&Caller::root(), InodeNo::ROOT, b"d", 0o755).unwrap().inode;
        for n in 0..count {
            let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
            fs.mknod(&Caller::root(), dir, format!("{n}").as_bytes(), new).unwrap();
        }
        Arc::into_inner(fs).unwrap().unmount().unwrap();
        let fs = fresh::mount(&device);
        let server = fresh::server(&fs);
        (fs, server, dir)
    }

    #[test]
    fn the_first_answer_about_a_large_directory_reads_no_inodes() {
        let (fs, server, dir) = cold(3000);
        let nodes = || fs.counters().nodes_read.get();
        let before = nodes();
        let mut first = Sink { room: 100, known: Vec::new(), cookie: 0 };
        server.readdir(dir, 0, true, &mut first).unwrap();
        assert_eq!(first.known.len(), 98, "every name is there");
        assert!(first.known.iter().any(|known| !known), "no inode was in memory");
        assert!(nodes() - before < 60, "{} nodes", nodes() - before);
        let mut next = Sink { room: 100, known: Vec::new(), cookie: 0 };
        server.readdir(dir, first.cookie, true, &mut next).unwrap();
        assert_eq!(next.known, [true; 100], "who asks again is answered");
        let mut again = Sink { room: 100, known: Vec::new(), cookie: 0 };
        server.readdir(dir, 0, true, &mut again).unwrap();
        let known = |sink: &Sink| sink.known.iter().filter(|known| **known).count();
        assert!(known(&again) > known(&first), "what is in memory comes along");
        server.close();
    }

    #[test]
    fn a_small_directory_comes_with_all_attributes() {
        let (_fs, server, dir) = cold(150);
        let mut sink = Sink { room: 1000, known: Vec::new(), cookie: 0 };
        server.readdir(dir, 0, true, &mut sink).unwrap();
        assert_eq!(sink.known, [true; 150]);
        server.close();
    }
}
