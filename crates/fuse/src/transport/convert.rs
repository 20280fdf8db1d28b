//! Between the structs of the wire and ours.

use std::time::Duration;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{Attr, DirEntry, FileType, SetAttr, SetTime, StatFs};
use holdfast_wire::abi::{self, fattr, fopen};
use holdfast_wire::dirents::Dirents;

use crate::interface::{Answer, DirSink, Entry, NodeId, Opened, Request};
use crate::owners::Owners;
use crate::server::Server;
use crate::snapdir::number::{self, SHOWN_DIRECTORY, Slot};

/// Bytes of a block, as stat shows it.
const BLOCK: u32 = 4096;
/// Every attribute that a plain stat knows, and the time of birth.
const STATX_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

pub(super) fn request(header: &abi::InHeader) -> Request {
    Request { uid: header.uid, gid: header.gid, pid: header.pid }
}

pub(super) fn attr(attr: &Attr) -> abi::Attr {
    abi::Attr {
        ino: attr.inode.0,
        size: attr.size,
        blocks: attr.blocks,
        // Seconds before 1970 travel as the same 64 bits.
        atime: attr.atime.secs as u64,
        mtime: attr.mtime.secs as u64,
        ctime: attr.ctime.secs as u64,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // Device numbers came in 32 bits and go out so.
        rdev: attr.rdev as u32,
        blksize: BLOCK,
        flags: 0,
    }
}

fn mode(attr: &Attr) -> u32 {
    attr.file_type.mode_bits() | attr.perm & 0o7777
}

/// Number 0: there is no such name, and the kernel may remember that.
pub(super) fn entry(entry: &Entry) -> abi::EntryOut {
    let (secs, nanos) = (entry.ttl.as_secs(), entry.ttl.subsec_nanos());
    let attr = entry.attr.as_ref().map(attr).unwrap_or_default();
    abi::EntryOut {
        nodeid: entry.node.number,
        generation: entry.node.generation.into(),
        entry_valid: secs,
        attr_valid: secs,
        entry_valid_nsec: nanos,
        attr_valid_nsec: nanos,
        attr,
    }
}

pub(super) fn attr_out(of: &Attr, ttl: Duration) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        dummy: 0,
        attr: attr(of),
    }
}

pub(super) fn statx_out(attr: &Attr, ttl: Duration) -> abi::StatxOut {
    let time =
        |time: Timestamp| abi::SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 };
    let rdev = attr.rdev as u32;
    abi::StatxOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: abi::Statx {
            mask: STATX_MASK,
            blksize: BLOCK,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: mode(attr) as u16,
            ino: attr.inode.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(attr.btime),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: (rdev & 0xfff00) >> 8,
            rdev_minor: rdev & 0xff | (rdev >> 12) & 0xfff00,
            ..abi::Statx::default()
        },
    }
}

pub(super) fn opened(opened: &Opened) -> abi::OpenOut {
    let mut flags = 0;
    if opened.direct {
        flags |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    }
    if opened.keep_cache {
        flags |= fopen::KEEP_CACHE;
    }
    abi::OpenOut { fh: opened.fh, open_flags: flags, backing_id: 0 }
}

pub(super) fn statfs(space: &StatFs) -> abi::StatfsOut {
    abi::StatfsOut {
        blocks: space.blocks,
        bfree: space.blocks_free,
        bavail: space.blocks_available,
        files: space.inodes,
        ffree: space.inodes_free,
        bsize: space.block_size,
        namelen: space.name_max,
        frsize: space.block_size,
        ..abi::StatfsOut::default()
    }
}

/// What a setattr changes, and the open file that it names.
pub(super) fn set_attr(set: &abi::SetattrIn) -> (SetAttr, Option<u64>) {
    let has = |bit| set.valid & bit != 0;
    let time = |set_it, now, secs: u64, nanos| match (has(set_it), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { secs: secs as i64, nanos })),
    };
    let change = SetAttr {
        perm: has(fattr::MODE).then_some(set.mode & 0o7777),
        uid: has(fattr::UID).then_some(set.uid),
        gid: has(fattr::GID).then_some(set.gid),
        size: has(fattr::SIZE).then_some(set.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, set.atime, set.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, set.mtime, set.mtimensec),
        btime: None,
        kill_suid_sgid: has(fattr::KILL_SUIDGID),
        kill_capabilities: false,
    };
    (change, has(fattr::FH).then_some(set.fh))
}

/// A directory of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct Inside {
    pub(super) slot: Slot,
    /// The number of the snapshot.
    pub(super) snapshot: u64,
    /// The directory's number in it.
    pub(super) dir: InodeNo,
}

/// Names on their way to the kernel, with attributes or without.
pub(super) struct Names<'a> {
    out: Dirents<'a>,
    plus: bool,
    /// What the mount shows.
    server: &'a Server,
    /// The directory lies in a snapshot.
    of: Option<Inside>,
    /// How owners are shown.
    owners: Owners,
    /// One had no room, or no number.
    full: Answer<bool>,
    /// How many come with attributes, and so with a reference.
    referred: u64,
}

impl<'a> Names<'a> {
    /// Room for the names of a directory of this mount; `of`: which one in which snapshot, if it lies in one.
    pub(super) fn of(
        out: Dirents<'a>,
        plus: bool,
        server: &'a Server,
        of: Option<Inside>,
    ) -> Names<'a> {
        Names { out, plus, server, of, owners: server.options.owners, full: Ok(false), referred: 0 }
    }

    /// Whether a name had no room.
    pub(super) fn is_full(&self) -> bool {
        self.full != Ok(false)
    }

    /// How many references the kernel gets with them.
    pub(super) fn referred(&self) -> u64 {
        self.referred
    }

    /// Bytes of the answer.
    pub(super) fn used(&self) -> Answer<usize> {
        self.full.map(|_| self.out.used())
    }

    /// The number of an entry, for programs.
    fn shown(&self, entry: &DirEntry<'_>) -> Answer<InodeNo> {
        match self.of {
            None => Ok(entry.inode),
            Some(Inside { dir: InodeNo::ROOT, .. }) if entry.name == b".." => Ok(SHOWN_DIRECTORY),
            Some(of) => self.server.shown_in_snapshot(of.slot, entry.inode),
        }
    }

    /// By what the kernel knows an entry.
    fn node(&self, entry: &DirEntry<'_>) -> Answer<NodeId> {
        match self.of {
            None => Ok(self.server.node(entry.inode)),
            Some(of) => node_inside(of.slot, of.snapshot, entry.inode),
        }
    }
}

impl DirSink for Names<'_> {
    fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
        let numbers = self.shown(entry).and_then(|inode| Ok((inode, self.node(entry)?)));
        let (inode, node) = match numbers {
            Ok(numbers) => numbers,
            Err(error) => {
                self.full = Err(error);
                return false;
            }
        };
        let plus = self.plus.then(|| match attr {
            Some((attr, ttl)) => {
                let mut attr = Attr { inode, ..*attr };
                self.owners.show(&mut attr);
                self::entry(&Entry { node, attr: Some(attr), ttl })
            }
            None => type_only(inode.0, entry.file_type),
        });
        let kind = entry.file_type.mode_bits() >> 12;
        let taken = self.out.add(plus.as_ref(), inode.0, entry.cookie, kind, entry.name);
        if !taken {
            self.full = Ok(true);
        }
        self.referred += u64::from(taken && plus.is_some() && attr.is_some());
        taken
    }

    fn clear(&mut self) {
        self.out.clear();
        self.full = Ok(false);
        self.referred = 0;
    }
}

/// By what the kernel knows an inode of a snapshot, which may have got the slot of another one.
pub(super) fn node_inside(slot: Slot, snapshot: u64, inode: InodeNo) -> Answer<NodeId> {
    Ok(NodeId { number: number::inside(slot, inode)?, generation: snapshot as u32 })
}

/// Only a number and a type: all that the kernel takes from `.` and `..`, of which it keeps no reference.
fn type_only(inode: u64, file_type: FileType) -> abi::EntryOut {
    let attr = abi::Attr { ino: inode, mode: file_type.mode_bits(), ..abi::Attr::default() };
    abi::EntryOut { attr, ..abi::EntryOut::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_arrive_as_they_were_sent() {
        let set = abi::SetattrIn {
            valid: fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW,
            atime: -5i64 as u64,
            atimensec: 250_000_000,
            ..abi::SetattrIn::default()
        };
        let (change, fh) = set_attr(&set);
        assert_eq!(change.atime, Some(SetTime::At(Timestamp { secs: -5, nanos: 250_000_000 })));
        assert_eq!((change.mtime, change.size, fh), (Some(SetTime::Now), None, None));
    }

    #[test]
    fn direct_handles_allow_writes_side_by_side() {
        let direct = opened(&Opened { fh: 1, direct: true, keep_cache: true });
        assert_eq!(
            direct.open_flags,
            fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES | fopen::KEEP_CACHE
        );
        assert_eq!(opened(&Opened { fh: 1, direct: false, keep_cache: false }).open_flags, 0);
    }

    #[test]
    fn no_such_name_is_number_zero() {
        let none = entry(&Entry::none(Duration::from_millis(1500)));
        assert_eq!((none.nodeid, none.entry_valid, none.entry_valid_nsec), (0, 1, 500_000_000));
    }
}
