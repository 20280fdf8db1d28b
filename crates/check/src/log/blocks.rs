//! Sets of blocks that are put together in no order.
//!
//! Always disjoint intervals that do not touch, so their number is at most that
//! of the records that were read, however many blocks those claim (P10).

use std::collections::BTreeMap;

use crate::runs::Runs;

/// Starts of intervals, and their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks(BTreeMap<u64, u64>);

impl Blocks {
    /// Whether any block from `start` up to `end` is in the set.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, &last)| last > start)
    }

    /// The end of the interval that holds `block`.
    pub(super) fn end_at(&self, block: u64) -> Option<u64> {
        let (_, &end) = self.0.range(..=block).next_back()?;
        (block < end).then_some(end)
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        32 * self.0.len() as u64
    }

    /// Adds blocks none of which is in the set.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        debug_assert!(start < end && !self.touches(start, end));
        if let Some((&before, &last)) = self.0.range(..start).next_back()
            && last == start
        {
            start = before;
        }
        if let Some(last) = self.0.remove(&end) {
            end = last;
        }
        self.0.insert(start, end);
    }

    /// Adds blocks, some of which may be in the set.
    pub(super) fn unite(&mut self, mut start: u64, end: u64) {
        while start < end {
            if let Some(behind) = self.end_at(start) {
                start = behind;
                continue;
            }
            let next = self.0.range(start..).next().map_or(end, |(&next, _)| next.min(end));
            self.insert(start, next);
            start = next;
        }
    }

    /// Adds a set of which no block is in this one.
    pub(super) fn absorb(&mut self, other: &Blocks) {
        other.0.iter().for_each(|(&start, &end)| self.insert(start, end));
    }

    /// The intervals, upwards.
    pub(super) fn runs(&self) -> Runs {
        let mut runs = Runs::default();
        self.0.iter().for_each(|(&start, &end)| runs.push(start, end));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;

    #[test]
    fn intervals_agree_with_single_blocks() {
        for seed in 0..300 {
            let mut prng = Prng::seeded(seed);
            let (mut blocks, mut bits) = (Blocks::default(), [false; 64]);
            for _ in 0..20 {
                let start = prng.below(60);
                let end = start + 1 + prng.below(4);
                let touches = bits[start as usize..end as usize].contains(&true);
                assert_eq!(blocks.touches(start, end), touches, "seed {seed}");
                if !touches {
                    blocks.insert(start, end);
                    bits[start as usize..end as usize].fill(true);
                }
            }
            for block in 0..64 {
                let end = (block..=64).find(|&at| at == 64 || !bits[at as usize]);
                let end = end.filter(|&end| end > block);
                assert_eq!(blocks.end_at(block), end, "seed {seed} block {block}");
                assert_eq!(blocks.runs().end_at(block), end, "seed {seed} block {block}");
            }
        }
    }
}
