//! Directories that the kernel has seen removed, and that a rollback may bring back.
//!
//! The kernel marks a directory that it removes as dead, for as long as it has it in memory, because a program stands in it, or has a file
//! below it open: it is empty then, whatever it is asked. A directory that comes back is not that one: it has the same number and another
//! generation, by which the kernel makes a new one of it.
//!
//! They keep their generations as long as the mount lasts, as file handles have them too. A later mount begins anew: a handle of
//! another generation is stale there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::InodeNo;
use parking_lot::Mutex;

/// Those that are not of generation 0.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// Read without the lock: mostly there are none.
    any: AtomicBool,
    all: Mutex<HashMap<InodeNo, u32>>,
}

impl Generations {
    /// The branch gets another head, by the turn of this number, and the kernel has these as dead.
    pub(super) fn turned(&self, dead: impl Iterator<Item = InodeNo>, turn: u64) {
        let mut all = self.all.lock();
        all.extend(dead.map(|inode| (inode, turn as u32)));
        self.any.store(!all.is_empty(), Ordering::Release);
    }

    /// The generation of an inode.
    pub(super) fn of(&self, inode: InodeNo) -> u32 {
        match self.any.load(Ordering::Acquire) {
            true => self.all.lock().get(&inode).copied().unwrap_or(0),
            false => 0,
        }
    }
}
