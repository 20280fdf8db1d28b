//! What of one file's content is in memory and not in the tree yet.
//!
//! Locks of a file, in the order in which they are taken:
//! 1. `writer`: one thread at a time changes the content (write, truncate, fallocate);
//! 2. `map`: one thread at a time changes the extents (the same calls and every writeback). So only its
//!    holder has anything in flight;
//! 3. [`crate::inode::Inode::state`];
//! 4. `content`: the pages; held briefly, never across I/O.
//!
//! Readers take neither of the first two. `version` tells them whether the extents changed while they looked.

mod content;
pub(crate) mod pages;
mod version;
pub(crate) mod wrote;

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::wait;
use holdfast_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use parking_lot::{Mutex, MutexGuard};

pub(crate) use content::Content;
use version::Version;

/// A growing file with this much delayed data is a stream, and the background writes it: 32 MiB. The device is busy
/// while the writer continues, and its next writes go into memory that was freed just now and is still in the
/// processor's caches. Small files wait longer. So does data of files that do not grow, which may be rewritten again
/// and again: some of it is gone by then.
const STREAM_PAGES: usize = (32 << 20) / BLOCK_SIZE;

/// The content of one file in memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    writer: Mutex<()>,
    map: Mutex<()>,
    /// Counts changes of extents, size and pages.
    pub(crate) version: Version,
    content: Mutex<Content>,
    /// Pages in `content`, readable without its lock.
    count: AtomicUsize,
    /// Of those, pages that go to reserved blocks, as last added to the sum of all files.
    in_place: AtomicUsize,
    /// The tree is known to hold nothing written beyond the size.
    tail_is_clean: AtomicBool,
    /// The tree is known to hold nothing at all beyond the size, not even blocks that were never written.
    ends_with_size: AtomicBool,
    /// Allocation hint: the block of the file behind the last one that was written back, and the block of the volume
    /// behind it, where the next one continues. Only a hint: another file may have taken that location.
    ended: (AtomicU64, AtomicU64),
    /// How often data of the file was given up: its bytes changed without a writer.
    losses: AtomicU64,
}

/// Held while a thread changes a file's content.
pub(crate) struct WriterGuard<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

/// Held while a thread changes a file's extents: nothing is in flight, and nothing else changes them.
pub(crate) struct MapGuard<'a>(#[expect(dead_code, reason = "held")] Option<MutexGuard<'a, ()>>);

/// Takes a lock that may be held across I/O.
fn patiently(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.try_lock().unwrap_or_else(|| {
        wait::will_wait();
        lock.lock()
    })
}

impl FileData {
    /// Whether nothing is dirty and nothing is being written. Takes no lock.
    pub(crate) fn is_clean(&self) -> bool {
        self.pages() == 0
    }

    /// Waits until no other thread changes the content.
    pub(crate) fn lock_writer(&self) -> WriterGuard<'_> {
        WriterGuard(patiently(&self.writer))
    }

    /// Waits until no other thread changes the extents.
    pub(crate) fn lock_map(&self) -> MapGuard<'_> {
        MapGuard(Some(patiently(&self.map)))
    }

    /// Like [`FileData::lock_map`], but returns `None` if another thread holds the lock.
    pub(crate) fn try_lock_map(&self) -> Option<MapGuard<'_>> {
        self.map.try_lock().map(|held| MapGuard(Some(held)))
    }

    /// Records the last location that was allocated: it lies before block `next` of the file and ends before `behind`.
    pub(crate) fn ends_at(&self, next: u64, behind: BlockNo) {
        self.ended.0.store(next, Ordering::Relaxed);
        self.ended.1.store(behind.0, Ordering::Relaxed);
    }

    /// Where that location ends on the device, if it is the one before `block` of the file.
    pub(crate) fn ended_before(&self, block: u64) -> Option<BlockNo> {
        let behind = BlockNo(self.ended.1.load(Ordering::Relaxed));
        (self.ended.0.load(Ordering::Relaxed) == block && behind.0 > 0).then_some(behind)
    }

    /// The file is another one: nothing is known of its extents.
    pub(crate) fn forget_map(&self) {
        self.ends_at(0, BlockNo(0));
        self.set_tail_is_clean(false);
        self.set_ends_with_size(false);
    }

    /// For a worker, while the thread that queued the job holds the map and waits.
    #[cfg(feature = "before")]
    pub(crate) fn map_of_waiter(&self) -> MapGuard<'_> {
        debug_assert!(self.map.is_locked());
        MapGuard(None)
    }

    /// Takes over how many pages there are, and returns how many there were. The content is locked.
    pub(crate) fn swap_pages(&self, now: usize) -> usize {
        self.count.swap(now, Ordering::AcqRel)
    }

    /// As [`FileData::swap_pages`], for pages that go to reserved blocks. Mostly both are 0.
    pub(crate) fn swap_in_place(&self, now: usize) -> usize {
        let before = self.in_place.load(Ordering::Relaxed);
        if now != before {
            self.in_place.store(now, Ordering::Relaxed);
        }
        before
    }

    /// Number of pages, dirty and in flight. Takes no lock.
    pub(crate) fn pages(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether so much is dirty that the background should write the file if it grows.
    pub(crate) fn is_much(&self) -> bool {
        self.pages() >= STREAM_PAGES
    }

    /// The pages. Not to be held across I/O.
    pub(crate) fn lock_content(&self) -> MutexGuard<'_, Content> {
        self.content.lock()
    }

    /// Records that data is given up. The caller has the state locked for writing.
    pub(crate) fn note_loss(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often data was given up. Read with the state locked.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Whether the tree is known to hold nothing written beyond the file's size.
    pub(crate) fn tail_is_clean(&self) -> bool {
        self.tail_is_clean.load(Ordering::Acquire)
    }

    /// Records whether the tree holds nothing written beyond the file's size.
    pub(crate) fn set_tail_is_clean(&self, clean: bool) {
        self.tail_is_clean.store(clean, Ordering::Release);
    }

    /// Whether the tree is known to hold no block beyond the file's size, written or not.
    pub(crate) fn ends_with_size(&self) -> bool {
        self.ends_with_size.load(Ordering::Acquire)
    }

    /// Records whether that is known. Called before such blocks are made, by the holder of the writer's lock.
    pub(crate) fn set_ends_with_size(&self, known: bool) {
        self.ends_with_size.store(known, Ordering::Release);
    }
}
