//! Every option, its default, and the reason for it.

use std::time::Duration;

use holdfast_base::user_namespace::maker;
use holdfast_posix::{Caller, MkfsOptions, MountOptions, OpenFlags, Recovered};

pub use holdfast_base::switch::{Accounting, Batching, Dirty, FsyncWait, RenameLog};
pub use holdfast_posix::{Atime, Discard};

/// How a volume is made.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub(crate) size: Option<u64>,
    pub(crate) mkfs: MkfsOptions,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions::new()
    }
}

impl CreateOptions {
    /// The defaults.
    pub fn new() -> CreateOptions {
        CreateOptions { size: None, mkfs: MkfsOptions { owner: maker(), ..MkfsOptions::default() } }
    }

    /// Bytes of the volume's file. Needed by [`CreateOptions::create`]; a device has its own size.
    pub fn size(mut self, bytes: u64) -> CreateOptions {
        self.size = Some(bytes);
        self
    }

    /// Bytes of a tree node: 4, 16 or 64 KiB. Default 16 KiB: larger nodes make bulk work faster and
    /// single small commits more expensive, and 16 KiB is the middle that loses nowhere by much.
    pub fn node_size(mut self, bytes: usize) -> CreateOptions {
        self.mkfs.node_size = bytes;
        self
    }

    /// A name for people, at most 64 bytes. Default: none.
    pub fn label(mut self, label: impl Into<String>) -> CreateOptions {
        self.mkfs.label = label.into();
        self
    }

    /// Id of the volume. Default: random, because two volumes must never share one.
    pub fn uuid(mut self, uuid: [u8; 16]) -> CreateOptions {
        self.mkfs.uuid = Some(uuid);
        self
    }

    /// Bytes of the ring of the fsync log. Default: a 64th of the volume, from 256 KiB to 32 MiB; an image takes space for
    /// it when it is first used.
    pub fn log_size(mut self, bytes: u64) -> CreateOptions {
        self.mkfs.log_bytes = Some(bytes);
        self
    }

    /// Bytes for which the ring of the journal has room. Default: a 32nd of the volume, from 256 KiB to 128 MiB; an image takes space for
    /// it as it fills.
    pub fn journal_size(mut self, bytes: u64) -> CreateOptions {
        self.mkfs.journal_bytes = Some(bytes);
        self
    }

    /// How often all names, attributes and places of data are stored: 1 or 2 times. Default 1. With 2 a node of the trees that is
    /// damaged on the device is read from its copy, and written again from that. It costs the space of the nodes, and that checkpoints
    /// write them twice; and what an fsync and a commit write, unless [`CreateOptions::ring_copies`] says 1.
    pub fn metadata_copies(mut self, copies: u8) -> CreateOptions {
        self.mkfs.metadata_copies = copies;
        self.mkfs.root_copies.get_or_insert(copies);
        self
    }

    /// How often what leads to all else is stored: nodes above the leaves, and what says which space is free. 1 or 2 times; default 2 on
    /// volumes of 256 MiB and more, unless [`CreateOptions::metadata_copies`] is called. Only checkpoints write it, so an fsync and a
    /// commit cost the same. A volume too small for that is refused if it is asked for here, and has it once otherwise.
    pub fn root_copies(mut self, copies: u8) -> CreateOptions {
        self.mkfs.root_copies = Some(copies);
        self
    }

    /// How often what fsyncs and commits write is stored: 1 or 2 times. Default: as [`CreateOptions::metadata_copies`] says.
    /// With 2 an fsync is two writes.
    pub fn ring_copies(mut self, copies: u8) -> CreateOptions {
        self.mkfs.ring_copies = Some(copies);
        self
    }

    /// All of an image is taken from its host when it is made, and the log is written: no change finds the host full later,
    /// unless the volume is trimmed or made larger.
    /// Default false. Such an image gives nothing back by itself ([`Discard::Auto`]).
    pub fn allocate(mut self, yes: bool) -> CreateOptions {
        self.mkfs.allocate = yes;
        self
    }

    /// Bytes that the first change of a volume of `bytes` bytes takes of the host of a sparse file; `None`: no volume can be so.
    pub fn first_change(&self, bytes: u64) -> Option<u64> {
        self.mkfs.first_change(bytes)
    }

    /// Owner and group of the root directory. Default: those of this process; in a user namespace of one user
    /// (`unshare -Ur`) by their numbers outside, so that its maker can write a mount, wherever it is.
    pub fn owner(mut self, uid: u32, gid: u32) -> CreateOptions {
        self.mkfs.owner = (uid, gid);
        self
    }

    /// Permission bits of the root directory, those for set-id and the sticky one included. Default 0o755.
    pub fn root_mode(mut self, mode: u32) -> CreateOptions {
        self.mkfs.root_mode = mode;
        self
    }
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub(crate) mount: MountOptions,
    pub(crate) caller: Caller,
    pub(crate) through_mount: bool,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions::new()
    }
}

impl VolumeOptions {
    /// The defaults.
    pub fn new() -> VolumeOptions {
        let (uid, gid) = maker();
        let caller = Caller { uid, gid, groups: Vec::new(), trusted: true };
        VolumeOptions { mount: MountOptions::default(), caller, through_mount: true }
    }

    /// Whether [`VolumeOptions::open`] of a volume that is in use goes through its mount, if there is one of what is wanted in this mount
    /// namespace, by root, this user or the owner of the file. Files, directories and locks are those of the mount then, calls are made as this
    /// process, and options of the engine are those of the mount; what takes the volume itself is `Unsupported`.
    /// [`Volume::mounted_at`](crate::Volume::mounted_at) tells. Default true; with false such a volume is refused with `ResourceBusy`.
    pub fn through_mount(mut self, yes: bool) -> VolumeOptions {
        self.through_mount = yes;
        self
    }

    /// The branch or snapshot of this number ([`Branch::number`](crate::BranchInfo::number)), whatever the names are. Default: by name.
    pub fn number(mut self, number: u64) -> VolumeOptions {
        self.mount.number = Some(number);
        self
    }

    /// For a process that goes on to serve a branch which one that has died was serving: inodes without a name stay until they are
    /// forgotten ([`FileSystem::forget`](crate::FileSystem::forget)), or the branch is closed. `deaths`: how many have died so far.
    /// Default 0: none.
    pub fn resumed(mut self, deaths: u64) -> VolumeOptions {
        self.mount.resumed = deaths;
        self
    }

    /// `tell` is called when the volume is recovered, before anything changes, with the number (LSN) of the last change that is there
    /// (P3).
    pub fn recovered(mut self, tell: impl Fn(u64) + Send + Sync + 'static) -> VolumeOptions {
        self.mount.recovered = Some(Recovered::new(move |lsn| tell(lsn.0)));
        self
    }

    /// Nothing is written, whatever is called. Default false.
    pub fn read_only(mut self, yes: bool) -> VolumeOptions {
        self.mount.read_only = yes;
        self
    }

    /// Opens this branch. Default `main`.
    pub fn branch(mut self, name: &str) -> VolumeOptions {
        self.mount.branch = Some(name.into());
        self
    }

    /// Opens this snapshot of the branch, which is only read. Default: the branch as it is.
    pub fn snapshot(mut self, name: &str) -> VolumeOptions {
        self.mount.snapshot = Some(name.into());
        self
    }

    /// After so many seconds the background makes everything durable: with no fsync at all, at most this much is lost
    /// (P11). Default 5, as users of other filesystems expect; 0 turns that off, for tests, and
    /// what is written when the volume has been at rest for a moment, so that a killed program loses nothing of it.
    pub fn commit_secs(mut self, seconds: u32) -> VolumeOptions {
        self.mount.commit_secs = seconds;
        self
    }

    /// When reading updates access times. Default [`Atime::Relative`], the kernel's default, which
    /// programs that compare atime and mtime still understand and which costs little.
    pub fn atime(mut self, atime: Atime) -> VolumeOptions {
        self.mount.atime = atime;
        self
    }

    /// Bytes of memory for tree nodes. Default 256 MiB.
    pub fn cache_bytes(mut self, bytes: usize) -> VolumeOptions {
        self.mount.cache_bytes = bytes;
        self
    }

    /// Bytes of memory for data that was just written and may be wanted again. Default 16 MiB.
    pub fn recent_bytes(mut self, bytes: usize) -> VolumeOptions {
        self.mount.recent_bytes = bytes;
        self
    }

    /// Bytes of memory for written data that is not on the device yet; writers wait above it. Default 256 MiB.
    pub fn dirty_bytes(mut self, bytes: usize) -> VolumeOptions {
        self.mount.dirty_bytes = bytes;
        self
    }

    /// What to call when nothing has changed for two times [`commit_secs`](VolumeOptions::commit_secs), after the volume has
    /// given back all memory that is no cache: a program can have its allocator do the same. Default: nothing.
    pub fn at_rest(mut self, act: fn()) -> VolumeOptions {
        self.mount.at_rest = Some(act);
        self
    }

    /// Whether free space goes back to the device, or to the host of an image, by itself, some seconds after it was used last.
    /// Default: from an image that its host has not given whole ([`Discard::Auto`]). A block device holds its space for the volume
    /// anyway, and may be slow at it.
    pub fn discard(mut self, discard: Discard) -> VolumeOptions {
        self.mount.discard = discard;
        self
    }

    /// Inodes kept in memory although no handle holds them. Default 16,384.
    pub fn inode_cache(mut self, inodes: usize) -> VolumeOptions {
        self.mount.inode_cache = inodes;
        self
    }

    /// How tree nodes remember what changed since their last commit (M3). Default [`Dirty::Ranges`];
    /// the others are the published "before", to be measured.
    pub fn dirty(mut self, dirty: Dirty) -> VolumeOptions {
        self.mount.dirty = dirty;
        self
    }

    /// Which records of block groups a commit writes (M1). Default [`Accounting::Changed`]; the other
    /// is the published "before", to be measured.
    pub fn accounting(mut self, accounting: Accounting) -> VolumeOptions {
        self.mount.accounting = accounting;
        self
    }

    /// How a batch of the fsync log finds the inode of a name (M4). Default [`Batching::Indexed`];
    /// the other is the published "before", to be measured.
    pub fn batching(mut self, batching: Batching) -> VolumeOptions {
        self.mount.batching = batching;
        self
    }

    /// What a rename adds to the fsync log (M2). Default [`RenameLog::Names`]; the other is the
    /// published "before", to be measured.
    pub fn rename_log(mut self, rename_log: RenameLog) -> VolumeOptions {
        self.mount.rename_log = rename_log;
        self
    }

    /// What an fsync waits for after its data was written (M5). Default [`FsyncWait::Writeback`]; the
    /// other is the published "before", to be measured.
    pub fn fsync_wait(mut self, fsync_wait: FsyncWait) -> VolumeOptions {
        self.mount.fsync_wait = fsync_wait;
        self
    }

    /// How much data of a file an fsync puts into the log, in bytes; more goes to its location first.
    /// 0: all of it goes to its location. Default 16 KiB, less on volumes below 64 MiB.
    pub fn log_data_bytes(mut self, bytes: usize) -> VolumeOptions {
        self.mount.log_data_bytes = Some(bytes);
        self
    }

    /// How long opening the volume may take after a crash: checkpoints keep the estimate below it.
    /// Default one second, which a user takes for none; less means more checkpoints.
    pub fn recover(mut self, budget: Duration) -> VolumeOptions {
        self.mount.recover = budget;
        self
    }

    /// The user as which calls are made: new files belong to this user, and permission bits are checked for it.
    /// Default: nothing is checked, because a program that can open the device can read it all anyway, and new files belong to user
    /// and group of this process (see [`CreateOptions::owner`]).
    pub fn caller(mut self, uid: u32, gid: u32, groups: &[u32]) -> VolumeOptions {
        self.caller = Caller { uid, gid, groups: groups.to_vec(), trusted: false };
        self
    }
}

/// How a file is opened. Shaped like [`std::fs::OpenOptions`]; everything is off at first.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub(crate) flags: OpenFlags,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) follow: bool,
    pub(crate) mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is allowed yet.
    pub fn new() -> OpenOptions {
        OpenOptions {
            flags: OpenFlags::empty(),
            create: false,
            create_new: false,
            follow: true,
            mode: 0o644,
        }
    }

    fn set(mut self, flag: OpenFlags, yes: bool) -> OpenOptions {
        self.flags.set(flag, yes);
        self
    }

    /// For reading.
    pub fn read(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::READ, yes)
    }

    /// For writing.
    pub fn write(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::WRITE, yes)
    }

    /// For writing, and every write goes to the end as it is at that moment, even if others append.
    pub fn append(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::APPEND, yes)
    }

    /// Empties the file. Needs `write`.
    pub fn truncate(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::TRUNCATE, yes)
    }

    /// Every write is durable, with all attributes and names, before it returns (O_SYNC, P1).
    pub fn sync(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::SYNC, yes)
    }

    /// Every write is durable before it returns (O_DSYNC, P1).
    pub fn dsync(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::DSYNC, yes)
    }

    /// Reading does not touch the access time.
    pub fn noatime(self, yes: bool) -> OpenOptions {
        self.set(OpenFlags::NOATIME, yes)
    }

    /// Makes the file if it is missing. Needs `write` or `append`.
    pub fn create(mut self, yes: bool) -> OpenOptions {
        self.create = yes;
        self
    }

    /// Makes the file; EEXIST if the name is taken, even by a link that leads nowhere. One step: of two
    /// callers one wins. Needs `write` or `append`.
    pub fn create_new(mut self, yes: bool) -> OpenOptions {
        self.create_new = yes;
        self
    }

    /// Whether a symbolic link at the end of the path is followed; ELOOP if not. Default true.
    pub fn follow(mut self, yes: bool) -> OpenOptions {
        self.follow = yes;
        self
    }

    /// Permission bits of a file that is made. Default `0o644`; no umask is applied, because the umask
    /// belongs to the process and not to the volume.
    pub fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode & 0o7777;
        self
    }

    /// The flags for the engine, if the combination makes sense.
    pub(crate) fn checked_flags(&self) -> crate::error::Result<OpenFlags> {
        let mut flags = self.flags;
        let append = flags.contains(OpenFlags::APPEND);
        let creates = self.create || self.create_new;
        let nonsense = match (flags.contains(OpenFlags::WRITE), append) {
            (false, false) => {
                !flags.contains(OpenFlags::READ) || creates || flags.contains(OpenFlags::TRUNCATE)
            }
            (_, true) => flags.contains(OpenFlags::TRUNCATE) && !self.create_new,
            (true, false) => false,
        };
        if nonsense {
            return Err(crate::error::Errno(libc::EINVAL));
        }
        if append {
            flags |= OpenFlags::WRITE;
        }
        Ok(flags)
    }
}
