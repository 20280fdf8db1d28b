//! The bytes of one block, shared by all that read them.
//!
//! Pages that were made together are contiguous in one run of memory. A device takes them in one write ([`with_row`]),
//! and where there are many, without a copy. A run stays in memory as long as one of its pages does, so a caller that
//! keeps single pages keeps them [`alone`](Page::alone).
//!
//! Always true: bytes with another owner never change; a run has at most [`RUN_PAGES`] pages. Memory of unused runs is
//! kept for the next ones, up to a limit: new memory costs a fault and a page of zeros for each 4 KiB, which is more
//! than the copy. The limit is the sum that volumes allow ([`Allowance`]), memory in use included.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_base::units::BLOCK_SIZE;

use crate::regions::{Chunk, ROW_PAGES};

/// Most pages of a run: 256 KiB.
pub const RUN_PAGES: usize = ROW_PAGES;
/// Most bytes of runs that are kept for the next ones.
const IDLE_BYTES_MAX: usize = 64 << 20;

/// The bytes of one block. A clone is the same memory.
#[derive(Clone)]
pub struct Page {
    run: Arc<Run>,
    index: usize,
}

/// Pages that are contiguous in memory.
struct Run {
    /// `None` only while it is being dropped.
    memory: Option<Chunk>,
}

impl Deref for Run {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().expect(GONE)
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().expect(GONE)
    }
}

const GONE: &str = "only a run that is being dropped has no memory";

impl Page {
    /// A block of zeros.
    pub fn zeroed() -> Page {
        Page::with(0, &[])
    }

    /// A block of zeros, but for `bytes` from byte `at` on.
    ///
    /// # Panics
    ///
    /// If they reach beyond the block.
    pub fn with(at: usize, bytes: &[u8]) -> Page {
        let mut run = Run::take(1);
        let end = at + bytes.len();
        run[..at].fill(0);
        run[at..end].copy_from_slice(bytes);
        run[end..].fill(0);
        Page { run: Arc::new(run), index: 0 }
    }

    /// The bytes, to be changed. They are copied first if they have another owner.
    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        if Arc::get_mut(&mut self.run).is_none() {
            *self = Page::from(&**self);
        }
        let run = Arc::get_mut(&mut self.run).expect("a copy is nobody else's");
        &mut run.as_chunks_mut().0[self.index]
    }

    /// The same bytes in memory that holds nothing else.
    #[must_use]
    pub fn alone(&self) -> Page {
        match self.run_pages() {
            1 => self.clone(),
            _ => Page::from(&**self),
        }
    }

    /// How many pages stay in memory with this one, itself included.
    pub fn run_pages(&self) -> usize {
        self.run.pages()
    }

    /// Whether both are the same memory.
    pub fn is_same(&self, other: &Page) -> bool {
        self.shares_run(other) && self.index == other.index
    }

    /// Whether both keep the same run in memory.
    pub fn shares_run(&self, other: &Page) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }

    fn follows(&self, other: &Page) -> bool {
        self.shares_run(other) && self.index == other.index + 1
    }
}

impl Deref for Page {
    type Target = [u8; BLOCK_SIZE];

    fn deref(&self) -> &[u8; BLOCK_SIZE] {
        &self.run.as_chunks().0[self.index]
    }
}

impl From<&[u8; BLOCK_SIZE]> for Page {
    fn from(bytes: &[u8; BLOCK_SIZE]) -> Page {
        Page { run: Arc::new(Run::copy_of(bytes)), index: 0 }
    }
}

/// The same bytes, wherever they are.
impl PartialEq for Page {
    fn eq(&self, other: &Page) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:02x?}...)", &self[..4])
    }
}

/// Copies blocks of a file, of which `first` is the number of the first one. Runs end where this number is a
/// multiple of [`RUN_PAGES`], so that the borders of one write are those of the next.
///
/// # Panics
///
/// If `bytes` are not whole blocks.
pub fn copy_blocks(first: u64, bytes: &[u8]) -> impl Iterator<Item = Page> {
    assert!(bytes.len().is_multiple_of(BLOCK_SIZE), "{} bytes are not whole blocks", bytes.len());
    let mut first = first;
    let mut rest = bytes;
    let runs = std::iter::from_fn(move || {
        let border = RUN_PAGES - (first % RUN_PAGES as u64) as usize;
        let pages = border.min(rest.len() / BLOCK_SIZE);
        let (now, later) = rest.split_at(pages * BLOCK_SIZE);
        (first, rest) = (first + pages as u64, later);
        (pages > 0).then(|| Run::copy_of(now).into_pages())
    });
    runs.flatten()
}

/// Does `work` with the bytes of all `pages` in a row: where they are, if they are contiguous, or else a copy, aligned
/// as direct I/O wants.
///
/// # Panics
///
/// If they are more than [`RUN_PAGES`].
pub fn with_row<'a, T>(
    pages: impl Iterator<Item = &'a Page> + Clone,
    work: impl FnOnce(&[u8]) -> T,
) -> T {
    if let Some(bytes) = in_a_row(pages.clone()) {
        return work(bytes);
    }
    let mut run = Run::take(RUN_PAGES);
    let mut len = 0;
    for page in pages {
        run[len..len + BLOCK_SIZE].copy_from_slice(&page[..]);
        len += BLOCK_SIZE;
    }
    work(&run[..len])
}

/// The bytes of all `pages`, if they are contiguous in memory.
pub fn in_a_row<'a>(pages: impl Iterator<Item = &'a Page>) -> Option<&'a [u8]> {
    let mut pages = pages;
    let first = pages.next()?;
    let mut last = first;
    for page in pages {
        if !page.follows(last) {
            return None;
        }
        last = page;
    }
    Some(&first.run[first.index * BLOCK_SIZE..(last.index + 1) * BLOCK_SIZE])
}

impl Run {
    /// Copies whole blocks.
    fn copy_of(bytes: &[u8]) -> Run {
        let mut run = Run::take(bytes.len() / BLOCK_SIZE);
        run.copy_from_slice(bytes);
        run
    }

    /// Memory for `pages`, with any content.
    fn take(pages: usize) -> Run {
        let (used, surplus) = idle().take(pages);
        drop(surplus);
        Run { memory: Some(used.unwrap_or_else(|| Chunk::new(pages))) }
    }

    fn pages(&self) -> usize {
        self.len() / BLOCK_SIZE
    }

    fn into_pages(self) -> impl Iterator<Item = Page> {
        let pages = self.pages();
        let run = Arc::new(self);
        (0..pages).map(move |index| Page { run: run.clone(), index })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let memory = self.memory.take().expect(GONE);
        let surplus = idle().keep(memory);
        drop(surplus);
    }
}

/// Memory of runs that are gone, by their number of pages, and how much there may be.
struct Idle {
    of: [Vec<Chunk>; RUN_PAGES],
    bytes: usize,
    /// Bytes of runs that are in use.
    used: usize,
    /// Bytes that runs may have, idle ones included, as far as idle ones are concerned.
    allowed: usize,
}

/// Of the standard library: tests that steer threads do not see it, as it is never held across what they steer.
static IDLE: Mutex<Idle> = Mutex::new(Idle::new());

fn idle() -> MutexGuard<'static, Idle> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Idle {
    const fn new() -> Idle {
        Idle { of: [const { Vec::new() }; RUN_PAGES], bytes: 0, used: 0, allowed: 0 }
    }

    /// Memory for a run, if some is kept, and what is kept of other lengths and must go for it.
    fn take(&mut self, pages: usize) -> (Option<Chunk>, Vec<Chunk>) {
        self.used += pages * BLOCK_SIZE;
        let memory = self.take_out(pages);
        (memory, self.surplus())
    }

    fn take_out(&mut self, pages: usize) -> Option<Chunk> {
        let memory = self.of[pages - 1].pop()?;
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Keeps the memory of a run, and returns what is too much then.
    fn keep(&mut self, memory: Chunk) -> Vec<Chunk> {
        self.used -= memory.len();
        self.bytes += memory.len();
        self.of[memory.pages() - 1].push(memory);
        self.surplus()
    }

    /// Takes out what is too much: of the lengths of which most is kept.
    fn surplus(&mut self) -> Vec<Chunk> {
        let most = IDLE_BYTES_MAX.min(self.allowed.saturating_sub(self.used));
        let mut surplus = Vec::new();
        while self.bytes > most {
            let most = (1..=RUN_PAGES).max_by_key(|pages| self.of[pages - 1].len() * pages);
            surplus.extend(most.and_then(|pages| self.take_out(pages)));
        }
        surplus
    }

    /// Takes out half of what is kept of each length.
    fn halve(&mut self) -> Vec<Chunk> {
        let mut surplus = Vec::new();
        for kept in &mut self.of {
            surplus.extend(kept.drain(..kept.len().div_ceil(2)));
        }
        self.bytes -= surplus.iter().map(|memory| memory.len()).sum::<usize>();
        surplus
    }

    /// Takes out all of it.
    fn empty(&mut self) -> Vec<Chunk> {
        self.bytes = 0;
        // The lists themselves go as well: one that held a great many stays long.
        self.of.iter_mut().flat_map(std::mem::take).collect()
    }
}

/// A volume's permission to have so many bytes of pages. As long as all pages stay below the sum of all permissions,
/// memory of dropped runs is kept for the next ones. More pages than that are made all the same, and nothing is kept
/// beside them.
#[derive(Debug)]
pub struct Allowance(usize);

impl Allowance {
    /// Permission for `bytes`, until it is dropped.
    pub fn new(bytes: usize) -> Allowance {
        let mut idle = idle();
        idle.allowed = idle.allowed.saturating_add(bytes);
        Allowance(bytes)
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        let surplus = {
            let mut idle = idle();
            idle.allowed = idle.allowed.saturating_sub(self.0);
            idle.surplus()
        };
        drop(surplus);
    }
}

/// Bytes of memory that pages have in this program: in use, and kept for the next ones.
pub fn memory_bytes() -> (usize, usize) {
    let idle = idle();
    (idle.used, idle.bytes)
}

/// Gives half of the memory that is kept for pages back to the system. A volume calls it now and then, so that memory
/// unused for a while is soon returned.
pub fn give_back_half() {
    let surplus = idle().halve();
    drop(surplus);
}

/// Gives back all of it.
pub fn give_back() {
    let all = idle().empty();
    drop(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count * BLOCK_SIZE).map(|at| (at / BLOCK_SIZE + at) as u8).collect()
    }

    #[test]
    fn pages_of_one_write_lie_in_a_row_up_to_the_border() {
        let bytes = bytes(70);
        let pages: Vec<Page> = copy_blocks(62, &bytes).collect();
        assert_eq!(pages.len(), 70);
        for (page, wanted) in pages.iter().zip(bytes.chunks(BLOCK_SIZE)) {
            assert_eq!(page[..], *wanted);
        }
        let row = |from: usize, to: usize| in_a_row(pages[from..to].iter());
        assert_eq!(row(0, 2), Some(&bytes[..2 * BLOCK_SIZE]));
        assert_eq!(row(2, 66), Some(&bytes[2 * BLOCK_SIZE..66 * BLOCK_SIZE]));
        assert_eq!(row(66, 70), Some(&bytes[66 * BLOCK_SIZE..]));
        assert_eq!((row(1, 3), row(65, 67), row(5, 5)), (None, None, None));
        assert_eq!(in_a_row([&pages[3], &pages[5]].into_iter()), None);
        assert_eq!(in_a_row([&pages[3], &pages[3]].into_iter()), None);
        assert_eq!(row(2, 66).map(|row| row.as_ptr() as usize % BLOCK_SIZE), Some(0));
    }

    #[test]
    fn what_another_holder_sees_does_not_change() {
        let mut pages: Vec<Page> = copy_blocks(0, &bytes(2)).collect();
        let (mut first, second) = (pages.remove(0), pages.remove(0));
        let reader = first.clone();
        assert!(reader.is_same(&first) && !reader.is_same(&second));
        first.bytes_mut()[7] = 0xee;
        assert_eq!((first[7], reader[7], first[8]), (0xee, 7, 8));
        assert!(!reader.is_same(&first));
        // Now it is alone, and is changed where it is.
        let place = first.as_ptr();
        first.bytes_mut()[8] = 0xef;
        assert_eq!((first[8], first.as_ptr()), (0xef, place));
        assert!(first.alone().is_same(&first));
        assert!(!second.alone().is_same(&second) && second.alone()[..] == second[..]);
    }

    #[test]
    fn used_memory_shows_nothing_of_before() {
        for _ in 0..3 {
            drop(Page::with(0, &[0xff; BLOCK_SIZE]));
            let page = Page::with(10, &[1; 20]);
            assert!(page[..10].iter().chain(&page[30..]).all(|&byte| byte == 0));
            assert!(page[10..30] == [1; 20] && *Page::zeroed() == [0; BLOCK_SIZE]);
            for count in [3, RUN_PAGES] {
                drop(copy_blocks(0, &vec![0xee; count * BLOCK_SIZE]).collect::<Vec<Page>>());
                let wanted = bytes(count);
                let pages: Vec<Page> = copy_blocks(0, &wanted).collect();
                assert!(in_a_row(pages.iter()) == Some(&wanted[..]));
                // The other way round, so that they have to be copied.
                let back = pages.iter().rev();
                let copied = with_row(back.clone(), |bytes| bytes.to_vec());
                assert!(copied == back.flat_map(|page| **page).collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn all_of_it_is_aligned_as_direct_io_wants() {
        for pages in [1, 2, 15, 16, RUN_PAGES] {
            let wanted = bytes(pages);
            let made: Vec<Page> = copy_blocks(0, &wanted).collect();
            assert!(made.iter().all(|page| page.as_ptr().addr().is_multiple_of(BLOCK_SIZE)));
            assert!(in_a_row(made.iter()) == Some(&wanted[..]));
        }
    }

    /// A run that was in use before.
    fn used(idle: &mut Idle, pages: usize) -> Chunk {
        let (kept, surplus) = idle.take(pages);
        assert!(surplus.is_empty());
        kept.unwrap_or_else(|| Chunk::new(pages))
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_half_of_it_goes_each_time() {
        let mut idle = Idle { allowed: usize::MAX, ..Idle::new() };
        let most = IDLE_BYTES_MAX / (RUN_PAGES * BLOCK_SIZE);
        let large: Vec<Chunk> = (0..most).map(|_| used(&mut idle, RUN_PAGES)).collect();
        let small = used(&mut idle, 1);
        assert!(large.into_iter().all(|chunk| idle.keep(chunk).is_empty()));
        // What is used now is kept instead of what was used before.
        let surplus = idle.keep(small);
        assert_eq!((surplus.len(), surplus[0].pages(), idle.of[0].len()), (1, RUN_PAGES, 1));
        assert!(idle.take_out(2).is_none() && idle.take_out(1).is_some());
        assert_eq!((idle.bytes, idle.used), ((most - 1) * RUN_PAGES * BLOCK_SIZE, 0));
        assert_eq!(idle.halve().len(), most / 2);
        assert_eq!(idle.bytes, (most - 1) / 2 * RUN_PAGES * BLOCK_SIZE);
        while !idle.halve().is_empty() {}
        assert_eq!(idle.bytes, 0);
    }

    #[test]
    fn what_is_used_and_what_is_kept_are_no_more_than_volumes_were_allowed() {
        let mut idle = Idle { allowed: 10 * BLOCK_SIZE, ..Idle::new() };
        let held = [4, 4, 2].map(|pages| used(&mut idle, pages));
        for chunk in held {
            assert!(idle.keep(chunk).is_empty(), "as much as was allowed");
        }
        // A length that is not kept: others go for it.
        let (none, surplus) = idle.take(5);
        let gone: usize = surplus.iter().map(Chunk::pages).sum();
        assert!(none.is_none() && gone >= 5, "{gone} pages went");
        assert!(idle.used + idle.bytes <= idle.allowed);
        // More than is allowed is used, and nothing is kept beside it.
        let over = idle.take(60);
        assert_eq!((over.0.is_none(), idle.bytes, idle.used), (true, 0, 65 * BLOCK_SIZE));
        assert_eq!(idle.keep(Chunk::new(5)).len(), 1);
        idle.keep(Chunk::new(60));
        assert_eq!((idle.used, idle.empty().len(), idle.bytes), (0, 0, 0));
    }
}
