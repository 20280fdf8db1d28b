//! Which tree owns which data: the rule by which a branch frees what it drops, made true where a repair may have broken it.
//!
//! S1 (docs/BRANCHES.md) says of data that a tree has: born up to the epoch of the snapshot that the tree grew out of, that snapshot has
//! it too; born later, the tree is the first that has it, and each other tree that has it grew out of this one. A repair that leaves out a node of a
//! snapshot, or gives a tree another parent, would leave data of which that is not true, and a deletion would free what another tree
//! reaches. Such data is copied, for the tree and for those that grew out of it alike. `rewrite.rs` does the same with nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, TreeId};
use holdfast_check::Issue;
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_format::item::Extent;
use holdfast_format::limits::EXTENT_BLOCKS_MAX;
use holdfast_format::{ItemKind, Key};

use crate::blocks::Space;
use crate::error::RepairError;
use crate::overlay::Overlay;
use crate::plan::Repair;
use crate::relocate::{Identity, MOVED_MAX, copy};
use crate::walk::{TreeWork, items};

/// Data that a tree has in another place than before: all parts of it that it or those that grew out of it have.
#[derive(Clone, Copy, Debug)]
struct Copied {
    end: u64,
    to: u64,
    birth: Epoch,
}

/// An extent of a tree of which the rule is not true.
type Wrong = (Key, Extent);

pub(crate) struct Owners<'w, 'd> {
    reading: &'w VolumeReading<'d>,
    overlay: &'w Overlay<'d>,
    space: &'w mut Space,
    /// Trees with the nodes that they have been looked at below.
    reached: HashSet<(u64, u64)>,
    /// Runs of blocks by their start: their end, and the first tree that has them.
    owned: BTreeMap<u64, (u64, u64)>,
    /// What each tree has got copies of, by whose it is and where it began.
    copied: HashMap<u64, BTreeMap<(Identity, u64), Copied>>,
    /// Blocks that may still be copied.
    left: u64,
}

/// Whether a repair may have broken the rule: nodes are left out, extents are changed, or a tree has another parent.
pub(crate) fn is_needed(states: &[TreeWork]) -> bool {
    let changes = |state: &TreeWork| state.edits.keys().any(|key| key.kind == ItemKind::Extent);
    states.len() > 1
        && states.iter().any(|state| !state.lost.is_empty() || state.is_cut || changes(state))
}

/// Makes the rule true of all trees, each of which stands behind its parent. Returns those that would need more copies than there is room
/// for, with all that grew out of them: of them it is not.
pub(crate) fn apply(
    reading: &VolumeReading<'_>,
    overlay: &Overlay<'_>,
    space: &mut Space,
    states: &mut [TreeWork],
    repairs: &mut Vec<Repair>,
) -> Result<HashSet<u64>, RepairError> {
    let mut owners = Owners {
        reading,
        overlay,
        space,
        reached: HashSet::new(),
        owned: BTreeMap::new(),
        copied: HashMap::new(),
        left: MOVED_MAX,
    };
    let mut without = HashSet::new();
    let places: HashMap<u64, usize> =
        states.iter().enumerate().map(|(at, state)| (state.root.id, at)).collect();
    for at in 0..states.len() {
        let parent = places.get(&states[at].root.parent).copied();
        if without.contains(&states[at].root.parent) {
            without.insert(states[at].root.id);
            continue;
        }
        let wrong = owners.wrong(&states[at], parent.map(|parent| &states[parent]));
        if wrong.is_empty() {
            continue;
        }
        let blocks: u64 = wrong.iter().map(|(_, extent)| extent.blocks.count).sum();
        let (before, snapshot) =
            (owners.before(parent.map(|at| &states[at])), states[at].root.snapshot);
        // A snapshot that is as old as its parent has nothing of its own: what is as old is never freed, and not lost.
        let birth = Epoch((before + 1).min(snapshot.unwrap_or(u64::MAX)));
        if !owners.copy(&mut states[at], birth, wrong)? {
            without.insert(states[at].root.id);
            continue;
        }
        let what = format!(
            "{blocks} blocks of files get copies, as other branches or snapshots have them whose deletion would free them"
        );
        let tree = states[at].name();
        repairs.push(Repair { issue: Issue::RootAge, tree, path: None, what, loses: false });
    }
    Ok(without)
}

/// Whether a tree has a whole extent, in one or several parts.
fn has(reading: &VolumeReading<'_>, state: &TreeWork, key: &Key, extent: &Extent) -> bool {
    let reach = EXTENT_BLOCKS_MAX.saturating_mul(BLOCK_BYTES);
    let bytes = extent.blocks.count.saturating_mul(BLOCK_BYTES);
    let low = Key { offset: key.offset.saturating_sub(reach), ..*key };
    let high = Key { offset: key.offset.saturating_add(bytes), ..*key };
    let (start, end) = extent.blocks.ends();
    let identity = Identity::of(key, extent);
    let mut at = start;
    items(reading, state, (low, Some(high)), &mut |_, key, value| {
        if key.kind != ItemKind::Extent {
            return;
        }
        let Ok(other) = Extent::decode(value) else { return };
        let (from, to) = other.blocks.ends();
        if Identity::of(&key, &other) == identity && from <= at && to > at {
            at = to;
        }
    });
    at >= end
}

impl Owners<'_, '_> {
    fn before(&self, parent: Option<&TreeWork>) -> u64 {
        parent.and_then(|parent| parent.root.snapshot).unwrap_or(0)
    }

    /// The extents of a tree of which the rule is not true.
    fn wrong(&mut self, state: &TreeWork, parent: Option<&TreeWork>) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        self.visit(state, parent, &state.root.place(), &mut wrong);
        let edits = state.edits.iter().filter(|(key, _)| key.kind == ItemKind::Extent);
        for (key, value) in edits {
            if let Some(Ok(extent)) = value.as_ref().map(|value| Extent::decode(value)) {
                self.judge(state, parent, *key, extent, &mut wrong);
            }
        }
        wrong
    }

    fn visit(
        &mut self,
        state: &TreeWork,
        parent: Option<&TreeWork>,
        place: &NodePlace,
        wrong: &mut Vec<Wrong>,
    ) {
        if state.leaves_out(place) {
            return;
        }
        let block = place.pointer.block.0;
        self.reached.insert((state.root.id, block));
        // What is the same in the parent has been looked at there.
        let is_same = |parent: &TreeWork| {
            self.reached.contains(&(parent.root.id, block))
                && !state.changes_in(place)
                && !parent.changes_in(place)
        };
        if parent.is_some_and(is_same) {
            return;
        }
        let mut buffer = Vec::new();
        let Ok(node) = self.reading.node(TreeId::Files, place, None, &mut buffer) else { return };
        if place.level > 0 {
            for child in place.children(&node) {
                self.visit(state, parent, &child, wrong);
            }
            return;
        }
        for (key, value) in node.items_of(ItemKind::Extent) {
            if !state.edits.contains_key(&key)
                && let Ok(extent) = Extent::decode(value)
            {
                self.judge(state, parent, key, extent, wrong);
            }
        }
    }

    fn judge(
        &mut self,
        state: &TreeWork,
        parent: Option<&TreeWork>,
        key: Key,
        extent: Extent,
        wrong: &mut Vec<Wrong>,
    ) {
        let (id, birth) = (state.root.id, extent.birth.0);
        let is_right = if birth <= self.before(parent) {
            parent.is_some_and(|parent| has(self.reading, parent, &key, &extent))
        } else {
            state.root.snapshot.is_none_or(|own| birth <= own) && self.take(id, &extent.blocks)
        };
        if !is_right {
            wrong.push((key, extent));
        }
    }

    /// Whether a tree is the first that has these blocks. It is from now on.
    fn take(&mut self, tree: u64, blocks: &BlockRange) -> bool {
        let (start, end) = blocks.ends();
        // Runs do not meet each other: none behind one that ends before `start` reaches to it.
        let reaching = self.owned.range(..end).rev().take_while(|(_, (to, _))| *to > start);
        let met: Vec<(u64, (u64, u64))> = reaching.map(|(from, of)| (*from, *of)).collect();
        if met.iter().any(|(_, (_, of))| *of != tree) {
            return false;
        }
        let (mut first, mut last) = (start, end);
        for (from, (to, _)) in met {
            self.owned.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.owned.insert(first, (last, tree));
        true
    }

    /// Gives a tree other blocks for these extents: those that its parent has got for the same, or free ones. False if there are not as many.
    fn copy(
        &mut self,
        state: &mut TreeWork,
        birth: Epoch,
        wrong: Vec<Wrong>,
    ) -> Result<bool, RepairError> {
        let (id, parent) = (state.root.id, state.root.parent);
        let mut done = BTreeMap::new();
        for (key, extent) in wrong {
            let identity = Identity::of(&key, &extent);
            let (start, count) = (extent.blocks.start.0, extent.blocks.count);
            let end = start.saturating_add(count);
            let of_parent = self.copied.get(&parent).and_then(|of| {
                let (at, copied) = of.range(..=(identity, start)).next_back()?;
                (at.0 == identity && copied.end >= end).then_some((at.1, *copied))
            });
            let (from, copied) = match of_parent {
                Some(of) => of,
                None => {
                    let place = self.left.checked_sub(count).zip(self.space.take(count, 1));
                    let Some((left, to)) = place else { return Ok(false) };
                    self.left = left;
                    copy(self.reading, self.overlay, &extent, to);
                    (start, Copied { end, to, birth })
                }
            };
            done.insert((identity, from), copied);
            let blocks = BlockRange::new(BlockNo(copied.to + (start - from)), count);
            self.take(id, &blocks);
            let extent = Extent { blocks, birth: copied.birth, ..extent };
            state.edits.insert(key, Some(extent.encode()));
        }
        self.copied.insert(id, done);
        Ok(true)
    }
}
