//! A branch that has grown out of nothing, with the tree of a new volume.
//!
//! Its tree is one new leaf, which the commit carries that makes the branch. Nothing durable names it before: no log speaks of it, as
//! operations are stopped until the commit is on its way. A commit that fails takes the leaf back.

use holdfast_base::Timestamp;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::RootItem;
use holdfast_format::{Key, NodePointer};

use super::Made;
use super::plan::{Plan, PlanResult};
use crate::apply::Slots;
use crate::space::alloc::Space;
use crate::space::slots::NodeSlots;
use crate::transaction::Changes;
use crate::tree::open::OpenTree;
use crate::tree::{Forest, NodeAllocator, OpenHandle, Root};
use crate::{Inner, Result, StoreError};

/// Where a tree is that has no root yet.
const NOWHERE: NodePointer =
    NodePointer { block: holdfast_base::BlockNo(0), epoch: holdfast_base::Epoch(0) };

/// A tree that a commit brings.
pub(super) struct NewTree {
    /// What is in it. It fits into a leaf.
    items: Changes,
    /// The inodes among that.
    inodes: u64,
    /// The tree, once it is there.
    planted: Option<OpenHandle>,
}

impl NewTree {
    /// How many changes make it.
    pub(super) fn changes(&self) -> usize {
        self.items.len() + 1
    }

    /// The item of its root. The first time that a change is tried the tree is made, as branch `number`; later it is there.
    pub(super) fn root(
        &mut self,
        number: u64,
        forest: &mut Forest,
        space: &mut Space,
    ) -> Result<RootItem> {
        if self.planted.is_none() {
            if space.room().pairs == 0 {
                return Err(StoreError::NoSpace);
            }
            let handle = forest.open(OpenTree::at(number, Root { pointer: NOWHERE, level: 0 }));
            let tree = handle.no;
            self.planted = Some(handle);
            let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
            forest.plant(tree, slots);
            for change in self.items.iter() {
                let prepared = forest.prepare_change(tree, change);
                let prepared = prepared.expect("a node of this epoch stays in memory");
                forest.carry_out(tree, change, prepared, slots);
            }
            let of = forest.trees.get_mut(tree);
            of.inodes = if mutants::is(Mutant::NewBranchNotCounted) { 0 } else { self.inodes };
            // Its item, which comes with the same commit, says so.
            (of.carried, of.inodes_carried, of.referenced_carried) =
                (of.root, of.inodes, of.referenced);
        }
        let of = forest.trees.get(self.planted.as_ref().expect("it was made").no);
        assert_eq!(of.number, number, "the next number stays while the lineage is locked");
        if mutants::is(Mutant::NewRootBeforeLeaf) {
            return Ok(RootItem::of(NOWHERE, 0, of.inodes, of.referenced));
        }
        Ok(RootItem::of(of.root.pointer, of.root.level, of.inodes, of.referenced))
    }

    /// The commit has failed, and nothing durable names the tree.
    pub(super) fn take_back(&mut self, forest: &mut Forest, space: &mut Space) {
        let Some(handle) = self.planted.take() else { return };
        let of = *forest.trees.get(handle.no);
        forest.trees.forget(of.number);
        forest.cache.remove(of.root.pointer.block);
        Slots { space, promised: &mut NodeSlots::none() }
            .give_back(of.root.pointer.block, forest.stored(handle.no, of.root.level));
    }
}

impl Inner {
    /// Makes a branch that has grown out of nothing, with `items` in its tree, `inodes` of which are inodes. It is durable when this returns
    /// (P12).
    pub(crate) fn new_branch(
        &self,
        name: &[u8],
        items: &[(Key, Vec<u8>)],
        inodes: u64,
        now: Timestamp,
    ) -> Result<Made> {
        let tree = || {
            let mut changes = Changes::default();
            items.iter().for_each(|(key, value)| changes.put(*key, value));
            NewTree { items: changes, inodes, planted: None }
        };
        let mut plan = |plan: &mut Plan<'_>| -> PlanResult<u64> { plan.new_branch(name, now) };
        self.with_sealing_room(|turn| {
            self.seal_tree(&mut self.lineage.lock(), turn, &mut plan, Some(&tree))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_base::counters::Counters;
    use holdfast_base::{InodeNo, Timestamp};
    use holdfast_device::Device;
    use holdfast_format::Key;

    use super::super::lies_tests::{made, put};
    use super::super::plan::Plan;
    use super::super::seal::Sealing;
    use super::{NewTree, PlanResult};
    use crate::transaction::Changes;
    use crate::{Branch, Inner, OpenOptions, Store};

    fn item(no: u64) -> (Key, Vec<u8>) {
        (Key::inode(InodeNo(no)), vec![no as u8])
    }

    fn open(device: &Arc<dyn Device>) -> Arc<Store> {
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let counters = Arc::new(Counters::default());
        Arc::new(Store::open(device.clone(), &options, counters).unwrap())
    }

    fn value(store: &Arc<Store>, branch: &[u8], no: u64) -> Option<Vec<u8>> {
        let branch = Branch::open(store.clone(), branch, None).unwrap();
        branch.get(&Key::inode(InodeNo(no))).unwrap()
    }

    /// It is durable at once, has nothing of others, can be worked in, and goes like any other.
    #[test]
    fn a_branch_that_has_grown_out_of_nothing_is_one_like_others() {
        let (device, store) = made();
        let now = Timestamp::default();
        let main = store.inner.forest.read().trees.find(1).unwrap();
        put(&store, main, &[item(20)]);
        let number = store.new_branch(b"new", &[item(30)], 1, now).unwrap();
        assert!(store.new_branch(b"new", &[item(30)], 1, now).is_err(), "the name is taken");
        drop(store);
        let store = open(&device);
        assert_eq!(value(&store, b"new", 30), Some(vec![30]));
        assert_eq!(value(&store, b"new", 20), None);
        let info = store.tree(number).unwrap();
        assert_eq!((info.parent, info.name.as_slice()), (0, &b"new"[..]));
        let new = Branch::open(store.clone(), b"new", None).unwrap();
        let tree = store.inner.forest.read().trees.find(number).unwrap();
        put(&store, tree, &[item(31)]);
        let snapshot = store.snapshot(number, b"s", now).unwrap();
        put(&store, tree, &[item(32)]);
        drop(new);
        store.promote(1, number, None, now).unwrap();
        assert_eq!(value(&store, b"main", 32), Some(vec![32]));
        assert_eq!(value(&store, b"main", 20), None);
        store.delete_snapshot(snapshot).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        assert_eq!(store.tree(1).unwrap().parent, 0);
        drop(store);
        let store = open(&device);
        assert_eq!([31, 32].map(|no| value(&store, b"main", no)), [Some(vec![31]), Some(vec![32])]);
    }

    /// A commit that fails, behind as many tries as there are, leaves no tree, no name and no block in use.
    #[test]
    fn a_branch_that_is_not_made_leaves_nothing() {
        let (device, store) = made();
        let now = Timestamp::default();
        store.snapshot(1, b"s", now).unwrap();
        store.checkpoint().unwrap();
        let used = |store: &Arc<Store>| store.inner.space.lock().used_blocks();
        let before = used(&store);
        let mut plan = |plan: &mut Plan<'_>| -> PlanResult<u64> { plan.new_branch(b"new", now) };
        let mut items = Changes::default();
        items.put(Key::inode(InodeNo(30)), &[30]);
        let tree = NewTree { items, inodes: 1, planted: None };
        let mut sealing = Sealing::new(&mut plan, Some(tree));
        let mut try_it = |inner: &Inner| {
            inner.stop_changers(|forest, space| {
                inner.carry_roots(forest, space)?;
                inner.put_items(&mut sealing, forest, space)
            })
        };
        try_it(&store.inner).unwrap();
        try_it(&store.inner).unwrap();
        assert!(store.inner.find_tree(0, b"new").is_ok());
        store.inner.put_back(&mut sealing);
        drop(sealing);
        assert!(store.inner.find_tree(0, b"new").is_err());
        store.checkpoint().unwrap();
        assert_eq!(used(&store), before);
        // The number is free again, in memory as well.
        store.new_branch(b"new", &[item(31)], 1, now).unwrap();
        drop(store);
        let store = open(&device);
        assert_eq!(value(&store, b"new", 31), Some(vec![31]));
        assert_eq!(value(&store, b"new", 30), None);
    }
}
