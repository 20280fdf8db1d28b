//! Sorted, disjoint runs of blocks, and the comparison of two such lists.
//!
//! Runs instead of bitmaps: their number is bounded by the items that were
//! read, never by the size that a hostile superblock claims (P10).

use std::cmp::Ordering;

/// Sorted, disjoint runs of blocks that do not touch each other: each from its first block up to, not including, its second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(Vec<(u64, u64)>);

impl FromIterator<(u64, u64)> for Runs {
    /// Of runs in any order, which may overlap.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(runs: I) -> Runs {
        let mut runs: Vec<(u64, u64)> = runs.into_iter().collect();
        runs.sort_unstable();
        let mut all = Runs::default();
        runs.iter().for_each(|(start, end)| all.push(*start, *end));
        all
    }
}

impl Runs {
    /// Adds a run that does not begin before the last one added.
    pub fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some((first, last)) if start <= *last => {
                debug_assert!(start >= *first);
                *last = end.max(*last);
            }
            _ => self.0.push((start, end)),
        }
    }

    /// Adds the set bits of `bytes`, the first of which stands for block `start`.
    pub fn push_bits(&mut self, start: u64, bytes: &[u8]) {
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
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Blocks of the runs between `start` and `end`.
    pub fn count_between(&self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let first = self.0.partition_point(|run| run.1 <= start);
        let inside = self.0[first..].iter().take_while(|run| run.0 < end);
        inside.map(|run| run.1.min(end) - run.0.max(start)).sum()
    }

    /// The end of the run that holds `block`.
    pub fn end_at(&self, block: u64) -> Option<u64> {
        let (start, end) = self.0.get(self.0.partition_point(|run| run.1 <= block))?;
        (*start <= block).then_some(*end)
    }

    /// Whether any block from `start` up to `end` is in a run.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|run| run.1 <= start);
        self.0.get(first).is_some_and(|run| run.0 < end)
    }

    /// Whether all blocks from `start` up to `end` are.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.end_at(start).is_some_and(|last| end <= last)
    }

    /// These runs and `more`, but not `less`.
    pub fn changed(&self, more: &Runs, less: &Runs) -> Runs {
        let (all, mut rest) = (self.iter().chain(more.iter()).collect::<Runs>(), Runs::default());
        all.compare(less, |(start, end), in_all| {
            if in_all {
                rest.push(start, end);
            }
        });
        rest
    }

    /// The runs, upwards.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// Calls `report` for each run of blocks that is in exactly one of the two lists;
    /// the flag says whether it is in `self`.
    pub fn compare(&self, other: &Runs, mut report: impl FnMut((u64, u64), bool)) {
        for (ours, theirs, in_self) in [(self, other, true), (other, self, false)] {
            let mut others = theirs.0.iter().peekable();
            for &(start, last) in &ours.0 {
                let mut at = start;
                while at < last {
                    while others.next_if(|other| other.1 <= at).is_some() {}
                    let next = others.peek().map_or(u64::MAX, |other| other.0);
                    match next.cmp(&at) {
                        Ordering::Greater => {
                            let end = next.min(last);
                            report((at, end), in_self);
                            at = end;
                        }
                        _ => at = others.peek().map_or(last, |other| other.1),
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
            runs[0].compare(&runs[1], |(start, end), first| {
                for block in start..end {
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
