//! One file: what it is, its bytes, its attributes.

use std::ops::Range;
use std::sync::Arc;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{Attr, FileType, FsError, OpenFile, OpenFlags, Seek};

use super::Sender;
use super::side::SentTree;
use crate::error::Doing;
use crate::frame::Sink;
use crate::record::{Attributes, DATA_MAX, Kind, Make, Named3, Record, Time};
use crate::{Result, StreamError};

fn kind(of: FileType) -> Kind {
    match of {
        FileType::Fifo => Kind::Fifo,
        FileType::CharDevice => Kind::CharDevice,
        FileType::Directory => Kind::Directory,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Regular => Kind::Regular,
        FileType::Symlink => Kind::Symlink,
        FileType::Socket => Kind::Socket,
    }
}

fn time(of: Timestamp) -> Time {
    Time { secs: of.secs, nanos: of.nanos }
}

impl<O: Sink> Sender<'_, O> {
    pub(super) fn expect(&self, id: u64) -> Result<Attr> {
        let gone = || StreamError::Refused(format!("inode {id} has a name and is not there"));
        self.new.attr(id)?.ok_or_else(gone)
    }

    /// Makes a file, in a directory that the receiver knows or parked.
    pub(super) fn make(&mut self, attr: &Attr, place: Option<(u64, &[u8])>) -> Result<()> {
        let id = attr.inode.0;
        let target = match attr.file_type {
            FileType::Symlink => self.new.fs.readlink(attr.inode).doing(|| self.new.called(id))?,
            _ => Vec::new(),
        };
        let (dir, name) = match place {
            Some((dir, name)) => (Some(dir), name),
            None => (None, &[][..]),
        };
        let (kind, rdev) = (kind(attr.file_type), attr.rdev);
        self.put(&Record::Make(Make { id, dir, name, kind, rdev, target: &target }))?;
        self.table.add(id);
        self.made_one();
        Ok(())
    }

    /// Makes anything but a directory, with all that it is.
    pub(super) fn make_whole(&mut self, attr: &Attr, place: Option<(u64, &[u8])>) -> Result<()> {
        self.make(attr, place)?;
        if attr.file_type == FileType::Regular {
            self.content(attr)?;
        }
        self.xattrs(attr.inode.0, false)?;
        self.attributes(attr)
    }

    /// A new name of a file that has several: the first one makes it.
    pub(super) fn link(&mut self, attr: &Attr, dir: u64, name: &[u8]) -> Result<()> {
        let id = attr.inode.0;
        if !self.table.parked.contains(&id) {
            self.make_whole(attr, None)?;
            self.table.parked.insert(id);
        }
        self.know(id)?;
        self.put(&Record::Link(Named3 { id, dir, name }))?;
        // By the rules a file is spoken of until its attributes come.
        self.attributes(attr)
    }

    fn open(&self, id: u64) -> Result<Arc<OpenFile>> {
        let flags = OpenFlags::READ | OpenFlags::NOATIME;
        self.new.fs.open(&self.new.caller, InodeNo(id), flags).doing(|| self.new.called(id))
    }

    /// All bytes of a new file.
    fn content(&mut self, attr: &Attr) -> Result<()> {
        if attr.size == 0 {
            return Ok(());
        }
        let id = attr.inode.0;
        let file = self.open(id)?;
        let mut end = 0;
        for data in data_in(&self.new, &file, 0..attr.size)? {
            end = data.end;
            self.data(&file, data)?;
        }
        if end < attr.size {
            self.put(&Record::Size { id, size: attr.size })?;
        }
        Ok(())
    }

    /// What differs of a file's bytes.
    pub(super) fn changed_content(
        &mut self,
        attr: &Attr,
        old_size: u64,
        ranges: &[Range<u64>],
    ) -> Result<()> {
        let (id, size) = (attr.inode.0, attr.size);
        if old_size != size {
            self.put(&Record::Size { id, size })?;
        }
        let file = self.open(id)?;
        for range in ranges {
            let range = range.start..range.end.min(size);
            let mut at = range.start;
            for data in data_in(&self.new, &file, range.clone())? {
                self.hole(id, at..data.start, old_size)?;
                at = data.end;
                self.data(&file, data)?;
            }
            self.hole(id, at..range.end, old_size)?;
        }
        Ok(())
    }

    /// A hole, where the old file had bytes.
    fn hole(&mut self, id: u64, range: Range<u64>, old_size: u64) -> Result<()> {
        let end = range.end.min(old_size);
        if range.start >= end {
            return Ok(());
        }
        self.put(&Record::Hole { id, offset: range.start, len: end - range.start })
    }

    fn data(&mut self, file: &OpenFile, range: Range<u64>) -> Result<()> {
        let id = file.inode().0;
        let mut at = range.start;
        let mut buffer = Vec::new();
        while at < range.end {
            let len = (range.end - at).min(DATA_MAX as u64) as usize;
            if self.out.is_skipping() {
                self.out.pass_data(id, at, len)?;
            } else {
                buffer.resize(len, 0);
                let got = self.new.fs.read(file, at, &mut buffer).doing(|| self.new.called(id))?;
                if got != len {
                    return StreamError::refused(format!("{} ends early", self.new.called(id)));
                }
                self.put(&Record::Data { id, offset: at, bytes: &buffer })?;
                self.tell();
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Extended attributes: those of the new tree, and which of the old one are there no more.
    pub(super) fn xattrs(&mut self, id: u64, had_some: bool) -> Result<()> {
        let names = self.new.xattrs(id)?;
        if let Some(base) = self.base.as_ref().filter(|_| had_some) {
            let gone: Vec<Vec<u8>> =
                base.xattrs(id)?.into_iter().filter(|name| !names.contains(name)).collect();
            for name in gone {
                self.put(&Record::NoXattr { id, name: &name })?;
            }
        }
        for name in names {
            let value = self.new.xattr(id, &name)?;
            if had_some
                && let Some(base) = &self.base
                && base.xattr(id, &name).is_ok_and(|old| old == value)
            {
                continue;
            }
            self.put(&Record::Xattr { id, name: &name, value: &value })?;
        }
        Ok(())
    }

    /// The attributes, which end what is said of anything but a directory.
    pub(super) fn attributes(&mut self, attr: &Attr) -> Result<()> {
        let id = attr.inode.0;
        self.put(&Record::Attributes(Attributes {
            id,
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            accessed: time(attr.atime),
            modified: time(attr.mtime),
            created: time(attr.btime),
        }))?;
        if attr.file_type != FileType::Directory {
            self.table.drop(id);
        }
        Ok(())
    }
}

/// Where a file has data in a range.
fn data_in(side: &SentTree, file: &OpenFile, range: Range<u64>) -> Result<Vec<Range<u64>>> {
    let called = || side.called(file.inode().0);
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let start = match side.fs.seek(file, at, Seek::Data) {
            Err(FsError::NoSuchPosition) => break,
            start => start.doing(called)?,
        };
        if start >= range.end {
            break;
        }
        let end = side.fs.seek(file, start, Seek::Hole).doing(called)?.min(range.end);
        if end <= start {
            return StreamError::refused(format!("{}: its data has no end", called()));
        }
        found.push(start..end);
        at = end;
    }
    Ok(found)
}
