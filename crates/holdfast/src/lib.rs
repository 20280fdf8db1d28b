//! Holdfast as a library: a crash-safe, checksummed filesystem in one file or block device, used like
//! [`std::fs`] and without a mount.
//!
//! ```
//! use std::io::Write;
//! use holdfast::{RenameFlags, Volume};
//!
//! # fn main() -> std::io::Result<()> {
//! // A real program says Volume::create_new("data.holdfast", 64 << 20) once, and Volume::open(...) later.
//! let volume = Volume::in_memory(64 << 20)?;
//!
//! volume.create_dir_all("/letters/2024")?;
//! let mut file = volume.create("/letters/2024/draft")?;
//! writeln!(file, "Dear reader,")?;
//! file.sync_all()?; // from here on no crash loses the file, its text or its name (P1)
//!
//! // A rename is one step: there is never a moment without a file (P4).
//! volume.rename("/letters/2024/draft", "/letters/2024/final")?;
//! let taken = volume.rename_with("/letters/2024", &volume, "/letters", RenameFlags::NOREPLACE);
//! assert!(taken.is_err());
//!
//! let letters = volume.open_dir("/letters")?; // a handle: paths relative to it, as openat has them
//! assert_eq!(letters.read_to_string("2024/final")?, "Dear reader,\n");
//! for entry in letters.read_dir("2024")? {
//!     let entry = entry?;
//!     println!("{} {}", entry.metadata()?.len(), entry.path().display());
//! }
//!
//! volume.close()?; // everything durable, the device released
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! The documentation of each call names the promises it keeps by number:
//!
//! - **P1** After an fsync the file's data, size, attributes and names survive any crash.
//! - **P2** After an fsync of a directory its entries do.
//! - **P3** A crash leaves a prefix of history: operations are never reordered or mixed.
//! - **P4** A rename is atomic, and a file that replaces another has its data.
//! - **P5** A durable size never covers bytes that were never written.
//! - **P6** Nothing that fails its checksum is returned.
//! - **P7** A failed write of data is reported by each fsync of the file until its bytes are written again; after a failed
//!   write of anything else the volume turns read-only instead of lying.
//! - **P8** Lack of space is found when an operation starts; removing works on a full volume.
//! - **P9** No crash makes an acknowledged state unreachable, wherever power fails.
//! - **P10** A hostile or damaged image gives an error and nothing worse.
//! - **P11** Without any fsync, at most `commit` seconds of operations are lost.
//!
//! # Errors
//!
//! Calls on files and directories fail with an [`std::io::Error`] whose `raw_os_error` is what the system
//! call would have said. Making, opening and closing a volume fail with a sentence for people and a kind
//! for programs (see [`Volume::open`]).
//!
//! # Mounted volumes
//!
//! [`Volume::open`] of a volume that `holdfast mount` serves in this mount namespace goes through that mount ([`Volume::mounted_at`]). So
//! mounted volumes are opened like all others, and by several programs at once. Paths mean the same. No path leads out of the volume, nor
//! into a filesystem that is mounted over one of its directories (EXDEV). P1 to P11 hold as in the mount. What differs:
//!
//! - The kernel judges rights, as those of this process; [`VolumeOptions::caller`] of another user is refused.
//! - Locks are flock(2): between all programs of this machine.
//! - Several attributes that are set in one call are set one after the other. Times of creation cannot be set (EOPNOTSUPP), nor can permission
//!   bits of a symbolic link; before Linux 6.6 they are shown as 1970. `collapse_range` and `insert_range` are EOPNOTSUPP, which the kernel does not pass on.
//! - `/.snapshots` has the snapshots of the branch: [`Dir::create_dir`] takes one there, [`Dir::remove_dir`] deletes it. [`VolumeOptions::snapshot`] opens one.
//! - For branches and snapshots the daemon is asked, which obeys root and the user who has mounted. Those that a mount shows are opened.
//! - Rollbacks, promotions, views, differences, receipts, statistics, trims, scrubs, sizes and the engine are [`Unsupported`](std::io::ErrorKind::Unsupported),
//!   with the command that does it.
//! - Options of the engine are the mount's.
//! - It takes Linux 5.6. A mount that goes away leaves the kernel's error, mostly ENOTCONN; so does a daemon that dies without `-o supervised`.
//!
//! [`VolumeOptions::through_mount`]`(false)` keeps to the volume itself, and refuses one that is in use.
//!
//! # Threads
//!
//! All types are `Send` and `Sync`. The library needs no async runtime; an open volume has a few threads of
//! its own for background commits, and they end with it.

mod branch;
mod copy;
mod descent;
mod diff;
mod dir;
mod error;
mod file;
mod handle;
mod hold;
mod kept_volume;
mod identity;
mod in_use;
mod lock;
mod locks;
mod make;
mod metadata;
mod mounted;
mod options;
mod path;
mod read_dir;
mod remove;
mod volume;
mod walk;

pub use branch::{Branch, Snapshot};
pub use descent::{Descent, Order};
pub use diff::Diff;
pub use dir::Dir;
pub use error::errno;
pub use file::File;
pub use hold::Hold;
pub use holdfast_base::{LogFallback, Receipt};
/// The number of the branch that a volume has from the start, `main` unless it was renamed.
pub use holdfast_format::item::lineage::MAIN as FIRST_BRANCH;
pub use holdfast_posix::{
    BranchInfo, Change, ChangeKind, FailedDeletion, FileSystem, FsError, HoldItem, Moment, NewHead,
    NewSize, OriginItem, Parts, ROOT_COPIES_MIN, RenameFlags, Scrub, ScrubFinding, ScrubKind,
    ScrubListener, Shrinking, SnapshotInfo, StatFs, Told, Trimmed, Which, XattrFlags,
};
pub use identity::{clear_fault, restore_superblock, set_identity, shrink};
pub use kept_volume::KeptVolume;
pub use metadata::{Attributes, FileTimes, FileType, Metadata, Permissions};
pub use options::{
    Accounting, Atime, Batching, CreateOptions, Dirty, Discard, FsyncWait, OpenOptions, RenameLog,
    VolumeOptions,
};
pub use read_dir::{DirEntry, ReadDir};
pub use volume::{Volume, VolumeInfo};
pub use walk::WalkDir;

/// Version of the format on disk that this library reads and writes.
pub const FORMAT_VERSION: u32 = holdfast_format::superblock::VERSION;

/// Where a volume's bytes can stay: the device trait and the devices that come with it.
pub mod device {
    pub use holdfast_device::{
        Device, DeviceError, DeviceStats, FileDevice, MemoryDevice, OpenMode,
    };
}

/// What [`Volume::counters`] answers with.
pub mod counters {
    pub use holdfast_base::counters::{CounterKind, Reading, Unit};
}

#[cfg(test)]
mod tests {
    #[test]
    fn everything_public_is_send_and_sync() {
        fn check<T: Send + Sync>() {}
        check::<crate::Volume>();
        check::<crate::Dir>();
        check::<crate::File>();
        check::<crate::ReadDir>();
        check::<crate::WalkDir>();
        check::<crate::Descent>();
        check::<crate::Branch>();
        check::<crate::Snapshot>();
        check::<crate::Diff>();
    }
}

/// The example of the README is compiled with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So is that of docs/BINDINGS.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/BINDINGS.md")]
struct Bindings;
