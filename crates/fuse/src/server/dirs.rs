//! The names of a directory.
//!
//! There are no directory handles: the position is a cookie that the
//! filesystem understands at any time, so opening a directory needs no
//! message at all.

use std::time::Duration;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{Attr, DirEntry, FileSystem, FsError};

use super::Server;
use crate::interface::{Answer, DirSink};
use crate::statistics::Operation;

/// Names that an answer with attributes holds, more or less.
const ANSWER: u64 = 200;

/// Remembers which entries were counted as references.
struct Counting<'a> {
    sink: &'a mut dyn DirSink,
    counted: Vec<InodeNo>,
}

impl DirSink for Counting<'_> {
    fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
        let taken = self.sink.add(entry, attr);
        if taken && attr.is_some() {
            self.counted.push(entry.inode);
        }
        taken
    }

    fn clear(&mut self) {
        self.sink.clear();
        self.counted.clear();
    }
}

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
        loop {
            let turn = fs.turns();
            let mut counting = Counting { sink, counted: Vec::new() };
            let done = self.list(&fs, dir, cookie, attrs, &mut counting);
            let Counting { counted, .. } = counting;
            if done.is_ok() && fs.turns() == turn {
                return Ok(());
            }
            // The kernel gets none of it: it has heard already that the head is void that a part of it is of.
            self.forget_all(counted.into_iter().map(|inode| (inode, 1)));
            done?;
            sink.clear();
        }
    }

    fn list(
        &self,
        fs: &FileSystem,
        dir: InodeNo,
        cookie: u64,
        attrs: bool,
        sink: &mut dyn DirSink,
    ) -> Answer<()> {
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
                Ok(attr) => (attr, self.options.ttl),
                // Removed a moment ago.
                Err(FsError::NotFound) => return true,
                // Unreadable: the name is shown all the same; a caller that needs more gets the error.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_posix::{Caller, FileType, NewNode, SetAttr};

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

        fn clear(&mut self) {
            self.known.clear();
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

    /// Goes back to a snapshot when it has a name, once.
    struct Turning<'a> {
        fs: &'a FileSystem,
        turned: bool,
        names: Vec<(Vec<u8>, u64)>,
    }

    impl DirSink for Turning<'_> {
        fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
            if let Some((attr, _)) = attr {
                self.names.push((entry.name.into(), attr.size));
                if !std::mem::replace(&mut self.turned, true) {
                    self.fs.rollback(b"s", None).unwrap();
                }
            }
            true
        }

        fn clear(&mut self) {
            self.names.clear();
        }
    }

    /// The kernel has heard already that what was is void, and would believe an answer that comes behind that.
    #[test]
    fn an_answer_that_a_rollback_overtakes_has_nothing_of_what_was() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
        let made = [b"a", b"b"]
            .map(|name| fs.mknod(&Caller::root(), InodeNo::ROOT, name, new).unwrap().inode);
        fs.snapshot(b"s").unwrap();
        fs.mknod(&Caller::root(), InodeNo::ROOT, b"c", new).unwrap();
        for inode in made {
            let to = SetAttr { size: Some(7), ..SetAttr::default() };
            fs.setattr(&Caller::root(), inode, None, to).unwrap();
        }
        let mut sink = Turning { fs: &fs, turned: false, names: Vec::new() };
        server.readdir(InodeNo::ROOT, 0, true, &mut sink).unwrap();
        let mut names = sink.names;
        names.sort();
        assert_eq!(names, [(b"a".to_vec(), 0), (b"b".to_vec(), 0)]);
        // Each is referred to once.
        assert!(made.iter().all(|inode| fs.forget(*inode, 1)));
        server.close();
    }
}
