//! Which tree a node that was found belongs to, and whether all nodes of a tree are known.
//!
//! A node that the bitmaps call in use and no tree reaches is below a node that is left out. S1 (docs/BRANCHES.md) says which tree was the first
//! to have it, and has it still: one that is not older than the node, whose parent is, and that has lost a node around its keys which is not
//! older. If only one is so, the node is that tree's own. The trees that grew out of it have it too, unless they have another in its
//! place; that one is their own, as each change makes a node anew.
//!
//! So each tree has lost its own nodes, and those of the trees before it where none of its own has a key between theirs. Nothing is missing
//! among these if each group of the volume counts as many blocks of nodes as are known; and nothing is too much if the tree counts as many blocks as
//! it then refers to. Both together are the proof that it is the tree as it was (`is_whole`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_base::{BlockNo, BlockRange, Epoch, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::{Key, Stored};

use super::scan::{Node, Nodes, Owner};
use crate::walk::TreeWork;

/// A tree, as far as it says which nodes can be its own.
#[derive(Debug)]
struct Tree {
    parent: Option<usize>,
    /// Its own nodes are younger.
    after: u64,
    /// They are not younger than this.
    until: u64,
    /// In the order of their keys.
    lost: Vec<NodePlace>,
}

/// The trees of a volume, in the order of their states.
#[derive(Debug)]
pub(super) struct Whose {
    trees: Vec<Tree>,
    /// The first tree that has each node that is left out.
    first: HashMap<NodePlace, usize>,
    /// Trees of which all nodes are known.
    whole: Vec<bool>,
    in_use: InUse,
}

/// Nodes whose owner may be a tree, by level.
#[derive(Debug, Default)]
struct InUse {
    levels: BTreeMap<u8, Level>,
    /// Nodes that may still be compared.
    looks: Cell<u64>,
}

/// By their first keys, with the greatest last key of all up to each.
#[derive(Debug, Default)]
struct Level {
    nodes: Vec<Node>,
    ends: Vec<Key>,
}

/// Nodes that are compared in all: some seconds.
const LOOKS_MAX: u64 = 1 << 31;

/// Whether a node has only keys of a range, and is not younger than what stood there.
fn fits(place: &NodePlace, node: &Node) -> bool {
    place.level > node.level
        && node.pointer.epoch <= place.pointer.epoch
        && node.first >= place.low
        && place.high.is_none_or(|high| node.last < high)
}

impl Whose {
    pub(super) fn new(states: &[TreeWork]) -> Whose {
        let at: HashMap<u64, usize> =
            states.iter().enumerate().map(|(at, state)| (state.root.id, at)).collect();
        let trees = states.iter().map(|state| {
            let parent = at.get(&state.root.parent).copied();
            let after = parent.and_then(|at| states[at].root.snapshot).unwrap_or(0);
            let lost = state.lost.iter().map(|lost| lost.place).collect();
            let until = state.root.snapshot.unwrap_or(u64::MAX);
            Tree { parent, after, until, lost }
        });
        let trees: Vec<Tree> = trees.collect();
        let mut first = HashMap::new();
        for (at, tree) in trees.iter().enumerate() {
            let own = |place: &&NodePlace| tree.may_own(place.pointer.epoch.0);
            for place in tree.lost.iter().filter(own) {
                first.entry(*place).or_insert(at);
            }
        }
        let whole = vec![false; trees.len()];
        Whose { trees, first, whole, in_use: InUse::default() }
    }

    /// Says of each node that is in use whose own it is.
    pub(super) fn give(&self, nodes: &mut Nodes) {
        for node in nodes.in_use() {
            node.owner = self.owner(node);
        }
    }

    /// Whose own a node is that the bitmaps call in use.
    fn owner(&self, node: &Node) -> Owner {
        let mut owner = Owner::Nobody;
        for (at, tree) in self.trees.iter().enumerate() {
            if tree.may_own(node.pointer.epoch.0) && tree.has_lost(node) {
                match owner {
                    Owner::Nobody => owner = Owner::One(at),
                    _ => return Owner::Several,
                }
            }
        }
        owner
    }

    /// The first tree that has a node that is left out, if that is known.
    pub(super) fn first(&self, place: &NodePlace) -> Option<usize> {
        self.first.get(place).copied()
    }

    /// Whether all nodes of a tree are known.
    pub(super) fn is_whole(&self, tree: usize) -> bool {
        self.whole[tree]
    }

    /// The nodes that a tree has below one that it has lost: its own, and those of the trees before it in whose place nothing else is known.
    pub(super) fn below(&self, tree: usize, place: &NodePlace) -> Vec<Node> {
        self.near(place).filter(|node| self.is_of(tree, place, node)).copied().collect()
    }

    /// The nodes in use that may have been below a lost one.
    fn near(&self, place: &NodePlace) -> impl Iterator<Item = &Node> {
        let (place, levels) = (*place, self.in_use.levels.range(..place.level));
        let near = levels.flat_map(move |(_, level)| {
            let from = level.nodes.partition_point(|node| node.first < place.low);
            let begins = move |node: &&Node| place.high.is_none_or(|high| node.first < high);
            level.nodes[from..].iter().take_while(begins)
        });
        near.filter(move |node| fits(&place, node))
    }

    fn is_of(&self, tree: usize, place: &NodePlace, node: &Node) -> bool {
        let Owner::One(owner) = node.owner else { return false };
        owner == tree
            || (self.is_at_or_before(owner, tree)
                && !self.is_replaced((owner, tree), place.pointer.epoch, node))
    }

    /// Whether a tree, or one between it and the owner of a node, may have another node in place of that. If there is too much to compare, it may.
    fn is_replaced(&self, (owner, tree): (usize, usize), newest: Epoch, node: &Node) -> bool {
        let Some(level) = self.in_use.levels.get(&node.level) else { return true };
        let is_between =
            |by| by != owner && self.is_at_or_before(owner, by) && self.is_at_or_before(by, tree);
        let behind = level.nodes.partition_point(|other| other.first <= node.last);
        for at in (0..behind).rev().take_while(|at| level.ends[*at] >= node.first) {
            let (other, left) = (&level.nodes[at], self.in_use.looks.get());
            self.in_use.looks.set(left.saturating_sub(1));
            let may_be = match other.owner {
                _ if left == 0 => true,
                Owner::Nobody => false,
                Owner::One(by) => is_between(by),
                // The tree has nothing younger there.
                Owner::Several => other.pointer.epoch <= newest,
            };
            if may_be && other.last >= node.first {
                return true;
            }
        }
        false
    }

    /// Whether a tree is `of` or has grown out of it.
    fn is_at_or_before(&self, of: usize, tree: usize) -> bool {
        // Each tree stands behind its parent.
        let mut way = Some(tree);
        while let Some(at) = way.filter(|at| *at > of) {
            way = self.trees[at].parent.filter(|parent| *parent < at);
        }
        way == Some(of)
    }

    /// Takes the nodes that are in use, and looks of which trees all nodes are known. `known` are the blocks of all nodes that trees reach.
    pub(super) fn judge(
        &mut self,
        reading: &VolumeReading<'_>,
        nodes: &Nodes,
        states: &[TreeWork],
        known: &BTreeSet<(u64, Stored)>,
    ) {
        self.in_use.looks.set(LOOKS_MAX);
        for node in nodes.all().iter().filter(|node| node.owner != Owner::Nobody) {
            let level = self.in_use.levels.entry(node.level).or_default();
            level.ends.push(level.ends.last().map_or(node.last, |end| node.last.max(*end)));
            level.nodes.push(*node);
        }
        if !self.is_complete(reading, known) {
            return;
        }
        let geometry = &reading.superblock().geometry;
        let own = |level: u8| geometry.blocks_of(geometry.stored(TreeId::Files, level));
        let (mut below, mut whole) = (HashMap::<NodePlace, u64>::new(), vec![false; states.len()]);
        // What a leaf that is lost refers to is not known; and of what may be another tree's, one too few may hide one too many.
        let may_miss = |place: &NodePlace| {
            place.level == 0 || self.near(place).any(|node| node.owner == Owner::Several)
        };
        let is_known = |tree: &Tree| !tree.lost.iter().any(may_miss);
        for (at, state) in states.iter().enumerate().filter(|(at, _)| is_known(&self.trees[*at])) {
            let mut sum = state.referenced;
            for place in &self.trees[at].lost {
                let Some(first) = self.first(place) else { continue };
                let of = below.entry(*place).or_insert_with(|| {
                    let found = self.below(first, place);
                    let blocks =
                        found.iter().map(|node| node.extent_blocks.saturating_add(own(node.level)));
                    blocks.fold(own(place.level), u64::saturating_add)
                });
                sum = sum.saturating_add(*of);
            }
            whole[at] = sum == state.root.referenced_blocks;
        }
        // Without a comparison of all nothing is known.
        if self.in_use.looks.get() > 0 {
            self.whole = whole;
        }
    }

    /// Whether each group counts as many blocks of nodes as are known.
    fn is_complete(&self, reading: &VolumeReading<'_>, known: &BTreeSet<(u64, Stored)>) -> bool {
        let Some(counted) = reading.counted_nodes() else { return false };
        let geometry = &reading.superblock().geometry;
        let of_files = |level: u8| geometry.stored(TreeId::Files, level);
        let lost = self.trees.iter().flat_map(|tree| &tree.lost);
        let lost = lost.map(|of| (of.pointer.block, of_files(of.level)));
        let found = self.in_use.levels.values().flat_map(|level| &level.nodes);
        let found = found.map(|node| (node.pointer.block, of_files(node.level)));
        let of_space = geometry.stored(TreeId::Space, 0);
        let of_space = counted.of_space.into_iter().map(|block| (block, of_space));
        let known = known.iter().map(|(block, stored)| (BlockNo(*block), *stored));
        let nodes = found.chain(lost).chain(known).chain(of_space);
        let places = nodes.flat_map(|(block, stored)| geometry.places_of_node(block, stored));
        let mut by_group: BTreeMap<u64, u64> = BTreeMap::new();
        for (mut at, end) in places.map(BlockRange::ends).collect::<Runs>().iter() {
            while at < end {
                let stop = end.min((at / GROUP_BLOCKS + 1).saturating_mul(GROUP_BLOCKS));
                *by_group.entry(at / GROUP_BLOCKS).or_default() += stop - at;
                at = stop;
            }
        }
        let counted = counted.by_group.into_iter().filter(|(_, count)| *count > 0);
        counted.eq(by_group)
    }
}

impl Tree {
    fn may_own(&self, epoch: u64) -> bool {
        self.after < epoch && epoch <= self.until
    }

    fn has_lost(&self, node: &Node) -> bool {
        let behind = self.lost.partition_point(|place| place.low <= node.first);
        // Ranges of one tree do not meet, but for those that break a rule.
        self.lost[..behind].last().is_some_and(|place| fits(place, node))
    }
}
