//! The space tree, made anew from what the trees of all branches and snapshots reach.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_base::{BlockNo, BlockRange, Epoch, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_device::Device;
use holdfast_format::item::group::bitmap_key;
use holdfast_format::item::{Extent, GroupItem};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::node::Expected;
use holdfast_format::{Geometry, ItemKind, Key, NodePointer, NodeView};

use crate::blocks::Space;
use crate::error::RepairError;
use crate::overlay::Overlay;
use crate::pack::{self, Item};

/// What the trees reach.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Blocks that each node and what is below it refer to.
    referenced: HashMap<u64, u64>,
    nodes: Vec<(u64, u64)>,
    data: Vec<(u64, u64)>,
}

impl Reach {
    /// Whether a node begins at this block.
    pub(crate) fn has_node(&self, block: u64) -> bool {
        self.referenced.contains_key(&block)
    }

    /// Walks through a tree as it will be. Returns the blocks that it refers to.
    pub(crate) fn tree(
        &mut self,
        reading: &VolumeReading<'_>,
        overlay: &Overlay<'_>,
        place: &NodePlace,
    ) -> Result<u64, RepairError> {
        let block = place.pointer.block;
        if let Some(known) = self.referenced.get(&block.0) {
            return Ok(*known);
        }
        let geometry = &reading.superblock().geometry;
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        let unsound = |why: String| RepairError::Refused(format!("node {block}: {why}"));
        let node = if overlay.holds(block) {
            bytes.resize(geometry.node_size, 0);
            overlay.read(block.byte_offset().unwrap_or(u64::MAX), &mut bytes)?;
            let NodePlace { pointer, level, .. } = *place;
            let volume = reading.superblock().nodes();
            let expected = Expected { pointer, tree: TreeId::Files, level, volume };
            NodeView::open(&bytes, &expected).map_err(|malformed| unsound(malformed.why))?
        } else {
            let node = reading.node(TreeId::Files, place, None, &mut buffer);
            node.map_err(|lost| unsound(lost.why))?
        };
        let stored = geometry.stored(TreeId::Files, place.level);
        let places = geometry.places_of_node(block, stored);
        self.nodes.extend(places.map(BlockRange::ends));
        let mut referenced = geometry.blocks_of(stored);
        if place.level == 0 {
            referenced = referenced.saturating_add(holdfast_check::extent_blocks(&node));
            for (_, value) in node.items_of(ItemKind::Extent) {
                let Ok(extent) = Extent::decode(value) else { continue };
                if geometry.holds_data(extent.blocks) {
                    self.data.push(extent.blocks.ends());
                }
            }
        } else {
            let below = place.children(&node);
            for child in below {
                referenced = referenced.saturating_add(self.tree(reading, overlay, &child)?);
            }
        }
        self.referenced.insert(block.0, referenced);
        Ok(referenced)
    }
}

/// A space tree that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceTree {
    pub(crate) root: NodePointer,
    pub(crate) level: u8,
    pub(crate) used_blocks: u64,
}

/// Writes a space tree that marks what `reach` has met, and its own nodes. `items` are all others that it holds.
pub(crate) fn write(
    reading: &VolumeReading<'_>,
    overlay: &Overlay<'_>,
    space: &mut Space,
    epoch: Epoch,
    reach: &Reach,
    items: &BTreeMap<Key, Vec<u8>>,
) -> Result<SpaceTree, RepairError> {
    let geometry = &reading.superblock().geometry;
    let size = geometry.node_size;
    let reached: Runs = reach.nodes.iter().chain(&reach.data).copied().collect();
    let mut nodes: Vec<_> = reach.nodes.iter().copied().collect::<Runs>().iter().collect();
    let of_files = nodes.len();
    // Its own nodes need marks, which need nodes. Pieces that are there once stay, so this comes to an end.
    let mut own: Vec<BlockNo> = Vec::new();
    let stored = geometry.stored(TreeId::Space, 0);
    let mut pieces: BTreeSet<(u64, u64)> = BTreeSet::new();
    loop {
        nodes.truncate(of_files);
        let places = own.iter().flat_map(|block| geometry.places_of_node(*block, stored));
        nodes.extend(places.map(BlockRange::ends));
        let all: Runs = reached.iter().chain(nodes.iter().copied()).collect();
        let of_nodes = nodes.iter().copied().collect();
        let mut accounts = accounts(geometry, &all, &of_nodes, &mut pieces);
        accounts.extend(items.iter().map(|(key, value)| (*key, value.clone())));
        let accounts: Vec<Item> = accounts.into_iter().collect();
        let shape = shape(&accounts, size);
        let needed: usize = shape.iter().sum();
        if needed > own.len() {
            for _ in own.len()..needed {
                let place = space.take_node(geometry, stored);
                own.push(place.ok_or(RepairError::NoSpace(geometry.blocks_of(stored)))?);
            }
            continue;
        }
        // One too many would be a leak.
        if needed < own.len() {
            own.truncate(needed);
            continue;
        }
        let places = Places { reading, overlay, epoch, own: &own };
        let (root, level) = places.write(accounts);
        return Ok(SpaceTree { root, level, used_blocks: all.total() });
    }
}

/// Nodes of each level.
fn shape(items: &[Item], size: usize) -> Vec<usize> {
    let mut shape = vec![pack::parts(items, size).len()];
    let pointer = (Key::MIN, vec![0; holdfast_format::node::POINTER_SIZE]);
    while let Some(below) = shape.last().copied().filter(|below| *below > 1) {
        shape.push(pack::parts(&vec![pointer.clone(); below], size).len());
    }
    shape
}

struct Places<'w, 'd> {
    reading: &'w VolumeReading<'d>,
    overlay: &'w Overlay<'d>,
    epoch: Epoch,
    own: &'w [BlockNo],
}

impl Places<'_, '_> {
    /// Writes leaves, and what is above them.
    fn write(&self, mut items: Vec<Item>) -> (NodePointer, u8) {
        let superblock = self.reading.superblock();
        let size = superblock.geometry.node_size;
        let mut places = self.own.iter();
        for level in 0.. {
            let mut above: Vec<Item> = Vec::new();
            for part in pack::parts(&items, size) {
                let block = places.next().expect("as many were taken as the shape has");
                let pointer = NodePointer { block: *block, epoch: self.epoch };
                let volume = superblock.nodes();
                let expected = Expected { pointer, tree: TreeId::Space, level, volume };
                let node = pack::seal(size, &expected, part);
                self.overlay.put_node(&superblock.geometry, pointer.block, &node);
                let key = part.first().filter(|_| !above.is_empty());
                above.push((key.map_or(Key::MIN, |(key, _)| *key), pointer.encode().to_vec()));
            }
            if let [(_, root)] = &above[..] {
                let root = NodePointer::decode(root).expect("it was encoded here");
                return (root, level);
            }
            items = above;
        }
        unreachable!("each level has fewer nodes than the one below it")
    }
}

/// Groups and bitmaps.
fn accounts(
    geometry: &Geometry,
    all: &Runs,
    nodes: &Runs,
    pieces: &mut BTreeSet<(u64, u64)>,
) -> BTreeMap<Key, Vec<u8>> {
    let mut bits: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
    let mut groups: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (runs, is_node) in [(all, false), (nodes, true)] {
        for (start, end) in runs.iter() {
            let mut at = start;
            while at < end {
                let stop = end.min((at / BITMAP_BLOCKS + 1) * BITMAP_BLOCKS);
                let group = groups.entry(at / GROUP_BLOCKS).or_default();
                if is_node {
                    group.1 += stop - at;
                } else {
                    group.0 += stop - at;
                    let piece = at % GROUP_BLOCKS / BITMAP_BLOCKS;
                    let piece = bits.entry((at / GROUP_BLOCKS, piece));
                    mark(piece.or_insert_with(|| vec![0; BITMAP_BYTES]), at, stop);
                }
                at = stop;
            }
        }
    }
    pieces.extend(bits.keys());
    for piece in &*pieces {
        bits.entry(*piece).or_insert_with(|| vec![0; BITMAP_BYTES]);
        groups.entry(piece.0).or_default();
    }
    let mut items = BTreeMap::new();
    for (group, (used, of_nodes)) in groups {
        let words: Vec<u64> =
            (0..BITMAPS_PER_GROUP).flat_map(|piece| words_of(&bits, (group, piece))).collect();
        let free_slots = geometry.free_slots_of_group(group, &words);
        let item = GroupItem::bounded(used, of_nodes, free_slots, None);
        items.insert(GroupItem::key(group), item.encode());
    }
    for ((group, piece), bits) in bits {
        assert!(piece < BITMAPS_PER_GROUP, "a group has so many pieces");
        items.insert(bitmap_key(group, piece), bits);
    }
    items
}

/// The words of a piece of a bitmap. One that is not there is all zero.
fn words_of(bits: &BTreeMap<(u64, u64), Vec<u8>>, piece: (u64, u64)) -> Vec<u64> {
    let bytes = bits.get(&piece).map_or(&[0; BITMAP_BYTES][..], |bits| bits);
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// Marks blocks of one piece of a bitmap.
fn mark(bits: &mut [u8], start: u64, end: u64) {
    for block in start..end {
        let bit = block % BITMAP_BLOCKS;
        bits[(bit / 8) as usize] |= 1 << (bit % 8);
    }
}
