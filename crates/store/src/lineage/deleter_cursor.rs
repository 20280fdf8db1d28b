//! What the parts of a walk say to each other: where it is, what a step has found.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::BlockRange;
use holdfast_format::NodePointer;
use holdfast_format::item::WalkPlace;

use crate::tree::open::Ancestry;
use crate::tree::subtree::Subtree;
use crate::tree::{OpenHandle, TreeNo};

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
pub(super) struct WalkStep {
    pub(super) data: Vec<BlockRange>,
    pub(super) nodes: Vec<(NodePointer, u8)>,
    /// Where the walk goes on; `None`: it is at its end.
    pub(super) cursor: Option<WalkPlace>,
}

impl Subtree {
    pub(super) fn place(&self) -> WalkPlace {
        WalkPlace::node(self.end, self.level)
    }

    /// The first place behind the node.
    pub(super) fn behind(&self) -> WalkPlace {
        WalkPlace { level: self.level.saturating_add(1), ..self.place() }
    }
}
