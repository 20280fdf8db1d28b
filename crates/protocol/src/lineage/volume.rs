//! What a commit carries: trees, blocks in use, branches and snapshots. And what must hold of them at each moment.
//!
//! A tree is one node with an item for each key: enough for a node that is shared, for items that are, and for a walk
//! that meets the items before the node above them.

use super::BranchKey;
use super::mutant::Mutant;

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
/// How often a block was written since it was taken; 0: never.
pub(super) type Version = u8;

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

/// Where the value of a key lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Extent {
    pub(super) at: Pointer,
    /// What it holds: 0, if it was reserved and never written.
    pub(super) version: Version,
}

/// The value of a key, if it has one.
pub(super) type Value = Option<Extent>;
/// A value for each key.
pub(super) type Items = [Value; KEYS];
/// What is done wrong.
pub(super) type Broken = Option<Mutant>;

/// A node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) version: Version,
    pub(super) items: Items,
}

/// A branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Branch {
    pub(super) root: Pointer,
    pub(super) parent: Option<usize>,
    /// What must be read: nothing, where nothing was written.
    pub(super) truth: Items,
}

/// A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Snapshot {
    /// What the branch was.
    pub(super) of: Branch,
    /// Nothing in it is younger.
    pub(super) epoch: Epoch,
    /// It has a name. Without one it is there only because other trees grew out of it.
    pub(super) is_named: bool,
    /// How far its deletion has come.
    pub(super) cursor: Option<usize>,
}

/// The blocks, with what was written to them last. No crash takes that back.
pub(super) type Device = [Version; BLOCKS];

/// The volume at a moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Volume {
    pub(super) epoch: Epoch,
    pub(super) nodes: [Option<Node>; BLOCKS],
    pub(super) used: Blocks,
    pub(super) branches: [Option<Branch>; BRANCHES],
    pub(super) snapshots: [Option<Snapshot>; SNAPSHOTS],
    /// For the mutant with half a step of a walk: which half comes next.
    pub(super) half: bool,
    pub(super) violation: Option<Violation>,
}

/// What a user sees: each branch, and each snapshot that has a name.
pub(super) type UserView = ([Option<Items>; BRANCHES], [Option<Items>; SNAPSHOTS]);

/// What a transaction needs from outside of the volume.
pub(super) struct Hand<'a> {
    pub(super) device: &'a mut Device,
    /// Blocks that a crash may bring back.
    pub(super) kept: Blocks,
    /// Blocks that the transaction has freed.
    pub(super) freed: Blocks,
    /// Blocks that held data and were made unwritten since the last durable moment.
    pub(super) unwritten: &'a mut Blocks,
    pub(super) broken: Broken,
}

impl Hand<'_> {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }

    /// Writes to a block.
    pub(super) fn write(&mut self, at: Pointer) -> Version {
        self.device[at.block as usize] += 1;
        self.device[at.block as usize]
    }
}

impl Volume {
    /// A volume with one branch, whose keys were written in an epoch that is over.
    pub(super) fn new(device: &mut Device) -> Volume {
        let pointer = |block| Pointer { block, birth: 1 };
        let items = [1, 2].map(|block| Some(Extent { at: pointer(block), version: 1 }));
        let mut nodes = [None; BLOCKS];
        nodes[0] = Some(Node { version: 1, items });
        device[..=KEYS].fill(1);
        let main = Branch { root: pointer(0), parent: None, truth: items };
        Volume {
            epoch: 2,
            nodes,
            used: 0b111,
            branches: [Some(main), None],
            snapshots: [None; SNAPSHOTS],
            half: false,
            violation: None,
        }
    }

    pub(super) fn fail(&mut self, why: Violation) {
        self.violation.get_or_insert(why);
    }

    pub(super) fn branches(&self) -> impl Iterator<Item = usize> {
        (0..BRANCHES).filter(|at| self.branches[*at].is_some())
    }

    /// Snapshots that have a name.
    pub(super) fn named(&self) -> impl Iterator<Item = usize> {
        (0..SNAPSHOTS).filter(|at| self.snapshots[*at].is_some_and(|of| of.is_named))
    }

    /// Snapshots that are being deleted.
    pub(super) fn deleted(&self) -> impl Iterator<Item = usize> {
        (0..SNAPSHOTS).filter(|at| self.snapshots[*at].is_some_and(|of| of.cursor.is_some()))
    }

    pub(super) fn seen(&self) -> UserView {
        let snapshots = self.snapshots.map(|at| at.filter(|at| at.is_named).map(|at| at.of.truth));
        (self.branches.map(|of| of.map(|of| of.truth)), snapshots)
    }

    pub(super) fn node(&self, at: Pointer) -> Option<&Node> {
        self.nodes[at.block as usize].as_ref()
    }

    pub(super) fn branch(&self, at: usize) -> Branch {
        self.branches[at].expect("the branch is there")
    }

    pub(super) fn snapshot(&self, at: usize) -> Snapshot {
        self.snapshots[at].expect("the snapshot is there")
    }

    pub(super) fn snapshot_mut(&mut self, at: usize) -> &mut Snapshot {
        self.snapshots[at].as_mut().expect("the snapshot is there")
    }

    /// The item of a key of a branch.
    pub(super) fn item(&self, (branch, key): BranchKey) -> Value {
        self.node(self.branch(branch).root)?.items[key]
    }

    pub(super) fn epoch_of(&self, snapshot: Option<usize>) -> Epoch {
        snapshot.and_then(|at| self.snapshots[at]).map_or(0, |of| of.epoch)
    }

    /// What has grown out of a snapshot, with its root: snapshots, which it names, and then branches.
    pub(super) fn children(&self, snapshot: usize) -> Vec<(Option<usize>, Pointer)> {
        let snapshots = self.snapshots.iter().enumerate();
        let snapshots = snapshots.filter_map(|(at, of)| Some((Some(at), of.as_ref()?.of)));
        let all = snapshots.chain(self.branches.iter().flatten().map(|of| (None, *of)));
        let all = all.filter(|(_, of)| of.parent == Some(snapshot));
        all.map(|(at, of)| (at, of.root)).collect()
    }

    /// A block that is not in use, and that no crash may bring back (R2).
    pub(super) fn take(&mut self, hand: &Hand<'_>) -> Pointer {
        let kept = if hand.is(Mutant::FreedReusedAtOnce) { 0 } else { hand.kept | hand.freed };
        let block = (0..BLOCKS as u8)
            .find(|block| (self.used | kept) & (1 << block) == 0)
            .expect("the model has blocks for all that its bounds allow");
        let at = Pointer { block, birth: self.epoch };
        self.used |= at.bit();
        at
    }

    pub(super) fn free(&mut self, at: Pointer, hand: &mut Hand<'_>) {
        if self.used & at.bit() == 0 {
            return self.fail("S4: a block is freed that is free");
        }
        self.used &= !at.bit();
        hand.freed |= at.bit();
        // A node may be there; what a crash goes back to has it still.
        self.nodes[at.block as usize] = None;
    }

    /// S1: whether what a branch drops at a place of the walk's order belongs to it alone.
    pub(super) fn owns(&self, (branch, place): BranchKey, at: Pointer, broken: Broken) -> bool {
        let is = |mutant| broken == Some(mutant);
        let Some(parent) = self.branch(branch).parent.and_then(|at| self.snapshots[at]) else {
            return true;
        };
        let or_equal = is(Mutant::BirthComparedOrEqual) && at.birth == parent.epoch;
        if at.birth > parent.epoch || or_equal || is(Mutant::ParentNotAsked) {
            return true;
        }
        // The trap: the parent is being deleted meanwhile. What the walk has passed it has left to the branch.
        let Some(cursor) = parent.cursor else { return false };
        let is_passed = is(Mutant::ChildFreesBehindCursor)
            || place < cursor && !is(Mutant::ChildLeavesBeforeCursor);
        is_passed && at.birth > self.epoch_of(parent.of.parent)
    }

    /// P13 and P14: each branch and each snapshot holds what it must. S1: what a branch would free, no other tree
    /// reaches. S9: a block is in use if, and only if, a tree reaches it.
    pub(super) fn judge(&mut self, device: &Device) {
        let is_gone = |of: &Branch| of.parent.is_some_and(|at| self.snapshots[at].is_none());
        let is_wrong = |of: &Branch| !self.reads(of.root, of.truth, device);
        let branches = self.branches.iter().flatten();
        let snapshots = self.snapshots.iter().flatten();
        let reached = self.reached_but_by(None);
        let why = if branches.clone().chain(snapshots.clone().map(|at| &at.of)).any(is_gone) {
            "S4: a branch or snapshot has a parent that is gone"
        } else if branches.clone().any(is_wrong) {
            "P14: a branch holds what was not written to it"
        } else if snapshots.clone().any(|at| at.cursor.is_none() && is_wrong(&at.of)) {
            "P13: a snapshot has changed"
        } else if snapshots.clone().any(|at| self.is_lost(at)) {
            "S4: a walk needs a node that was freed"
        } else if self.branches().any(|branch| self.owns_of_others(branch)) {
            "S1: a branch would free what another tree reaches"
        } else if self.used & !reached != 0 {
            "S9: a block is in use and no tree reaches it"
        } else if reached & !self.used != 0 {
            "S9: a tree reaches a block that is free"
        } else {
            return;
        };
        self.fail(why);
    }

    fn is_lost(&self, at: &Snapshot) -> bool {
        at.cursor.is_some_and(|cursor| cursor <= NODE) && self.node(at.of.root).is_none()
    }

    fn owns_of_others(&self, branch: usize) -> bool {
        let of = self.branch(branch);
        let theirs = self.reached_but_by(Some(branch));
        let items = self.node(of.root).map(|node| node.items).unwrap_or_default();
        let items = items.map(|item| item.map(|extent| extent.at));
        let mut mine = items.into_iter().chain([Some(of.root)]).enumerate();
        mine.any(|(place, at)| {
            at.is_some_and(|at| theirs & at.bit() != 0 && self.owns((branch, place), at, None))
        })
    }

    /// Whether a tree is what it must be, and all of it is on the device.
    fn reads(&self, root: Pointer, truth: Items, device: &Device) -> bool {
        let is_there = |at: Pointer, version| device[at.block as usize] == version;
        self.node(root).is_some_and(|node| {
            shown(node.items) == truth
                && truth.iter().flatten().all(|extent| is_there(extent.at, extent.version))
                && is_there(root, node.version)
        })
    }

    /// Blocks that all trees reach, but for one branch; of a snapshot that is being deleted, what the walk has not passed.
    fn reached_but_by(&self, branch: Option<usize>) -> Blocks {
        let branches = self.branches().filter(|at| Some(*at) != branch);
        let branches = branches.map(|at| (self.branch(at).root, 0));
        let snapshots = self.snapshots.iter().flatten();
        let trees = branches.chain(snapshots.map(|at| (at.of.root, at.cursor.unwrap_or(0))));
        trees.filter(|(_, from)| *from <= NODE).fold(0, |reached, (root, from)| {
            let Some(node) = self.node(root) else { return reached };
            let items = node.items.iter().skip(from).flatten();
            items.fold(reached | root.bit(), |reached, extent| reached | extent.at.bit())
        })
    }
}

/// What a user sees of items: nothing of what is reserved.
pub(super) fn shown(items: Items) -> Items {
    items.map(|item| item.filter(|extent| extent.version > 0))
}
