//! Nodes of this epoch: a change copies the way to its leaf, and what a snapshot has stays where it is (S1).

use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::WalkPlace;
use holdfast_format::key::RawKey;
use holdfast_format::{Key, NodePointer, node};

use super::SHARED;
use crate::cache::Body;
use crate::tree::{Forest, NodeAllocator, Path, Root, TreeNo};

impl Forest {
    /// The prepared way to the leaf of `key`, every node of it born in this epoch. `None` if a
    /// change since the preparation took a node of it away, which only a damaged tree makes possible.
    pub(super) fn own_path(
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
            let own = self.copy_node(tree, (pointer, level), WalkPlace::node(end, level), slots)?;
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
    pub(super) fn end_of(&self, path: &[(NodePointer, usize)]) -> Option<RawKey> {
        path.iter().rev().find_map(|(above, index)| {
            let above = self.view(*above);
            (index + 1 < above.count()).then(|| above.raw_key(index + 1))
        })
    }

    /// The node leaves the tree: its location is free, if no other tree has it (S1).
    pub(super) fn leave(
        &mut self,
        tree: TreeNo,
        (pointer, level): (NodePointer, u8),
        place: WalkPlace,
        slots: &mut dyn NodeAllocator,
    ) {
        if self.trees.get(tree).ancestry.owns(pointer.epoch, || place) {
            self.cache.remove(pointer.block);
            slots.give_back(pointer.block, self.stored(tree, level));
        }
        self.trees.refer(tree, 0, self.blocks_of(tree, level));
    }

    /// The copy of a node for this epoch. The node itself stays if a snapshot has it.
    pub(super) fn copy_node(
        &mut self,
        tree: TreeNo,
        (pointer, level): (NodePointer, u8),
        place: WalkPlace,
        slots: &mut dyn NodeAllocator,
    ) -> Option<NodePointer> {
        if !self.cache.holds(pointer) {
            slots.damaged(SHARED);
            return None;
        }
        self.shape += 1;
        let stored = self.stored(tree, level);
        let in_place = mutants::is(Mutant::NodeInPlace);
        // Before the node is taken out: its bytes are nowhere else, perhaps.
        let location = if in_place { pointer.block } else { slots.take(stored) };
        let is_own = self.trees.get(tree).ancestry.owns(pointer.epoch, || place);
        let own = NodePointer { block: location, epoch: self.epoch };
        let body = match is_own || in_place {
            true => self.cache.succeed(pointer.block),
            false => self.cache.body_of(pointer.block),
        };
        if is_own && !in_place {
            slots.give_back(pointer.block, stored);
        }
        self.cache.insert_copy(own, pointer, body);
        self.edit(own, |node| node.set_location(own));
        Some(own)
    }

    pub(super) fn set_child(&mut self, parent: NodePointer, index: usize, child: NodePointer) {
        self.edit(parent, |node| node.replace(index, &child.encode()))
            .expect("a pointer replaces one of the same length");
    }

    pub(super) fn new_node(
        &mut self,
        tree: TreeNo,
        level: u8,
        slots: &mut dyn NodeAllocator,
    ) -> NodePointer {
        self.shape += 1;
        let block = slots.take(self.stored(tree, level));
        let pointer = NodePointer { block, epoch: self.epoch };
        let bytes = node::empty(self.node_size, &self.expected(tree, pointer, level));
        self.cache.insert_new(pointer, Body::of(bytes));
        self.trees.refer(tree, self.blocks_of(tree, level), 0);
        pointer
    }

    /// Makes the first node of an empty tree.
    pub(crate) fn plant(&mut self, tree: TreeNo, slots: &mut dyn NodeAllocator) {
        let pointer = self.new_node(tree, 0, slots);
        self.set_root(tree, Root { pointer, level: 0 });
    }
}
