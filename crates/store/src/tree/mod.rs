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
mod leaf_hint;
mod missing;
pub(crate) mod open;
mod scan;
pub(crate) mod subtree;

use holdfast_base::{BlockNo, Epoch};
use holdfast_format::key::RawKey;
use holdfast_format::node::{Expected, OfVolume};
use holdfast_format::{Geometry, Key, NodePointer, NodeView, Stored};

use crate::cache::{Cache, Node};
use crate::space::slots::{NodeSlots, NodesNeeded};

pub(crate) use change::Prepared;
use leaf_hint::LeafHints;
pub(crate) use missing::MissingSet;
pub(crate) use open::{OpenHandle, TreeNo};
use open::{OpenTree, OpenTrees};
pub(crate) use scan::Bound;

/// A node that must be read before the call can be carried out, or be judged again because it is
/// not what its parent says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    pub(crate) tree: TreeNo,
    pub(crate) expected: Expected,
    /// The separator that leads to it: says which place of the tree wants it.
    pub(crate) low: RawKey,
}

/// The root of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) pointer: NodePointer,
    pub(crate) level: u8,
}

/// The trees and their nodes in memory. Owned by the store, behind one lock.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) trees: OpenTrees,
    pub(crate) cache: Cache,
    /// The checkpoint that will first write what changes now.
    pub(crate) epoch: Epoch,
    /// What a checkpoint has sealed and not published yet.
    pub(crate) sealed: Option<Epoch>,
    pub(crate) volume: OfVolume,
    pub(crate) node_size: usize,
    geometry: Geometry,
    /// Counts how often a node came, went or moved to another location: while it is unchanged, every leaf covers the
    /// same keys.
    shape: u64,
    leaf_hints: LeafHints,
    /// Of the transaction that is being applied; of no use after the lock was let go. Kept for its memory.
    prepared: Vec<Prepared>,
}

/// A walk to leaves.
struct Leaves {
    /// The first and the last key.
    keys: (RawKey, RawKey),
    left: usize,
    /// Where it would have gone on.
    end: Option<Key>,
    missing: MissingSet,
}

/// Where new nodes come from and old ones go: space, as the tree sees it.
pub(crate) trait NodeAllocator {
    /// A location for a node. The reserve makes sure that there is one.
    fn take(&mut self, stored: Stored) -> BlockNo;
    /// The node at `block` left the tree.
    fn give_back(&mut self, block: BlockNo, stored: Stored);
    /// The tree is not one: two parents share a node. Nothing may be written any more.
    fn damaged(&mut self, why: &str);
}

/// The way from the root to a leaf: each node above the leaf with the child taken.
type Path = Vec<(NodePointer, usize)>;

impl Forest {
    pub(crate) fn new(
        trees: OpenTrees,
        cache: Cache,
        epoch: Epoch,
        volume: OfVolume,
        geometry: &Geometry,
    ) -> Forest {
        let leaf_hints = LeafHints::default();
        Forest {
            trees,
            cache,
            epoch,
            sealed: None,
            volume,
            node_size: geometry.node_size,
            geometry: *geometry,
            shape: 0,
            leaf_hints,
            prepared: Vec::new(),
        }
    }

    /// The root of `tree`.
    pub(crate) fn root(&self, tree: TreeNo) -> Root {
        self.trees.get(tree).root
    }

    /// Another node is the root of `tree` from now on.
    pub(crate) fn set_root(&mut self, tree: TreeNo, root: Root) {
        self.trees.get_mut(tree).root = root;
        self.trees.changes(tree);
    }

    /// The tree has come to another content: no leaf hint, and nothing that was prepared, is good any more.
    pub(crate) fn replace_root(&mut self, tree: TreeNo, root: Root) {
        self.shape += 1;
        self.set_root(tree, root);
    }

    /// Opens a tree that is not. It may have a number that another tree had, of which no leaf hint, and nothing that was
    /// prepared, is good for it.
    pub(crate) fn open(&mut self, tree: OpenTree) -> OpenHandle {
        self.shape += 1;
        let no = self.trees.add(tree);
        self.trees.hold(no)
    }

    /// How often a node is stored.
    pub(crate) fn stored(&self, tree: TreeNo, level: u8) -> Stored {
        self.geometry.stored(tree.id(), level)
    }

    /// Room for so many nodes of a tree.
    pub(crate) fn slots_of(&self, tree: TreeNo, nodes: NodesNeeded) -> NodeSlots {
        NodeSlots::of_tree(&self.geometry, tree.id(), nodes)
    }

    /// Blocks of a node, with those of its copy.
    fn blocks_of(&self, tree: TreeNo, level: u8) -> u64 {
        self.geometry.blocks_of(self.stored(tree, level))
    }

    pub(crate) fn expected(&self, tree: TreeNo, pointer: NodePointer, level: u8) -> Expected {
        Expected { pointer, tree: tree.id(), level, volume: self.volume }
    }

    #[inline]
    fn root_node(&self, tree: TreeNo) -> Result<Node<'_>, Missing> {
        let root = self.root(tree);
        self.node(tree, root.pointer, root.level)
            .ok_or_else(|| self.missing(tree, root.pointer, root.level, Key::MIN.raw()))
    }

    /// Child `index` of `parent`, a node of `level`.
    #[inline]
    fn child(
        &self,
        tree: TreeNo,
        parent: &NodeView<'_>,
        index: usize,
        level: u8,
    ) -> Result<Node<'_>, Missing> {
        let pointer = parent.child(index);
        self.node(tree, pointer, level)
            .ok_or_else(|| self.missing(tree, pointer, level, parent.raw_key(index)))
    }

    #[cold]
    fn missing(&self, tree: TreeNo, pointer: NodePointer, level: u8, low: RawKey) -> Missing {
        Missing { tree, expected: self.expected(tree, pointer, level), low }
    }

    /// The node, if it is in memory. A damaged parent may name a node of another tree or level.
    #[inline]
    pub(crate) fn node(&self, tree: TreeNo, pointer: NodePointer, level: u8) -> Option<Node<'_>> {
        let node = self.cache.get(pointer)?.node();
        (node.level() == level && node.tree() == tree.id() as u8).then_some(node)
    }

    /// As [`Forest::node`], or says that it is missing. Its range begins at `low`.
    fn node_at(
        &self,
        tree: TreeNo,
        pointer: NodePointer,
        level: u8,
        low: RawKey,
    ) -> Result<Node<'_>, Missing> {
        self.node(tree, pointer, level).ok_or_else(|| self.missing(tree, pointer, level, low))
    }

    /// The leaf that covers `key`.
    #[inline]
    fn leaf(&self, tree: TreeNo, key: &RawKey) -> Result<Node<'_>, Missing> {
        let mut node = self.root_node(tree)?;
        for level in (0..self.root(tree).level).rev() {
            node = self.child(tree, &node, node.child_index(key), level)?;
        }
        Ok(node)
    }

    /// The node of `level` that covers `key`, if the tree is that high.
    pub(crate) fn leads_to(
        &self,
        tree: TreeNo,
        key: &RawKey,
        level: u8,
    ) -> Result<Option<NodePointer>, Missing> {
        let root = self.root(tree);
        let (mut pointer, mut low) = (root.pointer, Key::MIN.raw());
        for above in (level..root.level).rev() {
            let node = self.node_at(tree, pointer, above + 1, low)?;
            let index = node.child_index(key);
            (pointer, low) = (node.child(index), node.raw_key(index));
        }
        Ok((level <= root.level).then_some(pointer))
    }

    /// The value of `key`.
    #[inline]
    pub(crate) fn get(&self, tree: TreeNo, key: &Key) -> Result<Option<&[u8]>, Missing> {
        let key = key.raw();
        let leaf = self.leaf(tree, &key)?;
        Ok(leaf.search(&key).ok().map(|index| leaf.value(index)))
    }

    /// The way to the leaf that covers `key`, and the leaf.
    fn path(&self, tree: TreeNo, key: &RawKey) -> Result<(Path, NodePointer), Missing> {
        let root = self.root(tree);
        let mut path = Path::with_capacity(root.level.into());
        let mut pointer = root.pointer;
        let mut node = self.root_node(tree)?;
        for level in (0..root.level).rev() {
            let index = node.child_index(key);
            path.push((pointer, index));
            pointer = node.child(index);
            node = self.child(tree, &node, index, level)?;
        }
        Ok((path, pointer))
    }

    /// Whether a node that was read is the one that is wanted at its location, holds only keys that
    /// its parents lead to it, and names no younger node. Fails if a parent is not in memory.
    pub(crate) fn fits(&self, wanted: &Missing, read: &NodeView<'_>) -> Result<bool, Missing> {
        let (expected, tree) = (&wanted.expected, wanted.tree);
        let root = self.root(tree);
        let (mut low, mut high) = (Key::MIN.raw(), None);
        let mut pointer = root.pointer;
        for level in (expected.level..root.level).rev() {
            let node = self
                .node(tree, pointer, level + 1)
                .ok_or_else(|| self.missing(tree, pointer, level + 1, low))?;
            let index = node.child_index(&wanted.low);
            low = node.raw_key(index);
            if index + 1 < node.count() {
                high = Some(node.raw_key(index + 1));
            }
            pointer = node.child(index);
        }
        // So no pointer that comes from a disk can name a node that is being changed in memory.
        let young = expected.level > 0
            && (0..read.count()).any(|index| read.child(index).epoch > expected.pointer.epoch);
        let here = pointer == expected.pointer && low == wanted.low;
        Ok(here && !young && expected.pointer.epoch < self.epoch && lies_between(read, low, high))
    }

    /// The other children of a missing node's parent that are not in memory and whose locations are near. None while
    /// a long change has more nodes in memory than the budget allows.
    pub(crate) fn neighbours(
        &self,
        wanted: &Missing,
        is_near: impl Fn(BlockNo) -> bool,
    ) -> Vec<Missing> {
        let (Expected { pointer, level, .. }, tree) = (wanted.expected, wanted.tree);
        let Some(parent) = self.parent_of(wanted).filter(|_| !self.cache.is_crowded()) else {
            return Vec::new();
        };
        (0..parent.count())
            .map(|index| (index, parent.child(index)))
            .filter(|(_, other)| other.block != pointer.block && is_near(other.block))
            .filter(|(_, other)| !self.cache.holds(*other))
            .map(|(index, other)| self.missing(tree, other, level, parent.raw_key(index)))
            .collect()
    }

    /// The node above a missing one, if it is in memory and names it.
    fn parent_of(&self, wanted: &Missing) -> Option<Node<'_>> {
        let (Expected { pointer, level, .. }, tree) = (wanted.expected, wanted.tree);
        let root = self.root(tree);
        if level >= root.level {
            return None;
        }
        let mut node = self.root_node(tree).ok()?;
        for below in (level + 1..root.level).rev() {
            node = self.child(tree, &node, node.child_index(&wanted.low), below).ok()?;
        }
        (node.child(node.child_index(&wanted.low)) == pointer).then_some(node)
    }

    /// Whether the leaves that cover `from` up to `to` are in memory, so many of them at most. Then: where those behind them begin, if
    /// there are any. Fails with all that can be seen to be missing.
    pub(crate) fn leaves_of(
        &self,
        tree: TreeNo,
        (from, to): (&Key, &Key),
        most: usize,
    ) -> Result<Option<Key>, MissingSet> {
        let mut walk = Leaves {
            keys: (from.raw(), to.raw()),
            left: most,
            end: None,
            missing: MissingSet::default(),
        };
        let root = self.root(tree);
        self.leaves_below(tree, (root.pointer, root.level, Key::MIN.raw()), &mut walk);
        walk.missing.none().map(|()| walk.end)
    }

    fn leaves_below(
        &self,
        tree: TreeNo,
        (pointer, level, low): (NodePointer, u8, RawKey),
        walk: &mut Leaves,
    ) {
        let node = match self.node_at(tree, pointer, level, low) {
            Ok(node) if level > 0 => node,
            found => {
                walk.left = walk.left.saturating_sub(1);
                if let Err(missing) = found
                    && !walk.missing.add(missing)
                {
                    walk.left = 0;
                }
                return;
            }
        };
        for index in node.child_index(&walk.keys.0)..=node.child_index(&walk.keys.1) {
            if walk.left == 0 {
                walk.end.get_or_insert(node.key(index));
                return;
            }
            self.leaves_below(tree, (node.child(index), level - 1, node.raw_key(index)), walk);
        }
    }

    /// Calls `visit` for every node of `tree` that is in memory, from the root down, with its lower bound.
    /// Returns whether all of it is in memory, so that its blocks were counted.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn invariants(&self, tree: TreeNo) -> bool {
        let root = self.root(tree);
        let referenced = self.node_invariants(tree, root.pointer, root.level, Key::MIN, None);
        let of = self.trees.get(tree);
        if let Some(referenced) = referenced.filter(|_| tree != TreeNo::SPACE && !of.is_gone) {
            assert_eq!(of.referenced, referenced, "tree {} refers to so many blocks", of.number);
        }
        for leaf_hint in self.leaf_hints.at((self.shape, self.epoch)).filter(|of| of.tree == tree) {
            let (path, leaf) =
                self.path(tree, &leaf_hint.low).expect("the way to a leaf hint is in memory");
            assert_eq!(leaf, leaf_hint.leaf, "a leaf hint is on the leaf that covers its keys");
            let behind = path.iter().rev().find_map(|(above, index)| {
                let above = self.cache.get(*above)?.node();
                (index + 1 < above.count()).then(|| above.raw_key(index + 1))
            });
            assert_eq!(behind, leaf_hint.high, "a leaf_hint ends where its leaf does");
        }
        referenced.is_some()
    }

    /// Returns how many blocks the node and all that is below it refer to, if all of it is in memory.
    #[cfg(any(test, debug_assertions))]
    fn node_invariants(
        &self,
        tree: TreeNo,
        pointer: NodePointer,
        level: u8,
        low: Key,
        high: Option<Key>,
    ) -> Option<u64> {
        let node = self.node(tree, pointer, level)?;
        let mut referenced = Some(self.blocks_of(tree, level));
        let mut reader = holdfast_format::codec::Reader::new("node", node.bytes());
        let header =
            holdfast_format::node::NodeHeader::read(&mut reader).expect("a node has a head");
        node.check_body(&header, self.volume.carried).expect("the program keeps its nodes valid");
        assert!(node.has_its_prefixes(), "the prefixes of {pointer:?} are those of its keys");
        assert_eq!((header.address, header.epoch), (pointer.block.0, pointer.epoch.0));
        assert_eq!((header.level, header.tree), (level, tree.id() as u8));
        for index in 0..node.count() {
            let key = node.key(index);
            assert!(key >= low, "{key:?} is below {low:?} in {pointer:?}");
            assert!(high.is_none_or(|high| key < high), "{key:?} is not below {high:?}");
            if level > 0 {
                assert!(index > 0 || key == low, "the first separator is the lower bound");
                let next = (index + 1 < node.count()).then(|| node.key(index + 1)).or(high);
                let child = node.child(index);
                assert!(child.epoch <= pointer.epoch, "a child is younger than its parent");
                let below = self.node_invariants(tree, child, level - 1, key, next);
                referenced = referenced.zip(below).map(|(all, below)| all + below);
            } else if key.kind == holdfast_format::ItemKind::Extent {
                let blocks = holdfast_format::item::Extent::blocks_in(node.value(index));
                referenced = referenced.map(|all| all + blocks);
            }
        }
        referenced
    }
}

/// Whether the keys of a node lie from `low` on and below `high`, and its first separator is `low`.
pub(crate) fn lies_between(node: &NodeView<'_>, low: RawKey, high: Option<RawKey>) -> bool {
    let Some(last) = node.count().checked_sub(1) else {
        return true;
    };
    let first = node.raw_key(0);
    let begins = if node.level() > 0 { first == low } else { first >= low };
    begins && high.is_none_or(|high| node.raw_key(last) < high)
}
