//! Searches in a block group: a place or a slot for a node, a run for data.

use holdfast_format::limits::GROUP_BLOCKS;

use super::{Group, Run, WORDS, Whole};

impl Group {
    /// Places that are free, and their other ones not.
    pub(in crate::space) fn free_singles(&self) -> u64 {
        if self.copy_words == 0 { 0 } else { self.free_places - 2 * self.free_slots }
    }

    /// The lowest place that is free, and its other one not.
    pub(crate) fn find_single(&mut self) -> Option<Run> {
        if self.free_singles() == 0 {
            return None;
        }
        let mask = (1u64 << self.place_blocks) - 1;
        for word in self.single_hint..WORDS {
            let (own, other) = (self.busy[word], self.busy[word ^ self.copy_words]);
            for bit in (0..64).step_by(self.place_blocks as usize) {
                if (own >> bit) & mask == 0 && (other >> bit) & mask != 0 {
                    self.single_hint = word;
                    return Some(Run { at: word as u64 * 64 + bit, len: self.place_blocks });
                }
            }
        }
        unreachable!("free places are counted at every change")
    }

    /// The place for the node of the lowest free slot.
    pub(crate) fn find_slot(&mut self) -> Option<Run> {
        if self.free_slots == 0 {
            return None;
        }
        let mask = (1u64 << self.place_blocks) - 1;
        for word in self.slot_hint..WORDS {
            let taken = self.taken(word);
            for place in 0..64 / self.place_blocks {
                let bit = place * self.place_blocks;
                if (taken >> bit) & mask == 0 {
                    self.slot_hint = word;
                    // The lower place is met first.
                    return Some(Run { at: word as u64 * 64 + bit, len: self.place_blocks });
                }
            }
        }
        unreachable!("free slots are counted at every change")
    }

    /// The longest run that may be there.
    pub(crate) fn run_max(&self) -> u64 {
        self.run_max
    }

    /// No run is longer.
    pub(in crate::space) fn believe_run_max(&mut self, run_max: u64) {
        self.run_max = run_max;
    }

    /// The first run of at least `want` free blocks at or after `from`, or of as many as there may be; or else
    /// the longest after `from`. What is to be left `whole` does not count.
    pub(crate) fn find_run(&self, from: u64, want: u64, whole: Whole) -> Option<Run> {
        if self.run_max == 0 {
            return None;
        }
        self.search_run(from, want.min(self.run_max), whole)
    }

    fn search_run(&self, from: u64, want: u64, whole: Whole) -> Option<Run> {
        let mut best: Option<Run> = None;
        let mut run = Run { at: from, len: 0 };
        let mut at = from;
        while at < GROUP_BLOCKS {
            let word = (at / 64) as usize;
            let mut busy = self.busy[word];
            busy |= match whole {
                Whole::Nothing => 0,
                Whole::Slots => self.whole_places(self.taken(word)),
                Whole::Places => self.whole_places(busy),
            };
            let bit = at % 64;
            let rest = busy >> bit;
            let free = u64::from(rest.trailing_zeros()).min(64 - bit);
            if free > 0 {
                if run.len == 0 {
                    run.at = at;
                }
                run.len += free;
                at += free;
                if run.len >= want {
                    return Some(Run { at: run.at, len: want });
                }
                if at.is_multiple_of(64) {
                    continue;
                }
            }
            if best.is_none_or(|best| run.len > best.len) && run.len > 0 {
                best = Some(run);
            }
            run.len = 0;
            let bit = at % 64;
            let taken = u64::from((!(busy >> bit)).trailing_zeros()).min(64 - bit);
            at += taken.max(1);
        }
        if best.is_none_or(|best| run.len > best.len) && run.len > 0 {
            best = Some(run);
        }
        best
    }

    /// A mask of the places of a word that no bit of `taken` touches.
    fn whole_places(&self, taken: u64) -> u64 {
        let mask = (1u64 << self.place_blocks) - 1;
        (0..64 / self.place_blocks)
            .map(|place| place * self.place_blocks)
            .filter(|bit| (taken >> bit) & mask == 0)
            .fold(0, |sum, bit| sum | mask << bit)
    }
}
