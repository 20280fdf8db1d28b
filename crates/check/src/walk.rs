//! A walk through a tree: each node once, before its children, in the order of their keys.
//!
//! It tells of each subtree that it had to leave out, and why, and is deterministic: a second walk leaves out the same ones.
//! Walks through several trees, one after the other, may know of each other what they have met (`seen`): what trees share is
//! read once.

use std::ops::ControlFlow;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::item::{Extent, WalkPlace};
use holdfast_format::{ItemKind, NodePointer, NodeView};

use crate::bounds::Bounds;
use crate::met_nodes::{Again, Met, MetNodes};
use crate::nodes::AHEAD;
use crate::volume::{Problem, Volume};

/// What a walk meets.
pub(crate) enum Step<'n> {
    /// A sound node. Its children follow.
    Node {
        pointer: NodePointer,
        node: NodeView<'n>,
        /// No other tree was met that has it.
        is_first: bool,
    },
    /// A node that is left out with all below it.
    Lost { pointer: NodePointer, level: u8, bounds: Bounds, problem: Problem },
}

type Visit<'v> = dyn FnMut(Step<'_>) -> ControlFlow<()> + 'v;

/// Which part of a tree is walked.
#[derive(Clone, Copy)]
pub(crate) struct WalkPart {
    /// The keys that are wanted.
    pub(crate) range: Bounds,
    /// The tree's number: that of its branch or snapshot. Others may share nodes with it.
    pub(crate) of: u64,
    /// Of a tree that is being deleted: what lies before is not its own any more.
    pub(crate) cursor: Option<WalkPlace>,
}

impl Default for WalkPart {
    fn default() -> WalkPart {
        WalkPart { range: Bounds::ALL, of: 0, cursor: None }
    }
}

impl Volume<'_> {
    /// Visits the nodes of `tree` that may hold keys in `range`, each node before its children,
    /// in the order of their keys.
    pub(crate) fn walk(
        &self,
        tree: TreeId,
        range: Bounds,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let mut seen = MetNodes::default();
        self.walk_unseen(tree, WalkPart { range, ..WalkPart::default() }, &mut seen, visit)
    }

    /// The same without the nodes that a walk through another tree has met, which lie in the same place of that. Of a
    /// tree that is being deleted only what lies at or behind the cursor.
    pub(crate) fn walk_unseen(
        &self,
        tree: TreeId,
        way: WalkPart,
        seen: &mut MetNodes,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let (root, level) = self.root(tree);
        seen.begins();
        let mut walk = Walk { volume: *self, tree, way, seen, visit };
        walk.descend(root, level, Bounds::ALL, None)
    }
}

struct Walk<'a, 'v> {
    volume: Volume<'a>,
    tree: TreeId,
    way: WalkPart,
    seen: &'v mut MetNodes,
    visit: &'v mut Visit<'v>,
}

impl Walk<'_, '_> {
    /// Whether the deletion of the tree has passed a node.
    fn is_passed(&self, bounds: &Bounds, level: u8) -> bool {
        let place = WalkPlace::node(bounds.high.map(|high| high.raw()), level);
        self.way.cursor.is_some_and(|cursor| place < cursor)
    }

    /// Recursion ends at level 0; the superblock's level is below `TREE_LEVELS_MAX`.
    fn descend(
        &mut self,
        pointer: NodePointer,
        level: u8,
        bounds: Bounds,
        parent: Option<NodePointer>,
    ) -> ControlFlow<()> {
        if self.is_passed(&bounds, level) {
            return ControlFlow::Continue(());
        }
        let is_partial = self.way.cursor.is_some_and(|cursor| cursor.key > bounds.low.raw());
        let (tree, of, epoch) = (self.tree, self.way.of, pointer.epoch.0);
        let now = Met { epoch, tree, level, bounds, of, is_partial, referenced: 0 };
        let expected = self.volume.expected(self.tree, pointer, level);
        let mut buffer = Vec::new();
        let opened = match self.seen.judge(pointer, &now) {
            Again::Shared => {
                self.seen.passes(pointer.block);
                return ControlFlow::Continue(());
            }
            Again::Wrong(problem) => Err(problem),
            Again::New => self.volume.node(&expected, parent, &mut buffer),
        };
        let checked = opened.and_then(|node| match out_of_bounds(&node, &bounds) {
            None => Ok(node),
            Some(why) => Err(Problem::OutOfBounds(why)),
        });
        let node = match checked {
            Ok(node) => node,
            Err(problem) => {
                return (self.visit)(Step::Lost { pointer, level, bounds, problem });
            }
        };
        let geometry = &self.volume.superblock.geometry;
        let own = geometry.blocks_of(expected.stored(geometry)) + extent_blocks(&node);
        let before = self.seen.referenced();
        let is_first = self.seen.meets(pointer.block, now, own);
        (self.visit)(Step::Node { pointer, node, is_first })?;
        if level == 0 {
            self.seen.ends(pointer.block, before);
            return ControlFlow::Continue(());
        }
        let child = |index| {
            let next = (index + 1 < node.count()).then(|| node.key(index + 1));
            let bounds = Bounds { low: node.key(index), high: next.or(bounds.high) };
            (node.child(index), bounds)
        };
        let wanted = (0..node.count()).map(child);
        let wanted: Vec<_> = wanted.filter(|(_, of)| of.meets(&self.way.range)).collect();
        for some in wanted.chunks(AHEAD) {
            self.volume
                .read_ahead(some.iter().filter_map(|(to, of)| self.will_read(*to, level - 1, of)));
            for (to, bounds) in some {
                self.descend(*to, level - 1, *bounds, Some(pointer))?;
            }
        }
        self.seen.ends(pointer.block, before);
        ControlFlow::Continue(())
    }

    /// The block of a child that has to be read.
    fn will_read(&self, pointer: NodePointer, level: u8, bounds: &Bounds) -> Option<BlockNo> {
        let is_wanted = !self.is_passed(bounds, level) && !self.seen.has_met(pointer.block);
        is_wanted.then_some(pointer.block)
    }
}

/// What of a node does not belong between `bounds`.
pub(crate) fn out_of_bounds(node: &NodeView<'_>, bounds: &Bounds) -> Option<String> {
    let last = node.count().checked_sub(1)?;
    let (first, last) = (node.key(0), node.key(last));
    if !bounds.holds(&first) || !bounds.holds(&last) {
        return Some(format!(
            "its keys {first:?} to {last:?} do not belong between {:?} and {}",
            bounds.low,
            bounds.high.map_or("the end".into(), |high| format!("{high:?}")),
        ));
    }
    (node.level() > 0 && first != bounds.low)
        .then(|| format!("its first separator is {first:?}, not its lower bound {:?}", bounds.low))
}

/// Blocks of the device that the extents of a leaf have.
pub fn extent_blocks(leaf: &NodeView<'_>) -> u64 {
    let extents = leaf.items_of(ItemKind::Extent);
    extents.fold(0, |sum, (_, value)| sum.saturating_add(Extent::blocks_in(value)))
}
