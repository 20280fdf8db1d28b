//! The nodes of one volume that are there, by block: those of the device, and in front of them those of the journal.

use holdfast_base::TreeId;
use holdfast_check::reading::VolumeReading;
use holdfast_format::codec::Reader;
use holdfast_format::node::{Expected, NodeHeader, OfVolume};
use holdfast_format::{NodePointer, NodeView};

use crate::scan::{ANYTHING, FoundNode, Tag};

/// Sound nodes, upwards by block.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) nodes: Vec<FoundNode>,
}

impl Index {
    /// The nodes of a volume out of those of all.
    pub(crate) fn of_volume(mut nodes: Vec<FoundNode>, volume: u32) -> Index {
        nodes.retain(|node| node.volume == volume);
        nodes.shrink_to_fit();
        Index { nodes }
    }

    /// Puts the nodes that the journal leaves in front of those of the device.
    pub(crate) fn take_journal(&mut self, reading: &VolumeReading<'_>, tag: Tag) {
        let journal = reading.journal_nodes();
        if journal.is_empty() {
            return;
        }
        self.nodes.retain(|node| {
            let end = holdfast_base::BlockNo(node.block + u64::from(node.blocks));
            journal.range(node.pointer().block..end).next().is_none()
        });
        for (block, bytes) in journal {
            let Ok(header) = NodeHeader::read(&mut Reader::new("node", bytes)) else { continue };
            let tree =
                if header.tree == TreeId::Space as u8 { TreeId::Space } else { TreeId::Files };
            let pointer = NodePointer { block: *block, epoch: holdfast_base::Epoch(header.epoch) };
            let volume = OfVolume { tag, carried: ANYTHING };
            let expected = Expected { pointer, tree, level: header.level, volume };
            if let Ok(view) = NodeView::open(bytes, &expected) {
                self.nodes.push(FoundNode::of(&view, pointer, 0));
            }
        }
        self.nodes.sort_by_key(|node| node.block);
    }

    /// Where the node that a pointer leads to stands in the index.
    pub(crate) fn position(&self, pointer: NodePointer) -> Option<usize> {
        let at = self.nodes.binary_search_by_key(&pointer.block.0, |node| node.block).ok()?;
        (self.nodes[at].epoch == pointer.epoch.0).then_some(at)
    }

    /// The node that a pointer leads to.
    pub(crate) fn get(&self, pointer: NodePointer) -> Option<&FoundNode> {
        self.position(pointer).map(|at| &self.nodes[at])
    }

    /// Leaves of a tree with at least one item, by where they stand in the index.
    pub(crate) fn leaves(&self, tree: TreeId) -> impl Iterator<Item = usize> {
        let is_leaf =
            move |node: &FoundNode| node.level == 0 && node.tree == tree as u8 && node.count > 0;
        (0..self.nodes.len()).filter(move |at| is_leaf(&self.nodes[*at]))
    }

    /// The newest epoch of a node of a tree that is not younger than `limit`; 0 if there is none.
    pub(crate) fn newest_of(&self, tree: TreeId, limit: u64) -> u64 {
        let is_of = |node: &&FoundNode| node.tree == tree as u8 && node.epoch <= limit;
        self.nodes.iter().filter(is_of).map(|node| node.epoch).max().unwrap_or(0)
    }

    /// The oldest epoch of a node of a tree, if there is one.
    pub(crate) fn oldest_of(&self, tree: TreeId) -> Option<u64> {
        self.nodes.iter().filter(|node| node.tree == tree as u8).map(|node| node.epoch).min()
    }

    /// The newest epoch of a node; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0)
    }
}
