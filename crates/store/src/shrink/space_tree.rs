//! A new space tree, from its leaves up: groups and bitmaps as they will be, and everything else as it was.

use holdfast_base::{BlockNo, Epoch, TreeId};
use holdfast_format::item::GroupItem;
use holdfast_format::item::group::bitmap_key;
use holdfast_format::limits::{BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::node::{self, Expected, NodePointer, SLOT_SIZE, SLOTS_AT};
use holdfast_format::{Geometry, Key};

use super::rewrite::Rewrite;
use crate::Result;
use crate::tree::Root;

/// A record of a node.
type Item = (Key, Vec<u8>);

/// Writes the tree, and returns its root and how many blocks are in use then.
pub(super) fn build(
    rewrite: &mut Rewrite<'_>,
    lineage: Vec<Item>,
    geometry: &Geometry,
    epoch: Epoch,
) -> Result<(Root, u64)> {
    // Its own nodes are in its bitmaps, which may need more of them.
    let mut taken: Vec<BlockNo> = Vec::new();
    let stored = geometry.stored(TreeId::Space, 0);
    let leaves = loop {
        let items = items(rewrite, geometry, &taken, &lineage);
        let leaves = filled(items, geometry.node_size);
        let needed = count(leaves.len(), geometry.node_size);
        match taken.len() {
            had if had == needed => break leaves,
            had if had < needed => {
                for _ in had..needed {
                    let place = rewrite.place(stored)?;
                    rewrite.mark_node((place.0, stored), true);
                    taken.push(place);
                }
            }
            // What is taken is marked as well: more of that never needs fewer nodes.
            had => unreachable!("{had} nodes were taken for a tree of {needed}"),
        }
    };
    let mut places = taken.into_iter();
    let mut level = 0;
    let mut nodes = leaves;
    loop {
        let mut above = Vec::new();
        let is_root = nodes.len() == 1;
        for (at, records) in nodes.into_iter().enumerate() {
            let pointer = NodePointer { block: places.next().expect("they were counted"), epoch };
            let low = if at == 0 { Key::MIN } else { records[0].0 };
            let expected =
                Expected { pointer, tree: TreeId::Space, level, volume: rewrite.nodes.volume };
            let mut bytes = node::filled(geometry.node_size, &expected, &records);
            rewrite.write((pointer.block, stored), &mut bytes)?;
            if is_root {
                return Ok((Root { pointer, level }, rewrite.after.count()));
            }
            above.push((low, pointer.encode().to_vec()));
        }
        nodes = filled(above, geometry.node_size);
        level += 1;
    }
}

/// All items, in their order.
fn items(
    rewrite: &Rewrite<'_>,
    geometry: &Geometry,
    own: &[BlockNo],
    lineage: &[Item],
) -> Vec<Item> {
    let mut items: Vec<Item> = lineage.to_vec();
    let node_blocks = geometry.blocks_of(geometry.stored(TreeId::Space, 0));
    for (group, words) in rewrite.after.groups() {
        let used: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        if used == 0 {
            continue;
        }
        let own = own.iter().filter(|block| block.0 / GROUP_BLOCKS == group).count() as u64;
        let of_nodes = rewrite.node_blocks(group) + own * node_blocks;
        let item =
            GroupItem::bounded(used, of_nodes, geometry.free_slots_of_group(group, words), None);
        items.push((GroupItem::key(group), item.encode()));
        let per_piece = words.len() / BITMAPS_PER_GROUP as usize;
        for (piece, words) in (0..).zip(words.chunks(per_piece)) {
            if words.iter().any(|word| *word != 0) {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                debug_assert_eq!(bytes.len(), BITMAP_BYTES);
                items.push((bitmap_key(group, piece), bytes));
            }
        }
    }
    items.sort_unstable_by_key(|(key, _)| *key);
    items
}

/// Records cut into nodes, one at least.
fn filled(items: Vec<Item>, node_size: usize) -> Vec<Vec<Item>> {
    let mut nodes = vec![Vec::new()];
    let mut room = node_size - SLOTS_AT;
    for item in items {
        let bytes = SLOT_SIZE + Key::SIZE + item.1.len();
        if bytes > room {
            nodes.push(Vec::new());
            room = node_size - SLOTS_AT;
        }
        room -= bytes;
        nodes.last_mut().expect("there is one").push(item);
    }
    nodes
}

/// Nodes of a tree that has so many leaves.
fn count(leaves: usize, node_size: usize) -> usize {
    let fit = (node_size - SLOTS_AT) / (SLOT_SIZE + Key::SIZE + node::POINTER_SIZE);
    let (mut all, mut level) = (leaves, leaves);
    while level > 1 {
        level = level.div_ceil(fit);
        all += level;
    }
    all
}
