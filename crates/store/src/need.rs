//! What an operation needs of the free space, and what has to stay free for others (P8).

use crate::space::Delayed;
use crate::space::promise::Floor;
use crate::space::slots::NodesNeeded;

/// What an operation needs before it may start. See [`crate::Branch::reserve`].
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// Makes the volume fuller: `changes` puts and deletes, `blocks` of data.
    Grow {
        /// Puts and deletes of the transactions to come.
        changes: u32,
        /// Data blocks to allocate.
        blocks: u64,
    },
    /// As [`Need::Grow`], in place of what the branch refers to already: its limit does not keep it from that.
    Change {
        /// Puts and deletes of the transactions to come.
        changes: u32,
        /// Data blocks to allocate.
        blocks: u64,
    },
    /// Accepts data that a [`Need::Writeback`] brings into the tree later.
    Delay {
        /// Data blocks to allocate.
        blocks: u64,
        /// How many of them the branch will refer to more than now: the others come in place of blocks that it has.
        growth: u64,
        /// What waits from now on, until its [`crate::MetadataReservation`] is dropped.
        delayed: Delayed,
    },
    /// As [`Need::Delay`], for blocks that the file has reserved: it needs no others, and may use the nodes that are kept
    /// for such items.
    Fill {
        /// What waits from now on, until its [`crate::MetadataReservation`] is dropped.
        delayed: Delayed,
    },
    /// Carries out what was promised before (delayed writes). May use the emergency reserve for nodes.
    Writeback {
        /// Puts and deletes of the transactions to come.
        changes: u32,
    },
    /// Makes the volume emptier: unlink, truncate, rmdir. May use the emergency reserve (P8).
    Shrink {
        /// Puts and deletes of the transactions to come.
        changes: u32,
    },
    /// Begins a deletion, which may be all that can still make room: may use half of what commits keep, as a step of the
    /// deletion does, and needs as much as such a step beside its own (P8).
    Delete {
        /// Puts and deletes of the transactions to come.
        changes: u32,
    },
}

impl Need {
    /// Data blocks.
    pub(crate) fn blocks(self) -> u64 {
        match self {
            Need::Grow { blocks, .. }
            | Need::Change { blocks, .. }
            | Need::Delay { blocks, .. } => blocks,
            Need::Fill { .. }
            | Need::Writeback { .. }
            | Need::Shrink { .. }
            | Need::Delete { .. } => 0,
        }
    }

    /// Blocks that the branch will refer to more than now; `None`: its limit is not asked.
    pub(crate) fn growth(self) -> Option<u64> {
        match self {
            Need::Grow { blocks, .. } => Some(blocks),
            Need::Delay { growth, .. } => Some(growth).filter(|growth| *growth > 0),
            Need::Change { .. }
            | Need::Fill { .. }
            | Need::Writeback { .. }
            | Need::Shrink { .. }
            | Need::Delete { .. } => None,
        }
    }

    /// Data that is about to be accepted.
    pub(crate) fn delayed(self) -> Delayed {
        match self {
            Need::Delay { delayed, .. } | Need::Fill { delayed } => delayed,
            Need::Grow { .. }
            | Need::Change { .. }
            | Need::Writeback { .. }
            | Need::Shrink { .. }
            | Need::Delete { .. } => Delayed::default(),
        }
    }

    /// Nodes that its puts and deletes may need in a tree of so many `levels`, in a volume of so many `nodes`.
    pub(crate) fn nodes(self, levels: u64, nodes: u64) -> NodesNeeded {
        match self {
            Need::Delay { .. } | Need::Fill { .. } => NodesNeeded::default(),
            Need::Grow { changes, .. }
            | Need::Change { changes, .. }
            | Need::Writeback { changes }
            | Need::Delete { changes } => NodesNeeded::of_splits(changes, levels, nodes),
            Need::Shrink { changes } => NodesNeeded::of_changes(changes, 1, levels - 1, nodes),
        }
    }

    /// What must stay free for others.
    pub(crate) fn floor(self) -> Floor {
        match self {
            // Growth of blocks that it has already takes nothing from others.
            Need::Fill { .. } | Need::Delay { blocks: 0, .. } => Floor::Fill,
            Need::Grow { .. } | Need::Change { .. } | Need::Delay { .. } => Floor::Grow,
            Need::Writeback { .. } | Need::Shrink { .. } => Floor::Checkpoint,
            Need::Delete { .. } => Floor::HalfCheckpoint,
        }
    }
}
