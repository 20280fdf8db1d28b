//! A volume with branches: what its transactions keep, and the rules S1 to S6 by which they change it.
//!
//! A tree is one node with an item for each key: enough for a node that is shared, for items that are, and for a walk
//! that meets the items before the node above them. What another model shows, that a crash leaves a prefix of
//! transactions, is taken for granted here.

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

    // Space.

    fn take(&mut self, hand: &mut Hand<'_>) -> Pointer {
        let kept = if hand.is(Mutant::FreedReusedAtOnce) { 0 } else { hand.kept };
        let block = (0..BLOCKS as u8)
            .find(|block| (self.used | kept) & bit(*block) == 0)
            .expect("the model has blocks for all that its bounds allow");
        self.used |= bit(block);
        Pointer { block, birth: self.epoch }
    }

    fn free(&mut self, at: Pointer) {
        if self.used & bit(at.block) == 0 {
            return self.fail("S4: a block is freed that is free");
        }
        self.used &= !bit(at.block);
        // A node may be there; what a crash goes back to has it still.
        self.nodes[at.block as usize] = None;
    }

    /// S1: a branch drops what it has at a place of the walk's order.
    fn drop_at(&mut self, branch: usize, place: usize, at: Pointer, hand: &Hand<'_>) {
        if self.is_own(branch, place, at, hand) {
            self.free(at);
        }
    }

    fn is_own(&self, branch: usize, place: usize, at: Pointer, hand: &Hand<'_>) -> bool {
        let parent = self.branches[branch].expect("the branch is there").parent;
        let Some(snapshot) = parent.and_then(|at| self.snapshots[at]) else {
            return true;
        };
        let or_equal = hand.is(Mutant::BirthComparedOrEqual) && at.birth == snapshot.epoch;
        if at.birth > snapshot.epoch || or_equal || hand.is(Mutant::ParentNotAsked) {
            return true;
        }
        // The trap: the parent is being deleted meanwhile. What the walk has passed it has left to the branch.
        let Some(cursor) = snapshot.cursor else {
            return false;
        };
        let passed = if hand.is(Mutant::ChildFreesBehindCursor) {
            true
        } else if hand.is(Mutant::ChildLeavesBeforeCursor) {
            false
        } else {
            place < cursor
        };
        passed && at.birth > self.epoch_of(snapshot.parent)
    }

    // What programs do in a branch.

    /// The node of a branch, for a change: of this epoch, or a copy that is.
    fn own_node(&mut self, branch: usize, hand: &mut Hand<'_>) -> &mut Node {
        let of = self.branches[branch].expect("the branch is there");
        if of.root.birth == self.epoch {
            return self.nodes[of.root.block as usize].as_mut().expect("a root is there");
        }
        let old = *self.node(of.root).expect("a root is there");
        let root = self.take(hand);
        let tag = hand.next_tag();
        hand.device[root.block as usize] = tag;
        self.drop_at(branch, NODE, of.root, hand);
        self.branches[branch] = Some(Branch { root, ..of });
        self.nodes[root.block as usize].insert(Node { tag, ..old })
    }

    fn put(&mut self, branch: usize, key: usize, extent: Option<Extent>, hand: &mut Hand<'_>) {
        let node = self.own_node(branch, hand);
        let old = std::mem::replace(&mut node.items[key], extent);
        let moved = |old: &Extent| extent.is_none_or(|new| new.at != old.at);
        if let Some(old) = old.filter(moved) {
            self.drop_at(branch, key, old.at, hand);
        }
        if let Some(of) = &mut self.branches[branch] {
            of.truth[key] = extent.and_then(|extent| extent.content).unwrap_or(0);
        }
    }

    /// New data for a key, in a block of its own.
    pub(super) fn write(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let (at, tag) = (self.take(hand), hand.next_tag());
        hand.device[at.block as usize] = tag;
        self.put(branch, key, Some(Extent { at, content: Some(tag) }), hand);
    }

    /// A block for a key, which is not written.
    pub(super) fn reserve(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let at = self.take(hand);
        self.put(branch, key, Some(Extent { at, content: None }), hand);
    }

    fn extent(&self, branch: usize, key: usize) -> Extent {
        let of = self.branches[branch].expect("the branch is there");
        self.node(of.root).and_then(|node| node.items[key]).expect("the key has a value")
    }

    /// Whether a snapshot has the blocks as well. What a deletion of the parent has passed counts, too: that is no
    /// mistake, only a block more.
    fn is_shared(&self, branch: usize, extent: Extent) -> bool {
        let of = self.branches[branch].expect("the branch is there");
        extent.at.birth <= self.epoch_of(of.parent)
    }

    /// The data of a key is gone, and its block stays reserved: the same block, if no snapshot has it.
    pub(super) fn unwrite(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        let old = self.extent(branch, key);
        if self.is_shared(branch, old) && !hand.is(Mutant::SharedUnwritten) {
            return self.reserve(branch, key, hand);
        }
        *hand.unwritten |= bit(old.at.block);
        self.put(branch, key, Some(Extent { content: None, ..old }), hand);
    }

    /// The first data of a reserved block is on its way, in place; nothing if it has to go to a block of its own, because
    /// a snapshot has the block or a crash may bring back what it held.
    pub(super) fn send(&self, branch: usize, key: usize, hand: &mut Hand<'_>) -> Option<Tag> {
        let old = self.extent(branch, key);
        let is_shared = self.is_shared(branch, old) && !hand.is(Mutant::ReservedFilledInPlace);
        let may_come_back =
            *hand.unwritten & bit(old.at.block) != 0 && !hand.is(Mutant::FilledBeforeDurable);
        if is_shared || may_come_back {
            return None;
        }
        let tag = hand.next_tag();
        hand.device[old.at.block as usize] = tag;
        Some(tag)
    }

    /// The data that was sent to a reserved block belongs to the key.
    pub(super) fn publish(&mut self, branch: usize, key: usize, tag: Tag, hand: &mut Hand<'_>) {
        let old = self.extent(branch, key);
        self.put(branch, key, Some(Extent { content: Some(tag), ..old }), hand);
    }

    /// Nothing for a key.
    pub(super) fn remove(&mut self, branch: usize, key: usize, hand: &mut Hand<'_>) {
        self.put(branch, key, None, hand);
    }

    /// A checkpoint: what changes from now on is younger.
    pub(super) fn checkpoint(&mut self) {
        self.epoch += 1;
    }

    // What people do with branches.

    /// S2: the tree of a branch as it is becomes a snapshot, and the branch goes on from it. One that has changed in
    /// this epoch ends it; one that has not is taken as it is.
    pub(super) fn snapshot(&mut self, branch: usize, named: bool, broken: Option<Mutant>) {
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
    pub(super) fn fork(&mut self, snapshot: usize, broken: Option<Mutant>) {
        let at = self.branches.iter().position(Option::is_none).expect("there is room");
        self.branches[at] = Some(self.grown_out_of(snapshot, broken));
    }

    /// S6: a branch goes back to a snapshot. What it was becomes a snapshot, with a name if it is to be kept.
    pub(super) fn roll_back(
        &mut self,
        branch: usize,
        snapshot: usize,
        keep: bool,
        broken: Option<Mutant>,
    ) {
        self.snapshot(branch, keep, broken);
        let parent = self.branches[branch].and_then(|of| of.parent);
        let mut back = self.grown_out_of(snapshot, broken);
        if broken == Some(Mutant::RollbackKeepsParent) {
            back.parent = parent;
        }
        self.branches[branch] = Some(back);
    }

    /// S4: a snapshot loses its name; it goes when at most one tree has grown out of it.
    pub(super) fn delete(&mut self, snapshot: usize) {
        self.snapshots[snapshot].as_mut().expect("the snapshot is there").named = false;
    }

    /// S5: a branch becomes a snapshot without a name, out of which nothing grows.
    pub(super) fn delete_branch(&mut self, branch: usize, broken: Option<Mutant>) {
        self.snapshot(branch, false, broken);
        if broken == Some(Mutant::BranchDeletedWhole) {
            let at = self.branches[branch].and_then(|of| of.parent).expect("it was just made");
            self.snapshots[at].as_mut().expect("it was just made").parent = None;
        }
        self.branches[branch] = None;
    }

    // Deletion, behind the scenes.

    /// Snapshots whose deletion may begin.
    pub(super) fn deletable(&self, broken: Option<Mutant>) -> Vec<usize> {
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
    pub(super) fn is_stuck(&self) -> bool {
        let waits = (0..SNAPSHOTS).any(|at| {
            let goes = self.snapshots[at].is_some_and(|of| !of.named && of.cursor.is_none());
            goes && self.children(at).len() <= 1
        });
        waits && self.deletable(None).is_empty() && self.deleted().next().is_none()
    }

    /// Snapshots that are being deleted.
    pub(super) fn deleted(&self) -> impl Iterator<Item = usize> {
        (0..SNAPSHOTS).filter(|at| self.snapshots[*at].is_some_and(|of| of.cursor.is_some()))
    }

    /// A deletion begins.
    pub(super) fn begin_deletion(&mut self, snapshot: usize) {
        self.snapshots[snapshot].as_mut().expect("the snapshot is there").cursor = Some(0);
    }

    /// A step of a deletion: one transaction frees, and moves the cursor.
    pub(super) fn walk(&mut self, snapshot: usize, hand: &Hand<'_>) {
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
    pub(super) fn forget_cursors(&mut self) {
        for of in self.snapshots.iter_mut().flatten() {
            of.cursor = of.cursor.map(|_| 0);
        }
    }

    // What must hold.

    /// P13 and P14: each branch and each snapshot holds what it must, and S9: a block is in use if, and only if, a
    /// tree reaches it.
    pub(super) fn judge(&mut self, device: &Device) {
        let mut reached = 0;
        for at in 0..BRANCHES {
            if let Some(Branch { root, truth, parent }) = self.branches[at] {
                if parent.is_some_and(|at| self.snapshots[at].is_none()) {
                    self.fail("S4: a branch has a parent that is gone");
                }
                self.judge_tree(
                    root,
                    truth,
                    device,
                    "P14: a branch holds what was not written to it",
                );
                reached |= self.reached(root, 0);
            }
        }
        for at in 0..SNAPSHOTS {
            let Some(of) = self.snapshots[at] else { continue };
            if of.parent.is_some_and(|at| self.snapshots[at].is_none()) {
                self.fail("S4: a snapshot has a parent that is gone");
            }
            match of.cursor {
                None => self.judge_tree(of.root, of.truth, device, "P13: a snapshot has changed"),
                Some(cursor) if cursor <= NODE && self.node(of.root).is_none() => {
                    self.fail("S4: a walk needs a node that was freed");
                }
                Some(_) => {}
            }
            reached |= self.reached(of.root, of.cursor.unwrap_or(0));
        }
        if self.used & !reached != 0 {
            self.fail("S9: a block is in use and no tree reaches it");
        }
        if reached & !self.used != 0 {
            self.fail("S9: a tree reaches a block that is free");
        }
    }

    fn judge_tree(&mut self, root: Pointer, truth: Contents, device: &Device, why: Violation) {
        let is_there = |at: Pointer, tag: Tag| device[at.block as usize] == tag;
        let is_right = self.node(root).is_some_and(|node| {
            let items = node.items.iter().zip(truth).all(|(item, truth)| match item {
                Some(Extent { at, content: Some(tag) }) => *tag == truth && is_there(*at, *tag),
                Some(Extent { content: None, .. }) | None => truth == 0,
            });
            items && is_there(root, node.tag)
        });
        if !is_right {
            self.fail(why);
        }
    }

    /// Blocks that a tree reaches from a place of the walk's order on.
    fn reached(&self, root: Pointer, from: usize) -> u16 {
        let Some(node) = self.node(root).filter(|_| from <= NODE) else {
            return 0;
        };
        let items = node.items.iter().skip(from).flatten();
        items.fold(bit(root.block), |reached, extent| reached | bit(extent.at.block))
    }
}
