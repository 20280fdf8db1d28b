//! Nodes that look like roots: of the first key on, and no other node leads to them.

use std::collections::BTreeMap;

use holdfast_base::TreeId;
use holdfast_check::reading::VolumeReading;
use holdfast_format::{ItemKind, Key};

use crate::index::Index;
use crate::point::Point;
use crate::scan::FoundNode;

/// All that look like roots of a tree and are not younger than `epoch`, the newest first, of the same epoch the highest.
pub(crate) fn roots(
    reading: &VolumeReading<'_>,
    index: &Index,
    tree: TreeId,
    epoch: u64,
) -> Vec<FoundNode> {
    let is_of = |node: &FoundNode| node.tree == tree as u8 && node.epoch <= epoch;
    let mut is_reached = vec![false; index.nodes.len()];
    let mut buffer = Vec::new();
    for node in index.nodes.iter().filter(|node| is_of(node) && node.level > 0) {
        let Ok(view) = reading.node(tree, &node.place(), None, &mut buffer) else { continue };
        for child in 0..view.count() {
            if let Some(at) = index.position(view.child(child)) {
                is_reached[at] = true;
            }
        }
    }
    let nodes = index.nodes.iter().zip(&is_reached).filter(|(_, is_reached)| !**is_reached);
    let mut roots: Vec<FoundNode> =
        nodes.map(|(node, _)| *node).filter(|node| is_of(node) && begins_a_tree(node)).collect();
    if tree == TreeId::Space {
        let first = first_epochs(index);
        roots.retain(|root| !was_higher(&first, root));
    }
    roots.sort_by_key(|node| std::cmp::Reverse((node.epoch, node.level, node.count)));
    roots
}

/// Of each level of the space tree the oldest epoch of its nodes.
fn first_epochs(index: &Index) -> BTreeMap<u8, u64> {
    let mut first = BTreeMap::new();
    for node in index.nodes.iter().filter(|node| node.tree == TreeId::Space as u8) {
        let oldest = first.entry(node.level).or_insert(node.epoch);
        *oldest = node.epoch.min(*oldest);
    }
    first
}

/// Whether the space tree had more levels when this node was written: a volume has one space tree, which grows. What looks like its root
/// is then a part of a tree whose root is lost, and the branches and snapshots that this part does not have would not be missed.
fn was_higher(first: &BTreeMap<u8, u64>, root: &FoundNode) -> bool {
    let mut above = first.iter().filter(|(level, _)| **level > root.level);
    above.any(|(_, epoch)| *epoch <= root.epoch)
}

/// Whether a node may be a root by its keys. A leaf that is one has the root directory, or is of the space tree.
fn begins_a_tree(node: &FoundNode) -> bool {
    let root_inode = Point { inode: 1, kind: ItemKind::Inode.number(), offset: 0 };
    match (node.level, node.tree) {
        (0, 1) => node.first <= root_inode && root_inode <= node.last,
        (0, _) => node.count > 0,
        _ => node.first == Point::of(&Key::MIN),
    }
}
