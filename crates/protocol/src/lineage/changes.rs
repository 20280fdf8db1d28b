//! What programs and people change: files, the lineage (S2, S3, S5, S6, S6a), and the epoch.

use super::BranchKey;
use super::mutant::Mutant;
use super::volume::{
    Branch, Broken, Extent, Hand, KEYS, NODE, Node, Pointer, Snapshot, Value, Version, Volume,
};

impl Volume {
    /// S1: a branch drops what it has at a place of the walk's order. Whether it was its own.
    fn drop_at(&mut self, place: BranchKey, at: Pointer, hand: &mut Hand<'_>) -> bool {
        let is_own = self.owns(place, at, hand.broken);
        if is_own {
            self.free(at, hand);
        }
        is_own
    }

    /// The node of a branch, for a change: of this epoch, or a copy that is. No log tells of a copy: a replay makes its own.
    fn own_node(&mut self, branch: usize, hand: &mut Hand<'_>) -> Option<&mut Node> {
        let of = self.branch(branch);
        if of.root.birth == self.epoch {
            return self.nodes[of.root.block as usize].as_mut();
        }
        let Some(old) = self.node(of.root).copied() else {
            self.fail("S9: the root of a branch was freed");
            return None;
        };
        let root = self.take(hand);
        let version = hand.write(root);
        self.drop_at((branch, NODE), of.root, hand);
        self.branches[branch] = Some(Branch { root, ..of });
        Some(self.nodes[root.block as usize].insert(Node { version, ..old }))
    }

    /// Another value for a key, and what it was before. Nothing is freed.
    pub(super) fn set(
        &mut self,
        (branch, key): BranchKey,
        value: Value,
        hand: &mut Hand<'_>,
    ) -> Value {
        let node = self.own_node(branch, hand)?;
        let old = std::mem::replace(&mut node.items[key], value);
        if let Some(of) = &mut self.branches[branch] {
            of.truth[key] = value.filter(|extent| extent.version > 0);
        }
        old
    }

    /// Another value for a key. Answers what the branch gave up with the one before, if it was its own.
    pub(super) fn put(
        &mut self,
        at: BranchKey,
        value: Value,
        hand: &mut Hand<'_>,
    ) -> Option<Pointer> {
        let old = self.set(at, value, hand)?.at;
        let moved = value.is_none_or(|new| new.at != old);
        (moved && self.drop_at(at, old, hand)).then_some(old)
    }

    /// New data in a block of its own.
    pub(super) fn write(&mut self, hand: &mut Hand<'_>) -> Extent {
        let at = self.take(hand);
        Extent { at, version: hand.write(at) }
    }

    /// A block for a key, which is not written.
    pub(super) fn reserve(&mut self, at: BranchKey, hand: &mut Hand<'_>) {
        let new = Extent { at: self.take(hand), version: 0 };
        self.put(at, Some(new), hand);
    }

    /// The extent of a key, and whether a snapshot has its blocks as well. What a deletion of the parent has passed counts,
    /// too: that is no mistake, only a block more.
    fn extent(&self, at: BranchKey) -> (Extent, bool) {
        let extent = self.item(at).expect("the key has a value");
        (extent, extent.at.birth <= self.epoch_of(self.branch(at.0).parent))
    }

    /// The data of a key is gone, and its block stays reserved: the same block, if no snapshot has it.
    pub(super) fn unwrite(&mut self, at: BranchKey, hand: &mut Hand<'_>) {
        let (old, is_shared) = self.extent(at);
        if is_shared && !hand.is(Mutant::SharedUnwritten) {
            return self.reserve(at, hand);
        }
        *hand.unwritten |= old.at.bit();
        self.put(at, Some(Extent { version: 0, ..old }), hand);
    }

    /// The first data of a reserved block is on its way, in place; nothing if it has to go to a block of its own, because
    /// a snapshot has the block or a crash may bring back what it held.
    pub(super) fn send(&self, at: BranchKey, hand: &mut Hand<'_>) -> Option<Version> {
        let (old, is_shared) = self.extent(at);
        let is_held = is_shared && !hand.is(Mutant::ReservedFilledInPlace);
        let may_come_back =
            *hand.unwritten & old.at.bit() != 0 && !hand.is(Mutant::FilledBeforeDurable);
        (!is_held && !may_come_back).then(|| hand.write(old.at))
    }

    /// S2: the tree of a branch as it is becomes a snapshot, and the branch goes on from it. One that has changed in
    /// this epoch ends it; one that has not is taken as it is.
    pub(super) fn snapshot_of(&mut self, branch: usize, is_named: bool, broken: Broken) -> usize {
        let of = self.branch(branch);
        let has_changed = of.root.birth == self.epoch;
        let epoch = if has_changed { self.epoch } else { self.epoch - 1 };
        if has_changed && broken != Some(Mutant::EpochNotMoved) {
            self.epoch += 1;
        }
        let at = self.snapshots.iter().position(Option::is_none).expect("there is room");
        self.snapshots[at] = Some(Snapshot { of, epoch, is_named, cursor: None });
        self.branches[branch] = Some(Branch { parent: Some(at), ..of });
        at
    }

    fn grown_out_of(&self, snapshot: usize, broken: Broken) -> Branch {
        let of = self.snapshot(snapshot).of;
        let beside = broken == Some(Mutant::ForkBesideItsSnapshot);
        Branch { parent: if beside { of.parent } else { Some(snapshot) }, ..of }
    }

    fn new_place(&self) -> usize {
        self.branches.iter().position(Option::is_none).expect("there is room")
    }

    /// S3: a branch whose tree is that of a snapshot.
    pub(super) fn fork(&mut self, snapshot: usize, broken: Broken) -> usize {
        let at = self.new_place();
        self.branches[at] = Some(self.grown_out_of(snapshot, broken));
        at
    }

    /// S3: a branch that has grown out of nothing. Its tree is a leaf of its own, in which nothing is.
    pub(super) fn new_branch(&mut self, hand: &mut Hand<'_>) -> usize {
        let at = self.new_place();
        let other = self.branches.iter().flatten().next().copied();
        if let Some(other) = other.filter(|_| hand.is(Mutant::NewBranchOutOfAnother)) {
            self.branches[at] = Some(Branch { parent: None, ..other });
            return at;
        }
        let root = self.take(hand);
        let node = Node { version: hand.write(root), items: [None; KEYS] };
        self.nodes[root.block as usize] = Some(node);
        if hand.is(Mutant::NewLeafNotTaken) {
            self.used &= !root.bit();
        }
        self.branches[at] = Some(Branch { root, parent: None, truth: [None; KEYS] });
        at
    }

    /// S6: a branch goes back to a snapshot. What it was becomes a snapshot, with a name if it is to be kept.
    pub(super) fn roll_back(&mut self, branch: usize, to: usize, keep: bool, broken: Broken) {
        let before = self.snapshot_of(branch, keep, broken);
        let mut there = self.grown_out_of(to, broken);
        if broken == Some(Mutant::RollbackKeepsParent) {
            there.parent = Some(before);
        }
        self.branches[branch] = Some(there);
    }

    /// S6a: a branch becomes what a fork is, and that is no branch any more. What the branch was gets a name, if it is to be
    /// kept.
    pub(super) fn promote(&mut self, branch: usize, fork: usize, keep: bool, broken: Broken) {
        let head = self.snapshot_of(fork, false, broken);
        let is_beside = broken == Some(Mutant::PromotedBesideItsFork);
        let beside = Some(Mutant::RollbackKeepsParent).filter(|_| is_beside);
        self.roll_back(branch, head, keep, beside.or(broken));
        self.branches[fork] = None;
    }

    /// Whether a branch holds something else than the youngest snapshot out of which it and its fork have grown.
    pub(super) fn has_diverged(&self, branch: usize, fork: usize) -> bool {
        let line = |at: usize| {
            let parent = self.branch(at).parent;
            std::iter::successors(parent, |at| self.snapshots[*at].and_then(|at| at.of.parent))
        };
        let base = line(fork).find(|base| line(branch).any(|of| of == *base));
        let truth = base.and_then(|at| self.snapshots[at]).map(|at| at.of.truth);
        truth != Some(self.branch(branch).truth)
    }

    /// S5: a branch becomes a snapshot without a name, out of which nothing grows.
    pub(super) fn delete_branch(&mut self, branch: usize, broken: Broken) {
        let at = self.snapshot_of(branch, false, broken);
        if broken == Some(Mutant::BranchDeletedWhole) {
            self.snapshot_mut(at).of.parent = None;
        }
        self.branches[branch] = None;
    }
}
