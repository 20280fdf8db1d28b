//! Between the types of the `fuser` crate and ours.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    FileAttr, FopenFlags, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, TimeOrNow,
};
use holdfast_base::Timestamp;
use holdfast_posix::{Attr, DirEntry, FileType, SetTime};

use crate::ops::{DirSink, Errno, Opened, Request};

pub(super) fn request(request: &fuser::Request) -> Request {
    Request { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.0)
}

pub(super) fn fopen(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags.set(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES, opened.direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags
}

fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::Directory => fuser::FileType::Directory,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Socket => fuser::FileType::Socket,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.inode.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: kind(attr.file_type),
        perm: (attr.perm & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Device numbers came in 32 bits and go out so.
        rdev: attr.rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// Only a number and a type: all that the kernel takes from `.` and `..`.
fn type_only(inode: u64, file_type: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: kind(file_type),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Number 0 in an entry: there is no such name, and the kernel may remember that.
pub(super) fn no_such_attr() -> FileAttr {
    type_only(0, FileType::Regular)
}

/// A time to set.
pub(super) fn from_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// The time that was sent. The crate turns `-s` seconds and `n` nanoseconds into the moment `s` seconds
/// *and* `n` nanoseconds before 1970, which is `2n` too early; this takes it back.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => Timestamp::from(time),
        Err(before) => Timestamp {
            secs: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

/// Names without attributes on their way to the kernel.
pub(super) struct Names(pub(super) ReplyDirectory);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>, _: Option<(&Attr, Duration)>) -> bool {
        let name = OsStr::from_bytes(entry.name);
        let inode = INodeNo(entry.inode.0);
        !self.0.add(inode, entry.cookie, kind(entry.file_type), name)
    }
}

/// Names with attributes on their way to the kernel.
pub(super) struct NamesPlus(pub(super) ReplyDirectoryPlus);

impl DirSink for NamesPlus {
    fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
        let name = OsStr::from_bytes(entry.name);
        let (attr, ttl) = match attr {
            Some((attr, ttl)) => (file_attr(attr), ttl),
            None => (type_only(entry.inode.0, entry.file_type), Duration::ZERO),
        };
        !self.0.add(attr.ino, entry.cookie, name, &ttl, &attr, Generation(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_arrive_as_they_were_sent() {
        // As the crate decodes seconds -5 and 250 ms.
        let decoded = UNIX_EPOCH - Duration::new(5, 250_000_000);
        let sent = Timestamp { secs: -5, nanos: 250_000_000 };
        assert_eq!(timestamp(decoded), sent);
        let after = UNIX_EPOCH + Duration::new(7, 1);
        assert_eq!(timestamp(after), Timestamp { secs: 7, nanos: 1 });
    }

    #[test]
    fn types_and_modes_keep_their_bits() {
        for raw in [1, 2, 4, 6, 8, 10, 12] {
            let file_type = FileType::from_raw(raw).unwrap();
            let attr = type_only(9, file_type);
            assert_eq!(attr.kind, kind(file_type));
            assert_eq!(attr.ino, INodeNo(9));
        }
        assert_eq!(no_such_attr().ino, INodeNo(0));
    }

    #[test]
    fn direct_handles_allow_writes_side_by_side() {
        let opened = Opened { fh: 1, direct: true, keep_cache: true };
        assert_eq!(
            fopen(&opened),
            FopenFlags::FOPEN_DIRECT_IO
                | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
                | FopenFlags::FOPEN_KEEP_CACHE
        );
    }
}
