//! Walks through a files tree as it will be: nodes that do not count are left out, and edits stand in front of items.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use holdfast_base::TreeId;
use holdfast_check::Issue;
use holdfast_check::reading::{LostNode, NodePlace, TreeRoot, VolumeReading};
use holdfast_format::item::WalkPlace;
use holdfast_format::{Key, NodePointer, NodeView, Stored};

/// Keys of a tree with what they will be; `None`: nothing.
pub(crate) type Edits = BTreeMap<Key, Option<Vec<u8>>>;

/// A node that is left out, with all below it.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) place: NodePlace,
    pub(crate) issue: Issue,
    pub(crate) why: String,
}

impl Lost {
    /// Whether a key may have been in it.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        *key >= self.place.low && self.place.high.is_none_or(|high| *key < high)
    }
}

/// An item of an older version of a node that is left out.
#[derive(Clone, Debug)]
pub(crate) struct Older {
    /// The epoch of the leaf in which it stands.
    pub(crate) epoch: u64,
    pub(crate) value: Vec<u8>,
    /// It is known that this tree had it: it stands in the snapshot that the tree grew out of, and the epoch is that one's.
    pub(crate) is_own: bool,
}

/// What was found in place of a node that is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The first block of the node that is left out.
    pub(crate) lost: u64,
    pub(crate) leaf: NodePointer,
    /// It is what the tree had, and not an older version of it.
    pub(crate) is_current: bool,
    /// Items in the range.
    pub(crate) items: u64,
}

/// A branch or snapshot that is being repaired.
#[derive(Clone, Debug)]
pub(crate) struct TreeWork {
    pub(crate) root: TreeRoot,
    pub(crate) edits: Edits,
    /// Blocks that its nodes refer to, but for those that are left out.
    pub(crate) referenced: u64,
    /// In the order of their keys.
    pub(crate) lost: Vec<Lost>,
    /// The keys of these of which it is not known what the tree had, upwards: all of them, but for what was found below an inner node.
    pub(crate) unknown: Vec<Lost>,
    /// What older versions of nodes had there.
    pub(crate) older: BTreeMap<Key, Older>,
    pub(crate) sources: Vec<Source>,
    /// Inodes, if they were counted anew.
    pub(crate) inode_count: u64,
    /// Whether something of it is to be put right, and not only written down.
    pub(crate) is_judged: bool,
    /// Its parent is another than it was: it gets nodes and data of its own for what it shares with others.
    pub(crate) is_cut: bool,
}

impl TreeWork {
    /// A tree as it was met.
    pub(crate) fn new(root: TreeRoot, edits: Edits, surveyed: Surveyed, is_cut: bool) -> TreeWork {
        let Surveyed { lost, referenced } = surveyed;
        let (unknown, inode_count) = (lost.clone(), root.inode_count);
        TreeWork {
            root,
            edits,
            referenced,
            lost,
            unknown,
            older: BTreeMap::new(),
            sources: Vec::new(),
            inode_count,
            is_judged: false,
            is_cut,
        }
    }

    /// Its name, unless it is `main`.
    pub(crate) fn name(&self) -> Option<String> {
        (!self.root.is_main()).then(|| self.root.name.clone())
    }

    /// Whether it is not known what the tree had of a key, as that was in a node that is left out.
    pub(crate) fn may_be_lost(&self, key: &Key) -> bool {
        self.lost_with(key).is_some()
    }

    /// Whether a key from `low` up to `high` may have been.
    pub(crate) fn may_lack(&self, low: &Key, high: &Key) -> bool {
        !self.lost_in(low, Some(high)).is_empty()
    }

    /// Whether anything is left out or changed below a node.
    pub(crate) fn changes_in(&self, place: &NodePlace) -> bool {
        let next = self.edits.range(place.low..).next();
        next.is_some_and(|(key, _)| place.high.is_none_or(|high| *key < high))
            || !within(&self.lost, &place.low, place.high.as_ref()).is_empty()
    }

    /// Whether this node of the tree does not count.
    pub(crate) fn leaves_out(&self, place: &NodePlace) -> bool {
        let from = self.lost.partition_point(|lost| lost.place.low < place.low);
        let same = self.lost[from..].iter().take_while(|lost| lost.place.low == place.low);
        { same }.any(|lost| lost.place == *place)
    }

    /// The node that is left out and may have had a key.
    pub(crate) fn lost_with(&self, key: &Key) -> Option<&Lost> {
        let behind = self.unknown.partition_point(|lost| lost.place.low <= *key);
        self.unknown[..behind].last().filter(|lost| lost.holds(key))
    }

    /// What is not known from `low` up to `high`, as it was in nodes that are left out.
    pub(crate) fn lost_in(&self, low: &Key, high: Option<&Key>) -> &[Lost] {
        within(&self.unknown, low, high)
    }
}

/// What a survey has met of all trees.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    met: HashMap<u64, Met>,
    /// First blocks of all nodes, and how often each is stored.
    pub(crate) nodes: BTreeSet<(u64, Stored)>,
}

#[derive(Debug)]
struct Met {
    place: NodePlace,
    /// The tree that met it last.
    by: u64,
    /// Something below it is left out.
    lacks: bool,
    /// Blocks that it and what is below it refer to, but for what is left out.
    referenced: u64,
}

/// What a survey has met of one tree.
#[derive(Debug)]
pub(crate) struct Surveyed {
    /// Nodes that are left out.
    pub(crate) lost: Vec<Lost>,
    /// Blocks that the others refer to.
    pub(crate) referenced: u64,
}

impl Survey {
    /// Meets all nodes of a tree, and says what is left out. `leaf` takes each leaf that no tree before has. Of a snapshot
    /// that is being deleted, nothing before the cursor.
    pub(crate) fn tree(
        &mut self,
        reading: &VolumeReading<'_>,
        tree: &TreeRoot,
        leaf: &mut dyn FnMut(&NodePlace, &NodeView<'_>),
    ) -> Surveyed {
        let mut lost = Vec::new();
        let referenced = self.descend(reading, tree, &tree.place(), None, &mut lost, leaf);
        Surveyed { lost, referenced }
    }

    /// Returns the blocks that the node and those below it refer to.
    fn descend(
        &mut self,
        reading: &VolumeReading<'_>,
        tree: &TreeRoot,
        place: &NodePlace,
        parent: Option<NodePointer>,
        lost: &mut Vec<Lost>,
        leaf: &mut dyn FnMut(&NodePlace, &NodeView<'_>),
    ) -> u64 {
        let ends = WalkPlace::node(place.high.map(|high| high.raw()), place.level);
        if tree.cursor.is_some_and(|cursor| ends < cursor) {
            return 0;
        }
        let mut leave_out = |issue, why: &str| {
            lost.push(Lost { place: *place, issue, why: why.into() });
            0
        };
        let block = place.pointer.block.0;
        let is_new = match self.met.get(&block) {
            None => true,
            Some(met) if met.by == tree.id || met.place.pointer != place.pointer => {
                return leave_out(Issue::NodeTwice, "it was reached before by another parent");
            }
            Some(met) if met.place != *place => {
                return leave_out(
                    Issue::NodeRange,
                    "another tree has it with another range of keys",
                );
            }
            // Of a deletion a part may not have been walked.
            Some(met) if !met.lacks && tree.cursor.is_none() => return met.referenced,
            Some(_) => false,
        };
        let mut buffer = Vec::new();
        let node = match reading.node(TreeId::Files, place, parent, &mut buffer) {
            Ok(node) => node,
            Err(LostNode { issue, why }) => return leave_out(issue, &why),
        };
        let lacks = tree.cursor.is_some();
        let geometry = &reading.superblock().geometry;
        let stored = geometry.stored(TreeId::Files, place.level);
        let mut referenced =
            geometry.blocks_of(stored).saturating_add(holdfast_check::extent_blocks(&node));
        self.met.insert(block, Met { place: *place, by: tree.id, lacks, referenced });
        self.nodes.insert((block, stored));
        if place.level == 0 {
            if is_new {
                leaf(place, &node);
            }
            return referenced;
        }
        let below = place.children(&node);
        reading.read_ahead(below.iter().map(|child| child.pointer.block));
        let before = lost.len();
        for child in &below {
            let of = self.descend(reading, tree, child, Some(place.pointer), lost, leaf);
            referenced = referenced.saturating_add(of);
        }
        if let Some(met) = self.met.get_mut(&block) {
            met.lacks |= lost.len() > before;
            met.referenced = referenced;
        }
        referenced
    }
}

/// Those of these ranges, which ascend, that have keys from `low` up to `high`.
fn within<'l>(ranges: &'l [Lost], low: &Key, high: Option<&Key>) -> &'l [Lost] {
    let ends = |lost: &Lost| lost.place.high.is_some_and(|end| end <= *low);
    let from = ranges.partition_point(ends);
    let count =
        ranges[from..].partition_point(|lost| high.is_none_or(|high| lost.place.low < *high));
    &ranges[from..from + count]
}

/// Takes an item: the epoch of its leaf (`None`: it is in none yet), its key, its value.
pub(crate) type TakeItem<'t> = dyn FnMut(Option<u64>, Key, &[u8]) + 't;

/// Visits the items of a tree from `low` up to `high`, in the order of their keys, edits in front.
pub(crate) fn items(
    reading: &VolumeReading<'_>,
    state: &TreeWork,
    range: (Key, Option<Key>),
    take: &mut TakeItem<'_>,
) {
    let high = range.1.map_or(Bound::Unbounded, Bound::Excluded);
    let mut edits = state.edits.range((Bound::Included(range.0), high)).peekable();
    let mut with_edits = |epoch: u64, key: Key, value: &[u8]| {
        let mut is_edited = false;
        while let Some((edited, value)) = edits.next_if(|(next, _)| **next <= key) {
            is_edited = *edited == key;
            if let Some(value) = value {
                take(None, *edited, value);
            }
        }
        if !is_edited {
            take(Some(epoch), key, value);
        }
    };
    leaves(reading, state, &state.root.place(), &range, &mut |place, node| {
        for (key, value) in node.items() {
            if key >= range.0 && range.1.is_none_or(|high| key < high) {
                with_edits(place.pointer.epoch.0, key, value);
            }
        }
    });
    for (key, value) in edits {
        if let Some(value) = value {
            take(None, *key, value);
        }
    }
}

/// Visits the leaves of a tree that may have keys in `range`.
fn leaves(
    reading: &VolumeReading<'_>,
    state: &TreeWork,
    place: &NodePlace,
    range: &(Key, Option<Key>),
    take: &mut dyn FnMut(&NodePlace, &NodeView<'_>),
) {
    let is_outside = place.high.is_some_and(|high| high <= range.0)
        || range.1.is_some_and(|high| place.low >= high);
    if is_outside || state.leaves_out(place) {
        return;
    }
    let mut buffer = Vec::new();
    // The survey has judged it together with its parent.
    let Ok(node) = reading.node(TreeId::Files, place, None, &mut buffer) else { return };
    if place.level == 0 {
        return take(place, &node);
    }
    let below = place.children(&node);
    reading.read_ahead(below.iter().map(|child| child.pointer.block));
    for child in &below {
        leaves(reading, state, child, range, take);
    }
}

/// The value that a key will have.
pub(crate) fn get(reading: &VolumeReading<'_>, state: &TreeWork, key: &Key) -> Option<Vec<u8>> {
    find(reading, state, key).map(|(_, value)| value)
}

/// The same, with the epoch of the leaf that has it; `None`: it is in none yet.
pub(crate) fn find(
    reading: &VolumeReading<'_>,
    state: &TreeWork,
    key: &Key,
) -> Option<(Option<u64>, Vec<u8>)> {
    if let Some(edit) = state.edits.get(key) {
        return edit.clone().map(|value| (None, value));
    }
    let mut found = None;
    let end = Key { offset: key.offset.wrapping_add(1), ..*key };
    let high = if end > *key { Some(end) } else { None };
    leaves(reading, state, &state.root.place(), &(*key, high), &mut |place, node| {
        if let Ok(at) = node.search(&key.raw()) {
            found = Some((Some(place.pointer.epoch.0), node.value(at).to_vec()));
        }
    });
    found
}
