//! Nodes that move, and those that lead to what has moved: each is written once, whichever trees share it.

use std::collections::HashMap;

use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_format::item::lineage::{RootItem, TreeItem, TreeKind};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::node::{self, ADDRESS_AT, NodeView};
use holdfast_format::{ItemKind, Key, NodePointer, Stored};

use super::away::Away;
use super::moves::Moves;
use super::plan::{Places, Plan};
use super::walk::{Nodes, Reached};
use crate::marks::Marks;
use crate::{Result, StoreError};

/// What is written, and what will be in use.
pub(super) struct Rewrite<'a> {
    pub(super) nodes: &'a Nodes<'a>,
    pub(super) seen: Reached,
    away: Away,
    moves: Moves,
    places: Places,
    /// Where nodes are from now on.
    moved: HashMap<u64, u64>,
    /// Blocks in use, those of the space tree not included.
    pub(super) after: Marks,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(nodes: &'a Nodes<'a>, seen: Reached, plan: Plan) -> Rewrite<'a> {
        let Plan { away, moves, places, .. } = plan;
        let mut after = seen.used.clone();
        let mut set = |(from, to): (u64, u64), value| {
            after.set(BlockRange::new(BlockNo(from), to - from), value);
        };
        let end = nodes.geometry.far_copy().0;
        seen.of_space.runs(0, end, true).for_each(|run| set(run, false));
        for (from, count, to) in moves.all() {
            set((from, from + count), false);
            set((to, to + count), true);
        }
        Rewrite { nodes, seen, away, moves, places, moved: HashMap::new(), after }
    }

    /// A place for a node. That there are enough was seen before anything was written.
    pub(super) fn place(&mut self, stored: Stored) -> Result<BlockNo> {
        self.places.node(stored).ok_or(StoreError::NoSpace)
    }

    /// Blocks of nodes of files trees in a group.
    pub(super) fn node_blocks(&self, group: u64) -> u64 {
        self.seen.node_blocks.get(&group).copied().unwrap_or(0)
    }

    /// Where a node of a files tree is from now on: written there with all below that had to be.
    pub(super) fn node(&mut self, pointer: NodePointer, level: u8) -> Result<NodePointer> {
        let block = pointer.block.0;
        if !self.seen.may_change(block, &self.away) {
            return Ok(pointer);
        }
        if let Some(to) = self.moved.get(&block) {
            return Ok(NodePointer { block: BlockNo(*to), ..pointer });
        }
        let mut bytes = self.nodes.read(pointer, TreeId::Files, level)?;
        let stored = self.nodes.geometry.stored(TreeId::Files, level);
        let mut changed = self.nodes.places(block, stored).any(|place| self.away.touches(place));
        for at in 0..NodeView::trusted(&bytes).count() {
            let view = NodeView::trusted(&bytes);
            let (offset, _) = view.record(at);
            let to = match level.checked_sub(1) {
                Some(below) => {
                    let child = view.child(at);
                    let to = self.node(child, below)?;
                    (to != child).then_some(to.block.0)
                }
                None if view.key(at).kind == ItemKind::Extent => {
                    let first =
                        view.value(at).first_chunk().map(|first| u64::from_le_bytes(*first));
                    first.and_then(|first| self.moves.of(first))
                }
                None => None,
            };
            if let Some(to) = to {
                // Pointers and extents begin with their block.
                let value = offset + Key::SIZE;
                bytes[value..value + 8].copy_from_slice(&to.to_le_bytes());
                changed = true;
            }
        }
        if !changed {
            self.moved.insert(block, block);
            return Ok(pointer);
        }
        let to = self.place(stored)?;
        bytes[ADDRESS_AT..ADDRESS_AT + 8].copy_from_slice(&to.0.to_le_bytes());
        self.write((to, stored), &mut bytes)?;
        self.mark_node((block, stored), false);
        self.mark_node((to.0, stored), true);
        let count = self.nodes.geometry.blocks_of(stored);
        if let Some(of_group) = self.seen.node_blocks.get_mut(&(block / GROUP_BLOCKS)) {
            *of_group -= count;
        }
        *self.seen.node_blocks.entry(to.0 / GROUP_BLOCKS).or_default() += count;
        self.moved.insert(block, to.0);
        Ok(NodePointer { block: to, ..pointer })
    }

    /// Marks the blocks of a node with those of its copy as in use, or not.
    pub(super) fn mark_node(&mut self, (block, stored): (u64, Stored), value: bool) {
        self.nodes.places(block, stored).for_each(|place| self.after.set(place, value));
    }

    /// Writes a finished node, and its copy.
    pub(super) fn write(&self, (to, stored): (BlockNo, Stored), bytes: &mut [u8]) -> Result<()> {
        node::seal(bytes);
        for place in self.nodes.places(to.0, stored) {
            let at = place.start.byte_offset().expect("it lies inside the volume");
            self.nodes.device.write(at, bytes)?;
        }
        Ok(())
    }

    /// The items of the space tree that say nothing of blocks in use, with the roots where they are from now on.
    pub(super) fn lineage(&mut self) -> Result<Vec<(Key, Vec<u8>)>> {
        let mut items = std::mem::take(&mut self.seen.items);
        for (key, value) in &mut items {
            let damage = |source| StoreError::Item { what: format!("{key:?}"), source };
            match key.kind {
                ItemKind::Root => {
                    let item = RootItem::decode(value).map_err(damage)?;
                    let to = self.node(item.pointer(), item.level)?;
                    let of = RootItem::of(to, item.level, item.inode_count, item.referenced_blocks);
                    *value = of.bytes().to_vec();
                }
                ItemKind::Tree => {
                    let item = TreeItem::decode(value).map_err(damage)?;
                    if item.kind == TreeKind::Snapshot {
                        let root = self.node(item.root, item.level)?;
                        *value = TreeItem { root, ..item }.encode();
                    }
                }
                _ => {}
            }
        }
        Ok(items)
    }
}
