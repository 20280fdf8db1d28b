//! Fingers: the leaves that changed lately, or are about to, with the keys that each covers. A change that goes to one
//! of them needs no way down from the root ("finger search", after Guibas, McCreight, Plass and Roberts, 1977).
//!
//! Always true of the fingers of the present moment (others count for nothing): the leaf is of this epoch, so it stays
//! in memory with all nodes above it, and no node came, went or moved since the finger was laid.

use holdfast_base::{Epoch, TreeId};
use holdfast_format::NodePointer;
use holdfast_format::key::RawKey;

/// Leaves that one operation changes, mostly: those of an inode, of its name, of the directory; and one more.
const FINGERS: usize = 4;

/// A leaf, and from where to where it covers keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finger {
    pub(super) tree: TreeId,
    pub(super) low: RawKey,
    /// Not covered any more; `None`: all that is greater is.
    pub(super) high: Option<RawKey>,
    pub(super) leaf: NodePointer,
}

impl Finger {
    fn covers(&self, tree: TreeId, key: &RawKey) -> bool {
        self.tree == tree && self.low <= *key && self.high.is_none_or(|high| *key < high)
    }
}

/// A few fingers; one that is used stays.
#[derive(Debug, Default)]
pub(super) struct Fingers {
    /// Each with whether it was used since the hand came by.
    fingers: [Option<(Finger, bool)>; FINGERS],
    hand: usize,
    /// For which shape and epoch of the forest they are good.
    moment: (u64, Epoch),
}

impl Fingers {
    /// The leaf of `key`, if a finger is on it at this moment.
    pub(super) fn leaf(
        &mut self,
        moment: (u64, Epoch),
        tree: TreeId,
        key: &RawKey,
    ) -> Option<NodePointer> {
        if self.moment != moment {
            return None;
        }
        let known = self.fingers.iter_mut().flatten();
        let (finger, used) = known.into_iter().find(|(finger, _)| finger.covers(tree, key))?;
        *used = true;
        Some(finger.leaf)
    }

    /// The fingers that are good at this moment.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn at(&self, moment: (u64, Epoch)) -> impl Iterator<Item = &Finger> {
        let fingers = self.fingers.iter().flatten().map(|(finger, _)| finger);
        fingers.filter(move |_| self.moment == moment)
    }

    /// Lays a finger on a leaf that none is on.
    pub(super) fn lay(&mut self, moment: (u64, Epoch), finger: Finger) {
        if self.moment != moment {
            *self = Fingers { moment, ..Fingers::default() };
        }
        while let Some((_, used @ true)) = &mut self.fingers[self.hand] {
            *used = false;
            self.hand = (self.hand + 1) % FINGERS;
        }
        self.fingers[self.hand] = Some((finger, false));
        self.hand = (self.hand + 1) % FINGERS;
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

    fn finger(low: u64, high: Option<u64>) -> Finger {
        let leaf = NodePointer { block: BlockNo(low), epoch: Epoch(1) };
        Finger { tree: TreeId::Files, low: key(low), high: high.map(key), leaf }
    }

    #[test]
    fn what_is_used_stays_and_a_moment_ends_all() {
        let now = (1, Epoch(1));
        let mut fingers = Fingers::default();
        let at = |fingers: &mut Fingers, moment, no| {
            fingers.leaf(moment, TreeId::Files, &key(no)).map(|leaf| leaf.block.0)
        };
        // As with creates: one leaf again and again, and others once.
        fingers.lay(now, finger(10, Some(20)));
        for other in 5..50 {
            assert_eq!(at(&mut fingers, now, 15), Some(10));
            fingers.lay(now, finger(other * 10, Some(other * 10 + 10)));
        }
        assert_eq!(at(&mut fingers, now, 499), Some(490));
        fingers.lay(now, finger(900, None));
        let ends = [9, 10, 19, 20, 899, 900, u64::MAX].map(|no| at(&mut fingers, now, no));
        assert_eq!(ends, [None, Some(10), Some(10), None, None, Some(900), Some(900)]);
        assert_eq!(fingers.leaf(now, TreeId::Space, &key(15)), None);

        for later in [(2, Epoch(1)), (1, Epoch(2))] {
            assert_eq!(at(&mut fingers, later, 15), None);
        }
        fingers.lay((2, Epoch(1)), finger(30, None));
        assert_eq!(at(&mut fingers, (2, Epoch(1)), 15), None);
        assert_eq!(at(&mut fingers, (2, Epoch(1)), 31), Some(30));
    }
}
