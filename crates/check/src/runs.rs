//! Sorted, disjoint runs of blocks, and the comparison of two such lists.
//!
//! Runs instead of bitmaps: their number is bounded by the items that were
//! read, never by the size that a hostile superblock claims (P10).

use std::cmp::Ordering;

/// Blocks from `start` up to, not including, `end`. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Sorted, disjoint runs that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Adds a run that does not begin before the last one added.
    pub(crate) fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.end => {
                debug_assert!(start >= last.start);
                last.end = last.end.max(end);
            }
            _ => self.0.push(Run { start, end }),
        }
    }

    /// Adds the set bits of `bytes`, the first of which stands for block `start`.
    pub(crate) fn push_bits(&mut self, start: u64, bytes: &[u8]) {
        for (index, &byte) in (0u64..).zip(bytes) {
            let at = start + 8 * index;
            match byte {
                0 => {}
                0xff => self.push(at, at + 8),
                _ => (0..8).filter(|bit| byte >> bit & 1 == 1).for_each(|bit| {
                    self.push(at + bit, at + bit + 1);
                }),
            }
        }
    }

    /// Blocks in all runs.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|run| run.end - run.start).sum()
    }

    /// Blocks of the runs between `start` and `end`.
    pub(crate) fn count_between(&self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let first = self.0.partition_point(|run| run.end <= start);
        let inside = self.0[first..].iter().take_while(|run| run.start < end);
        inside.map(|run| run.end.min(end) - run.start.max(start)).sum()
    }

    /// The end of the run that holds `block`.
    pub(crate) fn end_at(&self, block: u64) -> Option<u64> {
        let run = self.0.get(self.0.partition_point(|run| run.end <= block))?;
        (run.start <= block).then_some(run.end)
    }

    /// Whether any block from `start` up to `end` is in a run.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|run| run.end <= start);
        self.0.get(first).is_some_and(|run| run.start < end)
    }

    /// These runs and `more`, but not `less`.
    pub(crate) fn changed(&self, more: &Runs, less: &Runs) -> Runs {
        let mut runs: Vec<Run> = self.0.iter().chain(&more.0).copied().collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut all = Runs::default();
        runs.iter().for_each(|run| all.push(run.start, run.end));
        let mut rest = Runs::default();
        all.compare(less, |run, in_all| {
            if in_all {
                rest.push(run.start, run.end);
            }
        });
        rest
    }

    /// The runs, upwards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        self.0.iter().copied()
    }

    /// Calls `report` for each run of blocks that is in exactly one of the two lists;
    /// the flag says whether it is in `self`.
    pub(crate) fn compare(&self, other: &Runs, mut report: impl FnMut(Run, bool)) {
        for (ours, theirs, in_self) in [(self, other, true), (other, self, false)] {
            let mut others = theirs.0.iter().peekable();
            for run in &ours.0 {
                let mut at = run.start;
                while at < run.end {
                    while others.next_if(|other| other.end <= at).is_some() {}
                    let next = others.peek().map_or(u64::MAX, |other| other.start);
                    match next.cmp(&at) {
                        Ordering::Greater => {
                            let end = next.min(run.end);
                            report(Run { start: at, end }, in_self);
                            at = end;
                        }
                        _ => at = others.peek().map_or(run.end, |other| other.end),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;

    #[test]
    fn counting_and_comparing_agree_with_single_blocks() {
        for seed in 0..200 {
            let mut prng = Prng::seeded(seed);
            let mut bits = [[0u8; 8]; 2];
            let mut runs = [Runs::default(), Runs::default()];
            for side in 0..2 {
                prng.fill(&mut bits[side]);
                if prng.one_in(2) {
                    bits[side].fill(0xff * (prng.below(2) as u8));
                }
                let half = bits[side].split_at(3);
                runs[side].push_bits(100, half.0);
                runs[side].push_bits(124, half.1);
            }
            let bit = |side: usize, block: u64| {
                let at = (block - 100) as usize;
                bits[side][at / 8] >> (at % 8) & 1 == 1
            };
            let (low, high) = (100 + prng.below(64), 100 + prng.below(64));
            let expected = (low..high).filter(|&block| bit(0, block)).count() as u64;
            assert_eq!(runs[0].count_between(low, high), expected, "seed {seed}");
            assert_eq!(runs[0].total(), runs[0].count_between(0, 1000), "seed {seed}");
            let mut differ = [[false; 64]; 2];
            runs[0].compare(&runs[1], |run, first| {
                for block in run.start..run.end {
                    differ[usize::from(!first)][(block - 100) as usize] = true;
                }
            });
            for block in 100..164 {
                let at = (block - 100) as usize;
                assert_eq!(differ[0][at], bit(0, block) && !bit(1, block), "seed {seed}");
                assert_eq!(differ[1][at], !bit(0, block) && bit(1, block), "seed {seed}");
            }
        }
    }
}
