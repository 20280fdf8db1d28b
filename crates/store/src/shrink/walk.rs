//! What all trees of a volume reach: which blocks are in use, which nodes may have to change, and what has to move.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_device::Device;
use holdfast_format::item::lineage::{RootItem, TreeItem, TreeKind, WalkItem};
use holdfast_format::item::{Extent, WalkPlace};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::node::{Expected, NodeView, OfVolume};
use holdfast_format::{Geometry, ItemKind, Key, Malformed, NodePointer, Stored, Superblock};

use super::Progress;
use crate::marks::Marks;
use crate::verified::first_sound;
use crate::{Result, StoreError};

/// Extents so far before the new end are known as well: they may have blocks in common with one that reaches behind it.
const NEAR: u64 = 4 * GROUP_BLOCKS;

/// Consecutive blocks of data: all that extents with blocks in common have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Otherwise they hold nothing that has to be copied.
    pub(super) is_written: bool,
}

/// Reads nodes where they are.
pub(super) struct Nodes<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) geometry: Geometry,
    pub(super) volume: OfVolume,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(device: &'a dyn Device, superblock: &Superblock) -> Nodes<'a> {
        Nodes { device, geometry: superblock.geometry, volume: superblock.nodes() }
    }

    /// The node there, judged.
    pub(super) fn read(&self, pointer: NodePointer, tree: TreeId, level: u8) -> Result<Vec<u8>> {
        let damage = |source| StoreError::Node { block: pointer.block, tree, source };
        let expected = Expected { pointer, tree, level, volume: self.volume };
        if !expected.can_be(&self.geometry) {
            return Err(damage(Malformed::new("node pointer", "it leads outside the data zone")));
        }
        let read = first_sound(expected.places(&self.geometry), |place| {
            let at = place.start.byte_offset().expect("it lies in the data zone");
            let mut bytes = vec![0; self.geometry.node_size];
            self.device.read(at, &mut bytes)?;
            NodeView::open(&bytes, &expected).map_err(damage)?;
            Ok(bytes)
        });
        Ok(read?.value)
    }

    /// The blocks of a node, and those of its copy.
    pub(super) fn places(
        &self,
        block: u64,
        stored: Stored,
    ) -> impl Iterator<Item = BlockRange> + use<> {
        self.geometry.places_of_node(BlockNo(block), stored)
    }
}

/// What was seen.
pub(super) struct Seen {
    /// Nodes of files trees: whether they, or what lies below, may have to move or change.
    pub(super) nodes: HashMap<u64, bool>,
    /// Blocks that files trees reach, nodes included.
    pub(super) marks: Marks,
    /// Blocks of nodes of the space tree.
    pub(super) space_marks: Marks,
    /// How many nodes that has.
    pub(super) space_nodes: u64,
    /// Blocks of nodes of files trees, by group.
    pub(super) node_blocks: BTreeMap<u64, u64>,
    /// What has to move of data.
    pub(super) runs: Vec<Run>,
    /// The items of the space tree that say nothing of blocks, in their order.
    pub(super) items: Vec<(Key, Vec<u8>)>,
}

impl Seen {
    /// Walks through everything. `end`: behind the last block that may stay.
    pub(super) fn walk(
        nodes: &Nodes<'_>,
        superblock: &Superblock,
        end: BlockNo,
        progress: &mut Progress<'_>,
    ) -> Result<Seen> {
        let seen = Seen {
            nodes: HashMap::new(),
            marks: Marks::default(),
            space_marks: Marks::default(),
            space_nodes: 0,
            node_blocks: BTreeMap::new(),
            runs: Vec::new(),
            items: Vec::new(),
        };
        let mut walk = Walk { nodes, end: end.0, near: Vec::new(), seen, progress };
        walk.space(superblock.space, superblock.space_level)?;
        walk.files(superblock.files, superblock.files_level)?;
        for (key, value) in walk.seen.items.clone() {
            let root = root_of(&key, &value)?;
            if let Some((pointer, level)) = root {
                walk.files(pointer, level)?;
            }
        }
        let Walk { near, mut seen, .. } = walk;
        seen.runs = runs(near, end.0)?;
        Ok(seen)
    }

    /// The most nodes that have to be written.
    pub(super) fn nodes_at_most(&self) -> u64 {
        self.nodes.values().filter(|may| **may).count() as u64
    }
}

/// The root that an item of the space tree names.
fn root_of(key: &Key, value: &[u8]) -> Result<Option<(NodePointer, u8)>> {
    let damage = |source| StoreError::Item { what: format!("{key:?}"), source };
    Ok(match key.kind {
        ItemKind::Root => {
            let item = RootItem::decode(value).map_err(damage)?;
            Some((item.pointer(), item.level))
        }
        ItemKind::Tree => {
            let item = TreeItem::decode(value).map_err(damage)?;
            (item.kind == TreeKind::Snapshot).then_some((item.root, item.level))
        }
        // One that waits for what has grown out of the snapshot has passed nothing.
        ItemKind::Walk if WalkItem::decode(value).map_err(damage)? == WalkPlace::start() => None,
        ItemKind::Walk => {
            let why = "a snapshot cannot be deleted to its end: run fsck";
            return Err(StoreError::Refused(why.into()));
        }
        _ => None,
    })
}

struct Walk<'a, 'p> {
    nodes: &'a Nodes<'a>,
    end: u64,
    /// Extents near the new end or behind it.
    near: Vec<Run>,
    seen: Seen,
    progress: &'a mut Progress<'p>,
}

impl Walk<'_, '_> {
    /// Enters a node of a files tree, unless it was seen; says whether it, or what lies below, may have to change.
    fn files(&mut self, pointer: NodePointer, level: u8) -> Result<bool> {
        if let Some(may) = self.seen.nodes.get(&pointer.block.0) {
            return Ok(*may);
        }
        let bytes = self.nodes.read(pointer, TreeId::Files, level)?;
        self.progress.add(bytes.len() as u64);
        let mut may = false;
        let stored = self.nodes.geometry.stored(TreeId::Files, level);
        for place in self.nodes.places(pointer.block.0, stored) {
            self.seen.marks.set(place, true);
            may |= !place.fits_below(self.end);
        }
        // A copy lies in the same group.
        let of_group = self.seen.node_blocks.entry(pointer.block.0 / GROUP_BLOCKS).or_default();
        *of_group = of_group.saturating_add(self.nodes.geometry.blocks_of(stored));
        let view = NodeView::trusted(&bytes);
        for at in 0..view.count() {
            if let Some(below) = level.checked_sub(1) {
                may |= self.files(view.child(at), below)?;
            } else if view.key(at).kind == ItemKind::Extent {
                may |= self.extent(&view.key(at), view.value(at))?;
            }
        }
        self.seen.nodes.insert(pointer.block.0, may);
        Ok(may)
    }

    fn extent(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        let damage = |source| StoreError::Item { what: format!("{key:?}"), source };
        let extent = Extent::decode(value).map_err(damage)?;
        if !self.nodes.geometry.holds_data(extent.blocks) {
            return Err(damage(Malformed::new("extent", "its blocks lie outside the data zone")));
        }
        self.seen.marks.set(extent.blocks, true);
        let start = extent.blocks.start.0;
        let end = start.saturating_add(extent.blocks.count);
        let is_near = end > self.end.saturating_sub(NEAR);
        if is_near {
            self.near.push(Run { start, end, is_written: extent.is_written() });
        }
        Ok(is_near)
    }

    fn space(&mut self, pointer: NodePointer, level: u8) -> Result<()> {
        let bytes = self.nodes.read(pointer, TreeId::Space, level)?;
        self.progress.add(bytes.len() as u64);
        let stored = self.nodes.geometry.stored(TreeId::Space, level);
        for place in self.nodes.places(pointer.block.0, stored) {
            self.seen.space_marks.set(place, true);
        }
        self.seen.space_nodes = self.seen.space_nodes.saturating_add(1);
        let view = NodeView::trusted(&bytes);
        for at in 0..view.count() {
            if let Some(below) = level.checked_sub(1) {
                self.space(view.child(at), below)?;
                continue;
            }
            let key = view.key(at);
            if key.kind != ItemKind::Group && key.kind != ItemKind::Bitmap {
                self.seen.items.push((key, view.value(at).to_vec()));
            }
        }
        Ok(())
    }
}

/// What has to move, by extents that have blocks in common: each run as a whole.
fn runs(mut near: Vec<Run>, end: u64) -> Result<Vec<Run>> {
    near.sort_unstable_by_key(|run| (run.start, run.end));
    let mut runs: Vec<Run> = Vec::new();
    for of in near {
        match runs.last_mut() {
            Some(last) if of.start < last.end => {
                last.end = last.end.max(of.end);
                last.is_written |= of.is_written;
            }
            _ => runs.push(of),
        }
    }
    runs.retain(|run| run.end > end);
    // Beyond that there may be more with blocks in common.
    match runs.iter().any(|run| run.start < end.saturating_sub(NEAR)) {
        true => {
            let at = end.saturating_mul(BLOCK_BYTES);
            Err(StoreError::Refused(format!(
                "extents that share blocks go on for too long before byte {at}: choose another size"
            )))
        }
        false => Ok(runs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64) -> Run {
        Run { start, end, is_written: true }
    }

    #[test]
    fn what_has_blocks_in_common_moves_together() {
        let near = vec![run(110, 120), run(80, 95), run(90, 101), run(70, 80), run(101, 105)];
        let unwritten = Run { is_written: false, ..run(118, 140) };
        let found = runs([near, vec![unwritten]].concat(), 100).unwrap();
        assert_eq!(found, [run(80, 101), run(101, 105), run(110, 140)]);
        assert!(runs(vec![run(1, NEAR * 2)], NEAR + 10).is_err());
    }
}
