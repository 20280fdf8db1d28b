//! Changes of a tree: copy the path, then insert, replace or delete; split and merge on the way.
//!
//! [`Forest::prepare`] finds out without changing anything whether all nodes
//! are in memory that a change may touch; after it, and under the same hold of
//! the lock, [`Forest::put`] and [`Forest::delete`] cannot fail.

use holdfast_base::TreeId;
use holdfast_format::node;
use holdfast_format::{Key, NodePointer, NodeView};

use super::edit::{Full, NodeEdit};
use super::{Forest, Homes, Missing, Path, Root};
use crate::cache::Frame;

/// A node below this share of its size (1/4) tries to join a neighbour.
const THIN: usize = 4;

impl Forest {
    /// Fails unless every node is in memory that a change of `key` may touch.
    #[inline]
    pub(crate) fn prepare(&self, tree: TreeId, key: &Key, delete: bool) -> Result<(), Missing> {
        let key = key.raw();
        let root = self.root(tree);
        let mut pointer = root.pointer;
        let mut parent: Option<(NodeView<'_>, usize)> = None;
        for level in (0..=root.level).rev() {
            let node = self.node(tree, pointer, level)?;
            // A delete may merge: the neighbour that it would choose must be here as well.
            if delete
                && let Some((parent, index)) = parent
                && is_thin(&node, self.node_size / THIN + self.node_size / 8)
            {
                if index + 1 < parent.count() {
                    self.node(tree, parent.child(index + 1), level)?;
                }
                if index > 0 {
                    self.node(tree, parent.child(index - 1), level)?;
                }
            }
            if level > 0 {
                let index = node.child_index(&key);
                pointer = node.child(index);
                parent = Some((node, index));
            }
        }
        Ok(())
    }

    fn edit<R>(&mut self, pointer: NodePointer, change: impl FnOnce(&mut NodeEdit<'_>) -> R) -> R {
        let (bytes, ranges) = self.cache.get_dirty(pointer.block).edit();
        let mut edit = NodeEdit::new(bytes, ranges);
        let result = change(&mut edit);
        let slack = edit.slack;
        self.cache.count_slack(slack);
        result
    }

    /// The prepared way to the leaf of `key`, every node of it born in this epoch.
    fn own_path(&mut self, tree: TreeId, key: &Key, homes: &mut dyn Homes) -> (Path, NodePointer) {
        let prepared = "prepare made sure that the path is in memory";
        let (mut path, mut leaf) = self.path(tree, &key.raw()).expect(prepared);
        if leaf.epoch == self.epoch {
            return (path, leaf);
        }
        for depth in 0..=path.len() {
            let pointer = path.get(depth).map_or(leaf, |step| step.0);
            if pointer.epoch == self.epoch {
                continue;
            }
            let own = self.copy_node(pointer, homes);
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
        (path, leaf)
    }

    fn copy_node(&mut self, pointer: NodePointer, homes: &mut dyn Homes) -> NodePointer {
        let own = NodePointer { block: homes.take(), epoch: self.epoch };
        let bytes = self.cache.get(pointer).expect("the path is in memory").bytes().to_vec();
        self.cache.remove(pointer.block);
        homes.give_back(pointer.block);
        self.cache.insert(own.block, Frame::dirty(bytes, self.epoch, true));
        self.edit(own, |node| node.set_home(own));
        own
    }

    fn set_child(&mut self, parent: NodePointer, index: usize, child: NodePointer) {
        self.edit(parent, |node| node.replace(index, &child.encode()))
            .expect("a pointer replaces one of the same length");
    }

    fn new_node(&mut self, tree: TreeId, level: u8, homes: &mut dyn Homes) -> NodePointer {
        let pointer = NodePointer { block: homes.take(), epoch: self.epoch };
        let bytes = node::empty(self.node_size, &self.expected(tree, pointer, level));
        self.cache.insert(pointer.block, Frame::dirty(bytes, self.epoch, false));
        pointer
    }

    /// Makes the first node of an empty tree.
    pub(crate) fn plant(&mut self, tree: TreeId, homes: &mut dyn Homes) {
        let pointer = self.new_node(tree, 0, homes);
        self.set_root(tree, Root { pointer, level: 0 });
    }

    fn view(&self, pointer: NodePointer) -> NodeView<'_> {
        let frame = self.cache.get(pointer).expect("a node of this epoch stays in memory");
        NodeView::trusted(frame.bytes())
    }

    /// Gives `key` a value. [`Forest::prepare`] has succeeded under the same lock.
    pub(crate) fn put(&mut self, tree: TreeId, key: &Key, value: &[u8], homes: &mut dyn Homes) {
        let (path, leaf) = self.own_path(tree, key, homes);
        let done = self.edit(leaf, |node| match node.view().search(&key.raw()) {
            Ok(index) => node.replace(index, value),
            Err(index) => node.insert(index, key, value),
        });
        if done == Err(Full) {
            self.split_and_put(tree, path, leaf, 0, key, value, homes);
        }
    }

    /// Splits a node of `level` until `key` and `value` fit one of the halves.
    #[expect(clippy::too_many_arguments, reason = "the state of one descent")]
    fn split_and_put(
        &mut self,
        tree: TreeId,
        mut path: Path,
        full: NodePointer,
        level: u8,
        key: &Key,
        value: &[u8],
        homes: &mut dyn Homes,
    ) {
        self.cache.count_split();
        let (at, found) = match self.view(full).search(&key.raw()) {
            Ok(index) => (index, true),
            Err(index) => (index, false),
        };
        let split = split_index(&self.view(full), at, found);
        let moved = self.edit(full, |node| node.split_off(split));
        let right = self.new_node(tree, level, homes);
        // The separator is the first key of the right half: the one that arrives, if nothing moved.
        let separator = moved.first().map_or(*key, |(first, _)| *first);
        self.edit(right, |node| {
            for (index, (key, value)) in moved.iter().enumerate() {
                node.insert(index, key, value).expect("half of a node fits a node");
            }
        });
        let home = if *key < separator { full } else { right };
        self.put_separator(tree, &mut path, full, level, &separator, right, homes);
        let done = self.edit(home, |node| match node.view().search(&key.raw()) {
            Ok(index) => node.replace(index, value),
            Err(index) => node.insert(index, key, value),
        });
        if done == Err(Full) {
            // Long values: one cut was not enough. The path may have changed by the separator.
            let path = self.path_to(tree, key, level);
            self.split_and_put(tree, path, home, level, key, value, homes);
        }
    }

    /// The way from the root to the parent of the node of `level` that covers `key`.
    fn path_to(&self, tree: TreeId, key: &Key, level: u8) -> Path {
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
        tree: TreeId,
        path: &mut Path,
        left: NodePointer,
        level: u8,
        separator: &Key,
        right: NodePointer,
        homes: &mut dyn Homes,
    ) {
        match path.pop() {
            None => {
                let root = self.new_node(tree, level + 1, homes);
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
                    self.split_and_put(tree, path, parent, level + 1, separator, &value, homes);
                }
            }
        }
    }

    /// Takes the value of `key` away, if it has one. [`Forest::prepare`] has succeeded under the same lock.
    pub(crate) fn delete(&mut self, tree: TreeId, key: &Key, homes: &mut dyn Homes) {
        let found = self.get(tree, key).expect("prepare made sure that the path is in memory");
        if found.is_none() {
            return;
        }
        let (mut path, mut node) = self.own_path(tree, key, homes);
        self.edit(node, |node| {
            if let Ok(index) = node.view().search(&key.raw()) {
                node.remove(index);
            }
        });
        // Upwards: join thin nodes with a neighbour, as far as that makes the parent thin.
        let mut level = 0;
        while let Some((parent, index)) = path.pop() {
            if !is_thin(&self.view(node), self.node_size / THIN)
                || !self.join(tree, parent, index, level, homes)
            {
                break;
            }
            node = parent;
            level += 1;
        }
        self.lower_root(tree, homes);
    }

    /// Joins child `index` of `parent` with a neighbour if both fit one node with room to spare.
    fn join(
        &mut self,
        tree: TreeId,
        parent: NodePointer,
        index: usize,
        level: u8,
        homes: &mut dyn Homes,
    ) -> bool {
        let count = self.view(parent).count();
        let pairs = [index.checked_sub(1), (index + 1 < count).then_some(index)];
        for left_index in pairs.into_iter().flatten() {
            let left = self.view(parent).child(left_index);
            let right = self.view(parent).child(left_index + 1);
            let (Ok(left_view), Ok(right_view)) =
                (self.node(tree, left, level), self.node(tree, right, level))
            else {
                continue;
            };
            let capacity = self.node_size - node::SLOTS_AT;
            if left_view.used() + right_view.used() > capacity * 3 / 4 {
                continue;
            }
            let moved: Vec<(Key, Vec<u8>)> = (0..right_view.count())
                .map(|at| (right_view.key(at), right_view.value(at).to_vec()))
                .collect();
            let left = if left.epoch == self.epoch {
                left
            } else {
                let own = self.copy_node(left, homes);
                self.set_child(parent, left_index, own);
                own
            };
            self.edit(left, |node| {
                for (key, value) in &moved {
                    let end = node.view().count();
                    node.insert(end, key, value).expect("the sum of both was checked");
                }
            });
            self.cache.remove(right.block);
            homes.give_back(right.block);
            self.edit(parent, |node| node.remove(left_index + 1));
            self.cache.count_merge();
            return true;
        }
        false
    }

    /// Removes roots with a single child.
    fn lower_root(&mut self, tree: TreeId, homes: &mut dyn Homes) {
        loop {
            let root = self.root(tree);
            if root.level == 0 {
                return;
            }
            let Ok(view) = self.node(tree, root.pointer, root.level) else {
                return;
            };
            if view.count() > 1 {
                return;
            }
            let child = view.child(0);
            self.cache.remove(root.pointer.block);
            homes.give_back(root.pointer.block);
            self.set_root(tree, Root { pointer: child, level: root.level - 1 });
        }
    }
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
