//! Extended attributes that the project gives a meaning to.

use std::io::{self, ErrorKind};

/// Which snapshot this one is a copy of, at its root. A receive writes it (`docs/STREAM.md`). It means nothing in another volume, so
/// neither a stream nor an archive carries it.
pub const RECEIVED: &[u8] = b"trusted.holdfast.received";

/// Whether an error says that one file cannot have an attribute in one filesystem, and nothing of the state of that: its content comes
/// without it, and is told.
pub fn is_not_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::Unsupported
            | ErrorKind::InvalidInput
            | ErrorKind::ArgumentListTooLong
    )
}
