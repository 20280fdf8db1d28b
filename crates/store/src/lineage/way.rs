//! What the parts of a walk say to each other: where it is, where a node stands, what a step has found.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::BlockRange;
use holdfast_format::item::WalkPlace;
use holdfast_format::key::RawKey;
use holdfast_format::{Key, NodePointer};

use crate::cache::Node;
use crate::tree::open::Ancestry;
use crate::tree::{Forest, OpenHandle, TreeNo};

/// A walk that can go on.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) snapshot: u64,
    /// The branch that it was taken of.
    pub(super) branch: u64,
    /// The snapshot's tree.
    pub(super) of: TreeNo,
    /// What has grown out of it, if anything has.
    pub(super) child: Option<u64>,
    pub(super) beside: Option<TreeNo>,
    /// Both stay open.
    pub(super) _open: (OpenHandle, Option<OpenHandle>),
    /// What a tree owns that has grown out of the snapshot's parent.
    pub(super) above: Ancestry,
    /// What a tree owns that has grown out of the snapshot, but for the cursor.
    pub(super) here: Ancestry,
    pub(super) cursor: WalkPlace,
}

/// What a step has come to, once all its nodes are in memory.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) data: Vec<BlockRange>,
    pub(super) nodes: Vec<(NodePointer, u8)>,
    /// Where the walk goes on; `None`: it is at its end.
    pub(super) cursor: Option<WalkPlace>,
}

/// A node on the way down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) pointer: NodePointer,
    pub(super) level: u8,
    pub(super) low: RawKey,
    pub(super) end: Option<RawKey>,
}

impl Stand {
    pub(super) fn root(forest: &Forest, tree: TreeNo) -> Stand {
        let root = forest.root(tree);
        Stand { pointer: root.pointer, level: root.level, low: Key::MIN.raw(), end: None }
    }

    /// Child `index` of the node, whose view is given.
    pub(super) fn child(&self, node: &Node<'_>, index: usize) -> Stand {
        let next = index.saturating_add(1);
        let end = if next < node.count() { Some(node.raw_key(next)) } else { self.end };
        let level = self.level.saturating_sub(1);
        Stand { pointer: node.child(index), level, low: node.raw_key(index), end }
    }

    /// Whether a key lies in the range of the node.
    pub(super) fn covers(&self, key: &RawKey) -> bool {
        self.low <= *key && self.end.is_none_or(|end| *key < end)
    }

    /// Where those below it stand.
    pub(super) fn children<'a>(&self, node: &'a Node<'a>) -> impl Iterator<Item = Stand> + 'a {
        let here = *self;
        (0..node.count()).map(move |index| here.child(node, index))
    }

    pub(super) fn place(&self) -> WalkPlace {
        WalkPlace::node(self.end, self.level)
    }

    /// The first place behind the node.
    pub(super) fn behind(&self) -> WalkPlace {
        WalkPlace { level: self.level.saturating_add(1), ..self.place() }
    }
}
