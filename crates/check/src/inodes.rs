//! What a check remembers of every inode: 96 bytes each, sorted by number.
//!
//! Filled by the pass over inodes, completed by the pass over directories,
//! then enough to judge links and reachability and to find a path.

use holdfast_base::InodeNo;
use holdfast_format::item::FileType;
use holdfast_format::{ItemKind, Key};

use crate::path::climb;
use crate::volume::Volume;

/// An inode, and what was found to lead to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) number: InodeNo,
    /// `None`: its item is damaged.
    pub(crate) file_type: Option<FileType>,
    /// Whether an orphan item names it.
    pub(crate) orphan: bool,
    /// Whether a way from the root to this directory was found.
    pub(crate) rooted: bool,
    pub(crate) nlink: u32,
    /// Names found that lead here.
    pub(crate) names: u32,
    /// Subdirectories found in this directory.
    pub(crate) subdirs: u32,
    pub(crate) size: u64,
    /// Names found in this directory.
    pub(crate) entries: u64,
    /// Where the inode says that it is.
    pub(crate) parent: InodeNo,
    /// The key offset of the name that it knows.
    pub(crate) parent_slot: u64,
    /// Whether that name was found.
    pub(crate) knows_name: bool,
    /// Where its first name was found; 0: nowhere.
    pub(crate) name_dir: InodeNo,
    /// The key offset of that name.
    pub(crate) name_at: u64,
}

impl Entry {
    /// An inode of which nothing is known but its number.
    pub(crate) fn new(number: InodeNo) -> Entry {
        Entry { number, ..Entry::default() }
    }

    /// Whether it is known to be a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == Some(FileType::Directory)
    }
}

/// Every inode of the volume, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Inodes(pub(crate) Vec<Entry>);

impl Inodes {
    /// Adds an inode with a larger number than all before.
    pub(crate) fn push(&mut self, entry: Entry) -> usize {
        debug_assert!(self.0.last().is_none_or(|last| last.number < entry.number));
        self.0.push(entry);
        self.0.len() - 1
    }

    /// The place of an inode.
    pub(crate) fn find(&self, inode: InodeNo) -> Option<usize> {
        self.0.binary_search_by_key(&inode, |entry| entry.number).ok()
    }

    /// An absolute path to `inode`, if one was found. Each name takes one from `budget`; when
    /// nothing is left, no path is put together any more.
    pub(crate) fn path(
        &self,
        volume: &Volume<'_>,
        inode: InodeNo,
        budget: &mut usize,
    ) -> Option<String> {
        let mut up = |at| {
            let entry = &self.0[self.find(at)?];
            *budget = budget.checked_sub(1)?;
            let key = Key::new(entry.name_dir, ItemKind::Dentry, entry.name_at);
            (entry.name_dir.0 != 0).then_some(key)
        };
        climb(inode, &mut up, &|key| volume.get(key))
    }
}
