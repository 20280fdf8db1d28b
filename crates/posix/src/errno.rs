//! The only place where errors become numbers.

use holdfast_store::{LineageError, StoreError};

use crate::FsError;

impl FsError {
    /// The number that a system call returns for this error.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::NotFound => libc::ENOENT,
            FsError::Exists => libc::EEXIST,
            FsError::NotDirectory => libc::ENOTDIR,
            FsError::IsDirectory => libc::EISDIR,
            FsError::NotEmpty => libc::ENOTEMPTY,
            FsError::NameTooLong => libc::ENAMETOOLONG,
            FsError::Invalid(_) => libc::EINVAL,
            FsError::AccessDenied => libc::EACCES,
            FsError::NotPermitted => libc::EPERM,
            FsError::CrossDevice => libc::EXDEV,
            FsError::TooManyLinks => libc::EMLINK,
            FsError::FileTooLarge | FsError::Store(StoreError::TooLarge) => libc::EFBIG,
            FsError::BadHandle => libc::EBADF,
            FsError::NoAttribute => libc::ENODATA,
            FsError::RangeTooSmall => libc::ERANGE,
            FsError::TooBig => libc::E2BIG,
            FsError::NotSupported => libc::EOPNOTSUPP,
            FsError::NoSuchPosition => libc::ENXIO,
            FsError::Diverged(_) => libc::EAGAIN,
            FsError::Busy | FsError::InUse(_) => libc::EBUSY,
            FsError::Stale | FsError::Turned => libc::ESTALE,
            FsError::Io(_) => libc::EIO,
            FsError::Store(StoreError::NoSpace) => libc::ENOSPC,
            FsError::Store(StoreError::Device(error)) if error.is_no_space() => libc::ENOSPC,
            FsError::Store(StoreError::Limit) => libc::EDQUOT,
            FsError::Store(StoreError::ReadOnly) | FsError::OpenReadOnly(_) => libc::EROFS,
            FsError::Store(StoreError::Lineage(error)) => of_lineage(error),
            FsError::Store(_) => libc::EIO,
        }
    }
}

fn of_lineage(error: &LineageError) -> i32 {
    match error {
        LineageError::Exists(_) | LineageError::HeldAlready { .. } => libc::EEXIST,
        LineageError::NoBranch(_)
        | LineageError::NoSnapshot(_)
        | LineageError::Gone(_)
        | LineageError::NotHeld { .. } => libc::ENOENT,
        LineageError::Name(_) => libc::EINVAL,
        LineageError::Held { .. } | LineageError::HasForks { .. } => libc::EBUSY,
        LineageError::First => libc::EPERM,
        LineageError::Snapshot => libc::EROFS,
    }
}
