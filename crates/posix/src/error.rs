//! Why a call failed. `errno` turns each into a number.

use holdfast_format::Malformed;
use holdfast_store::{Store, StoreError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// There is no such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("the file exists")]
    Exists,
    /// A directory was wanted.
    #[error("not a directory")]
    NotDirectory,
    /// Anything but a directory was wanted.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is longer than 255 bytes.
    #[error("the name is too long")]
    NameTooLong,
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The permission bits forbid it.
    #[error("permission denied")]
    AccessDenied,
    /// Only the owner or root may do this.
    #[error("operation not permitted")]
    NotPermitted,
    /// A link or rename across volumes, or something like it.
    #[error("the two places are not on one volume")]
    CrossDevice,
    /// More links than the format can count.
    #[error("too many links")]
    TooManyLinks,
    /// The file would be larger than the format allows.
    #[error("the file is too large")]
    FileTooLarge,
    /// The handle was not opened for this.
    #[error("the file is not open for that")]
    BadHandle,
    /// The attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// The buffer is too small for the value.
    #[error("the buffer is too small")]
    RangeTooSmall,
    /// The value or list is larger than allowed.
    #[error("the value is too long")]
    TooBig,
    /// Not something this filesystem does.
    #[error("not supported")]
    NotSupported,
    /// SEEK_DATA or SEEK_HOLE beyond the end.
    #[error("no such position")]
    NoSuchPosition,
    /// The operation would make a directory its own ancestor, or the like.
    #[error("the directory is busy")]
    Busy,
    /// The open file is not there any more: its branch was rolled back.
    #[error("the file is not there any more: its branch was rolled back")]
    Stale,
    /// The branch was rolled back before the call had its turn, and the call wanted to come before that.
    #[error("the branch was rolled back meanwhile")]
    Turned,
    /// A branch is not what a fork of it has begun with, and was to be.
    #[error("`{0}` has changed since the fork was made")]
    Diverged(String),
    /// A branch or snapshot is open, and must not be.
    #[error("`{0}` is open")]
    InUse(String),
    /// A branch or snapshot is open to be read, and was to be changed or kept.
    #[error("`{0}` is open read-only")]
    OpenReadOnly(String),
    /// Data that was accepted could not be written (P7), or what was read failed its checksum (P6).
    #[error("input/output error: {0}")]
    Io(String),
    /// The store failed: no space, damage, the device.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FsError {
    /// Whether the volume had stopped before.
    pub fn is_of_stopped(&self) -> bool {
        matches!(self, FsError::Store(StoreError::Stopped(_)))
    }
}

/// An item that cannot be: for the caller, and for the next superblock.
pub(crate) fn damaged_item(
    store: &Store,
    what: impl Into<String>,
    source: Malformed,
) -> StoreError {
    let error = StoreError::Item { what: what.into(), source };
    store.found_damage(&error.to_string());
    error
}
