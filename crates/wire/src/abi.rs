//! The structs and numbers of `linux/fuse.h`, version 7.45, as far as they are used.
//!
//! Everything is in the machine's byte order, as both ends run on it. The layout
//! of each struct is its definition; its size is checked by the tests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structs {
    ($($(#[doc = $doc:literal])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            #[allow(missing_docs, reason = "the names are the kernel's")]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*
    };
}

structs! {
    /// Begins every request. Where mounts may have other owners, `uid` and `gid` are [`NO_ID`] in requests that make nothing.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Begins every answer. `error` is 0 or a negative errno.
    OutHeader { len: u32, error: i32, unique: u64, }
    /// Attributes.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// What a name leads to.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    /// Attributes and how long they hold.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    /// An open file.
    OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    /// What create and tmpfile answer.
    CreateOut { entry: EntryOut, open: OpenOut, }
    /// How many bytes were written or copied.
    WriteOut { size: u32, padding: u32, }
    /// Space.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// What the kernel offers.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    /// What is taken of it.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    /// References given back.
    ForgetIn { nlookup: u64, }
    /// How many [`ForgetOne`] follow.
    BatchForgetIn { count: u32, dummy: u32, }
    /// References of one inode given back.
    ForgetOne { nodeid: u64, nlookup: u64, }
    /// getattr.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64, }
    /// setattr; `valid` says which fields count.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// mknod; the name follows.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// mkdir; the name follows.
    MkdirIn { mode: u32, umask: u32, }
    /// rename; both names follow.
    RenameIn { newdir: u64, }
    /// renameat2; both names follow.
    Rename2In { newdir: u64, flags: u32, padding: u32, }
    /// link; the name follows.
    LinkIn { oldnodeid: u64, }
    /// open and opendir.
    OpenIn { flags: u32, open_flags: u32, }
    /// create and tmpfile; the name follows.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// release and releasedir.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    /// flush.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// read, readdir and readdirplus.
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// write; the bytes follow.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// fsync and fsyncdir.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    /// setxattr; name and value follow. Without SETXATTR_EXT only the first half comes.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// getxattr, whose name follows, and listxattr.
    GetxattrIn { size: u32, padding: u32, }
    /// Only the length of an attribute.
    GetxattrOut { size: u32, padding: u32, }
    /// Interrupts the request of this number.
    InterruptIn { unique: u64, }
    /// access.
    AccessIn { mask: u32, padding: u32, }
    /// fallocate.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// lseek.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    /// Where it was found.
    LseekOut { offset: u64, }
    /// copy_file_range.
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64, }
    /// ioctl; the bytes follow.
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// The answer to it; bytes follow.
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// statx.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    /// A time of [`Statx`].
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    /// Attributes with the time of birth.
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// What statx answers.
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    /// A directory entry; the name follows, padded to eight bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// Told without being asked: attributes, or pages, are not true any more.
    NotifyInvalInode { ino: u64, off: i64, len: i64, }
    /// Told without being asked: what a name in a directory leads to is not true any more. The name follows, and a zero.
    NotifyInvalEntry { parent: u64, namelen: u32, flags: u32, }
    /// Told without being asked: bytes of a file. They follow.
    NotifyStore { nodeid: u64, offset: u64, size: u32, padding: u32, }
    /// Told without being asked: so many inodes, whose numbers follow, are not wanted in memory.
    NotifyPrune { count: u32, padding: u32, spare: u64, }
    /// Behind the header and the fixed struct of a request on a ring.
    RingEntry { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64, }
    /// What a ring's command carries.
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
}

/// In place of a user or a group.
pub const NO_ID: u32 = u32::MAX;

/// The version that is spoken.
pub const VERSION: (u32, u32) = (7, 45);

/// The kinds of requests.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Which fields of [`SetattrIn`] count.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod fattr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// How the kernel may treat an open file.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod fopen {
    pub const DIRECT_IO: u32 = 1;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Bytes of a [`SetxattrIn`] without SETXATTR_EXT.
pub const SETXATTR_SHORT: usize = 8;
/// An access control list is set, and set-gid must go.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// An opening that truncates must take set-id bits away.
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// A write must take set-id bits away.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A write of pages from the kernel's cache: a program has stored into a mapping of them.
pub const WRITE_CACHE: u32 = 1;
/// fsync is for data only.
pub const FSYNC_FDATASYNC: u32 = 1;
/// The code, in place of an error, of [`NotifyInvalInode`].
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// The code, in place of an error, of [`NotifyInvalEntry`] and the name behind it.
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
/// The code, in place of an error, of [`NotifyStore`] and the bytes behind it.
pub const NOTIFY_STORE: i32 = 4;
/// The code, in place of an error, of a message without a body: requests that were read and not answered come again.
pub const NOTIFY_RESEND: i32 = 7;
/// In the number of a request: it comes again.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// The code, in place of an error, of a message without a body: all names are void.
pub const NOTIFY_INC_EPOCH: i32 = 8;
/// The code, in place of an error, of [`NotifyPrune`] and the numbers behind it.
pub const NOTIFY_PRUNE: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header_file() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<CreateOut>(), 144),
            (size_of::<StatfsOut>(), 80),
            (size_of::<InitIn>(), 64),
            (size_of::<InitOut>(), 64),
            (size_of::<SetattrIn>(), 88),
            (size_of::<SetxattrIn>(), 16),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<FallocateIn>(), 32),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<IoctlIn>(), 32),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<Dirent>(), 24),
            (size_of::<NotifyInvalEntry>(), 16),
            (size_of::<NotifyPrune>(), 16),
            (size_of::<RingEntry>(), 32),
            (size_of::<RingCommand>(), 24),
        ];
        for (at, (found, wanted)) in sizes.into_iter().enumerate() {
            assert_eq!(found, wanted, "number {at}");
        }
    }
}
