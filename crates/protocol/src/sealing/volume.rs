//! What a commit carries: trees, blocks in use, branches and snapshots. And S1, which asks it.

use super::Mutant;

/// Keys of a tree.
pub(super) const KEYS: usize = 2;
/// Blocks of the volume.
pub(super) const BLOCKS: usize = 24;
/// Branches at most.
pub(super) const BRANCHES: usize = 2;
/// Snapshots at most, those without a name included.
pub(super) const SNAPSHOTS: usize = 4;
/// The place of the node in the order of a walk: behind all its items.
pub(super) const NODE: usize = KEYS;

/// What must never happen, and what it breaks.
pub(super) type Violation = &'static str;
/// A checkpoint's number.
pub(super) type Epoch = u8;
/// A bit for each block.
pub(super) type Blocks = u32;

/// Where a node or the data of an extent lies. No two that were ever in use at once are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pointer {
    pub(super) block: u8,
    pub(super) birth: Epoch,
}

impl Pointer {
    pub(super) fn bit(self) -> Blocks {
        1 << self.block
    }
}

/// A tree: one node with an item for each key. It is what a user sees, as well.
pub(super) type Items = [Option<Pointer>; KEYS];

/// A branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Branch {
    pub(super) root: Pointer,
    pub(super) parent: Option<usize>,
}

/// A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Snapshot {
    pub(super) root: Pointer,
    /// Nothing in it is younger.
    pub(super) epoch: Epoch,
    pub(super) parent: Option<usize>,
    /// It has a name. Without one it is being deleted.
    pub(super) is_named: bool,
    /// How far its deletion has come.
    pub(super) cursor: usize,
    /// What it holds, for ever.
    pub(super) truth: Items,
}

/// What has grown out of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Child {
    Branch(usize),
    Snapshot(usize),
}

/// The volume at a moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Volume {
    pub(super) epoch: Epoch,
    pub(super) nodes: [Option<Items>; BLOCKS],
    pub(super) used: Blocks,
    pub(super) branches: [Option<Branch>; BRANCHES],
    pub(super) snapshots: [Option<Snapshot>; SNAPSHOTS],
    pub(super) violation: Option<Violation>,
}

/// What a user sees of a volume: each branch, and each snapshot that has a name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Seen([Option<Items>; BRANCHES], [Option<Items>; SNAPSHOTS]);

impl Volume {
    /// One branch, whose keys were written in an epoch that is over.
    pub(super) fn new() -> Volume {
        let pointer = |block| Pointer { block, birth: 1 };
        let mut nodes = [None; BLOCKS];
        nodes[0] = Some([Some(pointer(1)), Some(pointer(2))]);
        Volume {
            epoch: 2,
            nodes,
            used: 0b111,
            branches: [Some(Branch { root: pointer(0), parent: None }), None],
            snapshots: [None; SNAPSHOTS],
            violation: None,
        }
    }

    pub(super) fn fail(&mut self, why: Violation) {
        self.violation.get_or_insert(why);
    }

    pub(super) fn seen(&self) -> Seen {
        Seen(
            self.branches.map(|of| of.and_then(|of| self.items(of.root))),
            self.snapshots.map(|of| of.filter(|of| of.is_named).map(|of| of.truth)),
        )
    }

    pub(super) fn items(&self, root: Pointer) -> Option<Items> {
        self.nodes[root.block as usize]
    }

    pub(super) fn branch(&self, at: usize) -> Branch {
        self.branches[at].expect("the branch is there")
    }

    pub(super) fn snapshot(&self, at: usize) -> Snapshot {
        self.snapshots[at].expect("the snapshot is there")
    }

    pub(super) fn epoch_of(&self, snapshot: Option<usize>) -> Epoch {
        snapshot.and_then(|at| self.snapshots[at]).map_or(0, |of| of.epoch)
    }

    pub(super) fn children(&self, snapshot: usize) -> Vec<Child> {
        let of = Some(snapshot);
        let branches = (0..BRANCHES)
            .filter(|at| self.branches[*at].is_some_and(|branch| branch.parent == of))
            .map(Child::Branch);
        let snapshots = (0..SNAPSHOTS)
            .filter(|at| self.snapshots[*at].is_some_and(|other| other.parent == of))
            .map(Child::Snapshot);
        snapshots.chain(branches).collect()
    }

    /// A block that is not in use, nor one of `kept`.
    pub(super) fn take(&mut self, kept: Blocks) -> Pointer {
        let block = (0..BLOCKS as u8)
            .find(|block| (self.used | kept) & (1 << block) == 0)
            .expect("the model has blocks for all that its bounds allow");
        let at = Pointer { block, birth: self.epoch };
        self.used |= at.bit();
        at
    }

    pub(super) fn free(&mut self, at: Pointer) {
        if self.used & at.bit() == 0 {
            return self.fail("S9: a block is freed that is free");
        }
        self.used &= !at.bit();
        self.nodes[at.block as usize] = None;
    }

    /// S1 and S4: whether what a branch drops at a place belongs to it alone.
    pub(super) fn owns(
        &self,
        branch: usize,
        place: usize,
        at: Pointer,
        broken: Option<Mutant>,
    ) -> bool {
        let Some(parent) = self.branch(branch).parent.and_then(|at| self.snapshots[at]) else {
            return true;
        };
        let or_equal = broken == Some(Mutant::BirthComparedOrEqual) && at.birth == parent.epoch;
        if at.birth > parent.epoch || or_equal {
            return true;
        }
        let is_passed = match broken {
            Some(Mutant::ChildFreesBehindCursor) => !parent.is_named,
            Some(Mutant::ChildLeavesBeforeCursor) => false,
            _ => place < parent.cursor,
        };
        is_passed && at.birth > self.epoch_of(parent.parent)
    }

    /// The tree of a branch, for a change: a node of this epoch, or a copy that is. No copy is logged, and no node that
    /// gave way to one: a replay copies for itself.
    pub(super) fn own_node(
        &mut self,
        branch: usize,
        kept: Blocks,
        broken: Option<Mutant>,
    ) -> (usize, Blocks) {
        let of = self.branch(branch);
        if of.root.birth == self.epoch {
            return (of.root.block as usize, 0);
        }
        let Some(old) = self.items(of.root) else {
            self.fail("S9: the root of a branch was freed");
            return (of.root.block as usize, 0);
        };
        let root = self.take(kept);
        let is_own = self.owns(branch, NODE, of.root, broken);
        if is_own {
            self.free(of.root);
        }
        self.branches[branch] = Some(Branch { root, ..of });
        self.nodes[root.block as usize] = Some(old);
        (root.block as usize, if is_own { of.root.bit() } else { 0 })
    }

    /// P13, S1 and S9, after each action and after each recovery.
    pub(super) fn judge(&mut self) {
        self.judge_ownership();
        let mut reached = 0;
        for at in 0..BRANCHES {
            let Some(Branch { root, parent }) = self.branches[at] else { continue };
            if parent.is_some_and(|at| self.snapshots[at].is_none()) {
                self.fail("S4: a branch has a parent that is gone");
            }
            if self.items(root).is_none() {
                self.fail("P14: the tree of a branch is gone");
            }
            reached |= self.reached(root, 0);
        }
        for at in 0..SNAPSHOTS {
            let Some(of) = self.snapshots[at] else { continue };
            if of.parent.is_some_and(|at| self.snapshots[at].is_none()) {
                self.fail("S4: a snapshot has a parent that is gone");
            }
            if self.items(of.root).is_none() {
                self.fail("S4: a walk needs a node that was freed, or a snapshot has lost it");
            } else if of.is_named && self.items(of.root) != Some(of.truth) {
                self.fail("P13: a snapshot has changed");
            }
            reached |= self.reached(of.root, of.cursor);
        }
        if self.used & !reached != 0 {
            self.fail("S9: a block is in use and no tree reaches it");
        }
        if reached & !self.used != 0 {
            self.fail("S9: a tree reaches a block that is free");
        }
    }

    /// What a branch would free, no other tree reaches.
    fn judge_ownership(&mut self) {
        for at in 0..BRANCHES {
            let Some(branch) = self.branches[at] else { continue };
            let others = (0..BRANCHES).filter(|other| *other != at);
            let others = others.filter_map(|other| Some((self.branches[other]?.root, 0)));
            let snapshots = self.snapshots.iter().flatten().map(|of| (of.root, of.cursor));
            let theirs = others.chain(snapshots);
            let theirs = theirs.fold(0, |all, (root, from)| all | self.reached(root, from));
            let items = self.items(branch.root).unwrap_or_default();
            let mine = items.into_iter().enumerate().chain([(NODE, Some(branch.root))]);
            let is_theirs = mine
                .filter_map(|(place, mine)| Some((place, mine?)))
                .any(|(place, mine)| theirs & mine.bit() != 0 && self.owns(at, place, mine, None));
            if is_theirs {
                self.fail("S1: a branch would free what another tree reaches");
            }
        }
    }

    /// Blocks that a tree reaches from a place of the walk's order on.
    fn reached(&self, root: Pointer, from: usize) -> Blocks {
        let items = self.items(root).into_iter().flatten().skip(from).flatten();
        items.fold(root.bit(), |reached, at| reached | at.bit())
    }
}
