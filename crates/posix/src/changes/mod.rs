//! What is different between two moments of a volume's branches, in words of files.
//!
//! ```text
//!  store: items that differ, in the order of keys ─▶ walk (all of one inode) ─▶ what became of it ─▶ its names (sides)
//!                                                     └▶ content (which bytes)
//! ```
//!
//! An inode number is never used twice, in no branch: what has the same number in both was the same file once (S8). So a
//! file of one name is created, removed, renamed or changed, whatever its directories have come to, and a directory that was
//! renamed is one change, whatever lies below. Of a file of several names each name is created or removed.
//!
//! A path takes two look-ups for each of its names, and no search. Only a file that has lost its newest name does not know
//! the others: those that differ are looked for together, in one pass over all names, at the end.
//!
//! Access times, the times of the last change of inodes, the numbers of links and reserved blocks are no differences. Nor are
//! the times of a directory whose names differ: the names say it.

mod content;
mod inode;
mod compared_tree;
mod walk;

use std::ops::Range;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_store::Pin;

use crate::*;
pub use walk::Changes;

/// A branch as it is now, or a snapshot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment<'a> {
    /// The branch.
    pub branch: &'a [u8],
    /// A snapshot of it.
    pub snapshot: Option<&'a [u8]>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It is there in the second tree only.
    Created,
    /// It is there in the first tree only.
    Removed,
    /// It has another name, or is in another directory; perhaps it changed as well.
    Renamed,
    /// Its content changed, perhaps more.
    Changed,
    /// Its content is the same; something else changed.
    Attributes,
}

/// What of a file that is in both trees is different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Bytes of a file, its size, or where a symbolic link leads.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// The time of the last change of its content, or of its creation.
    pub times: bool,
    /// Extended attributes, access control lists among them.
    pub xattrs: bool,
    /// Flags, the project, or something that this program does not know.
    pub flags: bool,
}

impl Parts {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        *self == Parts::default()
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What became of it.
    pub kind: ChangeKind,
    /// Its number, the same in both trees.
    pub inode: InodeNo,
    /// What it is.
    pub file_type: FileType,
    /// Where it was, from the root, without a slash in front: of what was removed or renamed, and mostly of all else that was
    /// there (of a file of several names only if the one that it is told by was there).
    pub old_path: Option<Vec<u8>>,
    /// Where it is, of all but what was removed. That of the root is empty.
    pub new_path: Option<Vec<u8>>,
    /// It is one of several names of a file.
    pub is_link: bool,
    /// What is different, of what is in both trees.
    pub parts: Parts,
    /// Its size in the first tree.
    pub old_size: Option<u64>,
    /// Its size in the second tree.
    pub new_size: Option<u64>,
    /// Which bytes differ, upwards, if that was asked for: whole blocks of 4 KiB, up to the end of the longer file. Of a file
    /// that is in both trees.
    pub ranges: Vec<Range<u64>>,
}

impl FileSystem {
    /// Begins to compare two moments of this volume; [`FileSystem::next_change`] goes on with it. Snapshots that are compared
    /// may be deleted meanwhile: their space comes back behind that.
    ///
    /// A branch is compared as it is now, at one moment: a snapshot without a name is taken for that, which goes when the
    /// comparison ends, or after a crash. A volume that is only read needs none.
    pub fn changes(&self, old: Moment<'_>, new: Moment<'_>, ranges: bool) -> Result<Changes> {
        let old = self.pin(old)?;
        let new = match self.pin(new) {
            Ok(new) => new,
            Err(error) => {
                drop(old);
                self.volume.volume.go_on_with_deletions();
                return Err(error);
            }
        };
        Ok(Changes::new(old, new, ranges))
    }

    /// The next difference. They come in no order that means anything to people, but always in the same. After an error there
    /// are no more.
    pub fn next_change(&self, changes: &mut Changes) -> Result<Option<Change>> {
        changes.next(self.core.store.store())
    }

    /// Ends a comparison: what was kept for it goes. Dropping it does the same, but later.
    pub fn end_changes(&self, changes: Changes) {
        drop(changes);
        self.volume.volume.go_on_with_deletions();
    }

    fn pin(&self, moment: Moment<'_>) -> Result<Pin> {
        let store = self.core.store.store();
        if moment.snapshot.is_some() || self.volume.volume.stands_still() {
            return Ok(store.pin(moment.branch, moment.snapshot)?);
        }
        let branch = store.find_tree(moment.branch, None)?;
        self.with_branch(branch, |store, _| Ok(store.pin_now(branch, Timestamp::now())?))
    }
}
