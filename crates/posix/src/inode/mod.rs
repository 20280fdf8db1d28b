//! An inode in memory: what callers see, what the tree holds, and what keeps it alive.
//!
//! `attr` is what callers see. `disk` is exactly what the tree holds. They differ only in what delayed writes changed
//! (size, blocks, mtime, ctime) and in the access time. An operation that puts an inode item starts from `disk`,
//! applies its own changes, and never takes delayed values over.

pub(crate) mod errors;
pub(crate) mod leaving;
pub(crate) mod locked;
pub(crate) mod lost;
pub(crate) mod table;

#[cfg(test)]
mod tests;

pub(crate) use errors::{ErrorCursor, ErrorSequence};
pub(crate) use leaving::Leaving;
pub(crate) use locked::Locked;
pub(crate) use lost::Lost;
pub(crate) use table::InodeTable;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{InodeNo, Lsn, Receipt};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::{Carried, Key, Malformed};
use holdfast_store::Transaction;
use parking_lot::{Mutex, RwLock};

use crate::{Attr, FsError, Result};

/// References that another process has given out, in an unknown number, maybe none.
pub(crate) const UNCOUNTED: u64 = 1 << 62;

/// An inode in memory. There is never more than one for a number.
#[derive(Debug)]
pub(crate) struct Inode {
    /// Its number.
    pub(crate) no: InodeNo,
    /// Its type, which never changes.
    pub(crate) file_type: FileType,
    /// Everything that operations read and change.
    pub(crate) state: RwLock<InodeState>,
    /// Its content in memory, with locks of its own. Taken before `state`.
    pub(crate) data: crate::file_data::FileData,
    /// Write errors that handles have not seen yet (P7).
    pub(crate) errors: ErrorSequence,
    /// Bytes that could not be written and that a program may still rely on.
    pub(crate) lost: Lost,
    /// What its last fsync cost.
    pub(crate) receipt: Mutex<Option<Box<Receipt>>>,
}

/// What changes about an inode.
#[derive(Debug)]
pub(crate) struct InodeState {
    /// What callers see, delayed writes included.
    pub(crate) attr: InodeItem,
    /// What the tree holds.
    pub(crate) disk: InodeItem,
    /// What a feature that this program does not know has put behind that, and gets back with each put.
    tail: Box<[u8]>,
    /// Not before the last operation that changed this inode or, for a directory, its entries.
    pub(crate) changed: Lsn,
    /// Open files.
    pub(crate) handles: u32,
    /// References from above, see [`crate::FileSystem::remember`]. From [`UNCOUNTED`] on it is not known how many there are.
    pub(crate) lookups: u64,
    /// It has no name and is not needed any more: it is being removed, or is removed already.
    pub(crate) gone: bool,
    /// It belongs to what its branch was before a rollback.
    stale: bool,
    /// It was made without a name and may be given one.
    pub(crate) linkable: bool,
    /// The access time in `attr` waits to be written.
    pub(crate) atime_waits: bool,
}

impl Inode {
    /// An inode as the tree holds it, last changed at or before `changed`.
    pub(crate) fn new(no: InodeNo, item: InodeItem, changed: Lsn) -> Inode {
        Inode {
            no,
            file_type: item.file_type(),
            state: RwLock::new(InodeState {
                attr: item,
                disk: item,
                tail: Box::default(),
                changed,
                handles: 0,
                lookups: 0,
                gone: false,
                stale: false,
                linkable: false,
                atime_waits: false,
            }),
            data: crate::file_data::FileData::default(),
            errors: ErrorSequence::default(),
            lost: Lost::default(),
            receipt: Mutex::default(),
        }
    }

    /// An inode as the bytes of its item say, last changed at or before `changed`, of a volume that may have this.
    pub(crate) fn decode(
        no: InodeNo,
        bytes: &[u8],
        changed: Lsn,
        carried: Carried,
    ) -> std::result::Result<Inode, Malformed> {
        let item = InodeItem::decode(bytes)?;
        item.check_carried(bytes, carried)?;
        let mut inode = Inode::new(no, item, changed);
        inode.state.get_mut().tail = InodeItem::tail(bytes).into();
        Ok(inode)
    }

    /// Fails unless it is a regular file.
    pub(crate) fn expect_regular(&self) -> Result<()> {
        match self.file_type {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("only regular files are opened here")),
        }
    }

    /// Fails unless it is a directory.
    pub(crate) fn expect_directory(&self) -> Result<()> {
        if self.file_type == FileType::Directory { Ok(()) } else { Err(FsError::NotDirectory) }
    }
}

impl InodeState {
    /// What stat shows.
    pub(crate) fn stat(&self, no: InodeNo) -> Attr {
        let item = &self.attr;
        Attr {
            inode: no,
            file_type: item.file_type(),
            perm: item.mode & 0o7777,
            nlink: item.nlink,
            uid: item.uid,
            gid: item.gid,
            size: item.size,
            blocks: self.sectors(),
            rdev: item.rdev,
            atime: item.atime,
            mtime: item.mtime,
            ctime: item.ctime,
            btime: item.btime,
        }
    }

    /// What stat shows as blocks, in units of 512 bytes. Content that is or may be inline counts as one block of the
    /// volume, as it does before it is written back: a file with data never has 0 blocks (see [`crate::data::counted`]).
    fn sectors(&self) -> u64 {
        let item = &self.attr;
        let is_inline = item.blocks == 0
            && (1..=BLOCK_BYTES).contains(&item.size)
            && item.file_type() == FileType::Regular;
        // A damaged inode may claim anything.
        item.blocks.max(u64::from(is_inline)).saturating_mul(BLOCK_BYTES / 512)
    }

    /// Fails if the inode is removed, or for a directory, if it has lost its name: nothing can be added to it.
    pub(crate) fn expect_named(&self) -> Result<()> {
        self.expect_alive()?;
        if self.disk.nlink == 0 { Err(FsError::NotFound) } else { Ok(()) }
    }

    /// Fails if the inode is removed.
    pub(crate) fn expect_alive(&self) -> Result<()> {
        match self.gone {
            true if self.stale => Err(FsError::Stale),
            true => Err(FsError::NotFound),
            false => Ok(()),
        }
    }

    /// Fails if a rollback has taken the inode away.
    pub(crate) fn expect_fresh(&self) -> Result<()> {
        if self.stale { Err(FsError::Stale) } else { Ok(()) }
    }

    /// The branch was rolled back, and this is the inode now.
    pub(crate) fn renew(&mut self, item: InodeItem, tail: Box<[u8]>, changed: Lsn) {
        (self.attr, self.disk, self.tail, self.changed) = (item, item, tail, changed);
        // Where the snapshot has it without a name, it was made so, and may still get one.
        (self.linkable, self.atime_waits) = (self.linkable && item.nlink == 0, false);
    }

    /// The branch was rolled back, and the inode is not used any more or does not exist.
    pub(crate) fn ends_stale(&mut self) {
        (self.gone, self.stale, self.atime_waits) = (true, true, false);
    }

    /// The item to put: what the tree holds, with the access time that callers see, and one change more.
    pub(crate) fn next_disk(&self) -> InodeItem {
        let change = self.disk.change.wrapping_add(1);
        InodeItem { atime: self.attr.atime, change, ..self.disk }
    }

    /// Puts `item` in place of what the tree holds of inode `no`, which this is.
    pub(crate) fn put(&self, no: InodeNo, item: &InodeItem, transaction: &mut Transaction) {
        transaction.put_with(Key::inode(no), |out| {
            item.write(out);
            out.extend_from_slice(&self.tail);
        });
    }

    /// Takes over what a transaction has put at `changed`. Values that delayed writes own stay in `attr`.
    /// For operations that set ctime.
    pub(crate) fn took(&mut self, disk: InodeItem, changed: Lsn) {
        let seen = self.attr;
        self.attr = disk;
        if disk.file_type() == FileType::Regular {
            self.attr.size = seen.size;
            self.attr.blocks = seen.blocks;
            self.attr.mtime = seen.mtime;
        }
        self.disk = disk;
        self.changed = changed;
        self.atime_waits = false;
    }

    /// Takes `count` references back.
    ///
    /// Of those that were not counted the kernel gives back all at once, together with those that came since; but one of these
    /// may still be on its way to the kernel. A file that has lost its name is not looked up any more, so there none is, if as many
    /// come back as were given out.
    pub(crate) fn forget(&mut self, count: u64) {
        self.lookups = match self.lookups.checked_sub(UNCOUNTED) {
            None => self.lookups.saturating_sub(count),
            Some(0) => 0,
            Some(_) if self.disk.nlink > 0 => UNCOUNTED,
            Some(since) if count < since => self.lookups - count,
            Some(_) => 0,
        };
    }

    /// Whether only a reference from above keeps it alive: memory is the only place that knows.
    pub(crate) fn is_remembered_orphan(&self) -> bool {
        self.lookups > 0 && (self.disk.nlink == 0 || self.gone)
    }

    /// Whether the inode is unreachable: no name, no handle, no reference from above.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.disk.nlink == 0 && self.handles == 0 && self.lookups == 0
    }
}
