//! How a volume is mounted and made: the options of both, and their defaults.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Lsn;
use holdfast_base::switch::{Accounting, Batching, Dirty, FsyncWait, RenameLog};
use holdfast_format::limits::NODE_SIZE_DEFAULT;
use holdfast_format::{Geometry, Malformed};
use holdfast_store::{BITMAPS, DISCARD_DELAY};
pub use holdfast_store::{Discard, Trimmed};

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The branch; `None`: the one that the volume was made with, `main`.
    pub branch: Option<Vec<u8>>,
    /// A snapshot of that branch, which is only read; `None`: the branch as it is.
    pub snapshot: Option<Vec<u8>>,
    /// The branch or snapshot of this number, whatever the names are.
    pub number: Option<u64>,
    /// A process that has died served the branch to a kernel which goes on: any inode may be one that the kernel knows. So
    /// none without a name is removed before the kernel forgets it, or the branch is left. How many processes have died so; 0: none.
    pub resumed: u64,
    /// Told of the last change that was recovered, before any other is made.
    pub recovered: Option<Recovered>,
    /// Nothing is written.
    pub read_only: bool,
    /// Seconds after which the background makes everything durable (P11), by a commit unless fsyncs have done so; 0 turns
    /// that off (for tests), and what is written when the volume rests.
    pub commit_secs: u32,
    /// When reading updates access times, until [`FileSystem::set_atime`](crate::FileSystem::set_atime).
    pub atime: Atime,
    /// Memory for tree nodes, in bytes. For each key four more come on top, and at most sixteen.
    pub cache_bytes: usize,
    /// Bitmaps of so many block groups stay in memory, beside those that are being changed: 8 KiB each.
    pub bitmaps: usize,
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
    /// Whether free space goes back to the device, or to the host of an image, by itself.
    pub discard: Discard,
    /// It does so once that was untouched for so long. Zero: at once, and in ranges of any length.
    pub discard_delay: Duration,
    /// Threads of the volume's own for commits, checkpoints and writing data. Without them callers do that work:
    /// the same calls then send the same to the device.
    pub threads: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            branch: None,
            snapshot: None,
            number: None,
            resumed: 0,
            recovered: None,
            read_only: false,
            commit_secs: 5,
            atime: Atime::Relative,
            cache_bytes: 256 << 20,
            bitmaps: BITMAPS,
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
            discard: Discard::Auto,
            discard_delay: DISCARD_DELAY,
            threads: true,
        }
    }
}

/// Is told of the last change that was there when a volume was opened: of those that a crash may have taken, all up to this one
/// are there, and none behind it (P3).
#[derive(Clone)]
pub struct Recovered(Arc<dyn Fn(Lsn) + Send + Sync>);

impl Recovered {
    /// `tell` is called once.
    pub fn new(tell: impl Fn(Lsn) + Send + Sync + 'static) -> Recovered {
        Recovered(Arc::new(tell))
    }

    pub(crate) fn tell(&self, lsn: Lsn) {
        (self.0)(lsn);
    }
}

// It is called once, when nothing has happened that a panic could leave half done.
impl UnwindSafe for Recovered {}
impl RefUnwindSafe for Recovered {}

holdfast_base::opaque!(Recovered);

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
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// Bytes of the volume, rounded down to blocks; all of the device if `None`.
    pub bytes: Option<u64>,
    /// Bytes of the log ring, rounded up to blocks; by the size of the volume if `None`.
    pub log_bytes: Option<u64>,
    /// Bytes of the journal ring, rounded up to blocks; by the size of the volume if `None`.
    pub journal_bytes: Option<u64>,
    /// How often all of the metadata is stored, leaves of the trees and rings included, 1 or 2 times.
    pub metadata_copies: u8,
    /// How often what is near the roots is stored, if all is once: what stands above the leaves, and the space tree. If `None`,
    /// twice from [`ROOT_COPIES_MIN`] bytes on.
    pub root_copies: Option<u8>,
    /// How often each batch of the log and each frame of the journal is stored, 1 or 2 times; as `metadata_copies` if `None`.
    pub ring_copies: Option<u8>,
    /// All of an image is taken from its host at once, and the log is written: no change finds the host full later.
    pub allocate: bool,
}

/// From so many bytes on what is near the roots is stored twice, unless it is said otherwise. On a smaller volume the places that are kept
/// for it were too large a share.
pub const ROOT_COPIES_MIN: u64 = 256 << 20;

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            node_size: NODE_SIZE_DEFAULT,
            label: String::new(),
            uuid: None,
            owner: (0, 0),
            root_mode: 0o755,
            bytes: None,
            log_bytes: None,
            journal_bytes: None,
            metadata_copies: 1,
            root_copies: None,
            ring_copies: None,
            allocate: false,
        }
    }
}

impl MkfsOptions {
    /// Bytes that the first change of a volume of `bytes` bytes takes of the host of a sparse file; `None`: there is no such volume.
    pub fn first_change(&self, bytes: u64) -> Option<u64> {
        Some(holdfast_store::first_change_bytes(&self.geometry(bytes).ok()?))
    }

    /// The shape of a volume of `bytes` bytes, or why there is none.
    pub fn geometry(&self, bytes: u64) -> std::result::Result<Geometry, Malformed> {
        let plain =
            Geometry::with_rings(bytes, self.node_size, self.log_bytes, self.journal_bytes)?;
        let roots = self.root_copies.map(|copies| copies.max(self.metadata_copies));
        let rings = self.ring_copies.unwrap_or(self.metadata_copies);
        let said = [self.metadata_copies, roots.unwrap_or(self.metadata_copies), rings];
        if said.iter().any(|copies| !(1..=2).contains(copies)) {
            let why = format!(
                "metadata is stored 1 or 2 times, not {}",
                said.map(|it| it.to_string()).join(", ")
            );
            return Err(Malformed::new("geometry", why));
        }
        let plain = if rings == 2 { plain.with_ring_copies()? } else { plain };
        match (self.metadata_copies, roots) {
            (2, _) => plain.with_node_copies(),
            (_, Some(2)) => plain.with_root_copies(),
            // Not asked for: where there is no room it need not be.
            (_, None) if bytes >= ROOT_COPIES_MIN => Ok(plain.with_root_copies().unwrap_or(plain)),
            _ => Ok(plain),
        }
    }
}
