//! Deletions of snapshots and branches, which go on behind the scenes.

use std::sync::Arc;

use holdfast_store::{Store, StoreError};
use holdfast_sync::atomic::{AtomicBool, Ordering};

use crate::Result;

/// Steps between two looks at anything else, each of about a node.
const STEPS: usize = 64;
/// As many are worked off by a call that makes a commit, while it waits for room, at most.
const STEPS_OF_CALL: usize = 4096;

/// What is left to be deleted in a volume.
#[derive(Debug)]
pub(crate) struct Deletions {
    store: Arc<Store>,
    /// Snapshots may wait to be deleted.
    are_left: AtomicBool,
}

impl Deletions {
    /// What an earlier mount left goes on.
    pub(crate) fn new(store: Arc<Store>) -> Deletions {
        Deletions { store, are_left: AtomicBool::new(true) }
    }

    /// Something is to be deleted.
    pub(crate) fn begin(&self) {
        self.are_left.store(true, Ordering::Release);
        self.store.idle().stir();
    }

    /// Whether something may wait to be deleted.
    pub(crate) fn are_left(&self) -> bool {
        self.are_left.load(Ordering::Acquire)
    }

    /// Goes on with deletions for a while, if there are any; says whether that is to be done again. At their end a commit
    /// gives the space back.
    pub(crate) fn work_off(&self) -> Result<bool> {
        if !self.are_left.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let done = self.step();
        if !matches!(done, Ok(false)) {
            self.are_left.store(true, Ordering::Release);
        }
        Ok(done?)
    }

    fn step(&self) -> std::result::Result<bool, StoreError> {
        // Without any nothing is written.
        if !self.store.work_off_deletions(0)? {
            return Ok(false);
        }
        let more = self.store.work_off_deletions(STEPS)?;
        if !more {
            self.store.commit_deletions()?;
        }
        Ok(more)
    }

    /// As [`Deletions::work_off`], for a call that waits for room: until they end, or have freed a lot.
    pub(crate) fn work_off_many(&self) -> Result<()> {
        for _ in 0..STEPS_OF_CALL / STEPS {
            if !self.work_off()? {
                break;
            }
        }
        Ok(())
    }
}
