//! The two copy-on-write B-trees and the way through them.
//!
//! Always true: the first separator of a node equals the lower bound of what
//! the node may hold (the leftmost ones are [`Key::MIN`]); a node born in the
//! present epoch has only such ancestors; no call here does I/O. A call that
//! meets a node that is not in memory changes nothing and returns
//! [`Missing`]; the caller reads the node without the lock and tries again (R4).
//!
//! Knows nothing of the journal, checkpoints or the device.

pub(crate) mod edit;
mod change;

use std::ops::ControlFlow;

use holdfast_base::{BlockNo, Epoch, TreeId};
use holdfast_format::key::RawKey;
use holdfast_format::node::Expected;
use holdfast_format::{Key, NodePointer, NodeView};

use crate::cache::Cache;

/// A node that must be read before the call can be carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing(pub(crate) Expected);

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) pointer: NodePointer,
    pub(crate) level: u8,
}

/// Both trees and their nodes in memory. Owned by the store, behind one lock.
#[derive(Debug)]
pub(crate) struct Forest {
    roots: [Root; 2],
    pub(crate) cache: Cache,
    /// The checkpoint that will first write what changes now.
    pub(crate) epoch: Epoch,
    pub(crate) volume: [u8; 8],
    pub(crate) node_size: usize,
}

/// Where new nodes come from and old ones go: space, as the tree sees it.
pub(crate) trait Homes {
    /// A home for a node. The reserve makes sure that there is one.
    fn take(&mut self) -> BlockNo;
    /// The node at `block` left the tree.
    fn give_back(&mut self, block: BlockNo);
}

/// The way from the root to a leaf: each node above the leaf with the child taken.
type Path = Vec<(NodePointer, usize)>;

impl Forest {
    pub(crate) fn new(
        roots: [Root; 2],
        cache: Cache,
        epoch: Epoch,
        volume: [u8; 8],
        node_size: usize,
    ) -> Forest {
        Forest { roots, cache, epoch, volume, node_size }
    }

    /// The root of `tree`.
    pub(crate) fn root(&self, tree: TreeId) -> Root {
        self.roots[tree as usize - 1]
    }

    fn set_root(&mut self, tree: TreeId, root: Root) {
        self.roots[tree as usize - 1] = root;
    }

    fn expected(&self, tree: TreeId, pointer: NodePointer, level: u8) -> Expected {
        Expected { pointer, tree, level, volume: self.volume }
    }

    #[inline]
    fn node(&self, tree: TreeId, pointer: NodePointer, level: u8) -> Result<NodeView<'_>, Missing> {
        match self.cache.get(pointer) {
            Some(frame) => Ok(NodeView::trusted(frame.bytes())),
            None => Err(Missing(self.expected(tree, pointer, level))),
        }
    }

    /// The leaf that covers `key`.
    #[inline]
    fn leaf(&self, tree: TreeId, key: &RawKey) -> Result<NodeView<'_>, Missing> {
        let root = self.root(tree);
        let mut node = self.node(tree, root.pointer, root.level)?;
        for level in (0..root.level).rev() {
            node = self.node(tree, node.child(node.child_index(key)), level)?;
        }
        Ok(node)
    }

    /// The value of `key`.
    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &Key) -> Result<Option<&[u8]>, Missing> {
        let key = key.raw();
        let leaf = self.leaf(tree, &key)?;
        Ok(leaf.search(&key).ok().map(|index| leaf.value(index)))
    }

    /// The way to the leaf that covers `key`, and the leaf.
    fn path(&self, tree: TreeId, key: &RawKey) -> Result<(Path, NodePointer), Missing> {
        let root = self.root(tree);
        let mut path = Path::with_capacity(root.level.into());
        let mut pointer = root.pointer;
        let mut node = self.node(tree, pointer, root.level)?;
        for level in (0..root.level).rev() {
            let index = node.child_index(key);
            path.push((pointer, index));
            pointer = node.child(index);
            node = self.node(tree, pointer, level)?;
        }
        Ok((path, pointer))
    }

    /// Whether a node that was read holds only keys that its parents lead to it; `None` if one of
    /// them is not in memory. So a damaged tree cannot lead a walk in circles, or twice to one node.
    pub(crate) fn fits(&self, expected: &Expected, read: &NodeView<'_>) -> Option<bool> {
        let count = read.count();
        if count == 0 {
            return Some(true);
        }
        let (first, last) = (read.raw_key(0), read.raw_key(count - 1));
        let root = self.root(expected.tree);
        let (mut low, mut high) = (Key::MIN.raw(), None);
        let mut pointer = root.pointer;
        for level in (expected.level..root.level).rev() {
            let node = self.node(expected.tree, pointer, level + 1).ok()?;
            let index = node.child_index(&first);
            low = node.raw_key(index);
            if index + 1 < node.count() {
                high = Some(node.raw_key(index + 1));
            }
            pointer = node.child(index);
        }
        let inside = first >= low && high.is_none_or(|high| last < high);
        let bound = expected.level == 0 || first == low;
        Some(pointer == expected.pointer && inside && bound)
    }

    /// Visits the items of one leaf from `from` to `to` upwards, and says where to go on.
    pub(crate) fn scan_leaf(
        &self,
        tree: TreeId,
        from: &Key,
        to: &Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Missing> {
        let (path, pointer) = self.path(tree, &from.raw())?;
        let leaf = self.node(tree, pointer, 0)?;
        let first = leaf.search(&from.raw()).unwrap_or_else(|index| index);
        for index in first..leaf.count() {
            let key = leaf.key(index);
            if key > *to || visit(key, leaf.value(index)).is_break() {
                return Ok(None);
            }
        }
        // The next leaf begins at the next separator of the lowest ancestor that has one.
        for (level, &(pointer, index)) in (1..).zip(path.iter().rev()) {
            let node = self.node(tree, pointer, level)?;
            if index + 1 < node.count() {
                let next = node.key(index + 1);
                return Ok((next <= *to).then_some(next));
            }
        }
        Ok(None)
    }

    /// Visits the items of one leaf from `to` down to `from`, and says below which key to go on.
    pub(crate) fn scan_leaf_back(
        &self,
        tree: TreeId,
        from: &Key,
        to: &Bound,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Missing> {
        let root = self.root(tree);
        let mut node = self.node(tree, root.pointer, root.level)?;
        let mut lower = Key::MIN;
        for level in (0..root.level).rev() {
            let index = match (to, node.search(&to.key().raw())) {
                (Bound::Included(_), Ok(index)) => index,
                (Bound::Excluded(_), Ok(index)) | (_, Err(index)) => index.saturating_sub(1),
            };
            lower = node.key(index);
            node = self.node(tree, node.child(index), level)?;
        }
        let end = match (to, node.search(&to.key().raw())) {
            (Bound::Included(_), Ok(index)) => index + 1,
            (Bound::Excluded(_), Ok(index)) | (_, Err(index)) => index,
        };
        for index in (0..end).rev() {
            let key = node.key(index);
            if key < *from || visit(key, node.value(index)).is_break() {
                return Ok(None);
            }
        }
        Ok((lower > *from).then_some(lower))
    }

    /// Calls `visit` for every node of `tree` that is in memory, from the root down, with its lower bound.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn invariants(&self, tree: TreeId) {
        let root = self.root(tree);
        self.node_invariants(tree, root.pointer, root.level, Key::MIN, None);
    }

    #[cfg(any(test, debug_assertions))]
    fn node_invariants(
        &self,
        tree: TreeId,
        pointer: NodePointer,
        level: u8,
        low: Key,
        high: Option<Key>,
    ) {
        let Ok(node) = self.node(tree, pointer, level) else {
            return;
        };
        let mut reader = holdfast_format::codec::Reader::new("node", node.bytes());
        let header =
            holdfast_format::node::NodeHeader::read(&mut reader).expect("a node has a head");
        node.check_body(&header).expect("the program keeps its nodes valid");
        assert_eq!((header.address, header.epoch), (pointer.block.0, pointer.epoch.0));
        assert_eq!((header.level, header.tree), (level, tree as u8));
        for index in 0..node.count() {
            let key = node.key(index);
            assert!(key >= low, "{key:?} is below {low:?} in {pointer:?}");
            assert!(high.is_none_or(|high| key < high), "{key:?} is not below {high:?}");
            if level > 0 {
                assert!(index > 0 || key == low, "the first separator is the lower bound");
                let next = (index + 1 < node.count()).then(|| node.key(index + 1)).or(high);
                let child = node.child(index);
                assert!(child.epoch <= pointer.epoch, "a child is younger than its parent");
                self.node_invariants(tree, child, level - 1, key, next);
            }
        }
    }
}

/// The upper end of a scan downwards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Included(Key),
    Excluded(Key),
}

impl Bound {
    fn key(&self) -> &Key {
        match self {
            Bound::Included(key) | Bound::Excluded(key) => key,
        }
    }
}
