//! Room for nodes, by how often they are stored.
//!
//! A *place* is as many aligned blocks as a node has, a *pair* two of them, each where the other's copy would be. A node that is stored
//! once takes a place, one that is stored twice a pair. What stores nodes once uses places whose other one is taken before it breaks a
//! pair, and never the pairs that are kept for others: these would come back as single places.

use std::ops::{Add, AddAssign, SubAssign};

use holdfast_base::TreeId;
use holdfast_format::{Geometry, Stored};

/// Nodes of a tree that may be needed, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesNeeded {
    pub(crate) leaves: u64,
    pub(crate) above: u64,
    /// Both together, of which each alone may be the larger part.
    pub(crate) all: u64,
}

impl NodesNeeded {
    /// For `changes` that need so many leaves and nodes above each. No more than twice all `nodes` of the volume, because in one epoch a
    /// node is copied once.
    pub(crate) fn of_changes(changes: u32, leaves: u64, above: u64, nodes: u64) -> NodesNeeded {
        let changes = u64::from(changes);
        let of = |each: u64| (changes * each).min(2 * nodes + 8 + changes);
        NodesNeeded { leaves: of(leaves), above: of(above), all: of(leaves + above) }
    }

    /// For puts and deletes in a tree of so many `levels`: each copies its path and splits all of it.
    pub(crate) fn of_splits(changes: u32, levels: u64, nodes: u64) -> NodesNeeded {
        NodesNeeded::of_changes(changes, 2, 2 * levels - 1, nodes)
    }
}

/// So many nodes, or room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSlots {
    /// Places of nodes that are stored once.
    pub(crate) once: u64,
    /// Pairs of places of nodes that are stored twice.
    pub(crate) twice: u64,
}

impl NodeSlots {
    /// None.
    pub(crate) const fn none() -> NodeSlots {
        NodeSlots { once: 0, twice: 0 }
    }

    /// So many that are stored alike.
    pub(crate) fn of(stored: Stored, count: u64) -> NodeSlots {
        match stored {
            Stored::Once => NodeSlots { once: count, ..NodeSlots::none() },
            Stored::Twice => NodeSlots { twice: count, ..NodeSlots::none() },
        }
    }

    /// For nodes of a tree.
    pub(crate) fn of_tree(geometry: &Geometry, tree: TreeId, nodes: NodesNeeded) -> NodeSlots {
        let [leaf, above] = [0, 1].map(|level| geometry.stored(tree, level));
        match leaf == above {
            true => NodeSlots::of(leaf, nodes.all),
            false => NodeSlots::of(leaf, nodes.leaves) + NodeSlots::of(above, nodes.above),
        }
    }

    /// How many.
    pub(crate) fn nodes(self) -> u64 {
        self.once.saturating_add(self.twice)
    }

    /// Places that they take.
    pub(crate) fn places(self) -> u64 {
        self.once.saturating_add(self.twice.saturating_mul(2))
    }

    /// Without these, as far as there are so many.
    pub(crate) fn without(self, less: NodeSlots) -> NodeSlots {
        let once = self.once.saturating_sub(less.once);
        NodeSlots { once, twice: self.twice.saturating_sub(less.twice) }
    }

    /// The half of them.
    pub(crate) fn half(self) -> NodeSlots {
        NodeSlots { once: self.once.div_ceil(2), twice: self.twice.div_ceil(2) }
    }

    /// Takes one off, if there is one.
    pub(crate) fn take_one(&mut self, stored: Stored) -> NodeSlots {
        let one = NodeSlots::of(stored, 1);
        let taken = NodeSlots { once: one.once.min(self.once), twice: one.twice.min(self.twice) };
        *self -= taken;
        taken
    }
}

impl Add for NodeSlots {
    type Output = NodeSlots;

    fn add(self, more: NodeSlots) -> NodeSlots {
        let once = self.once.saturating_add(more.once);
        NodeSlots { once, twice: self.twice.saturating_add(more.twice) }
    }
}

impl AddAssign for NodeSlots {
    fn add_assign(&mut self, more: NodeSlots) {
        *self = *self + more;
    }
}

impl SubAssign for NodeSlots {
    fn sub_assign(&mut self, less: NodeSlots) {
        self.once -= less.once;
        self.twice -= less.twice;
    }
}

/// What is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) blocks: u64,
    /// Places, whose blocks are among these.
    pub(crate) places: u64,
    /// Pairs, whose places are among these. Where each node is stored once, places.
    pub(crate) pairs: u64,
}

impl Room {
    /// Nothing.
    pub(crate) const NONE: Room = Room { blocks: 0, places: 0, pairs: 0 };

    /// Places that are free, and their other ones not, where nodes have copies.
    pub(crate) fn singles(&self) -> u64 {
        self.places.saturating_sub(2 * self.pairs)
    }

    /// Whether so many nodes find room. Those that are stored once leave `pairs` whole.
    pub(crate) fn holds(&self, nodes: NodeSlots, pairs: u64) -> bool {
        let whole = NodeSlots { twice: nodes.twice.max(pairs), ..nodes };
        self.pairs >= nodes.twice && self.places >= whole.places()
    }

    /// Both together.
    pub(crate) fn and(self, more: Room) -> Room {
        Room {
            blocks: self.blocks + more.blocks,
            places: self.places + more.places,
            pairs: self.pairs + more.pairs,
        }
    }

    /// Without what is part of it.
    pub(crate) fn less(self, part: Room) -> Room {
        Room {
            blocks: self.blocks - part.blocks,
            places: self.places - part.places,
            pairs: self.pairs - part.pairs,
        }
    }

    /// What is left beside so many.
    pub(crate) fn beside(&self, nodes: NodeSlots) -> Room {
        Room {
            blocks: self.blocks,
            places: self.places.saturating_sub(nodes.places()),
            pairs: self.pairs.saturating_sub(nodes.twice),
        }
    }
}
