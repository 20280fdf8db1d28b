//! Which parts of a group the device may have back: where blocks became free, and how long ago.
//!
//! A piece of 4 MiB is *discardable* while blocks of it became free that the device still keeps. It is due when nothing was
//! taken there, and nothing became free, since the last look: a file that is written again and again is not given
//! back and taken all the time.

use super::{Group, Run, WORDS};
use crate::space::slots::Room;
use crate::space::unbacked::{PIECE_BLOCKS, PIECES_PER_GROUP};

const WORDS_PER_PIECE: usize = (PIECE_BLOCKS / 64) as usize;

const _: () = assert!(PIECES_PER_GROUP == 32, "one bit for each");

/// Of each piece of a group whether it is discardable, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::space) struct Discardable {
    /// Blocks became free, and were not discarded since.
    pieces: u32,
    /// The same, but a reserve needs what is free there.
    kept: u32,
    /// Blocks were taken or became free since the last look.
    touched: u32,
    /// The group is on the list of those with discardable pieces.
    pub(in crate::space) listed: bool,
}

impl Discardable {
    /// Blocks of the run became free.
    pub(super) fn freed(&mut self, run: Run) {
        let pieces = pieces(run);
        self.pieces |= pieces;
        self.touched |= pieces;
    }

    /// Blocks of the run were taken.
    pub(super) fn taken(&mut self, run: Run) {
        self.touched |= pieces(run);
    }

    /// Pieces that wait.
    pub(in crate::space) fn waiting(&self) -> u32 {
        self.pieces
    }

    /// Whether nothing is left to look at.
    pub(in crate::space) fn is_nothing(&self) -> bool {
        self.pieces | self.kept == 0
    }

    /// A look: the discardable pieces that are due, and of these the ones where blocks became free since a reserve kept them. With
    /// `quiet`, only those untouched since the last one. What is not due waits for the next.
    pub(in crate::space) fn look(&mut self, quiet: bool) -> (u32, u32) {
        let discardable = self.pieces | self.kept;
        let touched = std::mem::take(&mut self.touched);
        let due = if quiet { discardable & !touched } else { discardable };
        let fresh = self.pieces & due;
        self.pieces = discardable & !due;
        self.kept = 0;
        (due, fresh)
    }

    /// These pieces are discardable after all: another thread asks the host for them, or not all was tried.
    pub(in crate::space) fn again(&mut self, pieces: u32) {
        self.pieces |= pieces;
    }

    /// These stay as they are until something changes: a reserve needs them.
    pub(in crate::space) fn keep(&mut self, pieces: u32) {
        self.kept |= pieces;
    }
}

/// The pieces that a run of a group touches.
pub(in crate::space) fn pieces(run: Run) -> u32 {
    if run.len == 0 {
        return 0;
    }
    let (first, last) = (run.at / PIECE_BLOCKS, (run.at + run.len - 1) / PIECE_BLOCKS);
    (u32::MAX >> (PIECES_PER_GROUP - 1 - (last - first))) << first
}

impl Group {
    /// Runs of free blocks in some pieces, unbacked ones included, in order: whole units, and `least` blocks at least.
    pub(in crate::space) fn idle_runs(&self, pieces: u32, unit: u64, least: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut end_run = |from: u64, to: u64| {
            let (at, end) = (from.next_multiple_of(unit), to / unit * unit);
            if at < end && end - at >= least {
                runs.push(Run { at, len: end - at });
            }
        };
        let mut from = None;
        for word in 0..WORDS {
            let is_wanted = pieces >> (word / WORDS_PER_PIECE) & 1 == 1;
            let unbacked = self.unbacked.as_ref().map_or(0, |unbacked| unbacked[word]);
            let idle = if is_wanted { !self.busy[word] | unbacked } else { 0 };
            let mut bit = 0;
            while bit < 64 {
                let at = word as u64 * 64 + bit;
                let rest = idle >> bit;
                // Of the word's bits so many are the same.
                let same =
                    if rest & 1 == 1 { (!rest).trailing_zeros() } else { rest.trailing_zeros() };
                match (rest & 1 == 1, from) {
                    (true, None) => from = Some(at),
                    (false, Some(start)) => {
                        end_run(start, at);
                        from = None;
                    }
                    _ => {}
                }
                bit += u64::from(same).min(64 - bit);
            }
        }
        if let Some(start) = from {
            end_run(start, WORDS as u64 * 64);
        }
        runs
    }

    /// What may go of a part of a run of [`Group::idle_runs`], whole units, the last first, if no more than `beside` may. What is unbacked, and blocks of no slot that is free, cost no slot: between slots that are kept
    /// they go as well.
    pub(in crate::space) fn part_beside(&self, part: Run, unit: u64, mut beside: Room) -> Vec<Run> {
        let (first, mut end) = (part.at, part.at + part.len);
        let mut runs = Vec::new();
        // Behind the places that go, up to which they lie one before the other.
        let mut to = end;
        let mut end_run = |from: u64, to: u64| {
            let (at, end) = (from.next_multiple_of(unit), to / unit * unit);
            if at < end {
                runs.push(Run { at, len: end - at });
            }
        };
        while end > first {
            let place = (end - 1) / self.place_blocks * self.place_blocks;
            let at = place.max(first);
            let free = self.free_in(Run { at, len: end - at });
            let mask = (u64::MAX >> (64 - self.place_blocks)) << (place % 64);
            let word = (place / 64) as usize;
            let is_slot = self.taken(word) & mask == 0;
            let is_place = self.busy[word] & mask == 0;
            let may_go = (!is_slot || beside.pairs > 0) && (!is_place || beside.places > 0);
            if free <= beside.blocks && may_go {
                beside.blocks -= free;
                beside.pairs -= u64::from(is_slot);
                beside.places -= u64::from(is_place);
            } else {
                end_run(end, to);
                to = at;
            }
            end = at;
        }
        end_run(first, to);
        runs
    }

    /// Blocks of a run that may be given away.
    pub(in crate::space) fn free_in(&self, run: Run) -> u64 {
        let free = Group::words(run).map(|(word, mask)| (!self.busy[word] & mask).count_ones());
        free.map(u64::from).sum()
    }

    /// Hides what is free of a run. Returns how many blocks that were.
    pub(in crate::space) fn hide_run(&mut self, run: Run) -> u64 {
        let mut unbacked = self.unbacked.take().unwrap_or_else(|| Box::new([0; WORDS]));
        let before = self.free_blocks;
        for (word, mask) in Group::words(run) {
            let old = self.busy[word];
            let free = !old & mask;
            unbacked[word] |= free;
            self.set_busy(word, old | free);
            self.free_blocks -= u64::from(free.count_ones());
        }
        self.unbacked = Some(unbacked);
        before - self.free_blocks
    }

    /// Takes free blocks, or gives them back, for a discard: their pieces count as untouched.
    pub(in crate::space) fn set_aside(&mut self, run: Run, aside: bool) {
        self.change_busy(run, aside);
    }

    /// Whether it is as a group that was never touched; then whether everything in it is unbacked, or free.
    pub(in crate::space) fn is_as_new(&self, blocks: u64) -> Option<bool> {
        let is_unused = self.used_blocks == 0 && self.dirty_pieces == 0 && !self.listed;
        let is_unknown = matches!(self.record, super::Record::Absent);
        let is_looked_at = self.discardable.is_nothing() && !self.discardable.listed;
        let count =
            |unbacked: &[u64]| unbacked.iter().map(|word| u64::from(word.count_ones())).sum();
        let unbacked: u64 = self.unbacked.as_ref().map_or(0, |unbacked| count(&unbacked[..]));
        let is_free = unbacked == 0 && self.free_blocks == blocks;
        let is_whole = is_free || unbacked == blocks;
        (is_unused && is_unknown && is_looked_at && is_whole).then_some(!is_free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;
    use holdfast_base::{BlockNo, BlockRange};
    use holdfast_format::limits::GROUP_BLOCKS;

    fn group() -> Group {
        Group::new(0, BlockRange::new(BlockNo(0), GROUP_BLOCKS), 4, 0)
    }

    #[test]
    fn a_piece_is_due_when_nobody_has_touched_it_between_two_looks() {
        let mut discardable = Discardable::default();
        discardable.freed(Run { at: PIECE_BLOCKS - 1, len: 2 });
        assert_eq!((discardable.look(true), discardable.waiting()), ((0, 0), 0b11));
        discardable.taken(Run { at: 5, len: 1 });
        assert_eq!((discardable.look(true), discardable.waiting()), ((0b10, 0b10), 0b01));
        assert_eq!((discardable.look(true), discardable.waiting()), ((0b01, 0b01), 0));
        assert!(discardable.is_nothing());
        discardable.keep(0b100);
        assert!(discardable.waiting() == 0 && !discardable.is_nothing());
        discardable.taken(Run { at: 2 * PIECE_BLOCKS, len: 1 });
        discardable.freed(Run { at: 0, len: 1 });
        assert_eq!(discardable.look(false), (0b101, 0b001), "whoever touches it");
        assert_eq!(pieces(Run { at: 0, len: GROUP_BLOCKS }), u32::MAX);
        assert_eq!(pieces(Run { at: 31 * PIECE_BLOCKS, len: PIECE_BLOCKS }), 1 << 31);
    }

    /// Against a search block by block.
    #[test]
    fn runs_are_whole_units_of_what_is_free_in_these_pieces() {
        let mut prng = Prng::seeded(5);
        for round in 0..60 {
            let mut group = group();
            for _ in 0..prng.below(300) {
                let at = prng.below(GROUP_BLOCKS);
                let len = (1 + prng.below(200)).min(GROUP_BLOCKS - at);
                let run = Run { at, len };
                if group.free_in(run) == len {
                    group.take(run);
                } else {
                    group.hide_run(run);
                }
            }
            let pieces = prng.below(1 << 32) as u32 | if round == 0 { u32::MAX } else { 0 };
            let (unit, least) = (1 << prng.below(5), 1 + prng.below(40));
            let is_idle = |at: u64| {
                let (word, bit) = ((at / 64) as usize, at % 64);
                let unbacked = group.unbacked.as_ref().is_some_and(|h| h[word] >> bit & 1 == 1);
                (group.busy[word] >> bit & 1 == 0 || unbacked)
                    && pieces >> (at / PIECE_BLOCKS) & 1 == 1
            };
            let mut expected = Vec::new();
            let mut at = 0;
            while at < GROUP_BLOCKS {
                let end = (at..GROUP_BLOCKS).find(|at| !is_idle(*at)).unwrap_or(GROUP_BLOCKS);
                let (first, last) = (at.next_multiple_of(unit), end / unit * unit);
                if first < last && last - first >= least {
                    expected.push(Run { at: first, len: last - first });
                }
                at = end + 1;
            }
            assert_eq!(group.idle_runs(pieces, unit, least), expected, "round {round}");
        }
    }

    #[test]
    fn a_part_keeps_the_first_of_its_slots_and_nothing_between_them() {
        let mut group = group();
        // Slots of four blocks: 0 and 1 are free, of 2 one block is unbacked, 3 is unbacked, 4 is free, and of 5 the last block is in use.
        group.hide_run(Run { at: 9, len: 1 });
        group.hide_run(Run { at: 12, len: 4 });
        group.take(Run { at: 23, len: 1 });
        let part = Run { at: 0, len: 23 };
        let room = |blocks, slots| Room { blocks, places: slots, pairs: slots };
        let of = |blocks, slots| group.part_beside(part, 1, room(blocks, slots));
        let run = |at, len| Run { at, len };
        assert_eq!(of(100, 100), [part]);
        assert_eq!(of(100, 0), [run(20, 3), run(8, 8)]);
        assert_eq!(of(100, 1), [run(8, 15)]);
        assert_eq!(of(100, 2), [run(4, 19)]);
        assert_eq!(of(0, 100), [run(12, 4)]);
        assert_eq!(of(3, 0), [run(20, 3), run(12, 4)]);
        assert_eq!(group.part_beside(part, 16, room(100, 2)), [], "no whole unit");
        assert_eq!(group.part_beside(run(0, 16), 8, room(100, 0)), [run(8, 8)]);
    }

    #[test]
    fn what_is_unbacked_is_not_given_away_and_comes_back() {
        let mut group = group();
        group.take(Run { at: 10, len: 4 });
        let run = Run { at: 0, len: 100 };
        assert_eq!((group.hide_run(run), group.free_in(run), group.hide_run(run)), (96, 0, 0));
        assert_eq!(group.idle_runs(1, 1, 1)[0], Run { at: 0, len: 10 });
        group.show(group.blocks(run));
        assert_eq!((group.free_in(run), group.free_blocks), (96, GROUP_BLOCKS - 4));
        let fresh = Group::new(1, BlockRange::new(BlockNo(GROUP_BLOCKS), GROUP_BLOCKS), 4, 0);
        assert_eq!(fresh.is_as_new(GROUP_BLOCKS), Some(false));
        assert_eq!(group.is_as_new(GROUP_BLOCKS), None);
    }
}
