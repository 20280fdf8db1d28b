//! Writes everything to the device.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::wait;
use holdfast_store::{Need, Reservation, StoreError};

use parking_lot::Mutex;

use crate::core::Core;
use crate::data::group::{GROUP_PAGES, write_back_group};
use crate::inode::Inode;
use crate::{FsError, Result};

/// How often, and how long each time, a caller waits for the last space: others hold it while they apply a transaction.
const LAST_TRIES: u32 = 100;
const LAST_PAUSE: Duration = Duration::from_millis(2);
/// So often where the space that was promised is gone with lost block groups: an unmount would wait for each file.
const TRIES_WITHOUT_GROUPS: u32 = 3;
/// So often a call that finds no room works deletions off itself, and looks once more: they may be of any number of snapshots, and free
/// nothing for long.
const ROUNDS_BESIDE_DELETIONS: u32 = 8;

/// Files in the order of their numbers, which is the order of their items in the tree, cut into groups of one write each.
fn groups(inodes: Vec<Arc<Inode>>) -> Vec<Vec<Arc<Inode>>> {
    let mut groups: Vec<Vec<Arc<Inode>>> = Vec::new();
    let mut pages = 0;
    for inode in inodes {
        let count = inode.data.pages();
        match groups.last_mut().filter(|_| pages + count <= GROUP_PAGES) {
            Some(group) => {
                group.push(inode);
                pages += count;
            }
            None => {
                groups.push(vec![inode]);
                pages = count;
            }
        }
    }
    groups
}

impl Core {
    /// Writes all dirty data, then makes a commit of everything up to now (P11): the log is empty then, and freed
    /// blocks may be reused. An error of one file does not keep the others from being written; the first error is
    /// returned.
    pub(crate) fn commit(&self) -> Result<()> {
        let written = self.write_back();
        self.deletions.work_off_many();
        self.store.commit()?;
        written
    }

    /// Writes all dirty data, without making it durable.
    pub(crate) fn write_back(&self) -> Result<()> {
        self.write_back_files(self.data.waiting())
    }

    /// As [`Core::write_back`], of these files.
    pub(super) fn write_back_files(&self, files: Vec<Arc<Inode>>) -> Result<()> {
        self.write_each(groups(files), |group| write_back_group(self, group))
    }

    /// Writes each by `write`, on as many threads as may write at once. The first error is returned; it keeps no other from being written.
    pub(super) fn write_each<T: Send>(
        &self,
        all: Vec<T>,
        write: impl Fn(&T) -> Result<()> + Sync,
    ) -> Result<()> {
        let first: Mutex<Result<()>> = Mutex::new(Ok(()));
        let count = all.len();
        let queue = Mutex::new(all.into_iter());
        let work = || {
            loop {
                let next = queue.lock().next();
                let Some(next) = next else {
                    return;
                };
                let done = write(&next);
                let mut first = first.lock();
                if first.is_ok() {
                    *first = done;
                }
            }
        };
        if count > 1 {
            wait::will_share();
        }
        // At most as many as may be in flight: more threads would only delay other files' fsyncs.
        let threads = count.min(self.data.in_flight.most());
        holdfast_sync::on_threads(threads, work);
        first.into_inner()
    }

    /// Runs `attempt`. If there is no space for it, waits for inodes that are being removed, makes everything durable, so
    /// that freed blocks become usable, and runs it once more; where deletions go on, a few times more, behind some steps of them
    /// each. If the branch is at its limit, delayed data is written back. Called without any lock of a file's extents.
    pub(crate) fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(FsError::Store(StoreError::NoSpace))
                if self.leaving.wait() | self.may_make_room() =>
            {
                self.commit()?;
            }
            Err(FsError::Store(StoreError::Limit)) if self.may_come_below_limit() => {
                drop(self.write_back());
            }
            done => return done,
        }
        for _ in 0..ROUNDS_BESIDE_DELETIONS {
            match attempt() {
                Err(FsError::Store(StoreError::NoSpace)) if self.deletions.go_on() => {
                    self.deletions.work_off_many();
                    self.commit()?;
                }
                done => return done,
            }
        }
        attempt()
    }

    /// Whether the branch may refer to less in a moment, or less may be promised to it: inodes that were being removed have
    /// left, or data waits, which mostly needs less than is promised. An error of that is one of other files, and reaches
    /// them.
    fn may_come_below_limit(&self) -> bool {
        self.leaving.wait() | (self.data.totals.bytes() > 0)
    }

    /// As [`Core::with_room`], for the branch's limit alone.
    pub(crate) fn within_limit<T>(
        &self,
        mut attempt: impl FnMut() -> std::result::Result<T, StoreError>,
    ) -> std::result::Result<T, StoreError> {
        match attempt() {
            Err(StoreError::Limit) if self.may_come_below_limit() => {
                drop(self.write_back());
                attempt()
            }
            done => done,
        }
    }

    /// Reserves for an operation that makes the volume fuller. If there is no space for it, waits for inodes that are
    /// being removed, and writes delayed data back, which mostly needs less than is kept for it. Called before anything is
    /// locked.
    pub(crate) fn reserve(&self, need: Need) -> std::result::Result<Reservation, StoreError> {
        match self.store.reserve(need) {
            Err(StoreError::NoSpace | StoreError::Limit) if self.may_come_below_limit() => {
                drop(self.write_back());
                self.store.reserve(need)
            }
            done => done,
        }
    }

    /// Reserves for a transaction on `items` extents or other things, which must not fail for lack of space. `None`: the
    /// caller tries fewer; on a full volume small transactions make room for larger ones (P8).
    pub(crate) fn reserve_for(&self, items: usize, need: Need) -> Result<Option<Reservation>> {
        if items <= 1 {
            return self.reserve_last(need).map(Some);
        }
        match self.store.reserve(need) {
            Err(StoreError::NoSpace) => Ok(None),
            reserved => Ok(Some(reserved?)),
        }
    }

    /// Reserves for something that must not fail for lack of space and cannot be made smaller (P8).
    ///
    /// The emergency reserve is enough for any one such operation, and what it takes returns with a checkpoint. Many at
    /// once may exhaust it for a moment: then they run one by one.
    pub(crate) fn reserve_last(&self, need: Need) -> Result<Reservation> {
        match self.store.reserve(need) {
            Err(StoreError::NoSpace) => {}
            done => return Ok(done?),
        }
        let _one = self.data.lock_last();
        for tries in 1..=LAST_TRIES {
            self.deletions.work_off_many();
            self.store.commit()?;
            if tries > TRIES_WITHOUT_GROUPS && self.store.store().has_lost_space() {
                break;
            }
            match self.store.reserve(need) {
                Err(StoreError::NoSpace) => holdfast_sync::thread::sleep(LAST_PAUSE),
                done => return Ok(done?),
            }
        }
        Err(StoreError::NoSpace.into())
    }

    /// Makes a commit, so that freed blocks are usable, while no other thread waits for the last space. For a writeback
    /// whose accepted data was refused.
    pub(crate) fn wait_for_last_room(&self) -> Result<()> {
        let _one = self.data.lock_last();
        Ok(self.store.commit()?)
    }

    /// Whether a commit could free blocks: something has changed since the last one.
    pub(crate) fn may_make_room(&self) -> bool {
        self.store.stop_reason().is_none()
            && (self.data.totals.bytes() > 0
                || self.deletions.are_left()
                || self.store.committed() < self.store.latest())
    }
}
