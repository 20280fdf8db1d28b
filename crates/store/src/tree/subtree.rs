//! A node of a tree with all that lies below it: where a walk is.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_format::key::RawKey;
use holdfast_format::{Key, NodePointer, NodeView};

use super::{Forest, Missing, TreeNo};
use crate::cache::Node;

/// A node, and the range of keys below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subtree {
    pub(crate) tree: TreeNo,
    pub(crate) pointer: NodePointer,
    pub(crate) level: u8,
    pub(crate) low: RawKey,
    /// Behind its range; `None`: there is nothing.
    pub(crate) end: Option<RawKey>,
}

impl Subtree {
    /// All of a tree.
    pub(crate) fn root(forest: &Forest, tree: TreeNo) -> Subtree {
        let root = forest.root(tree);
        let (pointer, level) = (root.pointer, root.level);
        Subtree { tree, pointer, level, low: Key::MIN.raw(), end: None }
    }

    /// Its node, if that is in memory.
    pub(crate) fn node<'a>(&self, forest: &'a Forest) -> Result<Node<'a>, Missing> {
        forest.node_at(self.tree, self.pointer, self.level, self.low)
    }

    /// Child `index` of its node, whose view is given.
    pub(crate) fn child(&self, node: &NodeView<'_>, index: usize) -> Subtree {
        let next = index.saturating_add(1);
        let end = if next < node.count() { Some(node.raw_key(next)) } else { self.end };
        let (pointer, level) = (node.child(index), self.level.saturating_sub(1));
        Subtree { pointer, level, low: node.raw_key(index), end, ..*self }
    }

    /// All children.
    pub(crate) fn children<'a>(
        &self,
        node: &'a NodeView<'a>,
    ) -> impl DoubleEndedIterator<Item = Subtree> + 'a {
        let here = *self;
        (0..node.count()).map(move |index| here.child(node, index))
    }

    /// Whether a key lies in its range.
    pub(crate) fn covers(&self, key: &RawKey) -> bool {
        self.low <= *key && self.end.is_none_or(|end| *key < end)
    }

    /// Whether both are one node, be it of two trees.
    pub(crate) fn is_same_node(&self, other: &Subtree) -> bool {
        (self.pointer, self.level) == (other.pointer, other.level)
    }
}
