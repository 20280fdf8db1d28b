//! Everything goes to the device.

use std::time::Duration;

use holdfast_store::{Need, Reservation, StoreError};

use crate::core::Core;
use crate::data::writeback::settle;
use crate::{FsError, Result};

/// How often the last space is waited for, and how long each time: others hold it while they apply a batch.
const LAST_TRIES: u32 = 100;
const LAST_PAUSE: Duration = Duration::from_millis(2);

impl Core {
    /// Writes all dirty data, then makes history durable up to now (P11). An error of one file does
    /// not keep the others from being written; the first is returned.
    pub(crate) fn commit(&self) -> Result<()> {
        let settled = self.write_back();
        self.store.persist(self.store.latest())?;
        settled
    }

    /// Writes all dirty data, without making it durable.
    pub(crate) fn write_back(&self) -> Result<()> {
        let mut first = Ok(());
        for inode in self.data.waiting() {
            let done = settle(self, &inode);
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// Does `attempt`; if there is no space for it, makes everything durable, so that freed blocks become
    /// usable, and does it once more. Called without any lock of a file's extents.
    pub(crate) fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(FsError::Store(StoreError::NoSpace)) if self.may_make_room() => {
                self.commit()?;
                attempt()
            }
            done => done,
        }
    }

    /// Reserves for something that must not fail for lack of space and cannot be made smaller (P8).
    ///
    /// The emergency reserve is enough for any one such operation, and what it takes returns with a
    /// checkpoint, but many at once may exhaust it for a moment: then they go one by one.
    pub(crate) fn reserve_last(&self, need: Need) -> Result<Reservation> {
        match self.store.reserve(need) {
            Err(StoreError::NoSpace) => {}
            done => return Ok(done?),
        }
        let _one = self.data.lock_last();
        self.data.use_nodes();
        for _ in 0..LAST_TRIES {
            self.store.persist(self.store.latest())?;
            match self.store.reserve(need) {
                Err(StoreError::NoSpace) => std::thread::sleep(LAST_PAUSE),
                done => return Ok(done?),
            }
        }
        Err(StoreError::NoSpace.into())
    }

    /// Whether a commit could make blocks free: something was changed since the last one.
    pub(crate) fn may_make_room(&self) -> bool {
        self.store.stop_reason().is_none()
            && (self.data.bytes() > 0 || self.store.durable() < self.store.latest())
    }
}
