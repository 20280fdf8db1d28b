//! Inodes without a name whose space is about to become free: an operation that finds none waits for them.
//!
//! A mount hears that the kernel has forgotten an inode, or that its last handle is closed, behind the answer to the
//! program that saw to it, and on another thread. A program that writes next must find the space. Whether the kernel
//! will forget is not known: a program may hold the inode without having opened it (O_PATH). So it is waited for only a
//! moment, once.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Deadline;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

/// How long an inode is waited for that the layer above remembers.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Stage {
    /// Only remembered.
    Remembered(Deadline),
    /// Being removed.
    Removed,
}

impl Stage {
    /// How much longer it may be waited for at once.
    fn patience(&self) -> Option<Duration> {
        match self {
            Stage::Remembered(until) => Some(until.left()).filter(|left| !left.is_zero()),
            Stage::Removed => Some(PATIENCE),
        }
    }
}

/// Those inodes.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    inodes: Mutex<HashMap<InodeNo, Stage>>,
    left: Condvar,
}

impl Leaving {
    /// The inode has no name any more, and is still remembered. Its state is locked.
    pub(crate) fn expect(&self, no: InodeNo) {
        self.inodes.lock().insert(no, Stage::Remembered(Deadline::after(PATIENCE)));
    }

    /// Its removal begins, and is over when the answer is dropped.
    pub(crate) fn begin(&self, no: InodeNo) -> Removal<'_> {
        self.inodes.lock().insert(no, Stage::Removed);
        Removal { leaving: self, no }
    }

    /// Waits until the inodes have left that are about to, no others. Returns whether there were any. The caller has locked
    /// nothing that their removal needs: no state and no extents.
    pub(crate) fn wait(&self) -> bool {
        let mut inodes = self.inodes.lock();
        let leaves = |(no, stage): (&InodeNo, &Stage)| stage.patience().map(|_| *no);
        let mut leaving: Vec<InodeNo> = inodes.iter().filter_map(leaves).collect();
        if leaving.is_empty() {
            return false;
        }
        drop(inodes);
        wait::will_wait();
        inodes = self.inodes.lock();
        loop {
            let mut longest = Duration::ZERO;
            leaving.retain(|no| {
                let patience = inodes.get(no).and_then(Stage::patience);
                longest = longest.max(patience.unwrap_or_default());
                patience.is_some()
            });
            if leaving.is_empty() {
                return true;
            }
            self.left.wait_for(&mut inodes, longest);
        }
    }
}

/// An inode is being removed.
#[derive(Debug)]
pub(crate) struct Removal<'a> {
    leaving: &'a Leaving,
    no: InodeNo,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.leaving.inodes.lock().remove(&self.no);
        self.leaving.left.notify_all();
    }
}
