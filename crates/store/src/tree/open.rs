//! The trees that are open: the space tree, and those of branches and snapshots.
//!
//! A tree that was opened keeps its number here for as long as the store is open.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Epoch, TreeId};
use holdfast_format::item::WalkPlace;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::limits::COUNTER_MAX;
use rustc_hash::FxHashMap;

use super::Root;

/// An open tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TreeNo(u32);

impl TreeNo {
    /// The space tree.
    pub(crate) const SPACE: TreeNo = TreeNo(0);
    /// That of the branch which mkfs makes.
    pub(crate) const MAIN: TreeNo = TreeNo(1);

    /// What its nodes say.
    pub(crate) fn id(self) -> TreeId {
        match self {
            TreeNo::SPACE => TreeId::Space,
            _ => TreeId::Files,
        }
    }

    /// As a number, which the space knows as well.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What of a tree is its own, and not its parent's (S1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ancestry {
    /// The number of the snapshot that it grew out of; 0: there is none.
    pub(crate) snapshot: u64,
    /// The epoch of that snapshot, or 0.
    pub(crate) parent: Epoch,
    /// That snapshot is being deleted.
    pub(crate) walk: Option<Walked>,
}

/// How far the deletion of a snapshot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    /// The epoch of its own parent: what is not younger stays with that.
    pub(crate) above: Epoch,
    /// What lies before is freed, or left to the child.
    pub(crate) cursor: WalkPlace,
}

impl Ancestry {
    /// Of a tree that owns nothing, since nobody knows what.
    pub(crate) fn of_nothing() -> Ancestry {
        Ancestry { snapshot: 0, parent: Epoch(u64::MAX), walk: None }
    }

    /// Whether what was born then belongs to the tree alone, wherever it lies.
    #[inline]
    pub(crate) fn owns_surely(&self, birth: Epoch) -> bool {
        let or_equal = mutants::is(Mutant::BirthOrEqual) && birth == self.parent;
        birth > self.parent || self.parent == Epoch(0) || or_equal
    }

    /// Whether what the tree drops at a place belongs to it alone: then it is free (S1, S4).
    #[inline]
    pub(crate) fn owns(&self, birth: Epoch, place: impl FnOnce() -> WalkPlace) -> bool {
        self.owns_surely(birth) || self.was_left(birth, place)
    }

    /// Whether the walk of the parent's deletion has left it to the tree.
    #[cold]
    fn was_left(&self, birth: Epoch, place: impl FnOnce() -> WalkPlace) -> bool {
        self.walk.is_some_and(|walk| birth > walk.above && place() < walk.cursor)
    }
}

/// What is known of an open tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenTree {
    /// Of the branch or snapshot; of the space tree: 0.
    pub(crate) number: u64,
    pub(crate) root: Root,
    /// What the tree's item says, so that it is written when that changes.
    pub(crate) carried: Root,
    pub(crate) ancestry: Ancestry,
    /// No commit that a recovery may begin with has a later parent.
    pub(crate) judged_from: Epoch,
    /// Inodes in it. Those of `main` are counted with the space.
    pub(crate) inodes: u64,
    pub(crate) inodes_carried: u64,
    /// Blocks that it refers to: of its nodes, and those that its extents have on the device. Of the space tree, which has
    /// no limit, nobody asks.
    pub(crate) referenced: u64,
    pub(crate) referenced_carried: u64,
    /// Most blocks that it may refer to; 0: no limit.
    pub(crate) limit: u64,
    /// Whether it is on the list of those that changed since the last commit.
    pub(crate) is_listed: bool,
    /// Its branch or snapshot is deleted.
    pub(crate) is_gone: bool,
}

impl OpenTree {
    /// A tree at this root, which its item has as well.
    pub(crate) fn at(number: u64, root: Root) -> OpenTree {
        OpenTree {
            number,
            root,
            carried: root,
            ancestry: Ancestry::default(),
            judged_from: Epoch(0),
            inodes: 0,
            inodes_carried: 0,
            referenced: 0,
            referenced_carried: 0,
            limit: 0,
            is_listed: false,
            is_gone: false,
        }
    }

    /// The latest epoch of a parent that a commit has with which a recovery may begin, or 0. What is younger belongs to the
    /// tree alone, whatever a crash leaves.
    pub(crate) fn sure_parent(&self) -> Epoch {
        self.ancestry.parent.max(self.judged_from)
    }

    /// Whether what was born then belongs to the tree alone, in every state that a recovery may come back to.
    pub(crate) fn owns_for_good(&self, birth: Epoch) -> bool {
        Ancestry { parent: self.sure_parent(), ..self.ancestry }.owns_surely(birth)
    }

    /// Whether it would refer to more than it may with `growth` blocks more, when so many are `promised` to it.
    pub(crate) fn exceeds_limit(&self, promised: u64, growth: u64) -> bool {
        let all = self.referenced.saturating_add(promised).saturating_add(growth);
        self.limit != 0 && all > self.limit
    }

    /// Whether its item is not as it is.
    pub(crate) fn has_moved(&self) -> bool {
        (self.root, self.inodes, self.referenced)
            != (self.carried, self.inodes_carried, self.referenced_carried)
    }
}

/// All open trees.
#[derive(Debug)]
pub(crate) struct OpenTrees {
    trees: Vec<OpenTree>,
    by_number: FxHashMap<u64, TreeNo>,
    /// Those that have moved since the last commit, perhaps.
    moved: Vec<TreeNo>,
    /// Trees whose parent went since the last commit began, and the epochs of their parents since.
    orphaned: Vec<(TreeNo, Epoch)>,
    /// The same, of the commit that is being made.
    orphaned_frozen: Vec<(TreeNo, Epoch)>,
}

impl OpenTrees {
    /// The space tree and `main`.
    pub(crate) fn new(space: Root, main: Root) -> OpenTrees {
        let trees = vec![OpenTree::at(0, space), OpenTree::at(MAIN, main)];
        OpenTrees {
            trees,
            by_number: FxHashMap::from_iter([(MAIN, TreeNo::MAIN)]),
            moved: Vec::new(),
            orphaned: Vec::new(),
            orphaned_frozen: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, tree: TreeNo) -> &OpenTree {
        &self.trees[tree.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tree: TreeNo) -> &mut OpenTree {
        &mut self.trees[tree.index()]
    }

    /// The tree of a branch or snapshot, if it is open.
    pub(crate) fn find(&self, number: u64) -> Option<TreeNo> {
        self.by_number.get(&number).copied()
    }

    /// Opens a tree that is not.
    pub(crate) fn add(&mut self, tree: OpenTree) -> TreeNo {
        let no = TreeNo(u32::try_from(self.trees.len()).expect("memory is full of trees before"));
        let before = self.by_number.insert(tree.number, no);
        assert_eq!(before, None, "tree {} is open", tree.number);
        self.trees.push(tree);
        no
    }

    /// Takes the number away from a branch or snapshot that is deleted: its tree can be looked at no more.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(tree) = self.by_number.remove(&number) {
            self.get_mut(tree).is_gone = true;
        }
    }

    /// All that are open and have a number.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = TreeNo> {
        self.by_number.values().copied()
    }

    /// A tree has changed: the next commit looks whether its root has moved. That of `main` has its own place.
    #[inline]
    pub(crate) fn changes(&mut self, tree: TreeNo) {
        if tree != TreeNo::MAIN && tree != TreeNo::SPACE {
            let of = self.get_mut(tree);
            if !std::mem::replace(&mut of.is_listed, true) {
                self.moved.push(tree);
            }
        }
    }

    /// Whether the first change of a tree since the last commit would list it.
    pub(crate) fn will_move(&self, tree: TreeNo) -> bool {
        tree != TreeNo::MAIN && tree != TreeNo::SPACE && !self.get(tree).is_listed
    }

    /// How many have changed since the last commit, perhaps.
    pub(crate) fn moved_count(&self) -> u64 {
        self.moved.len() as u64
    }

    /// One of those that have changed since the last commit.
    pub(crate) fn moved(&self) -> Option<TreeNo> {
        self.moved.last().copied()
    }

    /// The item of the last of them is as it is.
    pub(crate) fn carried(&mut self, tree: TreeNo) {
        assert_eq!(self.moved.pop(), Some(tree), "one after the other");
        let of = self.get_mut(tree);
        (of.carried, of.inodes_carried, of.is_listed) = (of.root, of.inodes, false);
        of.referenced_carried = of.referenced;
    }

    /// A tree refers to `more` blocks that it did not refer to, and not any more to `less`.
    pub(crate) fn refer(&mut self, tree: TreeNo, more: u64, less: u64) {
        if more != less {
            let of = self.get_mut(tree);
            // No volume has so many; a count that comes from a damaged one may say anything.
            of.referenced =
                of.referenced.saturating_add(more).saturating_sub(less).min(COUNTER_MAX);
            self.changes(tree);
        }
    }

    /// It is known what a tree has grown out of that was opened.
    pub(crate) fn grew_out_of(&mut self, tree: TreeNo, ancestry: Ancestry) {
        let of = self.get_mut(tree);
        (of.ancestry, of.judged_from) = (ancestry, ancestry.parent);
    }

    /// The open trees that have grown out of a snapshot. For a recovery, which opens few.
    pub(crate) fn grown_out_of(&self, snapshot: u64) -> Vec<TreeNo> {
        let trees = (0..).map(TreeNo).zip(&self.trees);
        trees.filter(|(_, of)| of.ancestry.snapshot == snapshot).map(|(no, _)| no).collect()
    }

    /// The deletion of a snapshot has come so far: an open tree that has grown out of it learns it. A snapshot has nothing to
    /// learn: it drops nothing.
    pub(crate) fn follow(&mut self, tree: TreeNo, ancestry: &Ancestry) {
        let of = self.get_mut(tree);
        if of.ancestry.snapshot == ancestry.snapshot && ancestry.snapshot != 0 {
            of.ancestry = *ancestry;
        }
    }

    /// The deletion of a snapshot has come to its end: an open tree that has grown out of it has grown out of `parent` now.
    pub(crate) fn outlives(&mut self, tree: TreeNo, snapshot: u64, parent: Ancestry) {
        let of = self.get_mut(tree);
        if of.ancestry.snapshot == snapshot && snapshot != 0 {
            // A recovery may find the snapshot until the next commit is durable.
            of.judged_from = of.judged_from.max(of.ancestry.parent);
            of.ancestry = parent;
            self.orphaned.push((tree, parent.parent));
        }
    }

    /// The present moment becomes a commit.
    pub(crate) fn freeze(&mut self) {
        self.orphaned_frozen.append(&mut self.orphaned);
    }

    /// Whether [`OpenTrees::thaw`] has something to do.
    pub(crate) fn has_frozen(&self) -> bool {
        !self.orphaned_frozen.is_empty()
    }

    /// That commit is durable: no recovery finds what was before.
    pub(crate) fn thaw(&mut self) {
        for (tree, parent) in std::mem::take(&mut self.orphaned_frozen) {
            let is_waiting = self.orphaned.iter().any(|(other, _)| *other == tree);
            let of = self.get_mut(tree);
            if !is_waiting {
                of.judged_from = parent;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::InodeNo;
    use holdfast_format::Key;

    #[test]
    fn what_is_younger_than_the_parent_belongs_to_the_tree() {
        let place = |no: u64| move || WalkPlace::item(&Key::inode(InodeNo(no)));
        let mut ancestry = Ancestry { snapshot: 2, parent: Epoch(9), walk: None };
        assert!(ancestry.owns(Epoch(10), place(1)));
        assert!(!ancestry.owns(Epoch(9), place(1)), "the parent has it");
        let cursor = WalkPlace::item(&Key::inode(InodeNo(5)));
        ancestry.walk = Some(Walked { above: Epoch(4), cursor });
        assert!(ancestry.owns(Epoch(9), place(4)), "the walk has left it to the child");
        assert!(!ancestry.owns(Epoch(9), place(5)), "the walk comes there");
        assert!(!ancestry.owns(Epoch(4), place(4)), "the parent's parent has it");
    }
}
