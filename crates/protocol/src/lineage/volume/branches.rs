//! What people do with branches and snapshots: S2 (snapshot), S3 (fork, and a branch out of nothing), S5 (a branch is deleted), S6 (rollback), S6a (a fork is
//! promoted). A snapshot that is to go only loses its name here.

use super::*;

impl Volume {
    /// S2: the tree of a branch as it is becomes a snapshot, and the branch goes on from it. One that has changed in
    /// this epoch ends it; one that has not is taken as it is.
    pub(in crate::lineage) fn snapshot(
        &mut self,
        branch: usize,
        named: bool,
        broken: Option<Mutant>,
    ) {
        let of = self.branches[branch].expect("the branch is there");
        let has_changed = of.root.birth == self.epoch;
        let epoch = if has_changed { self.epoch } else { self.epoch - 1 };
        if has_changed && broken != Some(Mutant::EpochNotMoved) {
            self.epoch += 1;
        }
        let Branch { root, parent, truth } = of;
        let at = self.snapshots.iter().position(Option::is_none).expect("there is room");
        self.snapshots[at] = Some(Snapshot { root, epoch, parent, named, cursor: None, truth });
        self.branches[branch] = Some(Branch { parent: Some(at), ..of });
    }

    fn grown_out_of(&self, snapshot: usize, broken: Option<Mutant>) -> Branch {
        let of = self.snapshots[snapshot].expect("the snapshot is there");
        let beside = broken == Some(Mutant::ForkBesideItsSnapshot);
        let parent = if beside { of.parent } else { Some(snapshot) };
        Branch { root: of.root, parent, truth: of.truth }
    }

    /// S3: a branch whose tree is that of a snapshot.
    pub(in crate::lineage) fn fork(&mut self, snapshot: usize, broken: Option<Mutant>) {
        let at = self.branches.iter().position(Option::is_none).expect("there is room");
        self.branches[at] = Some(self.grown_out_of(snapshot, broken));
    }

    /// S3: a branch that has grown out of nothing. Its tree is a leaf of its own, in which nothing is.
    pub(in crate::lineage) fn new_branch(&mut self, hand: &mut Hand<'_>) {
        let at = self.branches.iter().position(Option::is_none).expect("there is room");
        let other = self.branches.iter().flatten().next().copied();
        if let Some(other) = other.filter(|_| hand.is(Mutant::NewBranchOutOfAnother)) {
            self.branches[at] = Some(Branch { parent: None, ..other });
            return;
        }
        let (root, tag) = (self.take(hand), hand.next_tag());
        hand.device[root.block as usize] = tag;
        self.nodes[root.block as usize] = Some(Node { tag, items: [None; KEYS] });
        if hand.is(Mutant::NewLeafNotTaken) {
            self.used &= !bit(root.block);
        }
        self.branches[at] = Some(Branch { root, parent: None, truth: [0; KEYS] });
    }

    /// S6: a branch goes back to a snapshot. What it was becomes a snapshot, with a name if it is to be kept.
    pub(in crate::lineage) fn roll_back(
        &mut self,
        branch: usize,
        snapshot: usize,
        keep: bool,
        broken: Option<Mutant>,
    ) {
        self.turn_to(branch, snapshot, keep, Mutant::RollbackKeepsParent, broken);
    }

    /// S6a: a branch becomes what a fork is, and that is no branch any more. What the branch was gets a name, if it is to be
    /// kept.
    pub(in crate::lineage) fn promote(
        &mut self,
        branch: usize,
        fork: usize,
        keep: bool,
        broken: Option<Mutant>,
    ) {
        self.snapshot(fork, false, broken);
        let head = self.branches[fork].and_then(|of| of.parent).expect("it was just made");
        self.turn_to(branch, head, keep, Mutant::PromotedBesideItsFork, broken);
        self.branches[fork] = None;
    }

    fn turn_to(
        &mut self,
        branch: usize,
        snapshot: usize,
        keep: bool,
        keeps_parent: Mutant,
        broken: Option<Mutant>,
    ) {
        self.snapshot(branch, keep, broken);
        let parent = self.branches[branch].and_then(|of| of.parent);
        let mut there = self.grown_out_of(snapshot, broken);
        if broken == Some(keeps_parent) {
            there.parent = parent;
        }
        self.branches[branch] = Some(there);
    }

    /// As [`Volume::promote`], for a branch that must be what the fork has begun with, and is forgotten.
    pub(in crate::lineage) fn promote_unchanged(
        &mut self,
        branch: usize,
        fork: usize,
        broken: Option<Mutant>,
    ) {
        if self.has_diverged(branch, fork) {
            self.fail("S6a: a promotion takes back what was done since the fork was made");
        }
        self.promote(branch, fork, false, broken);
    }

    /// Whether a branch holds something else than the youngest snapshot out of which it and its fork have grown.
    pub(in crate::lineage) fn has_diverged(&self, branch: usize, fork: usize) -> bool {
        let parent = |at: usize| self.branches[at].and_then(|of| of.parent);
        let line = |at: usize| {
            std::iter::successors(parent(at), |at| self.snapshots[*at].and_then(|of| of.parent))
        };
        let base = line(fork).find(|base| line(branch).any(|of| of == *base));
        let truth = base.and_then(|at| self.snapshots[at]).map(|of| of.truth);
        truth != self.branches[branch].map(|of| of.truth)
    }

    /// S4: a snapshot loses its name; it goes when at most one tree has grown out of it.
    pub(in crate::lineage) fn delete(&mut self, snapshot: usize) {
        self.snapshots[snapshot].as_mut().expect("the snapshot is there").named = false;
    }

    /// S5: a branch becomes a snapshot without a name, out of which nothing grows.
    pub(in crate::lineage) fn delete_branch(&mut self, branch: usize, broken: Option<Mutant>) {
        self.snapshot(branch, false, broken);
        if broken == Some(Mutant::BranchDeletedWhole) {
            let at = self.branches[branch].and_then(|of| of.parent).expect("it was just made");
            self.snapshots[at].as_mut().expect("it was just made").parent = None;
        }
        self.branches[branch] = None;
    }
}
