//! What a transaction leaves of a branch: which of the blocks that it gives up are free (S1), what the log says of them, and how many
//! inodes there are.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, Epoch};
use holdfast_format::Key;
use holdfast_format::item::WalkPlace;
use holdfast_format::log::Dropped;

use crate::tree::open::{Ancestry, OpenTree};

/// How many inodes there are behind an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The branch that it changed; 0: the lineage.
    pub(crate) branch: u64,
    /// Inodes in that branch.
    pub(crate) inodes: u64,
    /// Inodes in `main`.
    pub(crate) main: u64,
}

/// Blocks that are free from a transaction on.
#[derive(Debug, Default)]
pub(crate) struct DroppedExtents {
    /// They are, whatever commit a recovery begins with.
    pub(crate) free: Vec<BlockRange>,
    /// They are, unless a recovery begins with a commit in which a snapshot still has them: the replay judges.
    pub(crate) dropped: Vec<Dropped>,
}

impl DroppedExtents {
    /// What `tree` gives up, of what a transaction of it drops.
    pub(crate) fn of(tree: &OpenTree, dropped: &[Dropped]) -> DroppedExtents {
        let mut dropped_extents = DroppedExtents::default();
        let sure = tree.sure_parent();
        for of in dropped {
            let owned = owned(&tree.ancestry, of);
            if owned.blocks.is_empty() {
                continue;
            }
            match of.birth == Epoch(0) || of.birth > sure {
                true => dropped_extents.free.push(owned.blocks),
                false if mutants::is(Mutant::DropNotLogged) => {}
                false => dropped_extents.dropped.push(owned),
            }
        }
        dropped_extents
    }

    /// All of them.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = BlockRange> {
        self.free.iter().copied().chain(self.dropped.iter().map(|of| of.blocks))
    }
}

/// The part of what a tree drops that belongs to it alone: all, nothing, or what lies before the cursor of a walk.
pub(crate) fn owned(ancestry: &Ancestry, of: &Dropped) -> Dropped {
    let count = match ancestry.walk {
        _ if ancestry.owns_surely(of.birth) => of.blocks.count,
        Some(walk) if of.birth > walk.above => blocks_before(&walk.cursor, &of.at, of.blocks.count),
        _ => 0,
    };
    Dropped { blocks: BlockRange::new(of.blocks.start, count), ..*of }
}

/// How many of `count` blocks, of which the first lies at `at`, lie before a place.
pub(crate) fn blocks_before(place: &WalkPlace, at: &Key, count: u64) -> u64 {
    let is_before = |block: u64| {
        let offset = at.offset.saturating_add(block.saturating_mul(BLOCK_BYTES));
        WalkPlace::item(&Key { offset, ..*at }) < *place
    };
    // The blocks stand in the order of their places.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Root;
    use crate::tree::open::Walked;
    use holdfast_base::{BlockNo, InodeNo};
    use holdfast_format::{ItemKind, NodePointer};

    fn key(block: u64) -> Key {
        Key::new(InodeNo(7), ItemKind::Extent, block * BLOCK_BYTES)
    }

    fn tree(parent: u64, walk: Option<u64>, judged_from: u64) -> OpenTree {
        let nowhere = NodePointer { block: BlockNo(0), epoch: Epoch(1) };
        let mut tree = OpenTree::at(1, Root { pointer: nowhere, level: 0 });
        let cursor = |block| Walked { above: Epoch(3), cursor: WalkPlace::item(&key(block)) };
        tree.ancestry = Ancestry { snapshot: 2, parent: Epoch(parent), walk: walk.map(cursor) };
        tree.judged_from = Epoch(judged_from);
        tree
    }

    #[test]
    fn what_lies_across_the_cursor_is_cut_there() {
        let dropped = |birth| {
            [Dropped { blocks: BlockRange::new(BlockNo(100), 8), birth: Epoch(birth), at: key(10) }]
        };
        let dropped_extents = |tree: &OpenTree, birth| {
            let of = DroppedExtents::of(tree, &dropped(birth));
            (of.free.iter().map(|b| b.count).sum(), of.dropped.iter().map(|d| d.blocks.count).sum())
        };
        let none: (u64, u64) = (0, 0);
        assert_eq!(dropped_extents(&tree(9, None, 0), 10), (8, 0));
        assert_eq!(dropped_extents(&tree(9, None, 0), 9), none, "the parent has it");
        assert_eq!(dropped_extents(&tree(9, Some(13), 0), 9), (0, 3));
        assert_eq!(dropped_extents(&tree(9, Some(10), 0), 9), none);
        assert_eq!(dropped_extents(&tree(9, Some(99), 0), 9), (0, 8));
        assert_eq!(dropped_extents(&tree(9, Some(99), 0), 3), none, "the parent's parent has it");
        assert_eq!(dropped_extents(&tree(3, None, 9), 9), (0, 8), "a replay may find the snapshot");
        assert_eq!(dropped_extents(&tree(3, None, 9), 10), (8, 0));
    }
}
