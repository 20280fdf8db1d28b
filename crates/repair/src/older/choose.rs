//! Which of the leaves that were found stand for a node that is left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_base::{BlockNo, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_format::{Key, NodePointer, NodeView};

use super::ranges::{Range, Ranges, after};
use super::scan::{Node, Nodes, Owner};
use super::whose::Whose;
use crate::walk::{Older, Source};

/// What is known for the choice.
pub(super) struct OlderWay<'a, 'd> {
    pub(super) reading: &'a VolumeReading<'d>,
    pub(super) nodes: &'a Nodes,
    /// `None`: trees of which nothing is known may have nodes that are in use.
    pub(super) whose: Option<&'a Whose>,
}

/// What stands for a node that is left out.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// What it led to.
    pub(super) current: Vec<(Key, Vec<u8>)>,
    /// What it, or what it led to, had at some time.
    pub(super) older: BTreeMap<Key, Older>,
    pub(super) sources: Vec<Source>,
    /// Inner nodes that have said where leaves belong.
    pub(super) ways: Vec<(BlockNo, u8)>,
    /// Keys of which it is not known what it had.
    pub(super) unknown: Vec<Range>,
    /// Bytes of all items.
    pub(super) bytes: usize,
}

/// Bytes that an item takes in memory beside its value.
pub(super) const ITEM: usize = 96;

fn meets(place: &NodePlace, node: &Node) -> bool {
    node.last >= place.low && place.high.is_none_or(|high| node.first < high)
}

impl OlderWay<'_, '_> {
    /// What a lost node led to, as far as that is proven, and whether that is all.
    fn current(&self, place: &NodePlace) -> (HashSet<NodePointer>, bool) {
        let Some((whose, tree)) = self.whose.and_then(|whose| Some((whose, whose.first(place)?)))
        else {
            return (HashSet::new(), false);
        };
        let is_whole = whose.is_whole(tree);
        let below = whose.below(tree, place).into_iter();
        let proven = below.filter(|node| is_whole || node.owner == Owner::One(tree));
        (proven.map(|node| node.pointer).collect(), is_whole)
    }

    /// What stands for a node, of which about `most` bytes are kept.
    pub(super) fn choose(&self, place: &NodePlace, most: usize) -> Chosen {
        let mut chosen = Chosen::default();
        let own = (place.low, place.high);
        let (mut unknown, mut open) = (Ranges::of(own), Ranges::of(own));
        // The last key below the end is not known; one that is too far is sorted out.
        let last = place.high.unwrap_or(Key::MAX);
        let (current, mut is_whole) = self.current(place);
        let fits = |node: &&Node| {
            let NodePointer { block, epoch } = node.pointer;
            meets(place, node)
                && epoch <= place.pointer.epoch
                && block != place.pointer.block
                && node.level <= place.level
        };
        let mut found: Vec<(bool, &Node)> = { self.nodes.among(place.low, last) }
            .filter(fits)
            .map(|node| (current.contains(&node.pointer), node))
            .collect();
        is_whole &= found.iter().filter(|(is_current, _)| *is_current).count() == current.len();
        // What is not old comes first, then the newest.
        found.sort_unstable_by_key(|(is_current, node)| {
            std::cmp::Reverse((*is_current, node.pointer.epoch, node.pointer.block))
        });
        let leaves: Vec<(bool, &Node)> =
            found.iter().copied().filter(|(_, node)| node.level == 0).collect();
        let known = self.ranges_of(place, &found, &leaves, &mut chosen);
        for (is_current, leaf) in leaves {
            if is_whole && !is_current {
                break;
            }
            if open.is_empty() || chosen.bytes >= most || !self.nodes.may_read() {
                is_whole = false;
                break;
            }
            let mut range = (leaf.first, after(&leaf.last));
            if place.level == 0 {
                // The parent says what it had, and the newest version was all of that.
                range = own;
            } else if let Some((low, high)) = known.get(&leaf.pointer) {
                range = (leaf.first.min(*low), later(range.1, *high));
            }
            let mut buffer = Vec::new();
            let view = self.reading.node(TreeId::Files, &leaf.place(), None, &mut buffer);
            let Ok(view) = view else {
                is_whole = false;
                continue;
            };
            let parts = open.take(range);
            if is_current {
                unknown.take(range);
            }
            take(place, (leaf, &view), &parts, is_current, &mut chosen);
        }
        // Between leaves that are all there, there is nothing. The nodes above them are what proves it.
        if is_whole {
            let above = found.iter().filter(|(is_current, node)| *is_current && node.level > 0);
            chosen.ways.extend(above.map(|(_, node)| (node.pointer.block, node.level)));
        }
        chosen.unknown = if is_whole { Vec::new() } else { unknown.left() };
        chosen
    }

    /// Which keys leaves had, as the nodes above them say that are still there.
    fn ranges_of(
        &self,
        place: &NodePlace,
        found: &[(bool, &Node)],
        leaves: &[(bool, &Node)],
        chosen: &mut Chosen,
    ) -> HashMap<NodePointer, Range> {
        let wanted: HashSet<NodePointer> = leaves.iter().map(|(_, leaf)| leaf.pointer).collect();
        let mut ranges = HashMap::new();
        if place.level == 0 {
            return ranges;
        }
        let mut buffer = Vec::new();
        for (_, parent) in found.iter().filter(|(_, node)| node.level == 1) {
            if !self.nodes.may_read() {
                break;
            }
            let at = parent.place();
            let Ok(view) = self.reading.node(TreeId::Files, &at, None, &mut buffer) else {
                continue;
            };
            let below = at.children(&view);
            // Where the last child ends only the nodes above say.
            for child in below.iter().filter(|child| wanted.contains(&child.pointer)) {
                if child.high.is_some() {
                    ranges.entry(child.pointer).or_insert((child.low, child.high));
                }
            }
            chosen.ways.push((parent.pointer.block, parent.level));
        }
        ranges
    }
}

/// The later one of two ends.
fn later(one: Option<Key>, two: Option<Key>) -> Option<Key> {
    Some(one?.max(two?))
}

/// Takes the items of a leaf that lie in these parts of the range.
fn take(
    place: &NodePlace,
    (leaf, view): (&Node, &NodeView<'_>),
    parts: &[Range],
    is_current: bool,
    chosen: &mut Chosen,
) {
    let mut items = 0;
    for (key, value) in view.items() {
        let is_in = |(low, high): &Range| key >= *low && high.is_none_or(|high| key < high);
        if key.kind.tree() != TreeId::Files || !parts.iter().any(is_in) {
            continue;
        }
        let value = value.to_vec();
        chosen.bytes += ITEM + value.len();
        items += 1;
        if is_current {
            chosen.current.push((key, value));
        } else {
            let epoch = leaf.pointer.epoch.0;
            chosen.older.insert(key, Older { epoch, value, is_own: false });
        }
    }
    if items == 0 {
        // That it has nothing there was said by it.
        chosen.ways.push((leaf.pointer.block, 0));
    } else {
        let lost = place.pointer.block.0;
        chosen.sources.push(Source { lost, leaf: leaf.pointer, is_current, items });
    }
}
