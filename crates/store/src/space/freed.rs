//! Blocks on their way: freed ones until they may be reused, and data until a flush covers it.
//!
//! Freed data is reusable when the commit that contains its end is durable: from
//! then on no recovery comes back to before it. The location of a node serves
//! longer, as the base of what the journal says of its copy, until the next
//! checkpoint is durable (R2).
//!
//! Knows nothing of bitmaps and groups.

use std::collections::BTreeMap;

use holdfast_base::BlockRange;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::journal::commit::{DATA_BLOCKS_MAX, DataExtent};

/// What was freed and may not be given away yet.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Data freed since the last commit began.
    data: Vec<BlockRange>,
    /// Data freed before the commit that is being written.
    frozen: Vec<BlockRange>,
    /// NodeAllocator of nodes freed since the last checkpoint began.
    nodes: Vec<BlockRange>,
    /// NodeAllocator of nodes freed before the checkpoint that is being written.
    sealed: Vec<BlockRange>,
    blocks: u64,
}

impl Freed {
    pub(super) fn add(&mut self, range: BlockRange, node: bool) {
        if node && !mutants::is(Mutant::NodeReusedEarly) {
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

    /// All of it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &BlockRange> {
        [&self.data, &self.frozen, &self.nodes, &self.sealed].into_iter().flatten()
    }

    /// The data freed so far waits for the commit that begins now.
    pub(crate) fn freeze(&mut self) {
        self.frozen.append(&mut self.data);
    }

    /// That commit is durable: what to give away now.
    pub(crate) fn thaw(&mut self) -> Vec<BlockRange> {
        std::mem::take(&mut self.frozen)
    }

    /// The locations of nodes freed so far wait for the checkpoint that begins now.
    pub(crate) fn seal(&mut self) {
        self.sealed.append(&mut self.nodes);
    }

    /// That checkpoint is durable: what to give away now.
    pub(crate) fn unseal(&mut self) -> Vec<BlockRange> {
        std::mem::take(&mut self.sealed)
    }

    /// So many blocks of what [`Freed::thaw`] or [`Freed::unseal`] returned do not wait any more.
    pub(super) fn gave(&mut self, blocks: u64) {
        self.blocks -= blocks;
    }
}

/// Data written since the last commit, for the one flush that makes it durable with the commit.
///
/// A little is named in the commit, so that a recovery sees whether it arrived. More than that is
/// flushed before the commit's frames are written: the flush is then small beside the data.
///
/// Data that is freed before the commit is not named: its blocks may be reused as soon as the
/// commit is durable, and what they hold then must not speak against it.
#[derive(Debug)]
pub(crate) struct Unflushed {
    /// By their first block.
    extents: BTreeMap<u64, DataExtent>,
    blocks: u64,
    blocks_max: u64,
    flush_first: bool,
}

impl Unflushed {
    /// The journal has so many blocks from now on.
    pub(crate) fn journal_is(&mut self, blocks: u64) {
        self.blocks_max = DATA_BLOCKS_MAX.min(blocks / 8);
    }

    pub(super) fn new(journal_blocks: u64) -> Unflushed {
        Unflushed {
            extents: BTreeMap::new(),
            blocks: 0,
            blocks_max: DATA_BLOCKS_MAX.min(journal_blocks / 8),
            flush_first: false,
        }
    }

    /// Data that a transaction published.
    pub(crate) fn add(&mut self, extents: impl IntoIterator<Item = DataExtent>) {
        for extent in extents {
            self.blocks += extent.count;
            self.extents.insert(extent.block, extent);
        }
        if self.blocks > self.blocks_max {
            self.flush_first();
        }
    }

    /// Data that a transaction freed, or made unwritten.
    pub(crate) fn forget(&mut self, range: BlockRange) {
        let end = range.start.0 + range.count;
        while let Some((&start, extent)) = self.extents.range(..end).next_back() {
            let extent_end = start + extent.count;
            if extent_end <= range.start.0 {
                return;
            }
            if start < range.start.0 || extent_end > end {
                // What is left of it has no sum of its own.
                return self.flush_first();
            }
            self.blocks -= extent.count;
            self.extents.remove(&start);
        }
    }

    /// The log's flush made this data durable: no commit needs to name it.
    pub(crate) fn flushed(&mut self, extents: &[DataExtent]) {
        for extent in extents {
            if self.extents.get(&extent.block) == Some(extent) {
                self.extents.remove(&extent.block);
                self.blocks -= extent.count;
            }
        }
    }

    fn flush_first(&mut self) {
        self.flush_first = true;
        self.extents.clear();
        self.blocks = 0;
    }

    /// Whether it must be flushed before the commit is written.
    pub(crate) fn is_flushed_first(&self) -> bool {
        self.flush_first
    }

    /// What the commit names; nothing when all of it is flushed first.
    pub(crate) fn extents(&self) -> impl ExactSizeIterator<Item = &DataExtent> {
        self.extents.values()
    }

    /// It belongs to a commit now.
    pub(crate) fn clear(&mut self) {
        self.extents.clear();
        self.blocks = 0;
        self.flush_first = false;
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
        freed.gave(4);
        assert_eq!(freed.blocks(), 4);
    }

    #[test]
    fn large_data_is_not_named() {
        let mut unflushed = Unflushed::new(64);
        let extent = |block, count| DataExtent { block, count, sum: 0 };
        unflushed.add([extent(100, 8)]);
        assert!(!unflushed.is_flushed_first() && unflushed.extents().len() == 1);
        unflushed.add([extent(200, 1)]);
        assert!(unflushed.is_flushed_first() && unflushed.extents().len() == 0);
        unflushed.clear();
        assert!(!unflushed.is_flushed_first());
    }

    #[test]
    fn data_that_is_freed_is_not_named() {
        let mut unflushed = Unflushed::new(80);
        let extent = |block, count| DataExtent { block, count, sum: 0 };
        unflushed.add([extent(10, 2), extent(12, 2), extent(20, 4)]);
        unflushed.forget(BlockRange::new(BlockNo(14), 6));
        assert_eq!(unflushed.extents().len(), 3);
        unflushed.forget(BlockRange::new(BlockNo(10), 4));
        assert_eq!(unflushed.extents().copied().collect::<Vec<_>>(), [extent(20, 4)]);
        unflushed.add([extent(30, 6)]);
        assert!(!unflushed.is_flushed_first(), "what was freed does not count");
        unflushed.forget(BlockRange::new(BlockNo(22), 9));
        assert!(unflushed.is_flushed_first() && unflushed.extents().len() == 0);
    }
}
