//! What the roots of the two trees may be, wherever a record names them.

use holdfast_base::{Epoch, TreeId};

use crate::geometry::Geometry;
use crate::limits::TREE_LEVELS_MAX;
use crate::node::NodePointer;

/// Fails unless both trees can have these roots and levels at `epoch`.
pub(crate) fn judge_roots(
    geometry: &Geometry,
    epoch: Epoch,
    roots: [(NodePointer, u8); 2],
) -> Result<(), String> {
    for ((root, level), tree) in roots.into_iter().zip([TreeId::Files, TreeId::Space]) {
        let stored = geometry.stored(tree, level);
        if !geometry.holds_node(root.block, stored) || root.epoch > epoch {
            return Err(format!("the root {root:?} cannot be"));
        }
        if level >= TREE_LEVELS_MAX {
            return Err(format!("a tree of {level} levels is too high"));
        }
    }
    let [(files, _), (space, _)] = roots;
    if files.block.0.abs_diff(space.block.0) < geometry.node_blocks() {
        return Err(format!("the roots {files:?} and {space:?} are one"));
    }
    Ok(())
}
