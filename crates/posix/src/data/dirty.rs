//! Written data that is not in the tree yet: for one file, and for all.
//!
//! Locks of a file, in the order in which they are taken:
//! 1. `writer`: one thread at a time changes the content (write, truncate, fallocate);
//! 2. `map`: one thread at a time changes the extents (the same calls and every writeback). So only its
//!    holder has anything in flight;
//! 3. [`Inode::state`];
//! 4. `content`: the pages; held briefly, never across I/O.
//!
//! Readers take neither of the first two. `version` tells them whether the extents changed while they looked: it is odd
//! during a change. For every reader that checks it, a change of extents, size and pages is one step.

use holdfast_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::cmp::Ordering as CmpOrdering;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::wait;
use holdfast_base::{BlockNo, InodeNo};
use holdfast_format::Geometry;
use holdfast_store::page::Allowance;
use holdfast_store::{Allocated, Idle, Need, Reservation, Store, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::in_flight::InFlight;
use super::losses::Losses;
use super::pages::Pages;
use super::punch::Punches;
use super::recent::Recent;
use crate::MountOptions;
#[cfg(feature = "before")]
use crate::before::completion::Completions;
use crate::inode::Inode;

/// The content of one file in memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    writer: Mutex<()>,
    map: Mutex<()>,
    version: AtomicU64,
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

/// The pages of a file and the space that is promised to them.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The pages.
    pub(crate) pages: Pages,
    /// Holds a block for every dirty page, also after a writeback that failed for lack of space.
    pub(crate) reserved: Option<Reservation>,
    /// The inode is in the list of [`Shared`].
    listed: bool,
}

impl Content {
    /// Adds to the promised space.
    pub(crate) fn add_reserved(&mut self, reservation: Reservation) {
        match &mut self.reserved {
            Some(reserved) => reserved.merge(reservation),
            None => self.reserved = Some(reservation),
        }
    }

    /// Takes back blocks that were allocated for pages which are dirty again: they are promised to those pages as
    /// before.
    pub(crate) fn reclaim(&mut self, placed: Allocated) {
        let reserved = self.reserved.get_or_insert_with(|| Reservation::empty_for(&placed));
        reserved.reclaim(placed);
    }

    /// Whether every page has a block that is promised to it, or goes to one that the file has reserved.
    pub(crate) fn is_promised(&self) -> bool {
        self.reserved.as_ref().map_or(0, Reservation::blocks)
            >= self.pages.count() as u64 - self.pages.in_place()
    }
}

/// Held while a thread changes a file's content.
pub(crate) struct WriterGuard<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

/// Held while a thread changes a file's extents: nothing is in flight, and nothing else changes them.
pub(crate) struct MapGuard<'a>(#[expect(dead_code, reason = "held")] Option<MutexGuard<'a, ()>>);

/// Extents, size and pages are changing: readers retry.
pub(crate) struct Changing<'a>(&'a AtomicU64);

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

    /// For a worker, while the thread that queued the job holds the map and waits.
    #[cfg(feature = "before")]
    pub(crate) fn map_of_waiter(&self) -> MapGuard<'_> {
        debug_assert!(self.map.is_locked());
        MapGuard(None)
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

    /// Begins a change of the extents. The caller has the state locked for writing.
    pub(crate) fn begin_change(&self) -> Changing<'_> {
        self.version.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        Changing(&self.version)
    }

    /// The version now; `None` while a change is going on.
    pub(crate) fn version(&self) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether nothing has changed since `version` was read.
    pub(crate) fn is_version(&self, version: u64) -> bool {
        fence(Ordering::SeqCst);
        self.version.load(Ordering::Acquire) == version
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

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Blocks of delayed data for which one share of nodes is kept: one put with all its splits, some five nodes or more.
/// Written back one by one all over a file, so many blocks make less than 16 KiB of items.
const SHARE_BLOCKS: u64 = 128;

/// About how much memory a file with delayed data takes beside its pages, in bytes: the inode, its entries in tables
/// and lists, and the tree of its pages. For many small files that adds up, so it counts.
const FILE_BYTES: usize = 2048;

/// A growing file with this much delayed data is a stream, and the background writes it: 32 MiB. The device is busy
/// while the writer continues, and its next writes go into memory that was freed just now and is still in the
/// processor's caches. Small files wait longer. So does data of files that do not grow, which may be rewritten again
/// and again: some of it is gone by then.
const STREAM_PAGES: usize = (32 << 20) / BLOCK_SIZE;

/// What the background waits for.
#[derive(Debug, Default)]
struct Pressure {
    wanted: Wanted,
    end: bool,
}

/// What the background is asked to write.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Everything.
    pub(crate) all: bool,
    /// These files, by number.
    pub(crate) streams: BTreeMap<InodeNo, Arc<Inode>>,
}

/// What writeback shares between all files of a volume.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where ordered extents queue, if a worker completes them (M5).
    #[cfg(feature = "before")]
    pub(crate) completions: Completions,
    /// Large writes on their way to the device.
    pub(crate) in_flight: InFlight,
    /// Holes that are being made.
    pub(crate) punches: Punches,
    /// What was written last.
    pub(crate) recent: Recent,
    /// Data that was given up.
    pub(crate) losses: Losses,
    /// Woken when data becomes dirty: the thread that writes delayed data while the volume rests.
    idle: Arc<Idle>,
    /// Shape of the volume, to judge extents by.
    pub(crate) geometry: Geometry,
    /// Bytes of all pages of all files.
    bytes: AtomicUsize,
    /// Changes that left the number of pages as it was.
    rewrites: AtomicU64,
    bytes_max: usize,
    /// Pages of all files that go to reserved blocks, and those that writers are about to make dirty.
    pub(super) in_place: AtomicUsize,
    /// Files that have pages.
    files: AtomicUsize,
    /// Limit of the pages' memory, including what is kept for the next ones.
    _allowance: Allowance,
    /// Inodes that have pages, by number. Keeps them in memory.
    waiting: Mutex<BTreeMap<InodeNo, Arc<Inode>>>,
    /// Held by the thread that waits for the last space.
    last: Mutex<()>,
    /// Space for nodes that is reserved while data is delayed, see [`Shared::promise_nodes`].
    pub(super) shares: Mutex<Vec<Reservation>>,
    /// Set when more is delayed than should be, in all files or in one.
    pressure: Mutex<Pressure>,
    pressed: Condvar,
}

impl Shared {
    /// Nothing waits yet.
    pub(crate) fn new(store: &Store, options: &MountOptions) -> Shared {
        // Room for at least one full write, or no writer could ever continue.
        let bytes_max = options.dirty_bytes.max(4 << 20);
        Shared {
            #[cfg(feature = "before")]
            completions: Completions::default(),
            in_flight: InFlight::default(),
            punches: Punches::default(),
            recent: Recent::new(options.recent_bytes),
            losses: Losses::default(),
            idle: store.idle().clone(),
            geometry: store.superblock().geometry,
            bytes: AtomicUsize::new(0),
            rewrites: AtomicU64::new(0),
            bytes_max,
            in_place: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
            _allowance: Allowance::new(bytes_max.saturating_add(options.recent_bytes)),
            waiting: Mutex::default(),
            last: Mutex::new(()),
            shares: Mutex::default(),
            pressure: Mutex::default(),
            pressed: Condvar::new(),
        }
    }

    /// As [`Shared::account`], after a write: one that changes no sum is counted, too. Pages that are given back are
    /// not written, so a volume rests although its data is tried again and again.
    pub(super) fn account_write(&self, inode: &Arc<Inode>, content: &mut Content) {
        let before = inode.data.count.load(Ordering::Relaxed);
        self.account(inode, content);
        if content.pages.count() == before {
            self.rewrites.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Updates the sums for a file whose pages changed, and lists or unlists it.
    pub(crate) fn account(&self, inode: &Arc<Inode>, content: &mut Content) {
        self.count(&inode.data, &content.pages);
        let wanted = !content.pages.is_empty();
        if wanted == content.listed {
            return;
        }
        content.listed = wanted;
        if wanted {
            let mut waiting = self.waiting.lock();
            waiting.insert(inode.no, inode.clone());
            self.files.store(waiting.len(), Ordering::Relaxed);
            drop(waiting);
            self.idle.stir();
        } else {
            // No page is left that could need it.
            content.reserved = None;
            self.unlist(inode);
        }
    }

    fn unlist(&self, inode: &Inode) {
        let mut waiting = self.waiting.lock();
        waiting.remove(&inode.no);
        self.files.store(waiting.len(), Ordering::Relaxed);
    }

    /// Like [`Shared::account`] for an inode that is going away and whose pages are all dropped.
    pub(crate) fn forget(&self, inode: &Inode, content: &mut Content) {
        debug_assert!(content.pages.is_empty());
        self.count(&inode.data, &content.pages);
        content.reserved = None;
        if std::mem::take(&mut content.listed) {
            self.unlist(inode);
        }
    }

    fn count(&self, data: &FileData, pages: &Pages) {
        let now = pages.count();
        let before = data.count.swap(now, Ordering::AcqRel);
        match now.cmp(&before) {
            CmpOrdering::Greater => {
                self.bytes.fetch_add((now - before) * BLOCK_SIZE, Ordering::AcqRel);
            }
            CmpOrdering::Less => {
                self.bytes.fetch_sub((before - now) * BLOCK_SIZE, Ordering::AcqRel);
            }
            CmpOrdering::Equal => {}
        }
        // Mostly both are 0. Only one thread at a time counts a file: the content is locked.
        let (now, before) = (pages.in_place() as usize, data.in_place.load(Ordering::Relaxed));
        if now != before {
            data.in_place.store(now, Ordering::Relaxed);
            self.in_place.fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// Shares of nodes that the delayed data needs, and `blocks` more. Pages for reserved blocks have a share from the
    /// first page on: on a full volume nothing else is kept for them.
    pub(super) fn shares_wanted(&self, blocks: u64) -> usize {
        let waiting = (self.bytes() / BLOCK_SIZE) as u64 + blocks;
        let in_place = self.in_place.load(Ordering::Acquire) as u64;
        (waiting / SHARE_BLOCKS + in_place.div_ceil(SHARE_BLOCKS)) as usize
    }

    /// A value that differs after each change of a page: delayed bytes, and changes that left their number as it was.
    pub(crate) fn stamp(&self) -> (usize, u64) {
        (self.bytes(), self.rewrites.load(Ordering::Relaxed))
    }

    /// Keeps space for the nodes that `blocks` more blocks of delayed data may need when they are written back, so that
    /// other operations cannot fill the volume before (P8).
    pub(crate) fn promise_nodes(&self, store: &Store, blocks: u64) -> Result<(), StoreError> {
        for _ in 0..self.missing_shares(blocks) {
            // Reserving may wait for a checkpoint, so not under the lock.
            let share = store.reserve(Need::Grow { changes: 1, blocks: 0 })?;
            self.shares.lock().push(share);
        }
        Ok(())
    }

    /// As [`Shared::promise_nodes`], out of what is free now; returns whether that was enough.
    pub(crate) fn promise_nodes_now(&self, store: &Store, blocks: u64) -> Result<bool, StoreError> {
        for _ in 0..self.missing_shares(blocks) {
            match store.reserve_now(Need::Grow { changes: 1, blocks: 0 })? {
                Some(share) => self.shares.lock().push(share),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn missing_shares(&self, blocks: u64) -> usize {
        self.shares_wanted(blocks).saturating_sub(self.shares.lock().len())
    }

    /// Gives back what [`Shared::promise_nodes`] keeps beyond what the delayed data needs.
    pub(crate) fn release_nodes(&self) {
        let wanted = self.shares_wanted(0);
        let surplus = {
            let mut shares = self.shares.lock();
            if shares.len() <= wanted {
                return;
            }
            shares.split_off(wanted)
        };
        drop(surplus);
    }

    /// Gives back all of it: a writeback needs it now.
    pub(crate) fn use_nodes(&self) {
        let shares = std::mem::take(&mut *self.shares.lock());
        drop(shares);
    }

    /// Waits until no other thread waits for the last space.
    pub(crate) fn lock_last(&self) -> MutexGuard<'_, ()> {
        self.last.lock()
    }

    /// Whether the limit is reached: a writer has to write something back first. The last quarter is for files with few
    /// dirty pages.
    pub(crate) fn is_full(&self) -> bool {
        self.memory() >= self.bytes_max / 4 * 3
    }

    /// Whether files with few dirty pages have reached the limit, too.
    pub(crate) fn is_overfull(&self) -> bool {
        self.memory() >= self.bytes_max
    }

    /// Whether the background should write everything.
    pub(crate) fn is_half_full(&self) -> bool {
        self.memory() >= self.bytes_max / 2
    }

    /// Bytes of memory for delayed data: the pages, and what each file has beside them.
    fn memory(&self) -> usize {
        self.bytes() + self.files.load(Ordering::Relaxed) * FILE_BYTES
    }

    /// Bytes of delayed data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// The inodes that have pages.
    pub(crate) fn waiting(&self) -> Vec<Arc<Inode>> {
        self.waiting.lock().values().cloned().collect()
    }

    /// Wakes the background to write everything.
    pub(crate) fn wake(&self) {
        self.pressure.lock().wanted.all = true;
        self.pressed.notify_all();
    }

    /// Wakes the background to write one file.
    pub(crate) fn wake_for(&self, inode: &Arc<Inode>) {
        self.pressure.lock().wanted.streams.entry(inode.no).or_insert_with(|| inode.clone());
        self.pressed.notify_all();
    }

    /// Ends the background.
    pub(crate) fn end(&self) {
        self.pressure.lock().end = true;
        self.pressed.notify_all();
    }

    /// Waits for a request and returns it; `None` if the background is to end.
    pub(crate) fn wait_for_pressure(&self) -> Option<Wanted> {
        let mut pressure = self.pressure.lock();
        loop {
            if pressure.end {
                return None;
            }
            if pressure.wanted.all || !pressure.wanted.streams.is_empty() {
                return Some(std::mem::take(&mut pressure.wanted));
            }
            self.pressed.wait(&mut pressure);
        }
    }
}
