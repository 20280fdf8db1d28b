//! The arguments of requests: what a kernel sends, and what none would.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_fuse::interface::{FileId, Mode};
use holdfast_fuse::{
    FSYNC_XATTR, REMOUNT_XATTR, REPORT_XATTR, SHOWN_XATTR, STATS_XATTR, SYNC_XATTR,
};
use holdfast_posix::SetTime;

use super::Client;

impl Client<'_> {
    pub(super) fn number(&mut self) -> u64 {
        let known = [4096, 1 << 16, i64::MAX as u64, 1 << 32, 8 << 20, (1 << 63) - 4096, 512];
        self.program.number(4096, &known)
    }

    pub(super) fn inode(&mut self) -> InodeNo {
        match self.program.byte() {
            255 => InodeNo(self.number()),
            at => InodeNo(self.inodes[usize::from(at) % self.inodes.len()]),
        }
    }

    pub(super) fn handle(&mut self) -> u64 {
        match self.program.byte() {
            at if at < 250 && !self.handles.is_empty() => {
                self.handles[usize::from(at) % self.handles.len()]
            }
            _ => self.number(),
        }
    }

    pub(super) fn file(&mut self) -> FileId {
        let flags = if self.program.byte() & 1 == 0 { 0 } else { libc::O_NOATIME };
        FileId { inode: self.inode(), fh: self.handle(), flags }
    }

    pub(super) fn name(&mut self) -> Vec<u8> {
        const NAMES: &[&[u8]] = &[
            b"a",
            b"b",
            b"c",
            b"d",
            b"sub",
            b"data",
            b"inline",
            b"holes",
            b"link",
            b"f",
            b"new",
            b"deep",
            b"",
            b".",
            b"..",
            b"a/b",
            b"a\0",
            b"\xff\xfe",
        ];
        match self.program.byte() {
            255 => vec![b'n'; self.program.u16() % 300],
            254 => self.program.bytes(255).to_vec(),
            at => NAMES[usize::from(at) % NAMES.len()].to_vec(),
        }
    }

    pub(super) fn attribute(&mut self) -> Vec<u8> {
        const NAMES: &[&[u8]] = &[
            b"user.a",
            b"user.long",
            b"user.short",
            b"security.x",
            b"trusted.t",
            b"system.posix_acl_access",
            b"system.posix_acl_default",
            b"system.x",
            b"user.",
            b"x",
            b"",
            SYNC_XATTR,
            STATS_XATTR,
            FSYNC_XATTR,
            SHOWN_XATTR,
            REPORT_XATTR,
            REMOUNT_XATTR,
        ];
        match self.program.byte() {
            255 => [b"user.", &vec![b'x'; self.program.u16() % 300][..]].concat(),
            254 => self.program.bytes(255).to_vec(),
            at => NAMES[usize::from(at) % NAMES.len()].to_vec(),
        }
    }

    pub(super) fn value(&mut self) -> Vec<u8> {
        match self.program.byte() % 4 {
            0 => self.program.bytes(64).to_vec(),
            1 => vec![self.program.byte(); self.program.u16()],
            // A list that is nearly right: version 2, entries of 8 bytes.
            2 => [&[2, 0, 0, 0], self.program.bytes(80)].concat(),
            _ => {
                let mut list = vec![2, 0, 0, 0];
                for (tag, perm) in [(1u16, 6u16), (2, 5), (4, 5), (0x10, 7), (0x20, 4)] {
                    list.extend_from_slice(&tag.to_le_bytes());
                    let perm = perm ^ u16::from(self.program.byte() & 15);
                    list.extend_from_slice(&perm.to_le_bytes());
                    let id = if tag == 2 { 1000u32 } else { u32::MAX };
                    list.extend_from_slice(&id.to_le_bytes());
                }
                list
            }
        }
    }

    pub(super) fn mode(&mut self) -> Mode {
        const TYPES: &[u32] = &[0o10, 0o2, 0o4, 0o6, 0o1, 0o12, 0o14, 0, 0o17];
        let bits =
            TYPES[self.program.below(TYPES.len())] << 12 | self.program.u16() as u32 & 0o7777;
        let mode = if self.program.byte() == 255 { self.number() as u32 } else { bits };
        Mode { mode, umask: [0, 0o22, 0o777, u32::MAX][self.program.below(4)] }
    }

    pub(super) fn time(&mut self) -> Option<SetTime> {
        match self.program.byte() % 4 {
            0 => None,
            1 => Some(SetTime::Now),
            _ => {
                let nanos = self.number() as u32 % 1_000_000_000;
                Some(SetTime::At(Timestamp { secs: self.number() as i64, nanos }))
            }
        }
    }

    pub(super) fn flags(&mut self) -> i32 {
        let bits = [0, libc::O_TRUNC, libc::O_EXCL, libc::O_DIRECT, libc::O_SYNC, libc::O_NOATIME];
        let mode = i32::from(self.program.byte() % 4);
        let flags = bits[self.program.below(bits.len())] | bits[self.program.below(bits.len())];
        match self.program.byte() {
            255 => self.number() as i32,
            _ => mode | flags,
        }
    }
}
