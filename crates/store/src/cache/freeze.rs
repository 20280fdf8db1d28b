//! What changed since the last commit, frozen and formatted.
//!
//! [`Cache::freeze`] takes the ranges of all changed nodes once; size and bytes
//! of the records both come from that copy. It changes nothing, so a commit
//! that has no room can be given up. [`Cache::format`] copies the bytes and
//! starts the next time of change.

use holdfast_base::BlockNo;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::journal::{Base, node};

use super::Cache;
use super::dirty::ByteRange;
use super::frame::FrameState;
use crate::space::slots::NodeSlots;

/// The ranges of all nodes of a commit. Kept from one commit to the next, so that the frozen time
/// allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct FrozenNodes {
    nodes: Vec<FrozenNode>,
    ranges: Vec<ByteRange>,
    size: usize,
}

#[derive(Debug)]
struct FrozenNode {
    block: BlockNo,
    base: Base,
    /// Where its ranges begin; they end where those of the next node begin.
    first: usize,
}

impl FrozenNodes {
    /// Nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Ranges of all nodes.
    pub(crate) fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes of those ranges.
    pub(crate) fn range_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// Bytes that [`Cache::format`] will append.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Cache {
    /// Takes the ranges of every node that changed since the last commit.
    pub(crate) fn freeze(&self, frozen: &mut FrozenNodes) {
        frozen.nodes.clear();
        frozen.ranges.clear();
        frozen.size = 0;
        for &block in &self.uncommitted {
            // Removed nodes stay on the list, and what took their place may be on it twice.
            let Some(frame) = self.frames.get(&block).filter(|frame| frame.listed) else {
                continue;
            };
            debug_assert_eq!(frame.state, FrameState::Dirty);
            let first = frozen.ranges.len();
            frame.ranges(&mut frozen.ranges);
            if mutants::is(Mutant::RangeShort)
                && let Some(last) = frozen.ranges[first..].last_mut()
                && last.end - last.start > 1
            {
                last.end -= 1;
            }
            let ranges = &frozen.ranges[first..];
            let len = ranges.iter().map(|range| (range.end - range.start) as usize).sum();
            frozen.size += node::node_size(frame.base, ranges.len(), len);
            frozen.nodes.push(FrozenNode { block, base: frame.base, first });
        }
    }

    /// Appends the records of the frozen nodes to `out`; from now on they count as logged.
    pub(crate) fn format(&mut self, frozen: &FrozenNodes, out: &mut Vec<u8>) {
        let before = out.len();
        let ends = frozen.nodes.iter().skip(1).map(|node| node.first);
        let ends = ends.chain([frozen.ranges.len()]);
        for (frozen_node, end) in frozen.nodes.iter().zip(ends) {
            let frame =
                self.frames.get_mut(&frozen_node.block).expect("it was here under this lock");
            let ranges = &frozen.ranges[frozen_node.first..end];
            let pairs = ranges.iter().map(ByteRange::pair);
            node::encode_node(
                frozen_node.block,
                frozen_node.base,
                pairs,
                frame.node().bytes(),
                out,
            );
            frame.logged(ranges);
        }
        assert_eq!(out.len() - before, frozen.size, "the size comes from the same ranges");
        self.uncommitted.clear();
        self.uncommitted_slots = NodeSlots::none();
        self.uncommitted_bytes = 0;
    }

    /// Whether a commit would log no node.
    pub(crate) fn is_committed(&self) -> bool {
        self.uncommitted.is_empty() && self.cancelled.is_empty()
    }

    /// Nodes that commits know and that are gone, since the last commit.
    pub(crate) fn cancelled(&self) -> &[BlockNo] {
        &self.cancelled
    }

    /// The cancelled nodes are part of a commit.
    pub(crate) fn clear_cancelled(&mut self) {
        self.cancelled.clear();
    }

    /// Slots of the nodes that the next commit will log, and of some that were removed meanwhile.
    pub(crate) fn uncommitted_slots(&self) -> NodeSlots {
        self.uncommitted_slots
    }

    /// Bytes that the next commit will log, about.
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        self.uncommitted_bytes
    }
}
