//! Which handle has a lock of which file.

use std::collections::HashMap;

use holdfast_base::InodeNo;
use holdfast_base::clock::Deadline;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Which others may have a lock of the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None.
    Exclusive,
    /// Those with such a lock.
    Shared,
}

/// A handle that has a lock, by its address, which is its own for as long.
#[derive(Debug)]
pub(crate) struct Holder {
    handle: usize,
    kind: Kind,
}

/// The locks of the files of a volume.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) holders: Mutex<HashMap<InodeNo, Vec<Holder>>>,
    pub(crate) changed: Condvar,
    /// How often a thread has begun to wait.
    #[cfg(test)]
    pub(crate) waits: std::sync::atomic::AtomicU64,
}

impl Locks {
    /// The volume is closed: waiters are told.
    pub(crate) fn closed(&self) {
        // With the lock: a thread that has just seen the volume open would begin to wait behind this.
        let _holders = self.holders.lock();
        self.changed.notify_all();
    }

    /// Gives `handle` a lock if no other handle is against it.
    pub(crate) fn give(
        holders: &mut HashMap<InodeNo, Vec<Holder>>,
        inode: InodeNo,
        handle: usize,
        kind: Kind,
    ) -> bool {
        let all = holders.entry(inode).or_default();
        let against = |other: &Holder| {
            other.handle != handle && (kind == Kind::Exclusive || other.kind == Kind::Exclusive)
        };
        if all.iter().any(against) {
            return false;
        }
        all.retain(|other| other.handle != handle);
        all.push(Holder { handle, kind });
        true
    }

    /// Takes the lock of `handle` back, if it has one.
    pub(crate) fn take(&self, inode: InodeNo, handle: usize) {
        let mut holders = self.holders.lock();
        Locks::take_of(&mut holders, inode, handle);
        self.changed.notify_all();
    }

    /// Whether there was one.
    pub(crate) fn take_of(
        holders: &mut HashMap<InodeNo, Vec<Holder>>,
        inode: InodeNo,
        handle: usize,
    ) -> bool {
        let Some(all) = holders.get_mut(&inode) else { return false };
        let before = all.len();
        all.retain(|other| other.handle != handle);
        let taken = all.len() != before;
        if all.is_empty() {
            holders.remove(&inode);
        }
        taken
    }

    /// Waits until a lock is given back, the volume is closed, or it is `until`.
    pub(crate) fn wait(
        &self,
        holders: &mut MutexGuard<'_, HashMap<InodeNo, Vec<Holder>>>,
        until: Option<Deadline>,
    ) {
        #[cfg(test)]
        self.waits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match until {
            None => self.changed.wait(holders),
            Some(until) => drop(self.changed.wait_for(holders, until.left())),
        }
    }
}
