//! Free blocks of a part of a volume: runs for data, places and pairs for nodes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::BlockNo;
use holdfast_format::Geometry;

/// What is free, and was free before.
#[derive(Clone, Debug, Default)]
pub(super) struct Free {
    slot: u64,
    /// Where the copy of a node at a place is, see [`Geometry::copy_of`]; 0: there are none.
    copy_mask: u64,
    /// No pair begins before.
    next: u64,
    /// Ends by starts.
    runs: BTreeMap<u64, u64>,
    /// The same, by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Free {
    /// These runs, by starts and ends, of a volume of this shape.
    pub(super) fn of(runs: impl IntoIterator<Item = (u64, u64)>, geometry: &Geometry) -> Free {
        let runs = runs.into_iter().filter(|(start, end)| start < end).collect();
        let shape =
            Free { slot: geometry.node_blocks(), copy_mask: geometry.copy_mask, ..Free::default() };
        shape.with(runs)
    }

    /// These runs, in a volume of the same shape.
    fn with(&self, runs: BTreeMap<u64, u64>) -> Free {
        let by_length = runs.iter().map(|(start, end)| (end - start, *start)).collect();
        Free { slot: self.slot, copy_mask: self.copy_mask, next: 0, runs, by_length }
    }

    /// What of it lies in front of a block.
    pub(super) fn before(&self, end: u64) -> Free {
        let cut = self.runs.range(..end).map(|(start, of)| (*start, end.min(*of)));
        self.with(cut.collect())
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.runs.insert(start, end);
            self.by_length.insert((end - start, start));
        }
    }

    /// The starts and ends of all runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, end)| (*start, *end))
    }

    /// Takes blocks out of the free run that begins there.
    fn take(&mut self, run: u64, start: u64, count: u64) {
        let end = self.runs.remove(&run).expect("both lists have it");
        self.by_length.remove(&(end - run, run));
        self.add(run, start);
        self.add(start + count, end);
    }

    /// Takes what is free of a range.
    pub(super) fn remove(&mut self, (start, end): (u64, u64)) {
        while let Some((run, run_end)) = self.runs.range(..end).next_back()
            && *run_end > start
        {
            let (run, from, to) = (*run, start.max(*run), end.min(*run_end));
            self.take(run, from, to - from);
        }
    }

    /// Takes a run of so many blocks out of the shortest one that has them.
    pub(super) fn run(&mut self, count: u64) -> Option<u64> {
        let (_, run) = *self.by_length.range((count, 0)..).next()?;
        self.take(run, run, count);
        Some(run)
    }

    /// Takes a place for a node that is stored once.
    pub(super) fn place(&mut self) -> Option<BlockNo> {
        let slot = self.slot;
        let in_run = |(length, run): &(u64, u64)| {
            let start = run.next_multiple_of(slot);
            (start + slot <= run + length).then_some((*run, start))
        };
        let sure = self.by_length.range((2 * slot, 0)..).next();
        let found =
            sure.and_then(in_run).or_else(|| self.by_length.range((slot, 0)..).find_map(in_run));
        let (run, start) = found?;
        self.take(run, start, slot);
        Some(BlockNo(start))
    }

    /// How many such places there are.
    pub(super) fn places(&self) -> u64 {
        let of_run =
            |(start, end): (u64, u64)| (end / self.slot).saturating_sub(start.div_ceil(self.slot));
        self.runs().map(of_run).sum()
    }

    /// Takes the lowest pair: the place of a node that is stored twice, and that of its copy.
    pub(super) fn pair(&mut self) -> Option<BlockNo> {
        let start = self.pairs(self.next).next()?;
        self.next = start + self.slot;
        self.take_pair(start);
        Some(BlockNo(start))
    }

    /// Takes up to `most` pairs, the lowest ones, which alone are free in what it returns with how many there are.
    pub(super) fn split_pairs(&mut self, most: u64) -> (Free, u64) {
        let starts: Vec<u64> = self.pairs(0).take(most as usize).collect();
        let (slot, copy_mask) = (self.slot, self.copy_mask);
        let mut pairs = self.with(BTreeMap::new());
        for start in &starts {
            self.take_pair(*start);
            pairs.add(*start, start + slot);
            pairs.add(start ^ copy_mask, (start ^ copy_mask) + slot);
        }
        (pairs, starts.len() as u64)
    }

    /// Takes up to `most` places for nodes that are stored once, which alone are free in what it returns.
    pub(super) fn split_places(&mut self, most: u64) -> Free {
        let mut places = self.with(BTreeMap::new());
        for start in std::iter::from_fn(|| self.place()).take(most as usize) {
            places.add(start.0, start.0 + places.slot);
        }
        places
    }

    /// The blocks of the first places that [`Free::place`] gives, where no run is longer than one.
    pub(super) fn first_places(&self, most: u64) -> impl Iterator<Item = (u64, u64)> {
        self.runs().take(most as usize)
    }

    /// The blocks of the first pairs that [`Free::pair`] gives.
    pub(super) fn first_pairs(&self, most: u64) -> impl Iterator<Item = (u64, u64)> {
        let (slot, copy_mask) = (self.slot, self.copy_mask);
        let both = move |start| [start, start ^ copy_mask].map(|start| (start, start + slot));
        self.pairs(self.next).take(most as usize).flat_map(both)
    }

    fn take_pair(&mut self, start: u64) {
        for start in [start, start ^ self.copy_mask] {
            let run = self.run_of(start).expect("it is free");
            self.take(run, start, self.slot);
        }
    }

    /// The free run that has a whole place from `start` on.
    fn run_of(&self, start: u64) -> Option<u64> {
        let (run, end) = self.runs.range(..=start).next_back()?;
        (start + self.slot <= *end).then_some(*run)
    }

    /// Places from `from` on whose other one, behind them, is free as well.
    fn pairs(&self, from: u64) -> impl Iterator<Item = u64> {
        let first = self.runs.range(..=from).next_back().map_or(from, |(run, _)| *run);
        let starts = self.runs.range(first..).flat_map(move |(run, end)| {
            let start = (*run).max(from).next_multiple_of(self.slot);
            (start..).step_by(self.slot as usize).take_while(move |start| start + self.slot <= *end)
        });
        starts.filter(|start| {
            let copy = start ^ self.copy_mask;
            copy > *start && self.run_of(copy).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(copy_mask: u64, runs: &[(u64, u64)]) -> Free {
        let mut free = Free { slot: 4, copy_mask, ..Free::default() };
        runs.iter().for_each(|(start, end)| free.add(*start, *end));
        free
    }

    #[test]
    fn places_are_given_once_and_nodes_are_aligned() {
        let mut places = free(0, &[(10, 15), (21, 40), (42, 44)]);
        assert_eq!(places.places(), 4);
        assert_eq!([places.run(5), places.run(2)], [Some(10), Some(42)]);
        let nodes: Vec<u64> = std::iter::from_fn(|| places.place().map(|block| block.0)).collect();
        assert_eq!(nodes, [24, 28, 32, 36]);
        assert!(places.run(4).is_none() && places.pair().is_none());
    }

    #[test]
    fn what_is_stored_twice_has_both_places() {
        let mut places = free(64, &[(10, 30), (70, 100), (128, 140)]);
        assert_eq!(places.run(10), Some(128));
        let (mut pairs, count) = places.split_pairs(3);
        assert_eq!((count, pairs.places()), (3, 6));
        let nodes: Vec<u64> = std::iter::from_fn(|| pairs.pair().map(|block| block.0)).collect();
        assert_eq!(nodes, [12, 16, 20], "their copies are at 76, 80 and 84");
        assert_eq!(places.pair(), Some(BlockNo(24)));
        assert_eq!(places.split_pairs(9).1, 0);
        assert_eq!(places.place(), Some(BlockNo(92)), "what has no copy lies anywhere");
    }

    #[test]
    fn what_is_removed_may_lie_in_many_runs() {
        let mut places = free(0, &[(10, 30), (40, 50), (60, 80)]);
        places.remove((20, 70));
        assert_eq!(places.runs().collect::<Vec<_>>(), [(10, 20), (70, 80)]);
        places.remove((12, 14));
        assert_eq!(places.runs().collect::<Vec<_>>(), [(10, 12), (14, 20), (70, 80)]);
    }
}
