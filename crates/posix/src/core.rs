//! What all calls of one mounted volume share.
//!
//! Locks are taken in this order, and none of them twice:
//! 0. [`Core::gate`], by everything that changes the branch;
//! 1. [`Core::renames`], only by moves of directories between parents;
//! 2. what `file_data` locks for a file's content ([`crate::file_data::FileData`]);
//! 3. [`Inode::state`], in ascending order of inode numbers;
//! 4. a shard of the [`InodeTable`], for as long as a look-up takes;
//! 5. the locks inside the store.
//!
//! Space is reserved before a state is locked, because a reservation may wait
//! for a checkpoint (R4). After a transaction was applied nothing may fail.
//!
//! Knows nothing of calls and callers.

use holdfast_sync::atomic::AtomicU64;
use std::fmt;
use std::sync::{Arc, OnceLock};

use holdfast_base::counters::Counters;
use holdfast_base::{BlockNo, InodeNo, Lsn, applied};
use holdfast_format::item::dentry;
use holdfast_store::{Allocated, Branch, Reservation, StoreError, Transaction};
use parking_lot::Mutex;

use crate::deletions::Deletions;
use crate::gate::Gate;
use crate::inode::{Inode, InodeTable, Leaving};
use crate::{MountOptions, Result, Turned};

/// See [`crate::FileSystem::watch`].
pub(crate) type Watcher = Box<dyn Fn(InodeNo) + Send + Sync>;
/// See [`crate::FileSystem::watch_rollback`].
pub(crate) type RollbackWatcher = Box<dyn Fn(&Turned<'_>) + Send + Sync>;

/// A mounted volume without its threads.
pub(crate) struct Core {
    /// A call that plans a change is inside until the change is applied.
    pub(crate) gate: Gate,
    /// Those of the volume.
    pub(crate) deletions: Arc<Deletions>,
    /// The map under everything.
    pub(crate) store: Branch,
    /// The statistics, shared with the store.
    pub(crate) counters: Arc<Counters>,
    /// How it was mounted.
    pub(crate) options: MountOptions,
    /// Bytes of data that an fsync puts into the log.
    pub(crate) log_data_bytes: usize,
    /// Inodes in memory.
    pub(crate) inodes: InodeTable,
    /// Seed of the name hash.
    pub(crate) hash_seed: u64,
    /// What writeback shares between all files.
    pub(crate) data: crate::delayed::Shared,
    /// Held while a directory moves to another parent, so that no two moves make a circle.
    pub(crate) renames: Mutex<()>,
    /// The last operation that gave a directory another name (an [`holdfast_base::Lsn`]): it changed
    /// what every inode below is reached by, without touching any of them.
    pub(crate) last_move: AtomicU64,
    /// What a rename logs once more, if it was mounted so.
    pub(crate) directory_log: crate::directory_log::DirectoryLog,
    /// When reading updates access times.
    pub(crate) atime: crate::times::Policy,
    /// Called for inodes that changed although no call asked for it.
    pub(crate) watcher: OnceLock<Watcher>,
    /// Called when the branch was rolled back.
    pub(crate) rolled_back: OnceLock<RollbackWatcher>,
    /// How often it was. It changes while the gate is closed, behind that call.
    pub(crate) turns: AtomicU64,
    /// Inodes without a name that the end of a handle could not remove, because the gate was closed.
    pub(crate) left: Mutex<Vec<Arc<Inode>>>,
    /// Inodes whose space is about to become free.
    pub(crate) leaving: Leaving,
    /// Inodes whose access time waits to be written.
    pub(crate) atimes: Mutex<crate::times::Waiting>,
    /// Bits of a name's hash that tests leave, to make names collide.
    #[cfg(test)]
    pub(crate) hash_mask: AtomicU64,
}

impl Core {
    /// The inode with this number, loaded if need be. [`crate::FsError::NotFound`] if there is none.
    pub(crate) fn inode(&self, no: InodeNo) -> Result<Arc<Inode>> {
        self.inodes.get(&self.store, no)
    }

    /// Makes the change visible that a request asks for. Other changes of it come before or follow, and may be made twice.
    pub(crate) fn apply_asked_for(
        &self,
        transaction: Transaction,
        reservation: &mut Reservation,
    ) -> std::result::Result<Lsn, StoreError> {
        applied::asked_for(|| self.store.apply(transaction, reservation))
    }

    /// Takes between 1 and `want` consecutive blocks out of the reservation's, near `goal` if possible. What they held for
    /// others before is forgotten.
    pub(crate) fn allocate(
        &self,
        from: &mut Reservation,
        want: u64,
        goal: Option<BlockNo>,
    ) -> std::result::Result<Allocated, StoreError> {
        let placed = self.store.allocate(from, want, goal)?;
        self.data.recent.forget(placed.blocks());
        Ok(placed)
    }

    /// The first key offset of names that hash like `name`.
    pub(crate) fn slot(&self, name: &[u8]) -> u64 {
        let slot = dentry::slot(self.hash_seed, name);
        #[cfg(test)]
        let slot = {
            let mask = self.hash_mask.load(std::sync::atomic::Ordering::Relaxed);
            (slot & mask).max(256)
        };
        slot
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}
