//! Extended attributes that a filesystem may not have.

use std::io::{self, ErrorKind};

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
