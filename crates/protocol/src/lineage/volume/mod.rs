//! A volume with branches: what its transactions keep, and the rules S1 to S6a by which they change it.
//!
//! A tree is one node with an item for each key: enough for a node that is shared, for items that are, and for a walk
//! that meets the items before the node above them. What another model shows, that a crash leaves a prefix of
//! transactions, is taken for granted here.

mod branches;
mod changes;
mod deletion;
mod judgement;
mod space;

use super::mutant::Mutant;

/// Keys of a tree.
pub(super) const KEYS: usize = 2;
/// Blocks of the volume.
pub(super) const BLOCKS: usize = 14;
/// Branches at most.
pub(super) const BRANCHES: usize = 2;
/// Snapshots at most, those without a name included.
pub(super) const SNAPSHOTS: usize = 4;
/// The place of the node in the order of a walk: behind all its items.
const NODE: usize = KEYS;

/// What must never happen, and what it breaks.
pub(super) type Violation = &'static str;
/// A checkpoint's number.
pub(super) type Epoch = u8;
/// Names what was written once. No two writes have the same.
pub(super) type Tag = u8;

/// Where a node or the data of an extent lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pointer {
    block: u8,
    birth: Epoch,
}

/// The value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Extent {
    at: Pointer,
    /// What it holds; nothing, if it was reserved and never written.
    content: Option<Tag>,
}

/// A node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Node {
    tag: Tag,
    items: [Option<Extent>; KEYS],
}

/// What a tree holds, as a user sees it. 0: nothing.
type Contents = [Tag; KEYS];

/// A branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Branch {
    root: Pointer,
    parent: Option<usize>,
    /// What must be read.
    truth: Contents,
}

/// A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Snapshot {
    root: Pointer,
    /// Nothing in it is younger.
    epoch: Epoch,
    parent: Option<usize>,
    /// It has a name. Without one it is there only because other trees grew out of it.
    named: bool,
    /// How far its deletion has come.
    cursor: Option<usize>,
    truth: Contents,
}

/// The tree that grew out of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Child {
    Branch(usize),
    Snapshot(usize),
}

/// The blocks, with what was written to them last. No crash takes that back.
pub(super) type Device = [Tag; BLOCKS];

/// What a crash takes back to a moment before.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Volume {
    epoch: Epoch,
    nodes: [Option<Node>; BLOCKS],
    /// A bit for each block in use.
    used: u16,
    branches: [Option<Branch>; BRANCHES],
    snapshots: [Option<Snapshot>; SNAPSHOTS],
    /// For the mutant with half a step of a walk: which half comes next.
    half: bool,
    pub(super) violation: Option<Violation>,
}

/// What a transaction needs from outside of the volume.
pub(super) struct Hand<'a> {
    pub(super) device: &'a mut Device,
    /// The last tag that was given.
    pub(super) tag: &'a mut Tag,
    /// Blocks that something uses to which a crash may go back.
    pub(super) kept: u16,
    /// Blocks that held data and were made unwritten since the last durable moment.
    pub(super) unwritten: &'a mut u16,
    pub(super) broken: Option<Mutant>,
}

impl Hand<'_> {
    fn is(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }

    fn next_tag(&mut self) -> Tag {
        *self.tag += 1;
        *self.tag
    }
}

fn bit(block: u8) -> u16 {
    1 << block
}

impl Volume {
    /// A volume with one branch, whose keys were written in an epoch that is over.
    pub(super) fn new(device: &mut Device) -> (Volume, Tag) {
        let pointer = |block| Pointer { block, birth: 1 };
        let extent = |block, tag| Some(Extent { at: pointer(block), content: Some(tag) });
        let mut nodes = [None; BLOCKS];
        nodes[0] = Some(Node { tag: 1, items: [extent(1, 2), extent(2, 3)] });
        device[..3].copy_from_slice(&[1, 2, 3]);
        let main = Branch { root: pointer(0), parent: None, truth: [2, 3] };
        let volume = Volume {
            epoch: 2,
            nodes,
            used: 0b111,
            branches: [Some(main), None],
            snapshots: [None; SNAPSHOTS],
            half: false,
            violation: None,
        };
        (volume, 3)
    }

    pub(super) fn used(&self) -> u16 {
        self.used
    }

    pub(super) fn branches(&self) -> impl Iterator<Item = usize> {
        (0..BRANCHES).filter(|at| self.branches[*at].is_some())
    }

    /// Snapshots that have a name.
    pub(super) fn named(&self) -> impl Iterator<Item = usize> {
        (0..SNAPSHOTS).filter(|at| self.snapshots[*at].is_some_and(|of| of.named))
    }

    pub(super) fn has_room(&self) -> (bool, bool) {
        (self.branches.contains(&None), self.snapshots.contains(&None))
    }

    /// Whether a fork can be promoted: what it is becomes a snapshot, and what its branch was.
    pub(super) fn has_room_for_promotion(&self) -> bool {
        self.snapshots.iter().filter(|of| of.is_none()).count() > 1
    }

    pub(super) fn holds(&self, branch: usize, key: usize) -> (bool, bool) {
        let item = self.branches[branch].and_then(|of| self.node(of.root)?.items[key]);
        (item.is_some(), item.is_some_and(|extent| extent.content.is_none()))
    }

    fn node(&self, at: Pointer) -> Option<&Node> {
        self.nodes[at.block as usize].as_ref()
    }

    fn fail(&mut self, why: Violation) {
        self.violation.get_or_insert(why);
    }

    fn epoch_of(&self, snapshot: Option<usize>) -> Epoch {
        snapshot.and_then(|at| self.snapshots[at]).map_or(0, |of| of.epoch)
    }

    fn children(&self, snapshot: usize) -> Vec<Child> {
        let branches = (0..BRANCHES)
            .filter(|at| self.branches[*at].is_some_and(|of| of.parent == Some(snapshot)))
            .map(Child::Branch);
        let snapshots = (0..SNAPSHOTS)
            .filter(|at| self.snapshots[*at].is_some_and(|of| of.parent == Some(snapshot)))
            .map(Child::Snapshot);
        branches.chain(snapshots).collect()
    }

    fn root_of(&self, child: Child) -> Pointer {
        match child {
            Child::Branch(at) => self.branches[at].expect("a child is there").root,
            Child::Snapshot(at) => self.snapshots[at].expect("a child is there").root,
        }
    }
}
