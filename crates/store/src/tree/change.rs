//! Changes of a tree: copy the path, then insert, replace or delete; split and merge on the way.
//!
//! [`Forest::prepare`] finds out without changing anything whether all nodes
//! are in memory that a change may touch; after it, and under the same hold of
//! the lock, [`Forest::put`] and [`Forest::delete`] cannot fail.

mod own;
mod prepare;

use holdfast_format::item::{Extent, WalkPlace};
use holdfast_format::limits::TREE_LEVELS_MAX;
use holdfast_format::node;
use holdfast_format::{ItemKind, Key, NodePointer, NodeView};

use super::edit::{Full, NodeEdit, Records};
use super::{Forest, NodeAllocator, Path, Root, TreeNo, lies_between};
use crate::cache::Node;
use crate::transaction::{Change, Changes};

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
        let (mut more, mut less) = (0, 0);
        self.edit(node, |node| {
            more = referenced(&node.view(), key, value);
            match node.search(&key.raw()) {
                Ok(index) => {
                    less = referenced(&node.view(), key, node.view().value(index));
                    node.replace(index, value)
                }
                Err(index) => node.insert(index, key, value),
            }
        })?;
        self.trees.refer(tree, more, less);
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
                let Some(own) = self.copy_node(tree, (left, level), place, slots) else {
                    return false;
                };
                self.set_child(parent, left_index, own);
                own
            };
            self.edit(left, |node| node.append(&moved)).expect("the sum of both was checked");
            self.shape += 1;
            self.leave(tree, (right, level), WalkPlace::node(right_end, level), slots);
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
            self.leave(tree, (root.pointer, root.level), WalkPlace::node(None, root.level), slots);
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
