//! What an object is of a file, and where.

use std::path::Path as FilePath;
use std::time::UNIX_EPOCH;

use holdfast::Metadata;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, Result};

/// Where the names of replacements are for a moment. A crash then may leave one; a store that has the volume for itself removes it.
pub(crate) const STAGING: &str = ".holdfast-object-store";
/// In the root of a mount, the snapshots of its branch: making and removing directories there makes and deletes snapshots.
const SNAPSHOTS: &str = ".snapshots";

/// A version of an object: a put makes a new inode, and its number is not given again.
pub(crate) fn e_tag(found: &Metadata) -> String {
    let modified = found.modified().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}-{:x}", found.ino(), modified.as_nanos(), found.len())
}

/// What a store says of an object.
pub(crate) fn describe(location: Path, found: &Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: found.modified().into(),
        size: found.len(),
        e_tag: Some(e_tag(found)),
        version: None,
    }
}

/// The path of an object's file, from the root of the store.
pub(crate) fn file_path(location: &Path) -> Result<&FilePath> {
    let refused = |why: &str| {
        let source = format!("{location:?}: {why}").into();
        Err(Error::NotSupported { source })
    };
    if location.parts().next().is_none() {
        return refused("an object has a name");
    }
    if is_reserved(location) {
        return refused("no object can be in this directory");
    }
    Ok(FilePath::new(location.as_ref()))
}

/// Whether no object can be at or below a path.
pub(crate) fn is_reserved(location: &Path) -> bool {
    location.parts().next().is_some_and(|first| first.as_ref() == SNAPSHOTS)
        || location.parts().any(|part| part.as_ref() == STAGING)
}
