//! One pass over all blocks that no tree reaches, for nodes of files.

use std::cell::Cell;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_check::sweep::{Claim, sweep};
use holdfast_device::Device;
use holdfast_format::item::Extent;
use holdfast_format::limits::EXTENT_BLOCKS_MAX;
use holdfast_format::{ItemKind, Key, NodePointer, NodeView, Stored};

/// Whose own a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is not in use, or no tree can have it.
    Nobody,
    /// The tree at this place.
    One(usize),
    /// It is not known which of several.
    Several,
}

/// A sound node of the volume with at least one key, to which no tree leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) pointer: NodePointer,
    pub(super) level: u8,
    pub(super) first: Key,
    pub(super) last: Key,
    /// Of a leaf: blocks that its extents have on the device.
    pub(super) extent_blocks: u64,
    /// The bitmaps call its blocks in use.
    is_marked: bool,
    pub(super) owner: Owner,
}

impl Node {
    /// Where it is read again.
    pub(super) fn place(&self) -> NodePlace {
        NodePlace::root(self.pointer, self.level)
    }
}

/// All that were found: about 100 bytes for each.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// By their first keys.
    all: Vec<Node>,
    /// The greatest last key of all up to each.
    ends: Vec<Key>,
    /// Nodes that may still be looked at, and read: a device full of forged ones takes minutes, not days.
    looks: Cell<u64>,
    reads: Cell<u64>,
}

/// Nodes that are looked at in all questions together: some seconds.
const LOOKS_MAX: u64 = 1 << 31;
/// Nodes that are read for them: as many as 64 GiB of metadata have, of 64 KiB.
const READS_MAX: u64 = 1 << 20;

impl Nodes {
    pub(super) fn scan(
        reading: &VolumeReading<'_>,
        device: &dyn Device,
        reached: &Runs,
        marked: &Runs,
    ) -> Nodes {
        let superblock = reading.superblock();
        let (geometry, size) = (&superblock.geometry, superblock.geometry.node_size);
        let carried = superblock.carried();
        // Those that are sound in their second place alone come behind the others.
        let (mut all, mut second): (Vec<Node>, Vec<Node>) = (Vec::new(), Vec::new());
        let mut data = Data::default();
        let mut look = |is_journal: bool, block: u64, bytes: &[u8]| {
            let Some(claim) = Claim::read(block, bytes) else { return };
            // What the journal has there counts.
            if reading.journal_nodes().contains_key(&claim.pointer.block) != is_journal {
                return;
            }
            let Claim { pointer, level, distance, .. } = claim;
            let is_ours = claim.tag == superblock.node_tag && claim.tree == TreeId::Files;
            let stored = geometry.stored(TreeId::Files, level);
            let is_copy = stored == Stored::Twice && distance == geometry.copy_mask;
            let is_place = distance == 0 || is_copy;
            let can_be = is_ours && is_place && pointer.epoch <= superblock.epoch;
            if !can_be || !geometry.holds_node(pointer.block, stored) {
                return;
            }
            // The sweep goes upwards, and a copy lies behind its node.
            let is_known = || {
                let at = all.binary_search_by_key(&pointer.block, |node| node.pointer.block);
                at.is_ok_and(|at| all[at].pointer == pointer)
            };
            if distance != 0 && is_known() {
                return;
            }
            let Some(view) = claim.prove(block, bytes, size, carried) else { return };
            let Some(last) = view.count().checked_sub(1) else { return };
            let (start, end) = (pointer.block.0, pointer.block.0 + geometry.node_blocks());
            let is_marked = marked.covers(start, end) && !reached.touches(start, end);
            let (first, last) = (view.key(0), view.key(last));
            let list = if distance == 0 { &mut all } else { &mut second };
            if is_marked && level == 0 {
                data.add(&view);
            }
            let (owner, extent_blocks) = (Owner::Nobody, holdfast_check::extent_blocks(&view));
            list.push(Node { pointer, level, first, last, extent_blocks, is_marked, owner });
        };
        let mut buffer = Vec::new();
        let zone = Runs::from_iter([(geometry.first_data_block().0, geometry.far_copy().0)]);
        for (start, end) in zone.changed(&Runs::default(), reached).iter() {
            let mut read = |at, part: &mut [u8]| fill(device, at, part);
            let mut look = |block: u64, bytes: &[u8]| look(false, block, bytes);
            sweep(device, start..end, &mut buffer, &mut read, &mut look);
        }
        for (block, bytes) in reading.journal_nodes() {
            let (start, end) = (block.0, block.0.saturating_add(geometry.node_blocks()));
            if !reached.touches(start, end) {
                look(true, block.0, bytes);
            }
        }
        all.append(&mut second);
        data.runs.sort_unstable();
        for node in all.iter_mut().filter(|node| node.is_marked) {
            node.is_marked = !data.is_over(node);
        }
        all.sort_unstable_by_key(|node| node.first);
        let mut ends: Vec<Key> = Vec::with_capacity(all.len());
        for node in &all {
            ends.push(ends.last().map_or(node.last, |end| node.last.max(*end)));
        }
        Nodes { all, ends, looks: Cell::new(LOOKS_MAX), reads: Cell::new(READS_MAX) }
    }

    /// Those that are in use, to say of each whose own it is.
    pub(super) fn in_use(&mut self) -> impl Iterator<Item = &mut Node> {
        self.all.iter_mut().filter(|node| node.is_marked)
    }

    pub(super) fn all(&self) -> &[Node] {
        &self.all
    }

    /// Whether one more may be read.
    pub(super) fn may_read(&self) -> bool {
        spend(&self.reads)
    }

    /// Those that have keys around `first` up to `last`.
    pub(super) fn among(&self, first: Key, last: Key) -> impl Iterator<Item = &Node> {
        let behind = self.all.partition_point(|node| node.first <= last);
        let before = { (0..behind).rev() }
            .take_while(move |at| self.ends[*at] >= first && spend(&self.looks));
        before.map(|at| &self.all[at]).filter(move |node| node.last >= first)
    }
}

/// The data of leaves that are in use: start, end, birth. Where it was reserved and nothing is written yet an old node may still stand.
#[derive(Default)]
struct Data {
    runs: Vec<(u64, u64, u64)>,
}

impl Data {
    fn add(&mut self, leaf: &NodeView<'_>) {
        for (_, value) in leaf.items_of(ItemKind::Extent) {
            let Ok(extent) = Extent::decode(value) else { continue };
            if !extent.is_written() && extent.blocks.count <= EXTENT_BLOCKS_MAX {
                let (start, end) = extent.blocks.ends();
                self.runs.push((start, end, extent.birth.0));
            }
        }
    }

    /// Whether blocks of a node were given to data since it was written.
    fn is_over(&self, node: &Node) -> bool {
        let block = node.pointer.block.0;
        let first =
            self.runs.partition_point(|run| run.0.saturating_add(EXTENT_BLOCKS_MAX) <= block);
        let mut near = self.runs[first..].iter().take_while(|run| run.0 <= block);
        near.any(|(_, end, birth)| *end > block && *birth > node.pointer.epoch.0)
    }
}

fn spend(left: &Cell<u64>) -> bool {
    let is_left = left.get() > 0;
    left.set(left.get().saturating_sub(1));
    is_left
}

/// Reads a range; what does not read is zeros. That such a block is free, or was a node that is lost, loses nothing that was not lost.
fn fill(device: &dyn Device, at: u64, part: &mut [u8]) {
    if device.read(at, part).is_ok() {
        return;
    }
    for (at, block) in (at..).step_by(BLOCK_BYTES as usize).zip(part.chunks_mut(BLOCK_SIZE)) {
        if device.read(at, block).is_err() {
            block.fill(0);
        }
    }
}
