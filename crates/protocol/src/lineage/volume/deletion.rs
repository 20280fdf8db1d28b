//! S4: a snapshot without a name is deleted behind the scenes, by a walk with a cursor.

use super::*;

impl Volume {
    /// Snapshots whose deletion may begin.
    pub(in crate::lineage) fn deletable(&self, broken: Option<Mutant>) -> Vec<usize> {
        let is_going = |at: usize| self.snapshots[at].is_some_and(|of| of.cursor.is_some());
        let may = |at: &usize| {
            let Some(of) = self.snapshots[*at].filter(|of| !of.named && of.cursor.is_none()) else {
                return false;
            };
            let children = self.children(*at);
            let neighbours = children.iter().filter_map(|child| match child {
                Child::Branch(_) => None,
                Child::Snapshot(at) => Some(*at),
            });
            let waits = neighbours.chain(of.parent).any(is_going);
            (children.len() <= 1 || broken == Some(Mutant::DeletedWithTwoChildren))
                && (!waits || broken == Some(Mutant::NeighboursDoNotWait))
        };
        (0..SNAPSHOTS).filter(may).collect()
    }

    /// A snapshot without a name waits for nothing, and yet its deletion does not begin.
    pub(in crate::lineage) fn is_stuck(&self) -> bool {
        let waits = (0..SNAPSHOTS).any(|at| {
            let goes = self.snapshots[at].is_some_and(|of| !of.named && of.cursor.is_none());
            goes && self.children(at).len() <= 1
        });
        waits && self.deletable(None).is_empty() && self.deleted().next().is_none()
    }

    /// Snapshots that are being deleted.
    pub(in crate::lineage) fn deleted(&self) -> impl Iterator<Item = usize> {
        (0..SNAPSHOTS).filter(|at| self.snapshots[*at].is_some_and(|of| of.cursor.is_some()))
    }

    /// A deletion begins.
    pub(in crate::lineage) fn begin_deletion(&mut self, snapshot: usize) {
        self.snapshots[snapshot].as_mut().expect("the snapshot is there").cursor = Some(0);
    }

    /// A step of a deletion: one transaction frees, and moves the cursor.
    pub(in crate::lineage) fn walk(&mut self, snapshot: usize, hand: &Hand<'_>) {
        let of = self.snapshots[snapshot].expect("the snapshot is there");
        let place = of.cursor.expect("it is being deleted");
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
        if moves && let Some(of) = &mut self.snapshots[snapshot] {
            of.cursor = Some(place + 1);
        }
        if !(frees && moves) {
            self.half = !self.half;
        }
    }

    /// Frees what is at a place of the walk's order, if it is younger than the parent and the child has it no more.
    fn walk_at(&mut self, snapshot: usize, place: usize, hand: &Hand<'_>) {
        let of = self.snapshots[snapshot].expect("the snapshot is there");
        let place = match (hand.is(Mutant::NodeBeforeItsItems), place) {
            (true, 0) => NODE,
            (true, _) => place - 1,
            (false, _) => place,
        };
        let here = |volume: &Volume, root: Pointer| {
            if place == NODE {
                return Some(root);
            }
            volume.node(root)?.items[place].map(|extent| extent.at)
        };
        if self.node(of.root).is_none() {
            return self.fail("S4: a walk needs a node that was freed");
        }
        let child = match &self.children(snapshot)[..] {
            [] => None,
            // The mutant goes on with the branch that the snapshot was taken of.
            [Child::Snapshot(_), ..] if hand.is(Mutant::NewSnapshotNotFollowed) => {
                self.branches().next().map(Child::Branch)
            }
            [child, ..] => Some(*child),
        };
        let Some(found) = here(self, of.root) else {
            return;
        };
        let parents = self.epoch_of(of.parent);
        let is_young = found.birth > parents || hand.is(Mutant::WalkIgnoresParent);
        let theirs = child.and_then(|child| here(self, self.root_of(child)));
        let is_left = theirs == Some(found) && !hand.is(Mutant::WalkIgnoresChild);
        if is_young && !is_left {
            self.free(found);
        }
    }

    fn end_deletion(&mut self, snapshot: usize, broken: Option<Mutant>) {
        let of = self.snapshots[snapshot].take().expect("the snapshot is there");
        if broken == Some(Mutant::ChildKeepsParent) {
            return;
        }
        let handed_on = |parent: &mut Option<usize>| {
            if *parent == Some(snapshot) {
                *parent = of.parent;
            }
        };
        self.branches.iter_mut().flatten().for_each(|branch| handed_on(&mut branch.parent));
        self.snapshots.iter_mut().flatten().for_each(|of| handed_on(&mut of.parent));
    }

    /// A walk whose cursor is in no transaction begins anew after a crash.
    pub(in crate::lineage) fn forget_cursors(&mut self) {
        for of in self.snapshots.iter_mut().flatten() {
            of.cursor = of.cursor.map(|_| 0);
        }
    }
}
