//! Leaf hints: the leaves that changed lately, or are about to, with the keys that each covers. A change of one of
//! them needs no search from the root ("leaf hint search", after Guibas, McCreight, Plass and Roberts, 1977).
//!
//! Always true of the leaf hints of the present moment (others count for nothing): the leaf is of this epoch, so it
//! stays in memory with all nodes above it, and no node came, went or moved since the leaf hint was laid.

use holdfast_base::Epoch;
use holdfast_format::NodePointer;
use holdfast_format::key::RawKey;

use super::TreeNo;

/// Leaves that one operation changes, mostly: those of an inode, of its name, of the directory; and one more.
const LEAF_HINTS: usize = 4;

/// A leaf, and from where to where it covers keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafHint {
    pub(super) tree: TreeNo,
    pub(super) low: RawKey,
    /// Not covered any more; `None`: all that is greater is.
    pub(super) high: Option<RawKey>,
    pub(super) leaf: NodePointer,
}

impl LeafHint {
    fn covers(&self, tree: TreeNo, key: &RawKey) -> bool {
        self.tree == tree && self.low <= *key && self.high.is_none_or(|high| *key < high)
    }
}

/// A few leaf hints; one that is used stays.
#[derive(Debug, Default)]
pub(super) struct LeafHints {
    /// Each with whether it was used since the hand came by.
    leaf_hints: [Option<(LeafHint, bool)>; LEAF_HINTS],
    hand: usize,
    /// For which shape and epoch of the forest they are good.
    moment: (u64, Epoch),
}

impl LeafHints {
    /// The leaf of `key`, if a leaf hint is on it at this moment.
    pub(super) fn leaf(
        &mut self,
        moment: (u64, Epoch),
        tree: TreeNo,
        key: &RawKey,
    ) -> Option<NodePointer> {
        if self.moment != moment {
            return None;
        }
        let known = self.leaf_hints.iter_mut().flatten();
        let (leaf_hint, used) =
            known.into_iter().find(|(leaf_hint, _)| leaf_hint.covers(tree, key))?;
        *used = true;
        Some(leaf_hint.leaf)
    }

    /// The leaf hints that are good at this moment.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn at(&self, moment: (u64, Epoch)) -> impl Iterator<Item = &LeafHint> {
        let leaf_hints = self.leaf_hints.iter().flatten().map(|(leaf_hint, _)| leaf_hint);
        leaf_hints.filter(move |_| self.moment == moment)
    }

    /// Lays a leaf hint on a leaf that none is on.
    pub(super) fn lay(&mut self, moment: (u64, Epoch), leaf_hint: LeafHint) {
        if self.moment != moment {
            *self = LeafHints { moment, ..LeafHints::default() };
        }
        while let Some((_, used @ true)) = &mut self.leaf_hints[self.hand] {
            *used = false;
            self.hand = (self.hand + 1) % LEAF_HINTS;
        }
        self.leaf_hints[self.hand] = Some((leaf_hint, false));
        self.hand = (self.hand + 1) % LEAF_HINTS;
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{BlockNo, InodeNo};
    use holdfast_format::Key;

    use super::*;

    fn key(no: u64) -> RawKey {
        Key::inode(InodeNo(no)).raw()
    }

    fn leaf_hint(low: u64, high: Option<u64>) -> LeafHint {
        let leaf = NodePointer { block: BlockNo(low), epoch: Epoch(1) };
        LeafHint { tree: TreeNo::MAIN, low: key(low), high: high.map(key), leaf }
    }

    #[test]
    fn what_is_used_stays_and_a_moment_ends_all() {
        let now = (1, Epoch(1));
        let mut leaf_hints = LeafHints::default();
        let at = |leaf_hints: &mut LeafHints, moment, no| {
            leaf_hints.leaf(moment, TreeNo::MAIN, &key(no)).map(|leaf| leaf.block.0)
        };
        // As with creates: one leaf again and again, and others once.
        leaf_hints.lay(now, leaf_hint(10, Some(20)));
        for other in 5..50 {
            assert_eq!(at(&mut leaf_hints, now, 15), Some(10));
            leaf_hints.lay(now, leaf_hint(other * 10, Some(other * 10 + 10)));
        }
        assert_eq!(at(&mut leaf_hints, now, 499), Some(490));
        leaf_hints.lay(now, leaf_hint(900, None));
        let ends = [9, 10, 19, 20, 899, 900, u64::MAX].map(|no| at(&mut leaf_hints, now, no));
        assert_eq!(ends, [None, Some(10), Some(10), None, None, Some(900), Some(900)]);
        assert_eq!(leaf_hints.leaf(now, TreeNo::SPACE, &key(15)), None);

        for later in [(2, Epoch(1)), (1, Epoch(2))] {
            assert_eq!(at(&mut leaf_hints, later, 15), None);
        }
        leaf_hints.lay((2, Epoch(1)), leaf_hint(30, None));
        assert_eq!(at(&mut leaf_hints, (2, Epoch(1)), 15), None);
        assert_eq!(at(&mut leaf_hints, (2, Epoch(1)), 31), Some(30));
    }
}
