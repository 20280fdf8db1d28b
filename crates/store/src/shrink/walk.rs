//! What all trees of a volume reach: which blocks are in use, what of data moves together, and how far each node reaches.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};

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

/// How far a node of a files tree reaches, with all that lies below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) level: u8,
    /// Behind the last of its blocks.
    pub(super) end: u64,
    /// The 64ths of the volume in which they lie.
    pub(super) parts: u64,
}

/// What was seen.
pub(super) struct Reached {
    pub(super) geometry: Geometry,
    /// Those of files trees.
    pub(super) nodes: HashMap<u64, Reach>,
    /// Blocks that are in use.
    pub(super) used: Marks,
    /// Those of data.
    pub(super) data: Marks,
    /// Blocks of data that have an extent in common with the next one: they move together.
    pub(super) joined: Marks,
    /// Blocks of data that hold something.
    pub(super) written: Marks,
    /// Blocks of nodes of files trees that are stored twice.
    pub(super) twice: Marks,
    /// Blocks of nodes of the space tree.
    pub(super) of_space: Marks,
    /// How many nodes that has.
    pub(super) space_nodes: u64,
    /// Blocks of nodes of files trees, by group.
    pub(super) node_blocks: BTreeMap<u64, u64>,
    /// The items of the space tree that say nothing of blocks, in their order.
    pub(super) items: Vec<(Key, Vec<u8>)>,
}

impl Reached {
    /// Walks through everything.
    pub(super) fn walk(
        nodes: &Nodes<'_>,
        superblock: &Superblock,
        progress: &mut Progress<'_>,
    ) -> Result<Reached> {
        let seen = Reached {
            geometry: nodes.geometry,
            nodes: HashMap::new(),
            used: Marks::default(),
            data: Marks::default(),
            joined: Marks::default(),
            written: Marks::default(),
            twice: Marks::default(),
            of_space: Marks::default(),
            space_nodes: 0,
            node_blocks: BTreeMap::new(),
            items: Vec::new(),
        };
        let mut walk = Walk { nodes, seen, progress };
        walk.space(superblock.space, superblock.space_level)?;
        walk.files(superblock.files, superblock.files_level)?;
        for (key, value) in walk.seen.items.clone() {
            let root = root_of(&key, &value)?;
            if let Some((pointer, level)) = root {
                walk.files(pointer, level)?;
            }
        }
        Ok(walk.seen)
    }

    /// The 64ths of the volume that have blocks of `range`, one bit each.
    pub(super) fn parts_of(&self, range: BlockRange) -> u64 {
        let part = |block: u64| {
            let part = block.saturating_mul(64).checked_div(self.geometry.volume_blocks);
            part.unwrap_or(0).min(63)
        };
        let (first, last) = (range.start.0, range.start.0.saturating_add(range.count));
        let (first, last) = (part(first), part(last.saturating_sub(1)));
        (u64::MAX << first) & (u64::MAX >> 63_u64.saturating_sub(last))
    }

    /// The run of a block of data: with which blocks it moves. Extents that name but a part of it have to change as well.
    pub(super) fn run_around(&self, block: u64) -> (u64, u64) {
        let last = self.joined.first(block, u64::MAX, false).unwrap_or(block);
        (self.joined.start_of_run(block), last.saturating_add(1))
    }
}

impl Reach {
    fn add(&mut self, below: Reach) {
        self.end = self.end.max(below.end);
        self.parts |= below.parts;
    }
}

/// The root that an item of the space tree names.
pub(super) fn root_of(key: &Key, value: &[u8]) -> Result<Option<(NodePointer, u8)>> {
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
    seen: Reached,
    progress: &'a mut Progress<'p>,
}

impl Walk<'_, '_> {
    /// Enters a node of a files tree, unless it was seen; says how far it reaches.
    fn files(&mut self, pointer: NodePointer, level: u8) -> Result<Reach> {
        if let Some(reach) = self.seen.nodes.get(&pointer.block.0) {
            return Ok(*reach);
        }
        let bytes = self.nodes.read(pointer, TreeId::Files, level)?;
        self.progress.add(bytes.len() as u64);
        let mut reach = Reach { level, end: 0, parts: 0 };
        let stored = self.nodes.geometry.stored(TreeId::Files, level);
        for place in self.nodes.places(pointer.block.0, stored) {
            self.seen.used.set(place, true);
            if stored == Stored::Twice {
                self.seen.twice.set(place, true);
            }
            reach.add(self.reach(place));
        }
        // A copy lies in the same group.
        let of_group = self.seen.node_blocks.entry(pointer.block.0 / GROUP_BLOCKS).or_default();
        *of_group = of_group.saturating_add(self.nodes.geometry.blocks_of(stored));
        let view = NodeView::trusted(&bytes);
        for at in 0..view.count() {
            if let Some(below) = level.checked_sub(1) {
                reach.add(self.files(view.child(at), below)?);
            } else if view.key(at).kind == ItemKind::Extent {
                reach.add(self.extent(&view.key(at), view.value(at))?);
            }
        }
        self.seen.nodes.insert(pointer.block.0, reach);
        Ok(reach)
    }

    fn reach(&self, blocks: BlockRange) -> Reach {
        let end = blocks.start.0.saturating_add(blocks.count);
        Reach { level: 0, end, parts: self.seen.parts_of(blocks) }
    }

    fn extent(&mut self, key: &Key, value: &[u8]) -> Result<Reach> {
        let damage = |source| StoreError::Item { what: format!("{key:?}"), source };
        let extent = Extent::decode(value).map_err(damage)?;
        if !self.nodes.geometry.holds_data(extent.blocks) {
            return Err(damage(Malformed::new("extent", "its blocks lie outside the data zone")));
        }
        let BlockRange { start, count } = extent.blocks;
        self.seen.used.set(extent.blocks, true);
        self.seen.data.set(extent.blocks, true);
        self.seen.joined.set(BlockRange::new(start, count.saturating_sub(1)), true);
        if extent.is_written() {
            self.seen.written.set(extent.blocks, true);
        }
        Ok(self.reach(extent.blocks))
    }

    fn space(&mut self, pointer: NodePointer, level: u8) -> Result<()> {
        let bytes = self.nodes.read(pointer, TreeId::Space, level)?;
        self.progress.add(bytes.len() as u64);
        let stored = self.nodes.geometry.stored(TreeId::Space, level);
        for place in self.nodes.places(pointer.block.0, stored) {
            self.seen.used.set(place, true);
            self.seen.of_space.set(place, true);
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
