//! The flags of files (chattr(1)) where two branches are put together: records do not have them.
//!
//! What records speak of has none while they are obeyed: the branches have obeyed them. In the end each file has those of the branch that
//! has changed them.

use std::sync::Arc;

use holdfast::FileSystem;
use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileFlags, FsError};
use roaring::RoaringTreemap;

type Asked<T> = std::result::Result<T, FsError>;

/// The flags of both branches, and of the tree that both have begun with.
pub(crate) struct Flags {
    pub(crate) base: Arc<FileSystem>,
    pub(crate) mine: Arc<FileSystem>,
    pub(crate) theirs: Arc<FileSystem>,
    /// What the inodes of the fork have in the end.
    wanted: [(FileFlags, RoaringTreemap); 2],
}

impl Flags {
    /// Nothing was spoken of yet.
    pub(crate) fn new([base, mine, theirs]: [&Arc<FileSystem>; 3]) -> Flags {
        let [base, mine, theirs] = [base, mine, theirs].map(Arc::clone);
        let wanted = [FileFlags::IMMUTABLE, FileFlags::APPEND_ONLY];
        Flags { base, mine, theirs, wanted: wanted.map(|flag| (flag, RoaringTreemap::new())) }
    }

    /// Takes away what forbids to change an inode of the fork, which `mine` knows as `id`.
    pub(crate) fn lift(&mut self, fork: &FileSystem, id: u64, inode: InodeNo) -> Asked<()> {
        let both = self.of_both(InodeNo(id))?;
        for (flag, inodes) in &mut self.wanted {
            if both.contains(*flag) {
                inodes.insert(inode.0);
            }
        }
        match fork.file_flags(inode)?.is_empty() {
            true => Ok(()),
            false => fork.set_file_flags(&Caller::root(), inode, FileFlags::empty()),
        }
    }

    fn of_both(&self, inode: InodeNo) -> Asked<FileFlags> {
        let of = |fs: &FileSystem| match fs.file_flags(inode) {
            Err(FsError::NotFound) => Ok(None),
            flags => flags.map(Some),
        };
        let (was, mine, theirs) = (of(&self.base)?, of(&self.mine)?, of(&self.theirs)?);
        let is_mine = mine != was;
        Ok(mine.filter(|_| is_mine).or(theirs).unwrap_or_default())
    }

    /// All is as it is to be, but for these.
    pub(crate) fn put_back(&self, fork: &FileSystem) -> Asked<()> {
        let [(_, immutable), (_, append_only)] = &self.wanted;
        for inode in immutable | append_only {
            let all = self.wanted.iter().filter(|(_, inodes)| inodes.contains(inode));
            let flags = all.fold(FileFlags::empty(), |flags, (flag, _)| flags | *flag);
            match fork.set_file_flags(&Caller::root(), InodeNo(inode), flags) {
                // It has lost its last name.
                Err(FsError::NotFound) => {}
                done => done?,
            }
        }
        Ok(())
    }
}
