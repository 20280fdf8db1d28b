//! The frames of all nodes in memory, found by their blocks, and in the order of these.

use std::collections::BTreeSet;

use holdfast_base::{BlockNo, BlockRange};
use rustc_hash::FxHashMap;

use super::frame::Frame;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Frames<F = Frame> {
    by_block: FxHashMap<BlockNo, F>,
    in_order: BTreeSet<BlockNo>,
}

impl<F> Default for Frames<F> {
    fn default() -> Frames<F> {
        Frames { by_block: FxHashMap::default(), in_order: BTreeSet::new() }
    }
}

impl<F> Frames<F> {
    pub(super) fn len(&self) -> usize {
        self.by_block.len()
    }

    #[inline]
    pub(super) fn get(&self, block: &BlockNo) -> Option<&F> {
        self.by_block.get(block)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, block: &BlockNo) -> Option<&mut F> {
        self.by_block.get_mut(block)
    }

    pub(super) fn insert(&mut self, block: BlockNo, frame: F) -> Option<F> {
        self.in_order.insert(block);
        self.by_block.insert(block, frame)
    }

    pub(super) fn remove(&mut self, block: &BlockNo) -> Option<F> {
        self.in_order.remove(block);
        self.by_block.remove(block)
    }

    /// In no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&BlockNo, &F)> {
        self.by_block.iter()
    }

    /// Those that begin in a range, and no others are looked at.
    pub(super) fn within(&self, range: BlockRange) -> impl Iterator<Item = (BlockNo, &F)> {
        let end = BlockNo(range.start.0.saturating_add(range.count));
        let blocks = self.in_order.range(range.start..end);
        blocks.filter_map(|block| Some((*block, self.by_block.get(block)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_what_is_in_memory_of_it_and_nothing_else_is_looked_at() {
        let mut frames = Frames::default();
        (0..1000).for_each(|no| assert_eq!(frames.insert(BlockNo(no * 10), no), None));
        assert_eq!(frames.insert(BlockNo(500), 7), Some(50));
        assert_eq!(frames.remove(&BlockNo(510)), Some(51));
        assert_eq!(frames.remove(&BlockNo(510)), None);
        let within = |start: u64, count: u64| {
            let range = BlockRange::new(BlockNo(start), count);
            frames.within(range).map(|(block, no)| (block.0, *no)).collect::<Vec<_>>()
        };
        assert_eq!(within(495, 26), [(500, 7), (520, 52)]);
        assert_eq!(within(500, 20), [(500, 7)]);
        assert_eq!(within(9990, u64::MAX), [(9990, 999)]);
        assert_eq!(within(9991, 99), []);
        assert_eq!(frames.len(), frames.in_order.len());
    }
}
