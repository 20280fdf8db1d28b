//! What one tree has and another has not.
//!
//! Trees that grew out of one another share nodes, and a node has the same range of keys in each. So level by level
//! the nodes that both have are left out with all below them, and the cost is that of what differs: two snapshots of
//! ten million files that differ in one are two paths.

use std::collections::{BTreeMap, HashSet};

use holdfast_base::{BlockNo, Epoch, TreeId};
use holdfast_format::item::WalkPlace;
use holdfast_format::{ItemKind, Key, NodePointer};

use crate::lineage::{TreeRoot, inside};
use crate::nodes::AHEAD;
use crate::volume::{Look, Volume};

/// A key whose value differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) before: Option<Vec<u8>>,
    pub(crate) now: Option<Vec<u8>>,
    /// The leaf that has the value of now.
    pub(crate) block: BlockNo,
}

/// What differs.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) items: BTreeMap<Key, Pair>,
    /// Whether all of it could be read.
    pub(crate) is_whole: bool,
}

/// A node, and the first key behind its range.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct NodeRange {
    block: BlockNo,
    epoch: u64,
    high: Option<Key>,
}

/// One of the two trees, from its root down.
struct Descent<'a> {
    volume: &'a Volume<'a>,
    cursor: Option<WalkPlace>,
    /// Nodes of the level, in the order of their keys.
    nodes: Vec<NodeRange>,
}

impl<'a> Descent<'a> {
    fn new(volume: &'a Volume<'a>, cursor: Option<WalkPlace>) -> Descent<'a> {
        Descent { volume, cursor, nodes: Vec::new() }
    }

    /// The root comes in at its level.
    fn enter(&mut self, level: u8) {
        let (NodePointer { block, epoch }, top) = self.volume.root(TreeId::Files);
        if level == top {
            self.nodes.push(NodeRange { block, epoch: epoch.0, high: None });
        }
    }

    /// Leaves out what `other` has as well, what comes twice, and what a deletion has passed.
    fn without(&mut self, other: &HashSet<NodeRange>, level: u8) {
        let mut seen = HashSet::new();
        self.nodes.retain(|place| {
            let at = WalkPlace::node(place.high.map(|high| high.raw()), level);
            let is_passed = self.cursor.is_some_and(|cursor| at < cursor);
            !is_passed && !other.contains(place) && seen.insert(place.block)
        });
    }

    /// Reads the nodes of a level; those below take their place. `take` gets the items of leaves. Whether all could be read.
    fn down(&mut self, level: u8, take: &mut dyn FnMut(BlockNo, Key, &[u8])) -> bool {
        let (mut buffer, mut is_whole) = (Vec::new(), true);
        let nodes = std::mem::take(&mut self.nodes);
        for (at, place) in (0..).zip(&nodes) {
            if at % AHEAD == 0 {
                let next = nodes.iter().skip(at).take(AHEAD);
                self.volume.read_ahead(next.map(|place| place.block));
            }
            let pointer = NodePointer { block: place.block, epoch: Epoch(place.epoch) };
            let expected = self.volume.expected(TreeId::Files, pointer, level);
            let Ok(node) = self.volume.node(&expected, None, &mut buffer) else {
                is_whole = false;
                continue;
            };
            for index in 0..node.count() {
                if level == 0 {
                    take(place.block, node.key(index), node.value(index));
                    continue;
                }
                let NodePointer { block, epoch } = node.child(index);
                let next = (index + 1 < node.count()).then(|| node.key(index + 1));
                self.nodes.push(NodeRange { block, epoch: epoch.0, high: next.or(place.high) });
            }
        }
        is_whole
    }
}

/// What `volume`, which is that of `tree`, has and `base` has not, and the reverse. The log counts. Of a tree that is being
/// deleted, what its cursor has passed is in neither.
pub(crate) fn difference(base: &Volume<'_>, volume: &Volume<'_>, tree: &TreeRoot) -> Difference {
    let mut items: BTreeMap<Key, Pair> = BTreeMap::new();
    let mut is_whole = true;
    let mut sides = [Descent::new(base, None), Descent::new(volume, tree.cursor)];
    let top = base.root(TreeId::Files).1.max(volume.root(TreeId::Files).1);
    for level in (0..=top).rev() {
        sides.iter_mut().for_each(|side| side.enter(level));
        let [before, now] = &mut sides;
        let [of_before, of_now] =
            [&before.nodes, &now.nodes].map(|nodes| nodes.iter().copied().collect::<HashSet<_>>());
        before.without(&of_now, level);
        now.without(&of_before, level);
        is_whole &= before.down(level, &mut |_, key, value| {
            items.entry(key).or_default().before = Some(value.to_vec());
        });
        is_whole &= now.down(level, &mut |block, key, value| {
            let pair = items.entry(key).or_default();
            (pair.now, pair.block) = (Some(value.to_vec()), block);
        });
    }
    // An extent may lie across the cursor.
    let is_passed = |key: &Key| {
        tree.cursor.is_some_and(|cursor| {
            let is_across = key.kind == ItemKind::Extent && inside(&cursor, key.inode).is_some();
            WalkPlace::item(key) < cursor && !is_across
        })
    };
    for key in base.changed().chain(volume.changed()) {
        let look = |at: &Volume<'_>| match at.look(key) {
            Look::Found(value) => Ok(Some(value)),
            Look::Missing => Ok(None),
            Look::Lost => Err(()),
        };
        let now = if is_passed(key) { Ok(None) } else { look(volume) };
        let (Ok(before), Ok(now)) = (look(base), now) else {
            is_whole = false;
            continue;
        };
        let block = volume.place_of(key).unwrap_or_default();
        items.insert(*key, Pair { before, now, block });
    }
    items.retain(|key, pair| pair.before != pair.now && !is_passed(key));
    Difference { items, is_whole }
}
