//! Whether another tree has the same node: neighbours are looked up where the last one was.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use crate::tree::subtree::Subtree;
use crate::tree::{Forest, Missing, TreeNo};

/// Where in another tree the last node was looked for.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// The node there that is one level above it.
    above: Option<Subtree>,
}

impl Beside {
    /// Whether `tree` has the node at `here`. A node in two trees stands for the same keys in both, at the same level.
    pub(super) fn has(
        &mut self,
        forest: &Forest,
        tree: TreeNo,
        here: &Subtree,
    ) -> Result<bool, Missing> {
        let root = Subtree::root(forest, tree);
        if root.level <= here.level {
            return Ok(root.is_same_node(here));
        }
        let is_above = |above: &Subtree| {
            above.level == here.level.saturating_add(1) && above.covers(&here.low)
        };
        let mut at = self.above.filter(is_above).unwrap_or(root);
        loop {
            let node = at.node(forest)?;
            let child = at.child(&node, node.child_index(&here.low));
            if child.level <= here.level {
                self.above = Some(at);
                return Ok(child.pointer == here.pointer);
            }
            at = child;
        }
    }
}
