//! Whether all nodes are in memory that a change may touch, and how many locations it may take: nothing is changed here.

use holdfast_base::BlockNo;
use holdfast_format::key::RawKey;
use holdfast_format::{Key, NodeView, node};
use rustc_hash::FxHashMap;

use super::{Prepared, THIN, is_thin};
use crate::cache::Node;
use crate::space::slots::NodesNeeded;
use crate::transaction::{Change, Changes};
use crate::tree::leaf_hint::LeafHint;
use crate::tree::{Forest, Missing, MissingSet, TreeNo, lies_between};

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

    /// [`Forest::prepare_change`] for all of a transaction. Says all that is missing, as far as it can be seen from here.
    pub(crate) fn prepare_all(
        &mut self,
        tree: TreeNo,
        changes: &Changes,
    ) -> Result<(), MissingSet> {
        let mut prepared = std::mem::take(&mut self.prepared);
        prepared.clear();
        let mut missing = MissingSet::default();
        for change in changes.iter() {
            match self.prepare_change(tree, change) {
                Ok(one) => prepared.push(one),
                Err(one) if missing.add(one) => {}
                Err(_) => break,
            }
        }
        self.prepared = prepared;
        missing.none()
    }

    /// An upper bound for the nodes that prepared `changes` make: nodes to copy, neighbours to
    /// join, halves of what may overflow.
    pub(crate) fn nodes_needed(&self, tree: TreeNo, changes: &Changes) -> NodesNeeded {
        // Bytes left in each node that the changes reach.
        let mut room: FxHashMap<BlockNo, usize> = FxHashMap::default();
        let (mut leaves, mut above) = (0, 0);
        for Change { key, value } in changes.iter() {
            let Ok((path, leaf)) = self.path(tree, &key.raw()) else {
                continue;
            };
            let nodes = || std::iter::once(leaf).chain(path.iter().rev().map(|step| step.0));
            for (level, pointer) in nodes().enumerate() {
                room.entry(pointer.block).or_insert_with(|| {
                    let needed = if level == 0 { &mut leaves } else { &mut above };
                    *needed += u64::from(pointer.epoch != self.epoch);
                    self.view(pointer).free()
                });
            }
            let Some(value) = value else {
                // Each level may copy a neighbour.
                let levels = path.len() as u64;
                leaves += levels.min(1);
                above += levels.saturating_sub(1);
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
                if level == 0 {
                    leaves += 2;
                } else {
                    above += 1;
                }
                above += u64::from(level == path.len());
                *room = self.node_size / THIN;
                bytes = 2 * (Key::SIZE + node::POINTER_SIZE + node::SLOT_SIZE);
            }
        }
        NodesNeeded { leaves, above, all: leaves + above }
    }
}
