//! Which leaf counts where the node that should lead to it is gone: of all that were found with keys there, and that are not
//! younger than the lost node, the newest.
//!
//! A sweep through the keys: each leaf begins and ends to count once, so the time grows with the number of leaves and lost
//! ranges, however they overlap.

use std::collections::BTreeSet;

use crate::point::{Point, ends_behind, nearer};
use crate::scan::FoundNode;

/// Keys to which no sound node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRange {
    pub(crate) low: Point,
    /// Excluded; `None`: up to the last key.
    pub(crate) end: Option<Point>,
    /// No node below the lost one is younger.
    pub(crate) epoch: u64,
}

/// Keys for which a leaf counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) low: Point,
    pub(crate) end: Option<Point>,
    /// Where the leaf stands among the nodes.
    pub(crate) leaf: usize,
}

/// The parts of `ranges`, which ascend and are disjoint, that `leaves` have, each of these a place in `nodes`.
pub(crate) fn fill(ranges: &[LostRange], nodes: &[FoundNode], mut leaves: Vec<usize>) -> Vec<Part> {
    leaves.sort_unstable_by_key(|at| nodes[*at].first);
    let mut sweep = Sweep { nodes, leaves: &leaves, next: 0, active: BTreeSet::new() };
    let mut parts = Vec::new();
    for range in ranges {
        sweep.fill(range, &mut parts);
    }
    parts
}

struct Sweep<'a> {
    nodes: &'a [FoundNode],
    /// By their first keys.
    leaves: &'a [usize],
    /// The first that has not begun.
    next: usize,
    /// Those that have begun and may not have ended, by epoch.
    active: BTreeSet<(u64, usize)>,
}

impl Sweep<'_> {
    fn fill(&mut self, range: &LostRange, parts: &mut Vec<Part>) {
        let mut at = range.low;
        loop {
            while let Some(&leaf) = self.leaves.get(self.next)
                && self.nodes[leaf].first <= at
            {
                self.active.insert((self.nodes[leaf].epoch, leaf));
                self.next += 1;
            }
            let Some(leaf) = self.newest(at, range.epoch) else {
                // Nothing is there up to where the next leaf begins.
                match self.leaves.get(self.next).map(|leaf| self.nodes[*leaf].first) {
                    Some(first) if ends_behind(range.end, first) => at = first,
                    _ => return,
                }
                continue;
            };
            let end = nearer(self.nodes[leaf].last.after(), range.end);
            let end = nearer(end, self.newer_from(leaf, end, range.epoch));
            push(parts, Part { low: at, end, leaf });
            match end {
                Some(end) if ends_behind(range.end, end) => at = end,
                _ => return,
            }
        }
    }

    /// The newest leaf that has keys at `at`. Those that end before are forgotten on the way.
    fn newest(&mut self, at: Point, epoch: u64) -> Option<usize> {
        loop {
            let &(of, leaf) = self.active.range(..=(epoch, usize::MAX)).next_back()?;
            if self.nodes[leaf].last >= at {
                return Some(leaf);
            }
            self.active.remove(&(of, leaf));
        }
    }

    /// Where a newer leaf than `leaf` begins before `end`. Those that begin before that are active then.
    fn newer_from(&mut self, leaf: usize, end: Option<Point>, epoch: u64) -> Option<Point> {
        let own = (self.nodes[leaf].epoch, leaf);
        while let Some(&next) = self.leaves.get(self.next) {
            let node = &self.nodes[next];
            if !ends_behind(end, node.first) {
                return None;
            }
            if node.epoch <= epoch && (node.epoch, next) > own {
                return Some(node.first);
            }
            self.active.insert((node.epoch, next));
            self.next += 1;
        }
        None
    }
}

/// Adds a part, or makes the last one longer.
fn push(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last) if last.leaf == part.leaf && last.end == Some(part.low) => last.end = part.end,
        _ => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::prng::Prng;

    use super::*;

    fn point(offset: u64) -> Point {
        Point { offset, ..Point::MIN }
    }

    fn leaf(prng: &mut Prng) -> FoundNode {
        let first = prng.below(60);
        let most = if prng.one_in(5) { 40 } else { 6 };
        let last = first + prng.below(most);
        FoundNode {
            block: 0,
            epoch: prng.below(12),
            first: point(first),
            last: point(last),
            changed: 0,
            volume: 0,
            count: 1,
            level: 0,
            tree: 1,
            blocks: 1,
        }
    }

    /// Each key alone: of the leaves around it the newest that is not too young.
    #[test]
    fn a_sweep_agrees_with_a_search_for_each_key() {
        for seed in 0..2000 {
            let mut prng = Prng::seeded(seed);
            let nodes: Vec<FoundNode> = (0..prng.below(15)).map(|_| leaf(&mut prng)).collect();
            let (mut ranges, mut at) = (Vec::new(), prng.below(20));
            while at < 70 && !prng.one_in(6) {
                let end = at + 1 + prng.below(20);
                let is_last = prng.one_in(8);
                ranges.push(LostRange {
                    low: point(at),
                    end: (!is_last).then_some(point(end)),
                    epoch: prng.below(14),
                });
                if is_last {
                    break;
                }
                at = end + prng.below(8);
            }
            let parts = fill(&ranges, &nodes, (0..nodes.len()).collect());
            for key in 0..120 {
                let key = point(key);
                let is_in = |low: Point, end| low <= key && ends_behind(end, key);
                let range = ranges.iter().find(|range| is_in(range.low, range.end));
                let expected = range.and_then(|range| {
                    let fits = |at: &usize| {
                        let node: &FoundNode = &nodes[*at];
                        node.first <= key && key <= node.last && node.epoch <= range.epoch
                    };
                    (0..nodes.len()).filter(fits).max_by_key(|at| (nodes[*at].epoch, *at))
                });
                let found: Vec<usize> = parts
                    .iter()
                    .filter(|part| is_in(part.low, part.end))
                    .map(|part| part.leaf)
                    .collect();
                assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "seed {seed}, {key:?}");
            }
            assert!(parts.windows(2).all(|two| two[0].end.is_some_and(|end| end <= two[1].low)));
        }
    }
}
