//! Floor 3: files, names and bytes as POSIX promises them.
//!
//! Every call of [`FileSystem`] is one operation in the volume's history. It
//! reads what it needs, reserves space (P8), and applies one transaction; what it
//! changed is visible at once and durable after an fsync (P1, P2), a sync, or
//! the background commit (P11). Calls live in `op/`, one file for each family.
//!
//! Knows nothing of node layout, rings, groups or FUSE, and paths only for messages.

pub mod op;
mod changes;
mod scrub;
mod shrink;
mod committer;
mod threads;
mod orphan;
mod atime;
mod data;
mod delayed;
mod directory_log;
mod file;
mod allow;
mod last_message;
mod names;
mod listed;
mod path;
mod xattr_items;
mod showing;
mod slot;
mod core;
mod gate;
mod volume;
mod open_volume;
mod keeper;
mod deletions;
mod rollback;
mod heads_differ;
mod new_head;
mod file_data;
mod inode;
mod perm;
mod acl;
mod times;
mod which;
pub mod options;
pub mod types;
pub mod errno;
pub mod error;

#[cfg(test)]
mod tests;

pub use changes::{Change, ChangeKind, Changes, Moment, Parts};
pub use error::FsError;
pub use holdfast_format::item::lineage::judge_name as judge_branch_name;
pub use holdfast_format::item::{HoldItem, OriginItem};
pub use holdfast_store::{
    Device, Hold, LineageError, NameChange, NewSize, Shrinking, SnapshotNamed, StoreError,
};
pub use keeper::Keeper;
pub use new_head::{NewHead, Told};
pub use op::branches::{BranchInfo, SnapshotInfo};
pub use op::delete::FailedDeletion;
pub use op::open::OpenFile;
pub use op::write::WriteHow;
pub use options::*;
pub use path::{Names, Whereabouts};
pub use scrub::{Scrub, ScrubFinding, ScrubKind, ScrubListener};
pub use showing::ShowsSnapshots;
pub use types::*;
pub use which::Which;

/// The result of every call.
pub type Result<T> = std::result::Result<T, FsError>;

/// A branch or snapshot of a mounted volume.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) core: std::sync::Arc<core::Core>,
    /// Writes data before memory is full; ends with the volume.
    background: Option<data::background::Background>,
    /// Completes ordered extents, if the switch of M5 says so; ends after all others.
    completer: Option<data::complete::Completer>,
    /// Ends with the last of its branches.
    volume: std::sync::Arc<open_volume::OpenVolume>,
    /// Of a view: what keeps its tree as it is.
    pin: Option<holdfast_store::Pin>,
}
