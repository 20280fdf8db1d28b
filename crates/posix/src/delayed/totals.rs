//! How much data is delayed, in all files together, and how much may be.

use std::cmp::Ordering as CmpOrdering;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::page::Allowance;
use holdfast_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::MountOptions;
use crate::file_data::FileData;
use crate::file_data::pages::Pages;

/// About how much memory a file with delayed data takes beside its pages, in bytes: the inode, its entries in tables
/// and lists, and the tree of its pages. For many small files that adds up, so it counts.
const FILE_BYTES: usize = 2048;

/// The totals, readable without a lock.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Bytes of all pages of all files.
    bytes: AtomicUsize,
    /// Changes that left the number of pages as it was.
    rewrites: AtomicU64,
    bytes_max: usize,
    /// Files that have pages.
    files: AtomicUsize,
    /// Pages that go to reserved blocks: a snapshot waits for them.
    in_place: AtomicUsize,
    /// Limit of the pages' memory, including what is kept for the next ones.
    _allowance: Allowance,
}

impl Totals {
    /// Nothing is delayed yet.
    pub(super) fn new(options: &MountOptions) -> Totals {
        // Room for at least one full write, or no writer could ever continue.
        let bytes_max = options.dirty_bytes.max(4 << 20);
        Totals {
            bytes: AtomicUsize::new(0),
            rewrites: AtomicU64::new(0),
            bytes_max,
            files: AtomicUsize::new(0),
            in_place: AtomicUsize::new(0),
            _allowance: Allowance::new(bytes_max.saturating_add(options.recent_bytes)),
        }
    }

    /// Takes over the number of a file's pages. Only one thread at a time counts a file: the content is locked.
    pub(super) fn add(&self, data: &FileData, pages: &Pages) {
        let now = pages.count();
        let before = data.swap_pages(now);
        match now.cmp(&before) {
            CmpOrdering::Greater => {
                self.bytes.fetch_add((now - before) * BLOCK_SIZE, Ordering::AcqRel);
            }
            CmpOrdering::Less => {
                self.bytes.fetch_sub((before - now) * BLOCK_SIZE, Ordering::AcqRel);
            }
            CmpOrdering::Equal => {}
        }
        let in_place = pages.in_place() as usize;
        let before = data.swap_in_place(in_place);
        if in_place != before {
            self.in_place.fetch_add(in_place.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// Pages that go to reserved blocks.
    pub(super) fn in_place(&self) -> usize {
        self.in_place.load(Ordering::Acquire)
    }

    /// Counts a change that left the number of pages as it was.
    pub(super) fn count_rewrite(&self) {
        self.rewrites.fetch_add(1, Ordering::Relaxed);
    }

    /// So many files have pages now.
    pub(super) fn set_files(&self, files: usize) {
        self.files.store(files, Ordering::Relaxed);
    }

    /// A value that differs after each change of a page: delayed bytes, and changes that left their number as it was.
    pub(crate) fn stamp(&self) -> (usize, u64) {
        (self.bytes(), self.rewrites.load(Ordering::Relaxed))
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

    /// Whether the background should write: streams, and if that is not enough everything.
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
}
