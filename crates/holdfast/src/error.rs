//! Errors of calls, as `io::Error`.
//!
//! Inside this crate a failed call is an [`Errno`]; at its border it becomes an
//! [`io::Error`] whose `raw_os_error` is the number that a system call would
//! have returned. Opening and closing a volume give a sentence instead,
//! because there a person reads it.

use std::io;

use holdfast_device::DeviceError;
use holdfast_posix::{FsError, LineageError};

/// The number of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl From<FsError> for Errno {
    fn from(error: FsError) -> Errno {
        Errno(error.errno())
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

/// The result of a call inside this crate.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A failure to make, open or close a volume: the sentence is kept, the kind says what a program may do about it.
pub(crate) fn volume_error(error: FsError) -> io::Error {
    let kind = match &error {
        FsError::Store(
            holdfast_posix::StoreError::Device(device)
            | holdfast_posix::StoreError::NoPlace { source: device, .. }
            | holdfast_posix::StoreError::NoAnswer { source: device },
        ) => device_kind(device),
        FsError::Store(holdfast_posix::StoreError::NoSpace) => io::ErrorKind::StorageFull,
        FsError::Store(holdfast_posix::StoreError::TooLarge) => io::ErrorKind::FileTooLarge,
        FsError::Store(holdfast_posix::StoreError::Limit) => io::ErrorKind::QuotaExceeded,
        FsError::Store(holdfast_posix::StoreError::ReadOnly) | FsError::OpenReadOnly(_) => {
            io::ErrorKind::ReadOnlyFilesystem
        }
        FsError::Store(
            holdfast_posix::StoreError::NoSuperblock { .. }
            | holdfast_posix::StoreError::Node { .. }
            | holdfast_posix::StoreError::Item { .. }
            | holdfast_posix::StoreError::Refused(_),
        ) => io::ErrorKind::InvalidData,
        FsError::Store(holdfast_posix::StoreError::Lineage(error)) => lineage_kind(error),
        FsError::InUse(_) => io::ErrorKind::ResourceBusy,
        FsError::Diverged(_) => io::ErrorKind::WouldBlock,
        FsError::Invalid(_) => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

fn lineage_kind(error: &LineageError) -> io::ErrorKind {
    match error {
        LineageError::Exists(_) | LineageError::HeldAlready { .. } => io::ErrorKind::AlreadyExists,
        LineageError::NoBranch(_)
        | LineageError::NoSnapshot(_)
        | LineageError::Gone(_)
        | LineageError::NotHeld { .. } => io::ErrorKind::NotFound,
        LineageError::Name(_) => io::ErrorKind::InvalidInput,
        LineageError::Held { .. } | LineageError::HasForks { .. } => io::ErrorKind::ResourceBusy,
        LineageError::First => io::ErrorKind::PermissionDenied,
        LineageError::Snapshot => io::ErrorKind::ReadOnlyFilesystem,
    }
}

/// A sentence for people, with the number of the host's refusal behind it, which a kind alone would not tell.
#[derive(Debug)]
struct Refusal {
    sentence: String,
    number: i32,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}

/// A failure with the kind and the number of what the host has said, and a sentence about it.
pub(crate) fn refusal(number: i32, sentence: String) -> io::Error {
    let kind = io::Error::from_raw_os_error(number).kind();
    io::Error::new(kind, Refusal { sentence, number })
}

/// A device that could not be opened or refused a call.
pub(crate) fn device_error(error: DeviceError) -> io::Error {
    io::Error::new(device_kind(&error), error.to_string())
}

fn device_kind(error: &DeviceError) -> io::ErrorKind {
    match error {
        DeviceError::Io { source, .. } => source.kind(),
        DeviceError::InUse { .. } => io::ErrorKind::ResourceBusy,
        DeviceError::BeyondEnd { .. } => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    }
}

/// The errno of a failure, for callers in other languages. Failures of making, opening and closing a volume are sentences with a
/// kind, which has one as well: EUCLEAN for what is no volume or damaged, EBUSY for what is in use, EIO for what has no better one. Where the host
/// has refused the path of a volume, it is the host's number.
pub fn errno(error: &io::Error) -> i32 {
    use io::ErrorKind as Kind;
    if let Some(number) = error.raw_os_error() {
        return number;
    }
    if let Some(refusal) = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
        return refusal.number;
    }
    match error.kind() {
        Kind::NotFound => libc::ENOENT,
        Kind::PermissionDenied => libc::EPERM,
        Kind::AlreadyExists => libc::EEXIST,
        Kind::InvalidInput => libc::EINVAL,
        Kind::InvalidData => libc::EUCLEAN,
        Kind::ResourceBusy => libc::EBUSY,
        Kind::WouldBlock => libc::EAGAIN,
        Kind::StorageFull => libc::ENOSPC,
        Kind::QuotaExceeded => libc::EDQUOT,
        Kind::ReadOnlyFilesystem => libc::EROFS,
        Kind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}
