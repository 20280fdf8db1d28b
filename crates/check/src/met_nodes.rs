//! The nodes that walks have met, so that each is read once, and what is below each refers to.

use std::collections::HashMap;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::NodePointer;

use crate::bounds::Bounds;
use crate::volume::Problem;

/// The nodes that were met, by their blocks: a hostile tree whose nodes share children ends all the same, and what trees
/// share is read once.
#[derive(Debug, Default)]
pub(crate) struct MetNodes {
    met: HashMap<u64, Met>,
    /// Blocks that the present walk has met, those of shared nodes and what is below them included.
    referenced: u64,
}

/// Where a node was met first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub(crate) epoch: u64,
    pub(crate) tree: TreeId,
    pub(crate) level: u8,
    pub(crate) bounds: Bounds,
    /// The number of the tree that was walked.
    pub(crate) of: u64,
    /// A part of what is below it was not walked.
    pub(crate) is_partial: bool,
    /// Blocks that it and what is below it refer to, when all of it was walked.
    pub(crate) referenced: u64,
}

/// What a node is that was met before.
pub(crate) enum Again {
    /// It is not, or only a part of it was.
    New,
    /// It lies in the same place of another tree.
    Shared,
    Wrong(Problem),
}

impl MetNodes {
    /// A walk through another tree begins.
    pub(crate) fn begins(&mut self) {
        self.referenced = 0;
    }

    /// Blocks that the tree refers to that was walked last, if all of it could be read.
    pub(crate) fn referenced(&self) -> u64 {
        self.referenced
    }

    /// Whether a walk has met the node at `block`.
    pub(crate) fn has_met(&self, block: BlockNo) -> bool {
        self.met.contains_key(&block.0)
    }

    /// The walk meets a node that is sound and refers to `own` blocks without what is below it. Returns whether no other walk has.
    pub(crate) fn meets(&mut self, block: BlockNo, met: Met, own: u64) -> bool {
        self.referenced = self.referenced.saturating_add(own);
        self.met.insert(block.0, met).is_none()
    }

    /// The walk passes a node that another tree has in the same place, with all below it.
    pub(crate) fn passes(&mut self, block: BlockNo) {
        let below = self.met.get(&block.0).map_or(0, |met| met.referenced);
        self.referenced = self.referenced.saturating_add(below);
    }

    /// The subtree of a node was walked, before which so many blocks had been met.
    pub(crate) fn ends(&mut self, block: BlockNo, before: u64) {
        let referenced = self.referenced.saturating_sub(before);
        if let Some(met) = self.met.get_mut(&block.0) {
            met.referenced = referenced;
        }
    }

    /// What a node is, by what was met before.
    pub(crate) fn judge(&self, pointer: NodePointer, now: &Met) -> Again {
        let Some(met) = self.met.get(&pointer.block.0) else { return Again::New };
        if met.of == now.of || met.tree != now.tree || met.epoch != now.epoch {
            return Again::Wrong(Problem::Twice);
        }
        if (met.level, met.bounds) != (now.level, now.bounds) {
            let why = format!(
                "another tree has it at level {} from {:?} on, this one at level {} from {:?} on",
                met.level, met.bounds.low, now.level, now.bounds.low
            );
            return Again::Wrong(Problem::OtherRange(why));
        }
        if met.is_partial { Again::New } else { Again::Shared }
    }
}
