//! Failures of the volume, as those of a store.

use std::io::{self, ErrorKind};

use object_store::Error;
use object_store::path::Path;

/// What a store calls itself in errors.
pub(crate) const NAME: &str = "Holdfast";

/// A failure of a call for the object at `path`.
pub(crate) fn of_object(path: &Path, error: io::Error) -> Error {
    let (path, kind) = (path.to_string(), error.kind());
    let source = error.into();
    match kind {
        // A part of the path that is a file, or a file's name that is a directory's, leads to no object.
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            Error::NotFound { path, source }
        }
        ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        ErrorKind::PermissionDenied => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: NAME, source },
    }
}

/// A failure to make an object: a directory that is in the way is one of the volume, not an object that is missing.
pub(crate) fn of_new_object(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            let why = format!(
                "{path}: a part of the path is an object, or the object a directory: {error}"
            );
            Error::Generic { store: NAME, source: why.into() }
        }
        _ => of_object(path, error),
    }
}
