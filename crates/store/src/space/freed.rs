//! Blocks on their way: freed ones until they may be reused, and data until a flush covers it.
//!
//! Freed data is reusable when the commit that contains its end is durable: from
//! then on no recovery comes back to before it. The home of a node serves
//! longer, as the base of what the journal says of its copy, until the next
//! checkpoint is durable (R2).
//!
//! Knows nothing of bitmaps and groups.

use holdfast_base::BlockRange;
use holdfast_format::journal::commit::{DATA_BLOCKS_MAX, DataExtent};

/// What was freed and may not be given away yet.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Data freed since the last commit began.
    data: Vec<BlockRange>,
    /// Data freed before the commit that is being written.
    frozen: Vec<BlockRange>,
    /// Homes of nodes freed since the last checkpoint began.
    nodes: Vec<BlockRange>,
    /// Homes of nodes freed before the checkpoint that is being written.
    sealed: Vec<BlockRange>,
    blocks: u64,
}

impl Freed {
    pub(super) fn add(&mut self, range: BlockRange, node: bool) {
        if node {
            self.nodes.push(range)
        } else {
            self.data.push(range)
        }
        self.blocks += range.count;
    }

    /// Blocks that wait.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn freeze(&mut self) {
        self.frozen.append(&mut self.data);
    }

    pub(super) fn thaw(&mut self) -> Vec<BlockRange> {
        let ranges = std::mem::take(&mut self.frozen);
        self.give(ranges)
    }

    pub(super) fn seal(&mut self) {
        self.sealed.append(&mut self.nodes);
    }

    pub(super) fn unseal(&mut self) -> Vec<BlockRange> {
        let ranges = std::mem::take(&mut self.sealed);
        self.give(ranges)
    }

    fn give(&mut self, ranges: Vec<BlockRange>) -> Vec<BlockRange> {
        self.blocks -= ranges.iter().map(|range| range.count).sum::<u64>();
        ranges
    }
}

/// Data written since the last commit, for the one flush that makes it durable with the commit.
///
/// A little is named in the commit, so that a recovery sees whether it arrived. More than that is
/// flushed before the commit's frames are written: the flush is then small beside the data.
#[derive(Debug)]
pub(crate) struct Unflushed {
    extents: Vec<DataExtent>,
    blocks: u64,
    blocks_max: u64,
}

impl Unflushed {
    pub(super) fn new(journal_blocks: u64) -> Unflushed {
        Unflushed {
            extents: Vec::new(),
            blocks: 0,
            blocks_max: DATA_BLOCKS_MAX.min(journal_blocks / 8),
        }
    }

    /// Data that a batch published.
    pub(crate) fn add(&mut self, extents: &[DataExtent]) {
        self.blocks += extents.iter().map(|extent| extent.count).sum::<u64>();
        if self.is_large() {
            self.extents.clear();
        } else {
            self.extents.extend_from_slice(extents);
        }
    }

    /// Whether it must be flushed before the commit is written.
    pub(crate) fn is_large(&self) -> bool {
        self.blocks > self.blocks_max
    }

    /// What the commit names; nothing when it is large.
    pub(crate) fn extents(&self) -> &[DataExtent] {
        &self.extents
    }

    /// It belongs to a commit now.
    pub(crate) fn clear(&mut self) {
        self.extents.clear();
        self.blocks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::BlockNo;

    fn range(start: u64) -> BlockRange {
        BlockRange::new(BlockNo(start), 2)
    }

    #[test]
    fn data_waits_for_a_commit_and_nodes_for_a_checkpoint() {
        let mut freed = Freed::default();
        freed.add(range(10), false);
        freed.add(range(20), true);
        freed.freeze();
        freed.add(range(30), false);
        assert_eq!(freed.thaw(), [range(10)]);
        freed.seal();
        freed.add(range(40), true);
        assert_eq!(freed.unseal(), [range(20)]);
        assert_eq!(freed.blocks(), 4);
    }

    #[test]
    fn large_data_is_not_named() {
        let mut unflushed = Unflushed::new(64);
        let extent = |count| DataExtent { block: 100, count, sum: 0 };
        unflushed.add(&[extent(8)]);
        assert!(!unflushed.is_large() && unflushed.extents().len() == 1);
        unflushed.add(&[extent(1)]);
        assert!(unflushed.is_large() && unflushed.extents().is_empty());
        unflushed.clear();
        assert!(!unflushed.is_large());
    }
}
