//! Deletions of snapshots and branches, which go on behind the scenes.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_store::{Store, StoreError};
use parking_lot::Mutex;

use crate::Result;

/// Steps in a row of a call that waits for room, each of about a node.
const STEPS: usize = 64;
/// As many are worked off by a call that makes a commit, while it waits for room, at most.
const STEPS_OF_CALL: usize = 4096;
/// While others work, a deletion rests so many times as long as its last step took: what it needs of processor and device, and
/// the time in which it locks others out, stay a fifth.
const REST: u32 = 4;
/// And no longer: a step may have waited for others itself.
const REST_MAX: Duration = Duration::from_millis(100);

/// What is left to be deleted in a volume.
#[derive(Debug)]
pub(crate) struct Deletions {
    store: Arc<Store>,
    left: Mutex<Left>,
    /// Held over some steps.
    one: Mutex<()>,
}

#[derive(Debug)]
struct Left {
    /// Snapshots may wait to be deleted.
    any: bool,
    /// How often something was added.
    begun: u64,
    /// The last step failed.
    is_stuck: bool,
}

impl Deletions {
    /// What an earlier mount left goes on.
    pub(crate) fn new(store: Arc<Store>) -> Deletions {
        Deletions {
            store,
            left: Mutex::new(Left { any: true, begun: 0, is_stuck: false }),
            one: Mutex::default(),
        }
    }

    /// Goes on until nothing is left that can be deleted now, without a rest.
    pub(crate) fn finish(&self) -> Result<()> {
        while self.work_off(STEPS)? {}
        Ok(())
    }

    /// Something is to be deleted.
    pub(crate) fn begin(&self) {
        {
            let mut left = self.left.lock();
            *left = Left { any: true, begun: left.begun.wrapping_add(1), is_stuck: false };
        }
        self.store.idle().call();
    }

    /// Whether something may wait to be deleted.
    pub(crate) fn are_left(&self) -> bool {
        self.left.lock().any
    }

    /// Whether a deletion goes on, and may free something: a caller without room may wait for that.
    pub(crate) fn go_on(&self) -> bool {
        let left = self.left.lock();
        left.any && !left.is_stuck
    }

    /// Goes on with deletions by a step, if there are any. At their end a commit gives the space back.
    ///
    /// # Returns
    ///
    /// None if nothing is left; else how long to rest before the next step, if others have something to do.
    pub(crate) fn work_off_one(&self) -> Result<Option<Duration>> {
        let watch = Stopwatch::start();
        Ok(self.work_off(1)?.then(|| (watch.elapsed() * REST).min(REST_MAX)))
    }

    /// Goes on with deletions by so many steps, if there are any; says whether that is to be done again. At their end a commit
    /// gives the space back.
    pub(crate) fn work_off(&self, steps: usize) -> Result<bool> {
        let _one = self.one.lock();
        let begun = {
            let left = self.left.lock();
            if !left.any {
                return Ok(false);
            }
            left.begun
        };
        let more = self.step(steps);
        let mut left = self.left.lock();
        left.is_stuck = more.is_err();
        let more = more?;
        if !more && left.begun == begun {
            left.any = false;
        }
        Ok(more)
    }

    fn step(&self, steps: usize) -> std::result::Result<bool, StoreError> {
        let more = self.store.work_off_deletions(steps);
        if matches!(more, Ok(true)) {
            return more;
        }
        // What others have freed is usable, also if the device keeps one from going on.
        self.store.commit_deletions().and(more)
    }

    /// For a call that waits for room: until they end, or have freed a lot, without a rest. A deletion that
    /// cannot go on is no reason to refuse the call.
    pub(crate) fn work_off_many(&self) {
        for _ in 0..STEPS_OF_CALL / STEPS {
            match self.work_off(STEPS) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!("a deletion does not go on: {error}");
                    break;
                }
            }
        }
    }
}
