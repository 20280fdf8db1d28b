//! The plain structs that calls take and give.

use std::time::Duration;

use bitflags::bitflags;
use holdfast_base::switch::{Accounting, Batching, Dirty, FsyncWait, RenameLog};
use holdfast_base::{InodeNo, Timestamp};
pub use holdfast_format::item::FileType;
use holdfast_format::limits::NODE_SIZE_DEFAULT;
use holdfast_format::{Geometry, Malformed};

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
        /// Make the range read as zeros, allocated.
        const ZERO_RANGE = 16;
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

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// Seconds after which the background makes everything durable (P11), by a commit unless fsyncs have done so; 0 turns
    /// that off (for tests), and what is written when the volume rests.
    pub commit_secs: u32,
    /// When reading updates access times, until [`FileSystem::set_atime`](crate::FileSystem::set_atime).
    pub atime: Atime,
    /// Memory for tree nodes, in bytes. For each key four more come on top, and at most sixteen.
    pub cache_bytes: usize,
    /// Memory for written data that is not on the device yet, in bytes. Up to 64 MiB of it that are not in use stay with the
    /// program for what is written next; half of that goes each `commit_secs`, and all of it at rest.
    pub dirty_bytes: usize,
    /// Memory for data that was just written, in bytes; 0: what is read again comes from the device.
    pub recent_bytes: usize,
    /// Inodes that are kept in memory although they are not in use.
    pub inode_cache: usize,
    /// How tree nodes remember what changed (M3).
    pub dirty: Dirty,
    /// Which records of block groups a commit writes (M1).
    pub accounting: Accounting,
    /// Checkpoints keep the estimated time of a recovery below this.
    pub recover: Duration,
    /// How a batch of the fsync log finds the inode of a name (M4).
    pub batching: Batching,
    /// What a rename adds to the fsync log (M2).
    pub rename_log: RenameLog,
    /// What an fsync waits for after its data was written (M5).
    pub fsync_wait: FsyncWait,
    /// Bytes of data that an fsync puts into the log; more goes to its place first. `None`: 16 KiB, or a 64th of a log
    /// that has less than 1 MiB.
    pub log_data_bytes: Option<usize>,
    /// Called when nothing has changed for two times `commit_secs`, after the volume has given back all memory that is no
    /// cache; once, until something changes again. For a program that can give back more then.
    pub at_rest: Option<fn()>,
    /// Threads of the volume's own for commits, checkpoints and writing data. Without them callers do that work:
    /// the same calls then send the same to the device.
    pub threads: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            commit_secs: 5,
            atime: Atime::Relative,
            cache_bytes: 256 << 20,
            dirty_bytes: 256 << 20,
            recent_bytes: 16 << 20,
            inode_cache: 16384,
            dirty: Dirty::default(),
            accounting: Accounting::default(),
            recover: holdfast_base::recover::BUDGET_DEFAULT,
            batching: Batching::default(),
            rename_log: RenameLog::default(),
            fsync_wait: FsyncWait::default(),
            log_data_bytes: None,
            at_rest: None,
            threads: true,
        }
    }
}

/// When reading updates access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// When it is not after mtime or ctime, or older than a day.
    Relative,
    /// Always.
    Always,
}

/// What mkfs decides.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes of a tree node: 4, 16 or 64 KiB.
    pub node_size: usize,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Id of the volume; random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Bytes of the log ring, rounded up to blocks; by the size of the volume if `None`.
    pub log_bytes: Option<u64>,
    /// Bytes of the journal ring, rounded up to blocks; by the size of the volume if `None`.
    pub journal_bytes: Option<u64>,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            node_size: NODE_SIZE_DEFAULT,
            label: String::new(),
            uuid: None,
            owner: (0, 0),
            log_bytes: None,
            journal_bytes: None,
        }
    }
}

impl MkfsOptions {
    /// The shape of a volume of `bytes` bytes, or why there is none.
    pub fn geometry(&self, bytes: u64) -> std::result::Result<Geometry, Malformed> {
        Geometry::with_rings(bytes, self.node_size, self.log_bytes, self.journal_bytes)
    }
}
