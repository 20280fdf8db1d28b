//! Where nodes stand.

use holdfast_format::{Key, NodePointer, NodeView};

/// Where a node stands in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePlace {
    /// Its block and epoch.
    pub pointer: NodePointer,
    /// Levels above the leaves.
    pub level: u8,
    /// No key in it is below this.
    pub low: Key,
    /// All keys in it are below this, if there is an end.
    pub high: Option<Key>,
}

impl NodePlace {
    /// That of a root, or of a node of which nothing else is known.
    pub fn root(pointer: NodePointer, level: u8) -> NodePlace {
        NodePlace { pointer, level, low: Key::MIN, high: None }
    }

    /// The children of `node`, an inner one that stands here, with their places.
    pub fn children(&self, node: &NodeView<'_>) -> Vec<NodePlace> {
        let child = |index| {
            let next = (index + 1 < node.count()).then(|| node.key(index + 1));
            NodePlace {
                pointer: node.child(index),
                level: self.level.saturating_sub(1),
                low: node.key(index),
                high: next.or(self.high),
            }
        };
        (0..node.count()).map(child).collect()
    }
}
