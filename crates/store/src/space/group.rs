//! One block group: which of its blocks are in use, and which may be given away.
//!
//! `used` is what the trees claim and what is written to disk. `busy` is what
//! must not be given away: used blocks, blocks on their way into a file, freed
//! blocks that the last durable state still reaches (R2), and blocks outside
//! the data zone. A *place* is as many aligned blocks as a node has. A *slot*, room for a node however often it is stored, is one
//! place, or, where nodes have copies, a pair of them, whose bits are the same ones of two words; it is counted by the lower of these.
//!
//! Knows nothing of other groups or of trees.

pub(super) mod discard;
mod find;
mod stored;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAPS_PER_GROUP, GROUP_BLOCKS};

use super::record::Record;
use super::slots::Room;
use discard::Discardable;

const WORDS: usize = (GROUP_BLOCKS / 64) as usize;
const WORDS_PER_PIECE: usize = (BITMAP_BLOCKS / 64) as usize;

/// A block group in memory.
#[derive(Debug)]
pub(crate) struct Group {
    start: u64,
    place_blocks: u64,
    /// The copy of a place of word `w` lies in word `w ^ copy_words`.
    copy_words: usize,
    used: Box<[u64; WORDS]>,
    /// Of `busy`: blocks that are not allocated, but that the host has not given yet.
    unbacked: Option<Box<[u64; WORDS]>>,
    busy: Box<[u64; WORDS]>,
    pub(crate) used_blocks: u64,
    pub(crate) node_blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) free_slots: u64,
    /// Places that are wholly free, those of free slots included.
    pub(crate) free_places: u64,
    /// Pieces of `used` that differ from the tree, one bit each.
    dirty_pieces: u8,
    pub(crate) record: Record,
    /// Whether it is on the list of groups that the next commit looks at.
    pub(super) listed: bool,
    /// Something was changed since it was last a candidate to leave memory.
    pub(super) is_recent: bool,
    /// No free slot lies in a word before this one.
    slot_hint: usize,
    /// No place that is free without its other one lies in a word before this one.
    single_hint: usize,
    /// No run of free blocks is longer than this: a search for more would walk the whole group for nothing.
    run_max: u64,
    /// Where the device may have something back.
    pub(super) discardable: Discardable,
    /// Behind the last block that belongs to the data zone.
    end: u64,
}

const _: () = assert!(BITMAPS_PER_GROUP <= 8);

/// What data is not to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Nothing,
    /// Slots that are wholly free.
    Slots,
    /// Places that are wholly free.
    Places,
}

/// A run of blocks inside a group, counted from the group's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Group {
    /// An empty group `index`. `inside` are its blocks that belong to the data zone.
    pub(crate) fn new(index: u64, inside: BlockRange, place_blocks: u64, copy_mask: u64) -> Group {
        let mut group = Group {
            start: index * GROUP_BLOCKS,
            place_blocks,
            copy_words: (copy_mask / 64) as usize,
            used: Box::new([0; WORDS]),
            unbacked: None,
            busy: Box::new([u64::MAX; WORDS]),
            used_blocks: 0,
            node_blocks: 0,
            free_blocks: 0,
            free_slots: 0,
            free_places: 0,
            dirty_pieces: 0,
            record: Record::Absent,
            listed: false,
            is_recent: true,
            slot_hint: 0,
            single_hint: 0,
            run_max: GROUP_BLOCKS,
            discardable: Discardable::default(),
            end: 0,
        };
        let run = group.run(inside);
        group.end = run.at + run.len;
        group.change_busy(run, false);
        group
    }

    /// The run of blocks of this group.
    pub(super) fn run(&self, range: BlockRange) -> Run {
        Run { at: range.start.0 - self.start, len: range.count }
    }

    /// The blocks of a run.
    pub(crate) fn blocks(&self, run: Run) -> BlockRange {
        BlockRange::new(BlockNo(self.start + run.at), run.len)
    }

    /// Words and masks of a run.
    fn words(run: Run) -> impl Iterator<Item = (usize, u64)> {
        let (mut at, end) = (run.at, run.at + run.len);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (word, bit) = ((at / 64) as usize, at % 64);
            let len = (64 - bit).min(end - at);
            let mask = if len == 64 { u64::MAX } else { ((1 << len) - 1) << bit };
            at += len;
            Some((word, mask))
        })
    }

    /// Which bits of a word belong to no slot that is free: their blocks are busy, or those of the copy.
    fn taken(&self, word: usize) -> u64 {
        // Of two equal ones it is the word itself.
        self.busy[word] | self.busy[word ^ self.copy_words]
    }

    /// Places of a word of which no bit is set.
    fn places_in(&self, taken: u64) -> u64 {
        if self.place_blocks == 1 {
            return u64::from(taken.count_zeros());
        }
        let mask = (1u64 << self.place_blocks) - 1;
        (0..64 / self.place_blocks)
            .filter(|place| (taken >> (place * self.place_blocks)) & mask == 0)
            .count() as u64
    }

    /// Sets a word of `busy`, and counts its slots and places again.
    fn set_busy(&mut self, word: usize, busy: u64) {
        let free = |group: &Group| {
            let slots = group.places_in(group.taken(word));
            let has_pairs = group.copy_words != 0;
            (slots, if has_pairs { group.places_in(group.busy[word]) } else { slots })
        };
        let before = free(self);
        let (taken, freed) = (busy & !self.busy[word], self.busy[word] & !busy);
        self.busy[word] = busy;
        let after = free(self);
        self.free_slots = self.free_slots + after.0 - before.0;
        self.free_places = self.free_places + after.1 - before.1;
        // Where a place of a pair is taken, the other one is single. As many may be single as before, and others.
        if taken != 0 {
            self.single_hint = self.single_hint.min(word ^ self.copy_words);
        }
        if freed != 0 {
            self.single_hint = self.single_hint.min(word);
        }
    }

    /// A slot may be free in this word from now on.
    fn may_have_slot(&mut self, word: usize) {
        self.slot_hint = self.slot_hint.min(word).min(word ^ self.copy_words);
    }

    /// Where the copy of a node in this place is.
    pub(crate) fn copy_of(&self, place: Run) -> Option<Run> {
        let at = place.at ^ (self.copy_words as u64 * 64);
        (self.copy_words != 0).then_some(Run { at, ..place })
    }

    fn change_busy(&mut self, run: Run, busy: bool) {
        for (word, mask) in Group::words(run) {
            let old = self.busy[word];
            let new = if busy { old | mask } else { old & !mask };
            assert_eq!(old & mask, if busy { 0 } else { mask }, "a block is given away twice");
            self.set_busy(word, new);
            if !busy {
                self.may_have_slot(word);
            }
        }
        if busy {
            self.free_blocks -= run.len;
        } else {
            self.free_blocks += run.len;
            self.run_max = GROUP_BLOCKS;
        }
    }

    /// Takes free blocks: they are busy, but have no owner yet.
    pub(crate) fn take(&mut self, run: Run) {
        self.change_busy(run, true);
        self.discardable.taken(run);
    }

    /// Gives back busy blocks that are not in use.
    pub(crate) fn release(&mut self, range: BlockRange) {
        let run = self.run(range);
        self.change_busy(run, false);
        self.discardable.freed(run);
    }

    /// Hides every free block.
    pub(super) fn hide(&mut self) {
        let mut unbacked = Box::new([0; WORDS]);
        for (unbacked, busy) in unbacked.iter_mut().zip(self.busy.iter_mut()) {
            *unbacked = !*busy;
            *busy = u64::MAX;
        }
        self.unbacked = Some(unbacked);
        (self.free_blocks, self.free_slots, self.free_places) = (0, 0, 0);
    }

    /// Has the data zone's blocks `inside` from now on, which begin where they began. The new ones are free, or unbacked.
    pub(super) fn extend(&mut self, inside: BlockRange, is_unbacked: bool) {
        let (run, end) = (self.run(inside), self.end);
        self.end = run.at + run.len;
        let new = Run { at: end, len: self.end - end };
        if !is_unbacked {
            return self.change_busy(new, false);
        }
        let unbacked = self.unbacked.get_or_insert_with(|| Box::new([0; WORDS]));
        Group::words(new).for_each(|(word, mask)| unbacked[word] |= mask);
    }

    /// Hides blocks that become free.
    pub(super) fn hide_again(&mut self, range: BlockRange) {
        let run = self.run(range);
        if let Some(unbacked) = &mut self.unbacked {
            Group::words(run).for_each(|(word, mask)| unbacked[word] |= mask);
        }
        self.discardable.freed(run);
    }

    /// What is unbacked of `range` is free from now on.
    pub(super) fn show(&mut self, range: BlockRange) {
        let run = self.run(range);
        let Some(mut unbacked) = self.unbacked.take() else {
            return;
        };
        for (word, mask) in Group::words(run) {
            let shown = unbacked[word] & mask;
            unbacked[word] &= !mask;
            self.set_busy(word, self.busy[word] & !shown);
            self.free_blocks += u64::from(shown.count_ones());
            self.may_have_slot(word);
        }
        self.run_max = GROUP_BLOCKS;
        self.unbacked = Some(unbacked);
        // The host has given more than is in use.
        self.discardable.freed(run);
    }

    /// Whether every block of `range` may be given away.
    pub(crate) fn all_free(&self, range: BlockRange) -> bool {
        Group::words(self.run(range)).all(|(word, mask)| self.busy[word] & mask == 0)
    }

    /// Whether no block of `range` may be given away.
    pub(crate) fn all_busy(&self, range: BlockRange) -> bool {
        Group::words(self.run(range)).all(|(word, mask)| self.busy[word] & mask == mask)
    }

    /// Whether every block of `range` has the state `used`.
    pub(crate) fn all_used(&self, range: BlockRange, used: bool) -> bool {
        Group::words(self.run(range))
            .all(|(word, mask)| self.used[word] & mask == if used { mask } else { 0 })
    }

    /// Says that busy blocks are used from now on, or not any more. They stay busy.
    pub(crate) fn set_used(&mut self, range: BlockRange, used: bool, node: bool) {
        let run = self.run(range);
        for (word, mask) in Group::words(run) {
            assert_eq!(self.busy[word] & mask, mask, "a block in use is busy");
            assert_eq!(
                self.used[word] & mask,
                if used { 0 } else { mask },
                "used once, freed once"
            );
            self.used[word] ^= mask;
            self.dirty_pieces |= 1 << (word / WORDS_PER_PIECE);
        }
        let node_len = if node { run.len } else { 0 };
        if used {
            self.used_blocks += run.len;
            self.node_blocks += node_len;
        } else {
            self.used_blocks -= run.len;
            self.node_blocks -= node_len;
        }
    }

    /// What is free.
    pub(super) fn room(&self) -> Room {
        Room { blocks: self.free_blocks, places: self.free_places, pairs: self.free_slots }
    }
}

#[cfg(test)]
mod tests;
