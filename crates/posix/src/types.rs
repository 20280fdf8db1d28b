//! The plain structs that calls take and give.

use bitflags::bitflags;
use holdfast_base::{InodeNo, Timestamp};
pub use holdfast_format::item::FileType;
use holdfast_format::item::InodeItem;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group for new files.
    pub gid: u32,
    /// Other groups.
    pub groups: Vec<u32>,
    /// Whether the layer above (the kernel with `default_permissions`) has already checked permissions. Ownership rules
    /// that change what is done (set-id bits, sticky) apply in any case.
    pub trusted: bool,
}

impl Caller {
    /// The owner of everything.
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Vec::new(), trusted: true }
    }
}

/// What stat shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub inode: InodeNo,
    /// Type.
    pub file_type: FileType,
    /// Permission bits with set-id and sticky bits, without the type: at most 0o7777.
    pub perm: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; for directories the number of entries.
    pub size: u64,
    /// Units of 512 bytes in use, delayed writes included.
    pub blocks: u64,
    /// Device number.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The moment of the call (UTIME_NOW).
    Now,
    /// This moment.
    At(Timestamp),
}

/// What setattr changes; `None` leaves as it is (UTIME_OMIT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncate or extend.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change.
    pub mtime: Option<SetTime>,
    /// Creation (no system call sets it; the library can).
    pub btime: Option<Timestamp>,
    /// Clear set-id bits as a write by an unprivileged user does (FUSE KILL_SUIDGID).
    pub kill_suid_sgid: bool,
    /// Take the file's capabilities away (`security.capability`).
    pub kill_capabilities: bool,
}

/// What a new inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type.
    pub file_type: FileType,
    /// Permission bits, the umask already applied.
    pub perm: u32,
    /// Device number of a device file.
    pub rdev: u64,
}

bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Every write goes to the end.
        const APPEND = 4;
        /// Empty the file.
        const TRUNCATE = 8;
        /// Every write is durable before it returns, with all attributes (O_SYNC).
        const SYNC = 16;
        /// Every write is durable before it returns (O_DSYNC).
        const DSYNC = 32;
        /// Reading does not touch the access time.
        const NOATIME = 64;
        /// It is judged as one that appends; where its writes go they say themselves, as a kernel does. What may be read as well is
        /// judged as any other: no message tells of a store into a mapping.
        const APPENDS = 128;
    }

    /// What forbids to change a file or directory, to all users. The words are those of chattr(1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FileFlags: u32 {
        /// Nothing of it changes: no byte, attribute or name in it, nor does a name that leads to it come or go.
        const IMMUTABLE = InodeItem::IMMUTABLE;
        /// The same, but bytes may come to the end of a file that is opened for that, and names into a directory.
        const APPEND_ONLY = InodeItem::APPEND_ONLY;
    }

    /// How a name is changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RenameFlags: u32 {
        /// Fail if the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) at the old name.
        const WHITEOUT = 4;
    }

    /// What fallocate does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FallocateFlags: u32 {
        /// Do not change the size.
        const KEEP_SIZE = 1;
        /// Make a hole; needs KEEP_SIZE.
        const PUNCH_HOLE = 2;
        /// Take the range out: what follows moves to its start.
        const COLLAPSE_RANGE = 8;
        /// Make the range read as zeros, allocated.
        const ZERO_RANGE = 16;
        /// Put a hole in: what was there moves behind it.
        const INSERT_RANGE = 32;
    }

    /// What setxattr insists on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct XattrFlags: u32 {
        /// The attribute must not exist.
        const CREATE = 1;
        /// The attribute must exist.
        const REPLACE = 2;
        /// An access control list takes set-gid away: the kernel has found that its owner is not in the group
        /// (FUSE_SETXATTR_ACL_KILL_SGID). No flag of setxattr(2).
        const KILL_SGID = 1 << 16;
    }

    /// What access asks for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Access: u32 {
        /// Execute or search.
        const EXECUTE = 1;
        /// Write.
        const WRITE = 2;
        /// Read.
        const READ = 4;
    }
}

/// Whence for [`crate::FileSystem::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// One name of a directory, as readdir gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// Its type.
    pub file_type: FileType,
    /// The name; `.` and `..` come first.
    pub name: &'a [u8],
    /// Go on here: the position after this entry.
    pub cookie: u64,
}

/// What statfs shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block: 4,096.
    pub block_size: u32,
    /// Blocks of data and metadata in all.
    pub blocks: u64,
    /// Blocks in no use.
    pub blocks_free: u64,
    /// Blocks that can still be filled with data.
    pub blocks_available: u64,
    /// Inodes, used and possible.
    pub inodes: u64,
    /// Inodes still possible.
    pub inodes_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// An inode that was remembered or open when its branch was rolled back, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affected {
    /// Its number.
    pub inode: InodeNo,
    /// It is or was open.
    pub is_open: bool,
    /// Its size, if it was in memory.
    pub size: Option<u64>,
    /// It is a directory that was removed, and remembered: a caller that remembers it may not take what has its number from now on for the same.
    pub is_dead: bool,
    /// What of it may be otherwise than it was. If it is open, [`Differs::Anywhere`].
    pub differs: Differs,
}

/// How far an inode is otherwise than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Differs {
    /// It is surely the same: attributes, content and names.
    Nowhere,
    /// Only its access time may be another.
    InAccessTime,
    /// Anything may.
    Anywhere,
}

/// A directory, and a name in it.
pub type NameIn = (InodeNo, Box<[u8]>);

/// A branch that has got another head, as it is told to what keeps something of it above.
#[derive(Clone, Copy, Debug)]
pub struct Turned<'a> {
    /// What [`crate::FileSystem::turns`] is about to be.
    pub number: u64,
    /// All inodes that were remembered ([`crate::FileSystem::remember`]) or open.
    pub known: &'a [Affected],
    /// Names that lead elsewhere, are gone or new, in directories that were remembered. `None`: any may be.
    pub names: Option<&'a [NameIn]>,
}
