//! Changes of a tree: copy the path, then insert, replace or delete; split and merge on the way.
//!
//! [`Forest::prepare`] finds out without changing anything whether all nodes
//! are in memory that a change may touch; after it, and under the same hold of
//! the lock, [`Forest::put`] and [`Forest::delete`] cannot fail.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_format::item::{Extent, WalkPlace};
use holdfast_format::key::RawKey;
use holdfast_format::limits::TREE_LEVELS_MAX;
use holdfast_format::node;
use holdfast_format::{ItemKind, Key, NodePointer, NodeView};

use super::edit::{Full, NodeEdit, Records};
use super::leaf_hint::LeafHint;
use super::{Forest, Missing, NodeAllocator, Path, Root, TreeNo, lies_between};
use crate::cache::{Body, Node};
use crate::transaction::{Change, Changes};
use rustc_hash::FxHashMap;

/// A node below this share of its size (1/4) tries to join a neighbour.
const THIN: usize = 4;
const SHARED: &str = "two parents share a node";

/// Where a prepared change goes. Good for nothing after the lock was let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    leaf: NodePointer,
    shape: u64,
}

impl Forest {
    /// Fails unless every node is in memory that a change of `key` must touch, each at its location; and for a delete
    /// the neighbours that it may join. Where only other changes of the transaction make the leaf thin, those may be
    /// missing: then nothing is joined.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        tree: TreeNo,
        key: &Key,
        delete: bool,
    ) -> Result<Prepared, Missing> {
        let key = key.raw();
        let moment = (self.shape, self.epoch);
        // What is deleted from a thin leaf may need its neighbours.
        let leaf = self.leaf_hints.leaf(moment, tree, &key);
        if let Some(leaf) = leaf.filter(|leaf| !delete || !self.may_get_thin(&self.view(*leaf))) {
            return Ok(Prepared { leaf, shape: self.shape });
        }
        self.prepare_from_root(tree, &key, delete, leaf.is_some())
    }

    /// [`Forest::prepare`] for the leaves that no leaf hint is on, and for those that may have to join others.
    #[inline(never)]
    fn prepare_from_root(
        &mut self,
        tree: TreeNo,
        key: &RawKey,
        delete: bool,
        has_leaf_hint: bool,
    ) -> Result<Prepared, Missing> {
        let root = self.root(tree);
        let mut pointer = root.pointer;
        let (mut low, mut high) = (Key::MIN.raw(), None);
        let mut parent: Option<(Node<'_>, usize)> = None;
        for level in (0..=root.level).rev() {
            let node = match &parent {
                None => self.root_node(tree)?,
                Some((parent, index)) => self.child(tree, parent, *index, level)?,
            };
            // Two parents of a damaged tree may lead to one node; it fits one of them at most.
            // A node of this epoch was judged before it was copied.
            if pointer.epoch != self.epoch && !lies_between(&node, low, high) {
                return Err(self.missing(tree, pointer, level, low));
            }
            // A delete may merge: the neighbour that it would choose must be here as well.
            if delete
                && let Some((parent, index)) = parent
                && self.may_get_thin(&node)
            {
                if index + 1 < parent.count() {
                    self.child(tree, &parent, index + 1, level)?;
                }
                if index > 0 {
                    self.child(tree, &parent, index - 1, level)?;
                }
            }
            if level > 0 {
                let index = node.child_index(key);
                pointer = node.child(index);
                low = node.raw_key(index);
                if index + 1 < node.count() {
                    high = Some(node.raw_key(index + 1));
                }
                parent = Some((node, index));
            }
        }
        if pointer.epoch == self.epoch && !has_leaf_hint {
            let moment = (self.shape, self.epoch);
            self.leaf_hints.lay(moment, LeafHint { tree, low, high, leaf: pointer });
        }
        Ok(Prepared { leaf: pointer, shape: self.shape })
    }

    /// Whether a node may be thin after one of the changes of a transaction.
    fn may_get_thin(&self, node: &NodeView<'_>) -> bool {
        is_thin(node, self.node_size / THIN + self.node_size / 8)
    }

    /// The same for a change.
    pub(crate) fn prepare_change(
        &mut self,
        tree: TreeNo,
        change: Change<'_>,
    ) -> Result<Prepared, Missing> {
        self.prepare(tree, &change.key, change.value.is_none())
    }

    /// [`Forest::prepare_change`] for all of a transaction.
    pub(crate) fn prepare_all(&mut self, tree: TreeNo, changes: &Changes) -> Result<(), Missing> {
        let mut prepared = std::mem::take(&mut self.prepared);
        prepared.clear();
        let done = changes.iter().try_for_each(|change| {
            prepared.push(self.prepare_change(tree, change)?);
            Ok(())
        });
        self.prepared = prepared;
        done
    }

    /// Carries all of a transaction out whose changes were prepared last, and under the same lock.
    pub(crate) fn carry_out_all(
        &mut self,
        tree: TreeNo,
        changes: &Changes,
        slots: &mut dyn NodeAllocator,
    ) {
        assert_eq!(self.prepared.len(), changes.len(), "each change was prepared");
        for (at, change) in changes.iter().enumerate() {
            self.carry_out(tree, change, self.prepared[at], slots);
        }
    }

    /// Carries a change out that was `prepared` under the same lock.
    pub(crate) fn carry_out(
        &mut self,
        tree: TreeNo,
        change: Change<'_>,
        prepared: Prepared,
        slots: &mut dyn NodeAllocator,
    ) {
        match change.value {
            Some(value) => self.put(tree, &change.key, value, prepared, slots),
            None => self.delete(tree, &change.key, prepared, slots),
        }
    }

    /// The leaf of a prepared change, if it can be changed as it is: it is of this epoch, and what was changed
    /// since has not moved anything.
    fn ready_leaf(&self, prepared: Prepared) -> Option<NodePointer> {
        let is_ready = prepared.shape == self.shape && prepared.leaf.epoch == self.epoch;
        is_ready.then_some(prepared.leaf)
    }

    fn edit<R>(&mut self, pointer: NodePointer, change: impl FnOnce(&mut NodeEdit<'_>) -> R) -> R {
        self.cache.edit(pointer.block, |bytes, prefixes, tracker| {
            let mut edit = NodeEdit::new(bytes, prefixes, tracker);
            let result = change(&mut edit);
            (result, edit.marked)
        })
    }

    /// The prepared way to the leaf of `key`, every node of it born in this epoch. `None` if a
    /// change since the preparation took a node of it away, which only a damaged tree makes possible.
    fn own_path(
        &mut self,
        tree: TreeNo,
        key: &Key,
        slots: &mut dyn NodeAllocator,
    ) -> Option<(Path, NodePointer)> {
        let Ok((mut path, mut leaf)) = self.path(tree, &key.raw()) else {
            slots.damaged(SHARED);
            return None;
        };
        if leaf.epoch == self.epoch {
            return Some((path, leaf));
        }
        for depth in 0..=path.len() {
            let pointer = path.get(depth).map_or(leaf, |step| step.0);
            if pointer.epoch == self.epoch {
                continue;
            }
            let level = (path.len() - depth) as u8;
            let end = self.end_of(&path[..depth]);
            let own = self.copy_node(tree, pointer, WalkPlace::node(end, level), slots)?;
            match depth.checked_sub(1) {
                None => {
                    let root = self.root(tree);
                    self.set_root(tree, Root { pointer: own, ..root });
                }
                Some(above) => {
                    let (parent, index) = path[above];
                    self.set_child(parent, index, own);
                }
            }
            match path.get_mut(depth) {
                Some(step) => step.0 = own,
                None => leaf = own,
            }
        }
        Some((path, leaf))
    }

    /// Where the range of the node ends to which this way leads.
    fn end_of(&self, path: &[(NodePointer, usize)]) -> Option<RawKey> {
        path.iter().rev().find_map(|(above, index)| {
            let above = self.view(*above);
            (index + 1 < above.count()).then(|| above.raw_key(index + 1))
        })
    }

    /// The node leaves the tree: its location is free, if no other tree has it (S1).
    fn leave(
        &mut self,
        tree: TreeNo,
        pointer: NodePointer,
        place: WalkPlace,
        slots: &mut dyn NodeAllocator,
    ) {
        if self.trees.get(tree).ancestry.owns(pointer.epoch, || place) {
            self.cache.remove(pointer.block);
            slots.give_back(pointer.block);
        }
        self.trees.refer(tree, 0, self.node_blocks());
    }

    /// The copy of a node for this epoch. The node itself stays if a snapshot has it.
    fn copy_node(
        &mut self,
        tree: TreeNo,
        pointer: NodePointer,
        place: WalkPlace,
        slots: &mut dyn NodeAllocator,
    ) -> Option<NodePointer> {
        if !self.cache.holds(pointer) {
            slots.damaged(SHARED);
            return None;
        }
        self.shape += 1;
        let in_place = mutants::is(Mutant::NodeInPlace);
        // Before the node is taken out: its bytes are nowhere else, perhaps.
        let location = if in_place { pointer.block } else { slots.take() };
        let is_own = self.trees.get(tree).ancestry.owns(pointer.epoch, || place);
        let own = NodePointer { block: location, epoch: self.epoch };
        let body = match is_own || in_place {
            true => self.cache.succeed(pointer.block),
            false => self.cache.body_of(pointer.block),
        };
        if is_own && !in_place {
            slots.give_back(pointer.block);
        }
        self.cache.insert_copy(own, pointer, body);
        self.edit(own, |node| node.set_location(own));
        Some(own)
    }

    fn set_child(&mut self, parent: NodePointer, index: usize, child: NodePointer) {
        self.edit(parent, |node| node.replace(index, &child.encode()))
            .expect("a pointer replaces one of the same length");
    }

    fn new_node(&mut self, tree: TreeNo, level: u8, slots: &mut dyn NodeAllocator) -> NodePointer {
        self.shape += 1;
        let pointer = NodePointer { block: slots.take(), epoch: self.epoch };
        let bytes = node::empty(self.node_size, &self.expected(tree, pointer, level));
        self.cache.insert_new(pointer, Body::of(bytes));
        self.trees.refer(tree, self.node_blocks(), 0);
        pointer
    }

    fn node_blocks(&self) -> u64 {
        (self.node_size / BLOCK_SIZE) as u64
    }

    /// Makes the first node of an empty tree.
    pub(crate) fn plant(&mut self, tree: TreeNo, slots: &mut dyn NodeAllocator) {
        let pointer = self.new_node(tree, 0, slots);
        self.set_root(tree, Root { pointer, level: 0 });
    }

    /// An upper bound for the locations that prepared `changes` take: nodes to copy, neighbours to
    /// join, halves of what may overflow.
    pub(crate) fn slots_needed(&self, tree: TreeNo, changes: &Changes) -> u64 {
        // Bytes left in each node that the changes reach.
        let mut room: FxHashMap<BlockNo, usize> = FxHashMap::default();
        let mut needed = 0;
        for Change { key, value } in changes.iter() {
            let Ok((path, leaf)) = self.path(tree, &key.raw()) else {
                continue;
            };
            let nodes = || std::iter::once(leaf).chain(path.iter().rev().map(|step| step.0));
            for pointer in nodes() {
                room.entry(pointer.block).or_insert_with(|| {
                    needed += u64::from(pointer.epoch != self.epoch);
                    self.view(pointer).free()
                });
            }
            let Some(value) = value else {
                // Each level may copy a neighbour.
                needed += path.len() as u64;
                continue;
            };
            let mut bytes = Key::SIZE + value.len() + node::SLOT_SIZE;
            for (level, pointer) in nodes().enumerate() {
                let room = room.entry(pointer.block).or_default();
                if *room >= bytes {
                    *room -= bytes;
                    break;
                }
                // A long value may take two cuts; each half has some room again. A cut of the
                // root makes a new one.
                needed += if level == 0 { 2 } else { 1 };
                needed += u64::from(level == path.len());
                *room = self.node_size / THIN;
                bytes = 2 * (Key::SIZE + node::POINTER_SIZE + node::SLOT_SIZE);
            }
        }
        needed
    }

    fn view(&self, pointer: NodePointer) -> Node<'_> {
        self.cache.get(pointer).expect("a node of this epoch stays in memory").node()
    }

    /// Gives `key` a value. It was `prepared` under the same lock.
    pub(crate) fn put(
        &mut self,
        tree: TreeNo,
        key: &Key,
        value: &[u8],
        prepared: Prepared,
        slots: &mut dyn NodeAllocator,
    ) {
        if let Some(leaf) = self.ready_leaf(prepared)
            && self.put_into(tree, leaf, key, value).is_ok()
        {
            return;
        }
        let Some((path, leaf)) = self.own_path(tree, key, slots) else {
            return;
        };
        if self.put_into(tree, leaf, key, value).is_err() {
            self.split_and_put(tree, path, leaf, 0, key, value, slots);
        }
    }

    fn put_into(
        &mut self,
        tree: TreeNo,
        node: NodePointer,
        key: &Key,
        value: &[u8],
    ) -> Result<(), Full> {
        let mut less = 0;
        self.edit(node, |node| match node.search(&key.raw()) {
            Ok(index) => {
                less = referenced(&node.view(), key, node.view().value(index));
                node.replace(index, value)
            }
            Err(index) => node.insert(index, key, value),
        })?;
        self.trees.refer(tree, referenced(&self.view(node), key, value), less);
        Ok(())
    }

    /// Splits a node of `level` until `key` and `value` fit one of the halves.
    #[expect(clippy::too_many_arguments, reason = "the state of one descent")]
    fn split_and_put(
        &mut self,
        tree: TreeNo,
        mut path: Path,
        full: NodePointer,
        level: u8,
        key: &Key,
        value: &[u8],
        slots: &mut dyn NodeAllocator,
    ) {
        self.cache.count_split();
        let (at, found) = match self.view(full).search(&key.raw()) {
            Ok(index) => (index, true),
            Err(index) => (index, false),
        };
        let split = split_index(&self.view(full), at, found);
        let first = (split < self.view(full).count()).then(|| self.view(full).key(split));
        let moved = self.edit(full, |node| node.split_off(split));
        let right = self.new_node(tree, level, slots);
        // The separator is the first key of the right half. If nothing moved, and above the leaves,
        // that is the key that arrives; a new leaf takes all that comes behind the full one, or
        // else keys that arrive downwards would make a leaf each.
        let separator = match first {
            Some(first) => first,
            None if level > 0 => *key,
            None => self.view(full).count().checked_sub(1).map_or(*key, |last| {
                let last = self.view(full).key(last);
                let behind = last.offset.checked_add(1).map(|offset| Key { offset, ..last });
                behind.map_or(*key, |behind| behind.min(*key))
            }),
        };
        self.edit(right, |node| node.append(&moved)).expect("half of a node fits a node");
        let location = if *key < separator { full } else { right };
        self.put_separator(tree, &mut path, full, level, &separator, right, slots);
        if self.put_into(tree, location, key, value).is_err() {
            // Long values: one cut was not enough. The path may have changed by the separator.
            let path = self.path_to(tree, key, level);
            self.split_and_put(tree, path, location, level, key, value, slots);
        }
    }

    /// The way from the root to the parent of the node of `level` that covers `key`.
    fn path_to(&self, tree: TreeNo, key: &Key, level: u8) -> Path {
        let root = self.root(tree);
        let mut path = Path::new();
        let mut pointer = root.pointer;
        for _ in level..root.level {
            let node = self.view(pointer);
            let index = node.child_index(&key.raw());
            path.push((pointer, index));
            pointer = node.child(index);
        }
        path
    }

    /// Puts the new node `right` behind `left` into their parent, which may grow the tree.
    #[expect(clippy::too_many_arguments, reason = "the state of one descent")]
    fn put_separator(
        &mut self,
        tree: TreeNo,
        path: &mut Path,
        left: NodePointer,
        level: u8,
        separator: &Key,
        right: NodePointer,
        slots: &mut dyn NodeAllocator,
    ) {
        match path.pop() {
            None => {
                if level + 1 >= TREE_LEVELS_MAX {
                    slots.damaged("a tree has too many levels");
                }
                let root = self.new_node(tree, level + 1, slots);
                self.edit(root, |node| {
                    node.insert(0, &Key::MIN, &left.encode())?;
                    node.insert(1, separator, &right.encode())
                })
                .expect("two pointers fit a node");
                self.set_root(tree, Root { pointer: root, level: level + 1 });
            }
            Some((parent, index)) => {
                let done =
                    self.edit(parent, |node| node.insert(index + 1, separator, &right.encode()));
                if done == Err(Full) {
                    let path = std::mem::take(path);
                    let value = right.encode();
                    self.split_and_put(tree, path, parent, level + 1, separator, &value, slots);
                }
            }
        }
    }

    /// Takes the value of `key` away, if it has one. It was `prepared` under the same lock.
    pub(crate) fn delete(
        &mut self,
        tree: TreeNo,
        key: &Key,
        prepared: Prepared,
        slots: &mut dyn NodeAllocator,
    ) {
        if let Some(leaf) = self.ready_leaf(prepared) {
            if !self.take_out(tree, leaf, key) || !is_thin(&self.view(leaf), self.node_size / THIN)
            {
                return;
            }
        } else {
            match self.get(tree, key) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => return slots.damaged(SHARED),
            }
        }
        let Some((mut path, mut node)) = self.own_path(tree, key, slots) else {
            return;
        };
        self.take_out(tree, node, key);
        // Upwards: join thin nodes with a neighbour, as far as that makes the parent thin.
        let mut level = 0;
        while let Some((parent, index)) = path.pop() {
            if !is_thin(&self.view(node), self.node_size / THIN)
                || !self.join(tree, &path, (parent, index), level, slots)
            {
                break;
            }
            node = parent;
            level += 1;
        }
        self.lower_root(tree, slots);
    }

    /// Takes `key` out of a leaf. Says whether it was there: if not, the leaf has not changed.
    fn take_out(&mut self, tree: TreeNo, leaf: NodePointer, key: &Key) -> bool {
        let view = self.view(leaf);
        let Ok(index) = view.search(&key.raw()) else { return false };
        let less = referenced(&view, key, view.value(index));
        self.edit(leaf, |node| node.remove(index));
        self.trees.refer(tree, 0, less);
        true
    }

    /// Joins child `index` of `parent`, to which `path` leads, with a neighbour if both fit one node with room to spare.
    fn join(
        &mut self,
        tree: TreeNo,
        path: &[(NodePointer, usize)],
        (parent, index): (NodePointer, usize),
        level: u8,
        slots: &mut dyn NodeAllocator,
    ) -> bool {
        let count = self.view(parent).count();
        let pairs = [index.checked_sub(1), (index + 1 < count).then_some(index)];
        for left_index in pairs.into_iter().flatten() {
            let left = self.view(parent).child(left_index);
            let right = self.view(parent).child(left_index + 1);
            let (Some(left_view), Some(right_view)) =
                (self.node(tree, left, level), self.node(tree, right, level))
            else {
                continue;
            };
            let parent_view = self.view(parent);
            let bound = |at: usize| (at < count).then(|| parent_view.raw_key(at));
            let (low, middle) = (parent_view.raw_key(left_index), bound(left_index + 1));
            if !lies_between(&left_view, low, middle)
                || !lies_between(&right_view, middle.unwrap_or(low), bound(left_index + 2))
            {
                continue;
            }
            let capacity = self.node_size - node::SLOTS_AT;
            let (left_used, right_used) = (left_view.used(), right_view.used());
            // An empty node joins any other; two that would fill one up stay apart.
            if left_used.min(right_used) > 0 && left_used + right_used > capacity * 3 / 4 {
                continue;
            }
            let moved = Records::of(&right_view, 0..right_view.count());
            let right_end = bound(left_index + 2).or_else(|| self.end_of(path));
            let left = if left.epoch == self.epoch {
                left
            } else {
                let place = WalkPlace::node(middle, level);
                let Some(own) = self.copy_node(tree, left, place, slots) else {
                    return false;
                };
                self.set_child(parent, left_index, own);
                own
            };
            self.edit(left, |node| node.append(&moved)).expect("the sum of both was checked");
            self.shape += 1;
            self.leave(tree, right, WalkPlace::node(right_end, level), slots);
            self.edit(parent, |node| node.remove(left_index + 1));
            self.cache.count_merge();
            return true;
        }
        false
    }

    /// Removes roots with a single child.
    fn lower_root(&mut self, tree: TreeNo, slots: &mut dyn NodeAllocator) {
        loop {
            let root = self.root(tree);
            if root.level == 0 {
                return;
            }
            let Some(view) = self.node(tree, root.pointer, root.level) else {
                return;
            };
            if view.count() > 1 {
                return;
            }
            let child = view.child(0);
            self.shape += 1;
            self.leave(tree, root.pointer, WalkPlace::node(None, root.level), slots);
            self.set_root(tree, Root { pointer: child, level: root.level - 1 });
        }
    }
}

/// Blocks that the item of `key` in a node refers to: those of an extent. Above the leaves stand separators, not items.
fn referenced(node: &NodeView<'_>, key: &Key, value: &[u8]) -> u64 {
    let is_extent = key.kind == ItemKind::Extent && node.level() == 0;
    if is_extent { Extent::blocks_in(value) } else { 0 }
}

fn is_thin(node: &NodeView<'_>, limit: usize) -> bool {
    node.used() < limit
}

/// Where to cut a full node into which a record goes at `at` (`found`: it replaces the one there).
///
/// Records that arrive in order leave full nodes behind: if the new one goes to
/// the end, nothing moves. Otherwise both halves get about the same bytes.
fn split_index(node: &NodeView<'_>, at: usize, found: bool) -> usize {
    let count = node.count();
    if at == count && !found {
        return count;
    }
    let mut sum = 0;
    for index in 0..count {
        sum += node.record(index).1 + node::SLOT_SIZE;
        if sum * 2 >= node.used() {
            return (index + 1).clamp(1, count - 1);
        }
    }
    count / 2
}
