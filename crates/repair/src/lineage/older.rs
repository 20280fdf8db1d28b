//! What damaged nodes of the space tree had: branches, snapshots and settings, from the newest older version of them whose roots are there.
//!
//! A node of the space tree proves itself as one of the files does, and there is one space tree: an older version of a leaf is that of this volume.
//! A snapshot that it names is what it was. A branch is as its root was then, and what was changed since is lost. What was made since is lost,
//! and what was deleted since may be there again.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::TreeId;
use holdfast_check::reading::{NodePlace, VolumeReading, tree_name};
use holdfast_check::sweep::{Claim, sweep};
use holdfast_device::Device;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{RootItem, TreeItem, TreeKind};
use holdfast_format::{ItemKind, Key, NodePointer};

use crate::older::ranges::{Range, Ranges, after};

type Items = BTreeMap<Key, Vec<u8>>;

/// What was found of older versions.
#[derive(Debug, Default)]
pub(crate) struct OlderItems {
    /// Those of branches, snapshots and settings.
    pub(crate) items: Items,
    /// The epochs of the versions that they are of.
    pub(super) epochs: BTreeSet<u64>,
    /// Branches and snapshots whose roots are not there any more: a name for each.
    pub(super) without_root: Vec<String>,
}

/// A leaf of the space tree to which nothing leads.
struct Leaf {
    pointer: NodePointer,
    first: Key,
    last: Key,
    items: Items,
}

/// Looks for what damaged nodes of the space tree had.
pub(crate) fn find(reading: &VolumeReading<'_>, device: &dyn Device) -> OlderItems {
    let mut older = OlderItems::default();
    let lost = reading.lost_of_space();
    if lost.is_empty() {
        return older;
    }
    let mut leaves = leaves(reading, device);
    // The newest first.
    leaves.sort_unstable_by_key(|leaf| std::cmp::Reverse((leaf.pointer.epoch, leaf.pointer.block)));
    for place in lost {
        let own = (place.low, place.high);
        let meets = |leaf: &&Leaf| {
            leaf.pointer.epoch <= place.pointer.epoch
                && leaf.pointer != place.pointer
                && leaf.last >= place.low
                && place.high.is_none_or(|high| leaf.first < high)
        };
        let mut found = leaves.iter().filter(meets);
        if place.level == 0 {
            let whole = found.clone().find(|leaf| are_there(reading, &within(leaf, &own)));
            if let Some(leaf) = whole.or_else(|| found.next()) {
                older.take(leaf, &own);
            }
            continue;
        }
        let mut open = Ranges::of(own);
        for leaf in found {
            for part in open.take((leaf.first, after(&leaf.last))) {
                older.take(leaf, &part);
            }
        }
    }
    // What the log has is newer.
    older.items.retain(|key, _| !reading.lineage().contains_key(key));
    older.leave_out_rootless(reading);
    older
}

/// All sound leaves of the space tree that the device has, with what they have of branches, snapshots and settings.
fn leaves(reading: &VolumeReading<'_>, device: &dyn Device) -> Vec<Leaf> {
    let superblock = reading.superblock();
    let (geometry, size) = (&superblock.geometry, superblock.geometry.node_size);
    let mut leaves = Vec::new();
    let mut look = |block: u64, bytes: &[u8]| {
        let Some(claim) = Claim::read(block, bytes) else { return };
        let is_ours = claim.tag == superblock.node_tag && claim.tree == TreeId::Space;
        let is_place = claim.distance == 0 || claim.distance == geometry.copy_mask;
        let can_be = is_ours && is_place && claim.pointer.epoch <= superblock.epoch;
        if !can_be || claim.level > 0 {
            return;
        }
        let Some(view) = claim.prove(block, bytes, size, superblock.carried()) else { return };
        let Some(last) = view.count().checked_sub(1) else { return };
        let is_wanted = |key: &Key| key.kind.is_lineage() || key.kind == ItemKind::Setting;
        let items = view.items().filter(|(key, _)| is_wanted(key));
        let items = items.map(|(key, value)| (key, value.to_vec())).collect();
        let (first, last) = (view.key(0), view.key(last));
        leaves.push(Leaf { pointer: claim.pointer, first, last, items });
    };
    let zone = geometry.first_data_block().0..geometry.far_copy().0;
    // What does not read is no node.
    let mut read = |at, part: &mut [u8]| {
        if device.read(at, part).is_err() {
            part.fill(0);
        }
    };
    sweep(device, zone, &mut Vec::new(), &mut read, &mut look);
    leaves
}

/// What a leaf has in a range.
fn within(leaf: &Leaf, (low, high): &Range) -> Items {
    let is_in = |key: &Key| *key >= *low && high.is_none_or(|high| *key < high);
    let items = leaf.items.iter().filter(|(key, _)| is_in(key));
    items.map(|(key, value)| (*key, value.clone())).collect()
}

/// The roots that items name, with the trees that they are of.
fn roots(items: &Items) -> Vec<(u64, NodePointer, u8)> {
    let root = |(key, value): (&Key, &Vec<u8>)| {
        let id = key.inode.0.checked_sub(LINEAGE)?;
        match key.kind {
            ItemKind::Root => {
                let root = RootItem::decode(value).ok()?;
                Some((id, root.pointer(), root.level))
            }
            ItemKind::Tree => {
                let item = TreeItem::decode(value).ok()?;
                (item.kind == TreeKind::Snapshot).then_some((id, item.root, item.level))
            }
            _ => None,
        }
    };
    items.iter().filter_map(root).collect()
}

fn is_there(reading: &VolumeReading<'_>, pointer: NodePointer, level: u8) -> bool {
    let place = NodePlace::root(pointer, level);
    reading.node(TreeId::Files, &place, None, &mut Vec::new()).is_ok()
}

fn are_there(reading: &VolumeReading<'_>, items: &Items) -> bool {
    roots(items).into_iter().all(|(_, pointer, level)| is_there(reading, pointer, level))
}

impl OlderItems {
    fn take(&mut self, leaf: &Leaf, range: &Range) {
        let mut items = within(leaf, range);
        if !items.is_empty() {
            self.epochs.insert(leaf.pointer.epoch.0);
            self.items.append(&mut items);
        }
    }

    fn leave_out_rootless(&mut self, reading: &VolumeReading<'_>) {
        for (id, pointer, level) in roots(&self.items) {
            if id != MAIN && !is_there(reading, pointer, level) {
                let item = |id| {
                    let key = TreeItem::key(id);
                    let value = self.items.get(&key).or_else(|| reading.lineage().get(&key))?;
                    TreeItem::decode(value).ok()
                };
                self.without_root.push(tree_name(id, &item));
                self.items.remove(&TreeItem::key(id));
                self.items.remove(&RootItem::key(id));
            }
        }
    }
}
