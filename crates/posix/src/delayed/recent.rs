//! The blocks that were written last, in memory.
//!
//! A file that grows by pieces which do not end with a block needs its last block again with the next piece, and the
//! kernel asks once more for a page that two writes have filled. Both come soon after the fsync that sent the page to
//! the device.
//!
//! A page is used only if it has the location and the checksum that the tree names. Two pages with one checksum can be
//! made on purpose, so a location is forgotten before it is allocated again: a lookup finds what was written there
//! last, or nothing (P6).
//!
//! Large writes are not kept: a stream is not read back at once.

use std::fmt;
use std::ops::Range;

use holdfast_base::BlockRange;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::page::Page;
use parking_lot::Mutex;

/// Blocks of a write to the device that are kept, and of a read that is looked up, at most: 128 KiB.
const RUN_BLOCKS_MAX: usize = 32;
/// Pages of one write are kept together up to this number, which is 32 KiB. Each is kept alone, so that no other page
/// stays in memory with it; for more of them the copies would cost more than they save.
const TOGETHER_MAX: usize = 8;

/// Locks, so that threads that read different files rarely meet. Neighbours of [`RUN_BLOCKS_MAX`] blocks have the same
/// one: a read takes one or two.
const SHARDS: usize = 16;

#[derive(Clone)]
struct Kept {
    block: u64,
    sum: u64,
    page: Page,
}

/// Empty until the first page is kept.
type Shard = Mutex<Vec<Option<Kept>>>;

/// The pages, each in the shard and the slot that its block number gives. The allocator goes upwards, so the slots are a
/// ring.
pub(crate) struct Recent {
    shards: Box<[Shard]>,
    /// Of each shard.
    slots: usize,
}

impl Recent {
    /// Keeps up to `bytes`; nothing, if that is less than a page.
    pub(crate) fn new(bytes: usize) -> Recent {
        let count = bytes / BLOCK_SIZE;
        let shards = (count / RUN_BLOCKS_MAX).clamp(1, SHARDS);
        Recent { shards: (0..shards).map(|_| Shard::default()).collect(), slots: count / shards }
    }

    /// `blocks` in runs that have one shard each.
    fn runs(&self, blocks: BlockRange) -> impl Iterator<Item = (&Shard, Range<u64>)> {
        const RUN: u64 = RUN_BLOCKS_MAX as u64;
        let end = blocks.start.0 + blocks.count;
        let mut next = blocks.start.0;
        std::iter::from_fn(move || {
            let start = next;
            next = end.min((start / RUN + 1) * RUN);
            let shard = &self.shards[(start / RUN) as usize % self.shards.len()];
            (start < end).then_some((shard, start..next))
        })
    }

    /// The slot of `block` in its shard. Runs that are neighbours in the shard are neighbours there.
    fn slot(&self, block: u64) -> usize {
        let (run, at) = (block as usize / RUN_BLOCKS_MAX, block as usize % RUN_BLOCKS_MAX);
        (run / self.shards.len() * RUN_BLOCKS_MAX + at) % self.slots
    }

    /// These blocks are about to be written.
    pub(crate) fn forget(&self, blocks: BlockRange) {
        for (shard, run) in self.runs(blocks) {
            let mut slots = shard.lock();
            if slots.is_empty() {
                continue;
            }
            for block in run {
                let slot = &mut slots[self.slot(block)];
                if slot.as_ref().is_some_and(|kept| kept.block == block) {
                    *slot = None;
                }
            }
        }
    }

    /// Keeps `pages`, which lie in `blocks` and have these checksums, if they are few.
    pub(crate) fn keep<'a>(
        &self,
        blocks: BlockRange,
        sums: &[u64],
        pages: impl ExactSizeIterator<Item = &'a Page>,
    ) {
        if pages.len() > RUN_BLOCKS_MAX.min(self.slots) {
            return;
        }
        let kept = (blocks.start.0..).zip(sums.iter().zip(pages));
        let kept = kept.filter(|(_, (_, page))| page.run_pages() <= TOGETHER_MAX);
        // Copied before a lock is taken.
        let kept: Vec<Kept> =
            kept.map(|(block, (&sum, page))| Kept { block, sum, page: page.alone() }).collect();
        let mut kept = kept.into_iter().peekable();
        for (shard, run) in self.runs(blocks) {
            if kept.peek().is_none_or(|kept| !run.contains(&kept.block)) {
                continue;
            }
            let mut slots = shard.lock();
            if slots.is_empty() {
                slots.resize(self.slots, None);
            }
            while let Some(kept) = kept.next_if(|kept| run.contains(&kept.block)) {
                let slot = self.slot(kept.block);
                slots[slot] = Some(kept);
            }
        }
    }

    /// Copies `blocks` to `into`, which is as long, if all of them are kept with these checksums.
    pub(crate) fn copy(&self, blocks: BlockRange, sums: &[u64], into: &mut [u8]) -> bool {
        if sums.len() > RUN_BLOCKS_MAX {
            return false;
        }
        // A page never changes, so its bytes are copied when the lock is free again.
        let mut pages = Vec::new();
        for (shard, run) in self.runs(blocks) {
            let slots = shard.lock();
            if slots.is_empty() {
                return false;
            }
            for block in run {
                let sum = sums[pages.len()];
                match &slots[self.slot(block)] {
                    Some(kept) if kept.block == block && kept.sum == sum => {
                        pages.push(kept.page.clone());
                    }
                    _ => return false,
                }
            }
        }
        for (to, page) in into.chunks_exact_mut(BLOCK_SIZE).zip(pages) {
            to.copy_from_slice(&page[..]);
        }
        true
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent")
            .field("shards", &self.shards.len())
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::BlockNo;
    use holdfast_store::page::copy_blocks;

    use super::*;

    fn pages(bytes: impl IntoIterator<Item = u8>) -> Vec<Page> {
        bytes.into_iter().map(|byte| Page::from(&[byte; BLOCK_SIZE])).collect()
    }

    fn blocks(start: u64, count: u64) -> BlockRange {
        BlockRange { start: BlockNo(start), count }
    }

    #[test]
    fn a_page_is_found_by_place_and_checksum() {
        let recent = Recent::new(8 * BLOCK_SIZE);
        let mut into = vec![0; 2 * BLOCK_SIZE];
        assert!(!recent.copy(blocks(100, 2), &[1, 2], &mut into));
        recent.keep(blocks(100, 2), &[1, 2], pages([7, 8]).iter());
        assert!(recent.copy(blocks(100, 2), &[1, 2], &mut into));
        assert!(into[..BLOCK_SIZE] == [7; BLOCK_SIZE] && into[BLOCK_SIZE..] == [8; BLOCK_SIZE]);
        // The location is the same, and the page is another.
        assert!(!recent.copy(blocks(100, 2), &[1, 3], &mut into));
        assert!(!recent.copy(blocks(101, 2), &[2, 3], &mut into));
        // The slot of block 100, eight blocks on.
        recent.keep(blocks(108, 1), &[1], pages([9]).iter());
        assert!(!recent.copy(blocks(100, 1), &[1], &mut into[..BLOCK_SIZE]));
        assert!(recent.copy(blocks(101, 1), &[2], &mut into[..BLOCK_SIZE]));
    }

    #[test]
    fn pages_of_a_small_write_are_kept_alone_and_those_of_a_large_one_are_not() {
        let recent = Recent::new(64 * BLOCK_SIZE);
        let bytes = [7; (TOGETHER_MAX + 1) * BLOCK_SIZE];
        let mut pages: Vec<Page> = copy_blocks(0, &bytes[BLOCK_SIZE..]).collect();
        pages.extend(copy_blocks(0, &bytes));
        pages.push(Page::from(&[8; BLOCK_SIZE]));
        recent.keep(blocks(0, pages.len() as u64), &vec![1; pages.len()], pages.iter());
        let mut into = [0; BLOCK_SIZE];
        let kept: Vec<u64> =
            (0..18).filter(|&at| recent.copy(blocks(at, 1), &[1], &mut into)).collect();
        assert_eq!(kept, [0, 1, 2, 3, 4, 5, 6, 7, 17]);
        for shard in &recent.shards {
            assert!(shard.lock().iter().flatten().all(|kept| kept.page.run_pages() == 1));
        }
    }

    #[test]
    fn what_fits_is_kept_whole_and_the_oldest_makes_room() {
        // More than one shard, and a number of pages that no number of shards divides.
        for count in [32, 64, 100, 16 * 32, 1000] {
            let recent = Recent::new(count * BLOCK_SIZE);
            let held = (recent.shards.len() * recent.slots) as u64;
            assert!(held <= count as u64 && held + recent.shards.len() as u64 > count as u64);
            let keep = |start: u64, count: u64, byte: u8| {
                let pages = pages((0..count).map(|_| byte));
                recent.keep(
                    blocks(start, count),
                    &vec![u64::from(byte); pages.len()],
                    pages.iter(),
                );
            };
            let kept = |block: u64, byte: u8| {
                let mut into = [0; BLOCK_SIZE];
                let found = recent.copy(blocks(block, 1), &[u64::from(byte)], &mut into);
                assert!(!found || into == [byte; BLOCK_SIZE]);
                found
            };
            // Across the edge of a run, in one write and one read.
            keep(1000, 30, 7);
            let mut into = vec![0; 30 * BLOCK_SIZE];
            assert!(recent.copy(blocks(1000, 30), &[7; 30], &mut into));
            assert!(into.iter().all(|&byte| byte == 7));
            assert!(!recent.copy(blocks(1000, 31), &[7; 31], &mut vec![0; 31 * BLOCK_SIZE]));
            recent.forget(blocks(1010, 20_000));
            assert_eq!((1000..1030).filter(|&at| kept(at, 7)).count(), 10);
            // From the start of a turn of all shards.
            let start = 4096 * (recent.shards.len() * RUN_BLOCKS_MAX) as u64;
            for at in 0..2 * held {
                keep(start + at, 1, 8);
            }
            let found = (0..2 * held).filter(|&at| kept(start + at, 8)).count() as u64;
            assert!(found <= held && found * 3 >= held * 2, "{found} of {held}");
        }
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let recent = Recent::new(BLOCK_SIZE - 1);
        recent.keep(blocks(5, 1), &[1], pages([7]).iter());
        assert!(!recent.copy(blocks(5, 1), &[1], &mut [0; BLOCK_SIZE]));
        // More than is kept of one write.
        let recent = Recent::new(64 * BLOCK_SIZE);
        let many = pages([7; RUN_BLOCKS_MAX + 1]);
        recent.keep(blocks(0, many.len() as u64), &[1; RUN_BLOCKS_MAX + 1], many.iter());
        assert!(!recent.copy(blocks(0, 1), &[1], &mut [0; BLOCK_SIZE]));
    }

    #[test]
    fn what_others_write_to_a_place_is_not_what_was_there() {
        let recent = Recent::new(64 * BLOCK_SIZE);
        recent.keep(blocks(100, 2), &[1, 1], pages([7, 7]).iter());
        // The same checksum on purpose, by a write that is too large to be kept.
        recent.forget(blocks(101, 40));
        let many = pages([8; RUN_BLOCKS_MAX + 1]);
        recent.keep(blocks(101, many.len() as u64), &[1; RUN_BLOCKS_MAX + 1], many.iter());
        let mut into = [0; BLOCK_SIZE];
        assert!(!recent.copy(blocks(101, 1), &[1], &mut into));
        assert!(recent.copy(blocks(100, 1), &[1], &mut into) && into == [7; BLOCK_SIZE]);
    }
}
