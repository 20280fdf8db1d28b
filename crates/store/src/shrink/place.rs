//! Places in front of the new end of a volume: for runs of data, the longest first, and for nodes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::{Geometry, Stored};

use super::Progress;
use super::walk::{Run, Seen};
use crate::Result;

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// What is free in front of the new end, and was free before.
#[derive(Debug, Default)]
pub(super) struct Places {
    slot: u64,
    /// Where the copy of a node at a place is, see [`Geometry::copy_of`]; 0: there are none.
    copy_mask: u64,
    /// No place for a node with a copy lies before.
    next: u64,
    /// Ends by starts.
    runs: BTreeMap<u64, u64>,
    /// The same, by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Places {
    /// Of a volume of this shape in which that was seen.
    pub(super) fn of(seen: &Seen, geometry: &Geometry) -> Places {
        let (slot, copy_mask) = (geometry.node_blocks(), geometry.copy_mask);
        let mut places = Places { slot, copy_mask, ..Places::default() };
        let mut free: Option<(u64, u64)> = None;
        for group in 0..geometry.group_count() {
            let inside = geometry.group_blocks(group);
            let end = inside.start.0 + inside.count;
            let marks = [seen.marks.group(group), seen.space_marks.group(group)];
            let is_used = |block: u64| {
                let at = block % GROUP_BLOCKS;
                let bit = |words: &[u64]| words[(at / 64) as usize] & (1 << (at % 64)) != 0;
                marks.iter().flatten().any(|words| bit(&words[..]))
            };
            if marks.iter().all(Option::is_none) {
                free = match free {
                    Some((start, last)) if last == inside.start.0 => Some((start, end)),
                    other => {
                        places.add(other);
                        Some((inside.start.0, end))
                    }
                };
                continue;
            }
            for block in inside.start.0..end {
                if is_used(block) {
                    places.add(free.take());
                    continue;
                }
                free = match free {
                    Some((start, last)) if last == block => Some((start, block + 1)),
                    other => {
                        places.add(other);
                        Some((block, block + 1))
                    }
                };
            }
        }
        places.add(free);
        places
    }

    fn add(&mut self, run: Option<(u64, u64)>) {
        if let Some((start, end)) = run.filter(|(start, end)| start < end) {
            self.runs.insert(start, end);
            self.by_length.insert((end - start, start));
        }
    }

    /// Takes blocks out of the free run that begins there.
    fn take(&mut self, run: u64, start: u64, count: u64) {
        let end = self.runs.remove(&run).expect("both lists have it");
        self.by_length.remove(&(end - run, run));
        self.add(Some((run, start)));
        self.add(Some((start + count, end)));
    }

    /// Places for all of these; `None` if one finds none. Then nothing else may be taken.
    pub(super) fn for_runs(&mut self, runs: &[Run]) -> Option<Moves> {
        let mut longest: Vec<Run> = runs.to_vec();
        longest.sort_unstable_by_key(|run| std::cmp::Reverse(run.end - run.start));
        let mut moves = Moves::default();
        for run in longest {
            let count = run.end - run.start;
            let (_, to) = *self.by_length.range((count, 0)..).next()?;
            self.take(to, to, count);
            moves.0.insert(run.start, (run, to));
        }
        Some(moves)
    }

    /// A place for a node, where the copy has one as well if there is to be one.
    pub(super) fn node(&mut self, stored: Stored) -> Option<BlockNo> {
        let slot = self.slot;
        if stored == Stored::Twice {
            let start = self.pairs(self.next).next()?;
            self.next = start + slot;
            for start in [start, start ^ self.copy_mask] {
                let run = self.run_of(start).expect("it is free");
                self.take(run, start, slot);
            }
            return Some(BlockNo(start));
        }
        let place = |run: u64, end: u64| {
            let start = run.next_multiple_of(slot);
            (start + slot <= end).then_some(start)
        };
        let sure = self.by_length.range((2 * slot, 0)..).next();
        let in_run = |(length, run): &(u64, u64)| Some((*run, place(*run, run + length)?));
        let found = sure.and_then(in_run).or_else(|| self.by_length.iter().find_map(in_run));
        let (run, start) = found?;
        self.take(run, start, slot);
        Some(BlockNo(start))
    }

    /// The free run that has a whole place from `start` on.
    fn run_of(&self, start: u64) -> Option<u64> {
        let (run, end) = self.runs.range(..=start).next_back()?;
        (start + self.slot <= *end).then_some(*run)
    }

    /// Places for nodes from `from` on that have one for the copy behind them.
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

    /// Whether there are as many places for nodes, however often they are stored.
    pub(super) fn has_slots(&self, wanted: u64) -> bool {
        if self.copy_mask != 0 {
            return self.pairs(0).take(wanted as usize).count() as u64 >= wanted;
        }
        let of_run = |(start, end): (&u64, &u64)| {
            (end / self.slot).saturating_sub(start.div_ceil(self.slot))
        };
        self.runs.iter().map(of_run).sum::<u64>() >= wanted
    }
}

/// Where runs go, by their starts.
#[derive(Debug, Default)]
pub(super) struct Moves(BTreeMap<u64, (Run, u64)>);

impl Moves {
    /// Where a block goes, if it moves.
    pub(super) fn of(&self, block: u64) -> Option<u64> {
        let (_, (run, to)) = self.0.range(..=block).next_back()?;
        (block < run.end).then(|| to + (block - run.start))
    }

    /// All of them: first block, blocks, and the first block at the new place.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.0.values().map(|(run, to)| (run.start, run.end - run.start, *to))
    }

    fn written(&self) -> impl Iterator<Item = &(Run, u64)> {
        self.0.values().filter(|(run, _)| run.is_written)
    }

    /// Bytes that have to be copied.
    pub(super) fn bytes(&self) -> u64 {
        self.written().map(|(run, _)| (run.end - run.start) * BLOCK_BYTES).sum()
    }

    /// Copies them. What fails its checksum does so at the new place, too.
    pub(super) fn copy(&self, device: &dyn Device, progress: &mut Progress<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for (run, to) in self.written() {
            let (from, len) = (run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES);
            for at in (0..len).step_by(COPY_BYTES as usize) {
                bytes.resize((len - at).min(COPY_BYTES) as usize, 0);
                device.read(from + at, &mut bytes)?;
                device.write(to * BLOCK_BYTES + at, &bytes)?;
                progress.add(bytes.len() as u64);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_once_and_nodes_are_aligned() {
        let mut places = Places { slot: 4, ..Places::default() };
        [(10, 15), (21, 40), (42, 44)].into_iter().for_each(|run| places.add(Some(run)));
        assert!(places.has_slots(4) && !places.has_slots(5));
        let run = |start, end| Run { start, end, is_written: true };
        let moves = places.for_runs(&[run(100, 102), run(200, 205)]).unwrap();
        assert_eq!((moves.of(100), moves.of(101), moves.of(102)), (Some(42), Some(43), None));
        assert_eq!((moves.of(204), moves.of(99), moves.bytes()), (Some(14), None, 7 * 4096));
        let nodes: Vec<u64> =
            std::iter::from_fn(|| places.node(Stored::Once).map(|block| block.0)).collect();
        assert_eq!(nodes, [24, 28, 32, 36]);
        assert!(places.for_runs(&[run(300, 304)]).is_none());
        let mut places = Places { slot: 4, copy_mask: 64, ..Places::default() };
        [(10, 30), (70, 100), (128, 140)].into_iter().for_each(|run| places.add(Some(run)));
        assert!(places.has_slots(4) && !places.has_slots(5));
        let moves = places.for_runs(&[run(300, 310)]).unwrap();
        assert_eq!(moves.of(300), Some(128));
        let nodes: Vec<u64> =
            std::iter::from_fn(|| places.node(Stored::Twice).map(|block| block.0)).collect();
        assert_eq!(nodes, [12, 16, 20, 24], "their copies are at 76, 80, 84 and 88");
        assert_eq!(places.node(Stored::Once), Some(BlockNo(92)), "what has no copy lies anywhere");
    }
}
