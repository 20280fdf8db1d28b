//! The trees that are open: the space tree, and those of branches and snapshots.
//!
//! Each has a number, by which everything that looks into it names it. A tree stays open as long as an [`OpenHandle`] of it is
//! left, and until a commit has carried what is known of it into its item. After that it may be closed, and another tree gets
//! its number: the cost of branches that were open once is not kept.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Epoch, TreeId};
use holdfast_format::item::WalkPlace;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::limits::COUNTER_MAX;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

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

/// Keeps a tree open, and says which. The last one that is dropped closes nothing itself: [`OpenTrees::close_unheld`] does. It
/// does not hold the store.
#[derive(Clone, Debug)]
pub(crate) struct OpenHandle {
    pub(crate) no: TreeNo,
    _held: Arc<()>,
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
    /// Of a tree that owns nothing, since what it owns is unknown.
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
    /// no limit, it is not asked.
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

/// So many trees are open before it is asked whether some can be closed: the space tree, `main`, and two others.
const CLOSE_FROM: usize = 4;

/// All open trees.
#[derive(Debug)]
pub(crate) struct OpenTrees {
    trees: Vec<OpenTree>,
    /// Of each of them, what its handles share; `None`: the place is free.
    held: Vec<Option<Arc<()>>>,
    /// Places that are free.
    free: Vec<TreeNo>,
    /// If so many are open, it is asked which can be closed.
    close_at: usize,
    by_number: FxHashMap<u64, TreeNo>,
    /// Those that have moved since the last commit, perhaps.
    moved: Vec<TreeNo>,
    /// Trees whose parent went since the last commit began, and the epochs of their parents since.
    orphaned: Vec<(TreeNo, Epoch)>,
    /// The same, of the commit that is being made.
    orphaned_frozen: Vec<(TreeNo, Epoch)>,
    /// The numbers of trees that are closed go here.
    closings: Vec<Weak<Mutex<BTreeSet<u64>>>>,
}

impl OpenTrees {
    /// The space tree and `main`.
    pub(crate) fn new(space: Root, main: Root) -> OpenTrees {
        let trees = vec![OpenTree::at(0, space), OpenTree::at(MAIN, main)];
        OpenTrees {
            held: trees.iter().map(|_| Some(Arc::default())).collect(),
            trees,
            free: Vec::new(),
            close_at: CLOSE_FROM,
            by_number: FxHashMap::from_iter([(MAIN, TreeNo::MAIN)]),
            moved: Vec::new(),
            orphaned: Vec::new(),
            orphaned_frozen: Vec::new(),
            closings: Vec::new(),
        }
    }

    /// The numbers of trees that are closed from now on go there, as long as it is kept: what their items say may have changed while they were open.
    pub(crate) fn tell_closed(&mut self, to: Weak<Mutex<BTreeSet<u64>>>) {
        self.closings.retain(|of| of.strong_count() > 0);
        self.closings.push(to);
    }

    #[inline]
    pub(crate) fn get(&self, tree: TreeNo) -> &OpenTree {
        debug_assert!(self.held[tree.index()].is_some(), "{tree:?} is closed");
        &self.trees[tree.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tree: TreeNo) -> &mut OpenTree {
        debug_assert!(self.held[tree.index()].is_some(), "{tree:?} is closed");
        &mut self.trees[tree.index()]
    }

    /// The tree of a branch or snapshot, if it is open.
    pub(crate) fn find(&self, number: u64) -> Option<TreeNo> {
        self.by_number.get(&number).copied()
    }

    /// Opens a tree that is not. Its number may be one that another tree had before: see [`super::Forest::open`].
    pub(super) fn add(&mut self, tree: OpenTree) -> TreeNo {
        let no = match self.free.pop() {
            Some(no) => {
                (self.trees[no.index()], self.held[no.index()]) = (tree, Some(Arc::default()));
                no
            }
            None => {
                let no = u32::try_from(self.trees.len()).expect("memory is full of trees before");
                self.trees.push(tree);
                self.held.push(Some(Arc::default()));
                TreeNo(no)
            }
        };
        let before = self.by_number.insert(tree.number, no);
        assert_eq!(before, None, "tree {} is open", tree.number);
        no
    }

    /// Keeps an open tree open.
    pub(crate) fn hold(&self, no: TreeNo) -> OpenHandle {
        let held = self.held[no.index()].as_ref().expect("the tree is open");
        OpenHandle { no, _held: held.clone() }
    }

    /// Those that can be found.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = (TreeNo, &OpenTree)> {
        self.by_number.values().map(|no| (*no, self.get(*no)))
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.trees.len() - self.free.len()
    }

    /// Whether so many are open that some can be closed, perhaps. Asked before each opening it costs the same, however
    /// many are open.
    pub(crate) fn are_many(&self) -> bool {
        self.count() >= self.close_at
    }

    /// Closes the trees without a handle, and of which nothing is known that their items and nodes do not say: none of their
    /// nodes is of the present `epoch`, a commit has carried their roots and counts, and no recovery finds another parent.
    /// `may_close` is asked of each of these as well. The caller holds the lineage's lock, so that no thread names a tree
    /// without a handle.
    pub(crate) fn close_unheld(&mut self, epoch: Epoch, may_close: impl Fn(TreeNo) -> bool) {
        let waiting = self.orphaned.iter().chain(&self.orphaned_frozen);
        let waiting: FxHashSet<TreeNo> = waiting.map(|(no, _)| *no).collect();
        for (no, of) in (0..).map(TreeNo).zip(&self.trees).skip(2) {
            let is_held = self.held[no.index()].as_ref().is_none_or(|of| Arc::strong_count(of) > 1);
            // What has moved is listed; asked all the same, as a root that is lost is a tree that is lost.
            let is_carried = !of.is_listed && (of.is_gone || !of.has_moved());
            if is_held || !is_carried || of.root.pointer.epoch >= epoch {
                continue;
            }
            if waiting.contains(&no) || !may_close(no) {
                continue;
            }
            self.held[no.index()] = None;
            self.free.push(no);
            self.closings.iter().filter_map(Weak::upgrade).for_each(|told| {
                told.lock().insert(of.number);
            });
            if self.by_number.get(&of.number) == Some(&no) {
                self.by_number.remove(&of.number);
            }
        }
        self.close_at = CLOSE_FROM.max(2 * self.count());
        self.give_back_memory();
    }

    /// The places behind the last open tree go, and memory that would stay for a burst.
    fn give_back_memory(&mut self) {
        let open = self.held.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.trees.truncate(open);
        self.held.truncate(open);
        self.free.retain(|no| no.index() < open);
        let most = 2 * self.close_at;
        self.trees.shrink_to(most);
        self.held.shrink_to(most);
        self.free.shrink_to(most);
        self.by_number.shrink_to(most);
    }

    /// Takes the number away from a branch or snapshot that is deleted: its tree can be looked at no more.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(tree) = self.by_number.remove(&number) {
            self.get_mut(tree).is_gone = true;
        }
    }

    /// Whether an open tree is that of a branch or snapshot which is deleted: its blocks may be of something else.
    pub(crate) fn is_gone(&self, tree: TreeNo) -> bool {
        self.get(tree).is_gone
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
        let trees = (0..).map(TreeNo).zip(&self.trees).zip(&self.held);
        let open = trees.filter(|(_, held)| held.is_some()).map(|(tree, _)| tree);
        open.filter(|(_, of)| of.ancestry.snapshot == snapshot).map(|(no, _)| no).collect()
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
        let waiting: FxHashSet<_> = self.orphaned.iter().map(|(tree, _)| *tree).collect();
        for (tree, parent) in std::mem::take(&mut self.orphaned_frozen) {
            let of = self.get_mut(tree);
            if !waiting.contains(&tree) {
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

    fn root(epoch: u64) -> Root {
        let block = holdfast_base::BlockNo(epoch);
        Root { pointer: holdfast_format::NodePointer { block, epoch: Epoch(epoch) }, level: 0 }
    }

    /// A tree is closed if it has no handle and its item says all; each of the others stays for a reason of its own.
    #[test]
    fn a_tree_is_closed_when_nothing_is_left_of_it() {
        let mut trees = OpenTrees::new(root(1), root(1));
        let open: Vec<TreeNo> = (2..9).map(|no| trees.add(OpenTree::at(no, root(5)))).collect();
        let held = trees.hold(open[0]);
        trees.changes(open[1]);
        trees.get_mut(open[2]).root = root(9);
        trees.get_mut(open[2]).carried = root(9);
        trees.get_mut(open[3]).ancestry = Ancestry { snapshot: 70, ..Ancestry::default() };
        trees.outlives(open[3], 70, Ancestry::default());
        trees.forget(7);
        assert!(trees.are_many());
        trees.close_unheld(Epoch(9), |no| no != open[4]);
        let left: Vec<_> = (2..9).filter(|number| trees.find(*number).is_some()).collect();
        assert_eq!((left, trees.count()), (vec![2, 3, 4, 5, 6], 2 + 5));
        // The next moment ends most of it.
        drop(held);
        trees.carried(open[1]);
        trees.freeze();
        trees.close_unheld(Epoch(10), |_| true);
        assert_eq!((trees.find(5), trees.count()), (Some(open[3]), 2 + 1));
        trees.thaw();
        trees.close_unheld(Epoch(10), |_| true);
        assert_eq!((trees.count(), trees.trees.len(), trees.free.len()), (2, 2, 0));
        assert!(!trees.are_many() && trees.find(MAIN) == Some(TreeNo::MAIN));
    }
}
