//! Entries of a directory by name.
//!
//! An entry's key offset is the slot of its name's hash and a probe number
//! that tells up to 256 names with one hash apart. It never changes while the
//! entry lives, so it is the readdir cookie as well.
//!
//! The entries of a directory change only under the write lock of its state.
//! A search without that lock sees one moment, but not the present.

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, FileType, dentry};
use holdfast_format::limits::NAME_MAX;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{StoreError, Transaction};

use crate::core::Core;
use crate::error::damaged_item;
use crate::slot;
use crate::{FsError, Result};

/// An entry that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Offset of its key.
    pub(crate) offset: u64,
    /// Where it leads.
    pub(crate) inode: InodeNo,
    /// What is there.
    pub(crate) file_type: FileType,
}

/// What a search for a name found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameSearch {
    /// The entry of that name.
    pub(crate) entry: Option<Entry>,
    /// A key offset that a new entry of that name may take, unless all are taken.
    free: Option<u64>,
}

impl NameSearch {
    /// The entry that must exist.
    pub(crate) fn existing(&self) -> Result<Entry> {
        self.entry.ok_or(FsError::NotFound)
    }
}

/// Fails unless `name` can stand in a directory. `.` and `..` get `dots`.
pub(crate) fn check_name(name: &[u8], dots: FsError) -> Result<()> {
    if dentry::is_valid_name(name) {
        return Ok(());
    }
    Err(if name.is_empty() {
        FsError::NotFound
    } else if name.len() > NAME_MAX {
        FsError::NameTooLong
    } else if name == b"." || name == b".." {
        dots
    } else {
        FsError::Invalid("a name holds neither / nor NUL")
    })
}

/// Searches `dir` for `name`.
pub(crate) fn find(core: &Core, dir: InodeNo, name: &[u8]) -> Result<NameSearch> {
    let slot = slot::search(core, dir, ItemKind::Dentry, name, |value| {
        let found = Dentry::decode(value)?;
        Ok((found.name == name).then_some((found.inode, found.file_type)))
    })?
    .map_err(|source| {
        damaged_item(&core.store, format!("an entry of {}", core.called(dir)), source)
    })?;
    let entry = slot.found.map(|(offset, (inode, file_type))| Entry { offset, inode, file_type });
    Ok(NameSearch { entry, free: slot.free })
}

/// The key offset for a new entry. There must be none of that name.
pub(crate) fn find_vacant(core: &Core, dir: InodeNo, name: &[u8]) -> Result<u64> {
    let found = find(core, dir, name)?;
    match (found.entry, found.free) {
        (Some(_), _) => Err(FsError::Exists),
        (None, Some(free)) => Ok(free),
        (None, None) => Err(FsError::Store(StoreError::NoSpace)),
    }
}

/// Adds or replaces an entry.
pub(crate) fn put(
    transaction: &mut Transaction,
    dir: InodeNo,
    offset: u64,
    name: &[u8],
    inode: InodeNo,
    file_type: FileType,
) {
    let entry = Dentry { inode, file_type, name };
    transaction.put_with(Key::new(dir, ItemKind::Dentry, offset), |out| entry.write(out));
}

/// Removes an entry.
pub(crate) fn delete(transaction: &mut Transaction, dir: InodeNo, offset: u64) {
    transaction.delete(Key::new(dir, ItemKind::Dentry, offset));
}
