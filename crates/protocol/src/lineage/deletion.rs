//! S4: a snapshot without a name is deleted behind the scenes, by a walk with a cursor.

use super::mutant::Mutant;
use super::volume::{Broken, Hand, NODE, Pointer, SNAPSHOTS, Volume};

impl Volume {
    /// Whether a snapshot has no name, not more than one tree has grown out of it, and its deletion has not begun.
    fn is_to_go(&self, at: usize, broken: Broken) -> bool {
        self.snapshots[at].is_some_and(|of| !of.is_named && of.cursor.is_none())
            && (self.children(at).len() <= 1 || broken == Some(Mutant::DeletedWithTwoChildren))
    }

    /// Snapshots whose deletion may begin.
    pub(super) fn deletable(&self, broken: Broken) -> impl Iterator<Item = usize> {
        let is_going = |at: usize| self.snapshots[at].is_some_and(|of| of.cursor.is_some());
        let waits = move |at: usize| {
            let children = self.children(at).into_iter().filter_map(|(at, _)| at);
            children.chain(self.snapshot(at).of.parent).any(is_going)
                && broken != Some(Mutant::NeighboursDoNotWait)
        };
        (0..SNAPSHOTS).filter(move |at| self.is_to_go(*at, broken) && !waits(*at))
    }

    /// A snapshot without a name waits for nothing, and yet its deletion does not begin.
    pub(super) fn is_stuck(&self) -> bool {
        (0..SNAPSHOTS).any(|at| self.is_to_go(at, None))
            && self.deletable(None).chain(self.deleted()).next().is_none()
    }

    /// A step of a deletion: one transaction frees, and moves the cursor.
    pub(super) fn walk(&mut self, snapshot: usize, hand: &mut Hand<'_>) {
        let place = self.snapshot(snapshot).cursor.expect("it is being deleted");
        if place > NODE {
            return self.end_deletion(snapshot, hand.broken);
        }
        let (frees, moves) = match hand.broken {
            Some(Mutant::CursorBeforeFree) => (self.half, !self.half),
            Some(Mutant::FreeBeforeCursor) => (!self.half, self.half),
            _ => (true, true),
        };
        // The first half of a mutant that moves first has left the cursor one behind.
        let place = if hand.is(Mutant::CursorBeforeFree) && self.half { place - 1 } else { place };
        if frees {
            self.walk_at(snapshot, place, hand);
        }
        if moves {
            self.snapshot_mut(snapshot).cursor = Some(place + 1);
        }
        if !(frees && moves) {
            self.half = !self.half;
        }
    }

    /// Frees what is at a place of the walk's order, if it is younger than the parent and the child has it no more.
    fn walk_at(&mut self, snapshot: usize, place: usize, hand: &mut Hand<'_>) {
        let of = self.snapshot(snapshot).of;
        let place = match (hand.is(Mutant::NodeBeforeItsItems), place) {
            (true, 0) => NODE,
            (true, _) => place - 1,
            (false, _) => place,
        };
        let here = |volume: &Volume, root: Pointer| match place {
            NODE => Some(root),
            key => volume.node(root)?.items[key].map(|extent| extent.at),
        };
        if self.node(of.root).is_none() {
            return self.fail("S4: a walk needs a node that was freed");
        }
        let child = match self.children(snapshot).first() {
            // The mutant goes on with the branch that the snapshot was taken of.
            Some((Some(_), _)) if hand.is(Mutant::NewSnapshotNotFollowed) => {
                self.branches.iter().flatten().next().map(|of| of.root)
            }
            child => child.map(|(_, root)| *root),
        };
        let Some(found) = here(self, of.root) else { return };
        let above = self.epoch_of(of.parent);
        let is_young = found.birth > above || hand.is(Mutant::WalkIgnoresParent);
        let theirs = child.and_then(|root| here(self, root));
        let is_left = theirs == Some(found) && !hand.is(Mutant::WalkIgnoresChild);
        if is_young && !is_left {
            self.free(found, hand);
        }
    }

    /// What grew out of the snapshot has its parent now.
    fn end_deletion(&mut self, snapshot: usize, broken: Broken) {
        let above = self.snapshots[snapshot].take().expect("the snapshot is there").of.parent;
        if broken == Some(Mutant::ChildKeepsParent) {
            return;
        }
        let branches = self.branches.iter_mut().flatten().map(|of| &mut of.parent);
        let snapshots = self.snapshots.iter_mut().flatten().map(|at| &mut at.of.parent);
        for parent in branches.chain(snapshots).filter(|parent| **parent == Some(snapshot)) {
            *parent = above;
        }
    }
}
