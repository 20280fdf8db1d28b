//! Memory for runs of pages, straight from the system and back to it.
//!
//! A general allocator gives back only what lies at its ends: when the data of 99 writers had been written, three
//! quarters of the daemon's memory were holes between nodes that live long. Here unused memory is given back page by
//! page, wherever it lies.
//!
//! ```text
//! region: 4 MiB of addresses = 16 rows of 64 pages     row: a bit for each free page
//! ```
//!
//! Always true: a [`Chunk`] lies in one row, and no page is in two of them; free pages hold no memory, since the system
//! has it back before their bits are set; a region without chunks is unmapped.
//!
//! Knows nothing of what lies there, and keeps nothing for later: [`crate::page`] does.

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_base::units::BLOCK_SIZE;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Pages of a row, and most of a chunk.
pub(crate) const ROW_PAGES: usize = u64::BITS as usize;
const ROWS: usize = 16;
const ROW_BYTES: usize = ROW_PAGES * BLOCK_SIZE;
const REGION_BYTES: usize = ROWS * ROW_BYTES;

/// Contiguous pages, at an address that is a multiple of their size. Dropped, they are the system's.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: NonNull<u8>,
    pages: usize,
    /// Of all rows.
    row: usize,
    first: usize,
}

// SAFETY: a chunk is the only one that leads to its pages, as a `Box<[u8]>` would be.
#[allow(unsafe_code)]
unsafe impl Send for Chunk {}
// SAFETY: what is shared of it can only be read.
#[allow(unsafe_code)]
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Memory for `pages` pages, 1 to [`ROW_PAGES`], with any content: mostly zeros that no memory was given to yet.
    ///
    /// Ends the program if the system has no addresses left, as every allocation does.
    pub(crate) fn new(pages: usize) -> Chunk {
        regions().take(pages)
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped, readable and initialised (the system begins with zeros) until this chunk is
        // dropped, and belong to no other; the borrow of `self` keeps them from being changed meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.pages * BLOCK_SIZE) }
    }
}

impl DerefMut for Chunk {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` means that no other reference reaches the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.pages * BLOCK_SIZE) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The memory first: once its bits are set another thread may get the pages.
        give_back(self.start, self.pages * BLOCK_SIZE);
        let unused = regions().put(self.row, self.first, self.pages);
        drop(unused);
    }
}

/// Takes the memory from behind these addresses; they read zeros then.
#[allow(unsafe_code)]
fn give_back(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the range is that of a chunk which is being dropped: mapped, private, anonymous, and without references.
    let given = unsafe { mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    if let Err(error) = given {
        tracing::debug!("{bytes} bytes were not given back: {error}");
    }
}

/// Addresses from the system.
#[derive(Debug)]
struct Region(NonNull<u8>);

// SAFETY: it owns its addresses, and only tells where they begin.
#[allow(unsafe_code)]
unsafe impl Send for Region {}

impl Region {
    #[allow(unsafe_code)]
    fn new() -> Option<Region> {
        // SAFETY: a new private mapping at an address that the system chooses touches nothing that is there.
        let start = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                REGION_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let region = Region(NonNull::new(start.ok()?.cast())?);
        // SAFETY: the range is the mapping that was just made. It only asks for small pages, since a large one would put
        // memory behind free pages as well; a kernel that knows no large pages refuses it, and that is as good.
        let _ =
            unsafe { mm::madvise(region.0.as_ptr().cast(), REGION_BYTES, Advice::LinuxNoHugepage) };
        Some(region)
    }
}

impl Drop for Region {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is this region's own mapping as a whole, and no chunk of it is left: all its pages are free.
        let gone = unsafe { mm::munmap(self.0.as_ptr().cast(), REGION_BYTES) };
        if let Err(error) = gone {
            tracing::debug!("a region stays mapped: {error}");
        }
    }
}

/// Free pages of a row, and its position in the list of rows with an equally long run.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    free: u64,
    at: usize,
}

/// All regions of the program.
#[derive(Debug)]
struct Regions {
    regions: Vec<Option<Region>>,
    /// Of all regions, [`ROWS`] of each.
    rows: Vec<Row>,
    /// Rows by the length of their longest run of free pages.
    by_longest: [Vec<usize>; ROW_PAGES + 1],
}

/// Of the standard library: tests that steer threads do not see it, as it is never held across what they steer.
static REGIONS: Mutex<Regions> = Mutex::new(Regions::new());

fn regions() -> MutexGuard<'static, Regions> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The length of the longest run of bits that are set.
fn longest(free: u64) -> usize {
    let (mut rest, mut count) = (free, 0);
    while rest != 0 {
        rest &= rest << 1;
        count += 1;
    }
    count
}

/// The first of `pages` contiguous bits that are set.
fn find(free: u64, pages: usize) -> Option<usize> {
    let mut starts = free;
    for _ in 1..pages {
        // A bit stays if the one above it stayed: after all turns, if so many follow.
        starts &= starts >> 1;
    }
    (starts != 0).then_some(starts.trailing_zeros() as usize)
}

fn mask(first: usize, pages: usize) -> u64 {
    (u64::MAX >> (ROW_PAGES - pages)) << first
}

impl Regions {
    const fn new() -> Regions {
        Regions {
            regions: Vec::new(),
            rows: Vec::new(),
            by_longest: [const { Vec::new() }; ROW_PAGES + 1],
        }
    }

    fn take(&mut self, pages: usize) -> Chunk {
        assert!((1..=ROW_PAGES).contains(&pages), "{pages} pages do not lie in a row");
        // The tightest fit: long runs stay whole for long requests.
        let found = (pages..=ROW_PAGES).find_map(|longest| self.by_longest[longest].last());
        let row = found.copied().unwrap_or_else(|| self.grow());
        let free = self.rows[row].free;
        let first = find(free, pages).expect("its longest free run is as long");
        self.set(row, free & !mask(first, pages));
        let region = self.regions[row / ROWS].as_ref().expect("it has free rows");
        let at = (row % ROWS) * ROW_BYTES + first * BLOCK_SIZE;
        let start = NonNull::new(region.0.as_ptr().wrapping_add(at)).expect("it is mapped");
        Chunk { start, pages, row, first }
    }

    /// These pages are free. Returns the region, if all of it is.
    fn put(&mut self, row: usize, first: usize, pages: usize) -> Option<Region> {
        let free = self.rows[row].free;
        let mask = mask(first, pages);
        assert_eq!(free & mask, 0, "no page is freed twice");
        self.set(row, free | mask);
        let region = row / ROWS;
        let rows = region * ROWS..(region + 1) * ROWS;
        if free | mask != u64::MAX || self.rows[rows.clone()].iter().any(|row| row.free != u64::MAX)
        {
            return None;
        }
        rows.for_each(|row| self.set(row, 0));
        self.regions[region].take()
    }

    /// Another region; the first of its rows.
    fn grow(&mut self) -> usize {
        let layout = std::alloc::Layout::new::<[u8; REGION_BYTES]>();
        let new = Region::new().unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        let vacant = self.regions.iter().position(Option::is_none);
        let region = vacant.unwrap_or_else(|| {
            self.regions.push(None);
            for _ in 0..ROWS {
                self.by_longest[0].push(self.rows.len());
                self.rows.push(Row { free: 0, at: self.by_longest[0].len() - 1 });
            }
            self.regions.len() - 1
        });
        self.regions[region] = Some(new);
        (region * ROWS..(region + 1) * ROWS).for_each(|row| self.set(row, u64::MAX));
        region * ROWS
    }

    /// Which pages of a row are free.
    fn set(&mut self, row: usize, free: u64) {
        let Row { free: before, at } = self.rows[row];
        let (was, is) = (longest(before), longest(free));
        self.rows[row].free = free;
        if was == is {
            return;
        }
        self.by_longest[was].swap_remove(at);
        if let Some(&moved) = self.by_longest[was].get(at) {
            self.rows[moved].at = at;
        }
        self.rows[row].at = self.by_longest[is].len();
        self.by_longest[is].push(row);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::prng::Prng;

    use super::*;

    #[test]
    fn runs_of_bits_are_found() {
        assert_eq!(
            (longest(0), longest(1), longest(u64::MAX), longest(0b1101_1100)),
            (0, 1, 64, 3)
        );
        assert_eq!(find(0b1101_1100, 3), Some(2));
        assert_eq!((find(0b1101_1100, 4), find(u64::MAX, 64), find(0, 1)), (None, Some(0), None));
        assert_eq!((mask(0, 64), mask(62, 2), mask(1, 1)), (u64::MAX, 3 << 62, 2));
    }

    /// Each row is listed where it belongs, and each free page is free once.
    fn judge(all: &Regions) {
        for (row, &Row { free, at }) in all.rows.iter().enumerate() {
            assert_eq!(all.by_longest[longest(free)][at], row);
            assert!(all.regions[row / ROWS].is_some() || free == 0);
        }
        assert_eq!(all.by_longest.iter().map(Vec::len).sum::<usize>(), all.rows.len());
        for (region, rows) in all.regions.iter().zip(all.rows.chunks(ROWS)) {
            assert!(
                region.is_none() || rows.iter().any(|row| row.free != u64::MAX),
                "it is unused"
            );
        }
    }

    #[test]
    fn no_page_is_given_twice_and_all_of_them_come_back() {
        let mut all = Regions::new();
        let mut prng = Prng::seeded(7);
        let mut held: Vec<(Chunk, u8)> = Vec::new();
        for turn in 0..4000_u32 {
            // It grows, and shrinks, and so on.
            if held.is_empty() || prng.below(100) < if turn / 500 % 2 == 0 { 70 } else { 30 } {
                let pages = 1 + prng.below(ROW_PAGES as u64) as usize;
                let mut chunk = all.take(pages);
                assert_eq!((chunk.pages(), chunk.len()), (pages, pages * BLOCK_SIZE));
                assert_eq!(chunk.as_ptr().addr() % BLOCK_SIZE, 0);
                chunk.fill(turn as u8);
                held.push((chunk, turn as u8));
            } else {
                let (chunk, byte) = held.swap_remove(prng.below(held.len() as u64) as usize);
                assert!(chunk.iter().all(|other| *other == byte), "it belonged to another region");
                free(&mut all, chunk);
            }
            if turn % 64 == 0 {
                judge(&all);
            }
        }
        for (chunk, byte) in held {
            assert!(chunk.iter().all(|other| *other == byte));
            free(&mut all, chunk);
        }
        judge(&all);
        assert!(all.regions.iter().all(Option::is_none), "a region is left");
    }

    /// As dropping it does, but to `all`.
    fn free(all: &mut Regions, chunk: Chunk) {
        let chunk = std::mem::ManuallyDrop::new(chunk);
        give_back(chunk.start, chunk.len());
        assert!(chunk.iter().all(|byte| *byte == 0), "the memory is still there");
        drop(all.put(chunk.row, chunk.first, chunk.pages));
    }

    #[test]
    fn what_is_left_of_a_region_keeps_no_more_memory_than_its_own() {
        let mut all = Regions::new();
        let mut chunks: Vec<Chunk> = (0..ROWS).map(|_| all.take(ROW_PAGES)).collect();
        assert_eq!(all.regions.len(), 1);
        let last = chunks.pop().expect("there are sixteen");
        chunks.into_iter().for_each(|chunk| free(&mut all, chunk));
        assert!(all.regions[0].is_some(), "a chunk is left");
        // What is free is used again before there is another region.
        let again: Vec<Chunk> = (1..ROWS).map(|_| all.take(ROW_PAGES)).collect();
        assert_eq!(all.regions.len(), 1);
        again.into_iter().chain([last]).for_each(|chunk| free(&mut all, chunk));
        assert!(all.regions[0].is_none());
    }
}
