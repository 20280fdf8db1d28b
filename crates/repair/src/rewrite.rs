//! Writes trees anew where they change: changed nodes, and their way up to the root, in places that nothing reaches.
//!
//! Trees share nodes, and what a branch drops later is free or not by its sharers: a node belongs to the trees that
//! lie together in the lineage, and its epoch says which of them is the first (S1, docs/BRANCHES.md). So
//!
//! - a node that becomes the same in a tree and in its parent is written once, and both have it;
//! - one that becomes another in one of the two is written for each, with an epoch in the time of the first that has it: that of
//!   a snapshot is above its parent's and not above its own, that of a branch is the new one. A node of a snapshot keeps its
//!   epoch where that lies between;
//! - a tree keeps a node where it is only if its parent keeps it too, or if it is the first that has it.
//!
//! A node that is left out becomes an empty one of the same level and range, as the same node must have the same
//! range of keys in all trees.

use std::collections::{BTreeSet, HashMap};

use holdfast_base::{Epoch, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_format::limits::TREE_LEVELS_MAX;
use holdfast_format::node::Expected;
use holdfast_format::{Key, NodePointer};

use crate::blocks::Space;
use crate::error::RepairError;
use crate::overlay::Overlay;
use crate::pack::{self, Item};
use crate::walk::{Edits, TreeWork};

/// Keys from the first on, up to the second if there is one.
type Range = (Key, Option<Key>);

/// Children for the node above: lower bounds and pointers.
type Nodes = Vec<(Key, NodePointer)>;

/// What became of a node in a tree.
#[derive(Clone, Debug)]
struct Outcome {
    /// The tree by whose edits it was made.
    by: usize,
    is_lost: bool,
    nodes: Nodes,
}

pub(crate) struct Rewrite<'w, 'd> {
    reading: &'w VolumeReading<'d>,
    overlay: &'w Overlay<'d>,
    space: &'w mut Space,
    states: &'w [TreeWork],
    /// The epoch of what is written.
    epoch: Epoch,
    /// Nodes that cannot stay where they are.
    displaced: &'w BTreeSet<u64>,
    /// Every key that has an edit in any tree.
    keys: BTreeSet<Key>,
    /// Every range that is left out of any tree, and all of them where a tree gets nodes of its own; disjoint, upwards.
    ranges: Vec<Range>,
    outcomes: HashMap<(usize, u64), Outcome>,
    kept: HashMap<u64, usize>,
}

/// The places of all states, by the numbers of their trees.
fn by_id(states: &[TreeWork]) -> HashMap<u64, usize> {
    states.iter().enumerate().map(|(at, state)| (state.root.id, at)).collect()
}

/// How trees are written.
pub(crate) struct RewriteRules<'w> {
    /// The epoch of what is written.
    pub(crate) epoch: Epoch,
    /// Nodes that cannot stay where they are.
    pub(crate) displaced: &'w BTreeSet<u64>,
    /// Whether each node of each tree is held against the rules above.
    pub(crate) all: bool,
}

/// Writes all trees anew of which something changes. `states` has each tree behind its parent. Returns their roots, with levels.
pub(crate) fn trees<'d>(
    reading: &VolumeReading<'d>,
    overlay: &Overlay<'d>,
    space: &mut Space,
    states: &[TreeWork],
    how: &RewriteRules<'_>,
) -> Result<Vec<(NodePointer, u8)>, RepairError> {
    let keys = states.iter().flat_map(|state| state.edits.keys().copied()).collect();
    let lost = states.iter().flat_map(|state| &state.lost);
    let mut ranges: Vec<_> = lost.map(|lost| (lost.place.low, lost.place.high)).collect();
    let RewriteRules { epoch, displaced, all } = *how;
    if all || !displaced.is_empty() || states.iter().any(|state| state.is_cut) {
        ranges = vec![(Key::MIN, None)];
    }
    let ranges = joined(ranges);
    let (outcomes, kept) = (HashMap::new(), HashMap::new());
    let mut rewrite =
        Rewrite { reading, overlay, space, states, epoch, displaced, keys, ranges, outcomes, kept };
    let at = by_id(states);
    let roots = states.iter().enumerate().map(|(index, state)| {
        let parent = at.get(&state.root.parent).copied();
        let place = state.root.place();
        let nodes = rewrite.node(index, parent, &place)?;
        rewrite.root(index, parent, place.level, nodes)
    });
    roots.collect()
}

/// The same keys, in ranges that do not meet, upwards.
fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable_by_key(|range| range.0);
    let mut joined: Vec<Range> = Vec::new();
    for (low, high) in ranges {
        match joined.last_mut() {
            Some((_, end)) if end.is_none_or(|end| low <= end) => {
                *end = end.zip(high).map(|(a, b)| a.max(b));
            }
            _ => joined.push((low, high)),
        }
    }
    joined
}

fn edits_in<'e>(
    edits: &'e Edits,
    place: &NodePlace,
) -> impl Iterator<Item = (&'e Key, &'e Option<Vec<u8>>)> {
    let high = place.high;
    edits.range(place.low..).take_while(move |(key, _)| high.is_none_or(|high| **key < high))
}

impl Rewrite<'_, '_> {
    /// Whether anything changes in any tree below a node.
    fn is_touched(&self, place: &NodePlace) -> bool {
        let next = self.keys.range(place.low..).next();
        let by_key = next.is_some_and(|key| place.high.is_none_or(|high| *key < high));
        // The last range that begins before the node's end is the only one that may reach into it from before.
        let behind = place
            .high
            .map_or(self.ranges.len(), |high| self.ranges.partition_point(|of| of.0 < high));
        let last = self.ranges[..behind].last();
        by_key || last.is_some_and(|(_, end)| end.is_none_or(|end| place.low < end))
    }

    fn node(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        place: &NodePlace,
    ) -> Result<Nodes, RepairError> {
        if !self.is_touched(place) {
            return Ok(vec![(place.low, place.pointer)]);
        }
        let (states, block) = (self.states, place.pointer.block.0);
        let state = &states[tree];
        let is_lost = state.leaves_out(place);
        let of_parent = parent.and_then(|parent| self.outcomes.get(&(parent, block)));
        let kept_by_parent = of_parent.is_some_and(|of| of.nodes == [(place.low, place.pointer)]);
        if let Some(of) = of_parent
            && of.is_lost == is_lost
            && edits_in(&states[of.by].edits, place).eq(edits_in(&state.edits, place))
        {
            let of = of.clone();
            let nodes = of.nodes.clone();
            self.outcomes.insert((tree, block), of);
            return Ok(nodes);
        }
        let written = match (is_lost, place.level) {
            (true, _) => Some(self.instead(tree, parent, place)?),
            (false, 0) => self.leaf(tree, parent, place)?,
            (false, _) => self.inner(tree, parent, place)?,
        };
        let nodes = match written {
            Some(nodes) => nodes,
            None if self.may_keep(tree, parent, kept_by_parent, place) => {
                self.kept.insert(block, tree);
                vec![(place.low, place.pointer)]
            }
            None => self.copy(tree, parent, place)?,
        };
        self.outcomes.insert((tree, block), Outcome { by: tree, is_lost, nodes: nodes.clone() });
        Ok(nodes)
    }

    /// The epoch of the snapshot that a tree grew out of.
    fn before(&self, parent: Option<usize>) -> u64 {
        parent.and_then(|parent| self.states[parent].root.snapshot).unwrap_or(0)
    }

    fn may_keep(
        &self,
        tree: usize,
        parent: Option<usize>,
        kept_by_parent: bool,
        place: &NodePlace,
    ) -> bool {
        let kept = self.kept.get(&place.pointer.block.0);
        if self.displaced.contains(&place.pointer.block.0) {
            return false;
        }
        let epoch = place.pointer.epoch.0;
        let fits = epoch > self.before(parent)
            && self.states[tree].root.snapshot.is_none_or(|own| epoch <= own);
        kept_by_parent || (fits && kept.is_none_or(|by| *by == tree))
    }

    /// An epoch for what is written in place of a node of epoch `was`, above what is not older than `least`.
    fn epoch(&self, tree: usize, parent: Option<usize>, was: Epoch, least: Epoch) -> Epoch {
        let Some(own) = self.states[tree].root.snapshot else { return self.epoch };
        let fits = was.0 > self.before(parent) && was.0 <= own;
        Epoch(if fits { was.0 } else { own }).max(least)
    }

    /// The leaf with its edits, if they change it.
    fn leaf(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        place: &NodePlace,
    ) -> Result<Option<Nodes>, RepairError> {
        let before = self.items_of(place)?;
        let mut items: std::collections::BTreeMap<Key, Vec<u8>> = before.into_iter().collect();
        let mut changes = false;
        for (key, value) in edits_in(&self.states[tree].edits, place) {
            let was = match value {
                Some(value) => items.insert(*key, value.clone()),
                None => items.remove(key),
            };
            changes |= was != *value;
        }
        if !changes {
            return Ok(None);
        }
        let items: Vec<Item> = items.into_iter().collect();
        let epoch = self.epoch(tree, parent, place.pointer.epoch, Epoch(0));
        self.level(0, place.low, &items, epoch).map(Some)
    }

    fn inner(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        place: &NodePlace,
    ) -> Result<Option<Nodes>, RepairError> {
        let mut buffer = Vec::new();
        let node = self.reading.node(TreeId::Files, place, None, &mut buffer);
        let below = place.children(&node.map_err(|lost| RepairError::Refused(lost.why))?);
        let (mut nodes, mut changes) = (Nodes::new(), false);
        for child in &below {
            let of = self.node(tree, parent, child)?;
            changes |= of != [(child.low, child.pointer)];
            nodes.extend(of);
        }
        if !changes {
            return Ok(None);
        }
        let least = nodes.iter().map(|(_, pointer)| pointer.epoch).max().unwrap_or_default();
        let epoch = self.epoch(tree, parent, place.pointer.epoch, least);
        self.above(place.level, place.low, nodes, epoch).map(Some)
    }

    /// A subtree with nothing but edits, in place of a node that is left out.
    fn instead(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        place: &NodePlace,
    ) -> Result<Nodes, RepairError> {
        let edits = edits_in(&self.states[tree].edits, place);
        let items = edits.filter_map(|(key, value)| Some((*key, value.clone()?)));
        let items: Vec<Item> = items.collect();
        let epoch = self.epoch(tree, parent, place.pointer.epoch, Epoch(0));
        let mut nodes = self.level(0, place.low, &items, epoch)?;
        for level in 1..=place.level {
            nodes = self.above(level, place.low, nodes, epoch)?;
        }
        Ok(nodes)
    }

    /// The same node in another place, for a tree that may not share it as it did.
    fn copy(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        place: &NodePlace,
    ) -> Result<Nodes, RepairError> {
        let items = self.items_of(place)?;
        let pointers = items.iter().filter(|_| place.level > 0);
        let epochs = pointers.filter_map(|(_, value)| NodePointer::decode(value).ok());
        let least = epochs.map(|pointer| pointer.epoch).max().unwrap_or_default();
        let epoch = self.epoch(tree, parent, place.pointer.epoch, least);
        self.level(place.level, place.low, &items, epoch)
    }

    /// One node above all others.
    fn root(
        &mut self,
        tree: usize,
        parent: Option<usize>,
        mut level: u8,
        mut nodes: Nodes,
    ) -> Result<(NodePointer, u8), RepairError> {
        loop {
            if let [(_, root)] = nodes[..] {
                return Ok((root, level));
            }
            level += 1;
            if level >= TREE_LEVELS_MAX {
                return RepairError::refused("a tree would become too high");
            }
            let least = nodes.iter().map(|(_, pointer)| pointer.epoch).max().unwrap_or_default();
            let epoch = self.epoch(tree, parent, least, least);
            nodes = self.above(level, Key::MIN, nodes, epoch)?;
        }
    }

    fn items_of(&self, place: &NodePlace) -> Result<Vec<Item>, RepairError> {
        let mut buffer = Vec::new();
        let node = self.reading.node(TreeId::Files, place, None, &mut buffer);
        let node = node.map_err(|lost| RepairError::Refused(lost.why))?;
        Ok(node.items().map(|(key, value)| (key, value.to_vec())).collect())
    }

    /// Nodes above others.
    fn above(
        &mut self,
        level: u8,
        low: Key,
        nodes: Nodes,
        epoch: Epoch,
    ) -> Result<Nodes, RepairError> {
        let items: Vec<Item> =
            nodes.iter().map(|(key, pointer)| (*key, pointer.encode().to_vec())).collect();
        self.level(level, low, &items, epoch)
    }

    /// Nodes of a level with these records, the first of which begins at `low`.
    fn level(
        &mut self,
        level: u8,
        low: Key,
        items: &[Item],
        epoch: Epoch,
    ) -> Result<Nodes, RepairError> {
        let size = self.reading.superblock().geometry.node_size;
        let mut nodes = Nodes::new();
        for (index, part) in pack::parts(items, size).into_iter().enumerate() {
            let key = part.first().filter(|_| index > 0).map_or(low, |(key, _)| *key);
            let place = (TreeId::Files, level, epoch);
            let pointer = write(self.reading, self.overlay, self.space, place, part)?;
            nodes.push((key, pointer));
        }
        Ok(nodes)
    }
}

/// Writes one node with these records to a place of its own.
pub(crate) fn write(
    reading: &VolumeReading<'_>,
    overlay: &Overlay<'_>,
    space: &mut Space,
    (tree, level, epoch): (TreeId, u8, Epoch),
    items: &[Item],
) -> Result<NodePointer, RepairError> {
    let superblock = reading.superblock();
    let geometry = &superblock.geometry;
    let stored = geometry.stored(tree, level);
    let block = space
        .take_node(geometry, stored)
        .ok_or(RepairError::NoSpace(geometry.blocks_of(stored)))?;
    let pointer = NodePointer { block, epoch };
    let expected = Expected { pointer, tree, level, volume: superblock.nodes() };
    overlay.put_node(geometry, block, &pack::seal(geometry.node_size, &expected, items));
    Ok(pointer)
}
