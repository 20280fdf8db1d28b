//! What lies on the device in place of nodes that are left out: what only they led to, and older versions of them.
//!
//! Copy on write leaves the old version of a node where it was, in blocks that are free, until something else is written there. One pass over
//! all blocks that no tree reaches finds them, for all damaged nodes together, and only if there is one. A node that was found is held against
//! the one that is missed: its checksum and its own block, the volume's tag, its tree and level, an epoch not above the one that the parent
//! names, and only its keys from the parent's range count. It does not say of which branch it is; so what is believed of it depends on what
//! else is known (`judge/older.rs`).
//!
//! Below an inner node that is lost, its own leaves are still there. They are known by the bitmaps and by S1: which of the leaves that these
//! call in use, and no tree reaches, are whose, says `whose.rs`. Nothing of that is old.

mod choose;
mod claims;
pub(crate) mod ranges;
mod scan;
mod whose;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_device::Device;
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::item::{Extent, LineageItem, TreeItem, TreeKind};
use holdfast_format::{ItemKind, Key, Stored};

use crate::relocate::Uses;
use crate::walk::{Lost, Older, TreeWork, items};
use choose::{Chosen, ITEM, OlderWay};
pub(crate) use claims::Claims;
use scan::Nodes;
use whose::Whose;

/// Bytes of items that are taken in all; they are kept in memory.
const TAKEN_MAX: usize = 256 << 20;

/// What is known of older versions.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    nodes: Nodes,
    /// No branch but `main` was ever there, so that each version of a node is of `main`.
    pub(crate) is_alone: bool,
    pub(crate) claims: Claims,
    /// Blocks that are read for the repair, or again for one that is cut: nothing may be written there.
    pub(crate) needed: Vec<(u64, u64)>,
}

impl Versions {
    /// The value that a key had at some time not after `epoch`, as the newest leaf of them says that is still there.
    pub(crate) fn before(
        &self,
        reading: &VolumeReading<'_>,
        key: &Key,
        epoch: u64,
    ) -> Option<Vec<u8>> {
        let with = self.nodes.among(*key, *key).filter(|node| node.level == 0);
        let newest =
            { with }.filter(|it| it.pointer.epoch.0 <= epoch).max_by_key(|it| it.pointer.epoch)?;
        if !self.nodes.may_read() {
            return None;
        }
        let place = newest.place();
        let mut buffer = Vec::new();
        let view = reading.node(holdfast_base::TreeId::Files, &place, None, &mut buffer).ok()?;
        view.search(&key.raw()).ok().map(|at| view.value(at).to_vec())
    }
}

/// Whether no branch but `main` has ever been there: each number that was given out is that of a snapshot, and it is still there.
fn is_alone(reading: &VolumeReading<'_>) -> bool {
    if !reading.is_lineage_whole() {
        return false;
    }
    let (mut next, mut snapshots) = (2, 0);
    for (key, value) in reading.lineage() {
        match key.kind {
            ItemKind::Lineage => next = LineageItem::decode(value).map_or(u64::MAX, |it| it.next),
            ItemKind::Tree if key.inode.0 > LINEAGE + 1 => {
                let item = TreeItem::decode(value).ok();
                snapshots += u64::from(item.is_some_and(|it| it.kind == TreeKind::Snapshot));
            }
            _ => {}
        }
    }
    next.checked_sub(2) == Some(snapshots)
}

/// Looks for what nodes had that are left out of trees. `reached` are the blocks that trees have, `uses` what data is whose; that of leaves that were
/// found is added. `known` are all nodes that trees have, unless another tree may have lost one.
pub(crate) fn find(
    reading: &VolumeReading<'_>,
    device: &dyn Device,
    reached: Runs,
    uses: &mut Uses,
    states: &mut [TreeWork],
    known: Option<&BTreeSet<(u64, Stored)>>,
) -> Versions {
    let marked = reading.marked();
    let mut nodes = Nodes::scan(reading, device, &reached, &marked);
    // Trees of which nothing is known may have leaves that are in use.
    let whose = known.filter(|_| reading.is_lineage_whole()).map(|known| {
        let mut whose = Whose::new(states);
        whose.give(&mut nodes);
        whose.judge(reading, &nodes, states, known);
        whose
    });
    let way = OlderWay { reading, nodes: &nodes, whose: whose.as_ref() };
    // The same node may be missed with another range in another tree.
    let mut chosen: HashMap<NodePlace, Chosen> = HashMap::new();
    let (mut left, mut needed) = (TAKEN_MAX, Vec::new());
    // `main` stands behind what has grown out of it, and comes first where there is not room for all.
    for state in states.iter_mut().rev() {
        let mut unknown = Vec::new();
        for of in std::mem::take(&mut state.lost) {
            let is_new = !chosen.contains_key(&of.place);
            let found = chosen.entry(of.place).or_insert_with(|| way.choose(&of.place, left));
            // The last leaf of what is new may be more than what is left.
            let rest = match is_new {
                true => Some(left.saturating_sub(found.bytes)),
                false => left.checked_sub(found.bytes),
            };
            match rest {
                Some(rest) => {
                    left = rest;
                    give(state, found);
                    unknown.extend(found.unknown.iter().map(|(low, high)| {
                        let place = NodePlace { low: *low, high: *high, ..of.place };
                        Lost { place, ..of.clone() }
                    }));
                }
                None => unknown.push(of.clone()),
            }
            state.lost.push(of);
        }
        state.unknown = unknown;
    }
    let is_alone = is_alone(reading);
    for at in 0..states.len() {
        as_in_snapshot(reading, states, at, is_alone, &mut left);
    }
    let claims = Claims::new(reached, marked, uses.owners());
    for found in chosen.values() {
        keep(reading, found, &mut needed);
        let extents = found.current.iter().filter(|(key, _)| key.kind == ItemKind::Extent);
        extents.for_each(|(key, value)| uses.extent(reading, key, value));
    }
    Versions { nodes, is_alone, claims, needed }
}

/// Where it is not known what a tree had, it once had what the snapshot has that it grew out of. Nodes do not say so; that they are of another
/// branch is possible, unless there is none.
fn as_in_snapshot(
    reading: &VolumeReading<'_>,
    states: &mut [TreeWork],
    at: usize,
    is_alone: bool,
    left: &mut usize,
) {
    let state = &states[at];
    let before = states[..at].iter().find(|of| of.root.id == state.root.parent);
    let Some((before, epoch)) = before.and_then(|of| Some((of, of.root.snapshot?))) else { return };
    if state.is_cut {
        return;
    }
    let mut had = BTreeMap::new();
    for Lost { place, .. } in &state.unknown {
        let mut add = |key: Key, older: Older| {
            let is_better = !is_alone || !state.older.contains_key(&key);
            let rest = left.checked_sub(ITEM + older.value.len()).filter(|_| is_better);
            if let Some(rest) = rest {
                *left = rest;
                had.entry(key).or_insert(older);
            }
        };
        items(reading, before, (place.low, place.high), &mut |_, key, value| {
            add(key, Older { epoch, value: value.to_vec(), is_own: true });
        });
        // What is not known of the snapshot either is as of the one before it.
        let high = place.high.map_or(Bound::Unbounded, Bound::Excluded);
        let older = before.older.range((Bound::Included(place.low), high));
        for (key, of) in older.filter(|(_, of)| of.is_own) {
            add(*key, of.clone());
        }
    }
    states[at].older.extend(had);
}

/// What was found becomes the tree's; what the log has of a key is newer.
fn give(state: &mut TreeWork, found: &Chosen) {
    for (key, value) in &found.current {
        state.edits.entry(*key).or_insert_with(|| Some(value.clone()));
    }
    for (key, older) in &found.older {
        if !state.edits.contains_key(key) {
            state.older.insert(*key, older.clone());
        }
    }
    state.sources.extend(&found.sources);
}

/// The places of leaves that are taken, and of the data that they name: a repair that is cut short is made again from these.
fn keep(reading: &VolumeReading<'_>, found: &Chosen, needed: &mut Vec<(u64, u64)>) {
    let geometry = &reading.superblock().geometry;
    let blocks =
        found.sources.iter().map(|source| (source.leaf.block, 0)).chain(found.ways.clone());
    let places = blocks.flat_map(|(block, level): (BlockNo, u8)| {
        geometry.places_of_node(block, geometry.stored(TreeId::Files, level))
    });
    needed.extend(places.map(BlockRange::ends));
    let older = found.older.iter().map(|(key, older)| (key, &older.value));
    let current = found.current.iter().map(|(key, value)| (key, value));
    for (_, value) in older.chain(current).filter(|(key, _)| key.kind == ItemKind::Extent) {
        let Ok(extent) = Extent::decode(value) else { continue };
        if geometry.holds_data(extent.blocks) {
            needed.push(extent.blocks.ends());
        }
    }
}
