//! Branches and snapshots: which trees stay, by what they are named, and the items that say so.

mod names;
mod older;
mod rules;
mod written;

pub(crate) use older::{OlderItems, find as find_older};

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::Issue;
use holdfast_check::reading::VolumeReading;
use holdfast_format::item::lineage::{LINEAGE, MAIN, decode_numbers};
use holdfast_format::item::{
    HoldItem, LineageItem, OriginItem, RootItem, TreeItem, TreeKind, WalkItem,
};
use holdfast_format::{Carried, ItemKind, Key, NodePointer};

use crate::error::RepairError;
use crate::plan::Repair;

/// What the lineage will be.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// The items of branches and snapshots that stay.
    items: BTreeMap<u64, TreeItem>,
    /// Holds, and what snapshots are copies of.
    told: BTreeMap<Key, Vec<u8>>,
    /// Snapshots whose deletion comes to its end with the repair.
    ended: BTreeSet<u64>,
    /// Snapshots whose deletion has not begun, and stays to be done.
    waiting: BTreeSet<u64>,
    /// Those whose parent is another than it was, though what they share with others is not known by that: each gets blocks of its own.
    cut: BTreeSet<u64>,
    /// Branches and snapshots that are lost: a clause for each.
    lost: Vec<String>,
    next: u64,
    /// Whether there is more than `main` without an item.
    is_kept: bool,
}

/// What was read beside the items of branches and snapshots.
#[derive(Debug, Default)]
struct Extras {
    /// The snapshot under which each child stands.
    listed: BTreeMap<u64, u64>,
    roots: BTreeSet<u64>,
    /// Whose item says nothing.
    damaged: Vec<u64>,
    /// Whose item had bytes that no feature brought.
    tails: Vec<u64>,
    /// The next number; without an item none was given yet.
    next: u64,
}

/// The root of a tree as it will be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) id: u64,
    pub(crate) root: NodePointer,
    pub(crate) level: u8,
    pub(crate) inode_count: u64,
    pub(crate) referenced: u64,
}

/// Bytes of the numbers of trees whose names have one checksum.
const NUMBERS_MAX: usize = 1 << 10;

fn say(repairs: &mut Vec<Repair>, issue: Issue, what: impl Into<String>, loses: bool) {
    repairs.push(Repair { issue, tree: None, path: None, what: what.into(), loses });
}

impl OlderItems {
    /// Says what becomes of branches and snapshots that stood in a damaged node of the space tree, one by one. Fails unless it is accepted that
    /// they are as they were. Returns whether nothing is damaged that may have had any.
    fn say(
        &self,
        reading: &VolumeReading<'_>,
        accepts_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<bool, RepairError> {
        if reading.is_lineage_whole() {
            return Ok(true);
        }
        let what =
            "branches, snapshots and settings may have stood in a damaged node of the space tree";
        let since = match self.epochs.last() {
            Some(epoch) => format!("those of epoch {epoch} come back, what was made since is lost"),
            None => "they are lost; main stays, and those of which other nodes tell".into(),
        };
        let mut said = vec![format!("{what}: {since}")];
        let gone = self.without_root.iter();
        said.extend(gone.map(|name| format!("{name} is lost: its root is not there any more")));
        let trees = reading.trees().iter().filter(|tree| self.is_old(tree.id));
        said.extend(trees.filter(|tree| tree.snapshot.is_none()).map(|tree| {
            let (name, epoch) = (&tree.name, tree.root.epoch);
            format!("{name} is as of epoch {epoch}: what was changed since is lost")
        }));
        if !accepts_loss {
            return RepairError::refused(format!(
                "{}: nothing is written: copy out with `holdfast salvage` what it finds, then say --accept-loss",
                said.join("; ")
            ));
        }
        said.into_iter().for_each(|what| say(repairs, Issue::NodeDamaged, what, true));
        for tree in reading
            .trees()
            .iter()
            .filter(|of| of.snapshot.is_some() && self.items.contains_key(&TreeItem::key(of.id)))
        {
            let what = format!("{} comes back from an older version of that node", tree.name);
            say(repairs, Issue::NodeDamaged, what, false);
        }
        Ok(false)
    }

    /// Whether the root of a branch is one that it had before.
    pub(crate) fn is_old(&self, id: u64) -> bool {
        self.items.contains_key(&RootItem::key(id))
    }
}

impl Lineage {
    /// Reads the lineage, and decides what becomes of it.
    pub(crate) fn read(
        reading: &VolumeReading<'_>,
        older: &OlderItems,
        accepts_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<Lineage, RepairError> {
        let all = reading.lineage();
        let is_whole = older.say(reading, accepts_loss, repairs)?;
        let mut lineage = Lineage { is_kept: !all.is_empty(), ..Lineage::default() };
        let carried = reading.superblock().carried();
        let mut found = Extras { next: MAIN + 1, ..Extras::default() };
        for (key, value) in all {
            if !lineage.take(key, value, carried, &mut found) {
                let what = format!("the item {key:?} is removed");
                say(repairs, Issue::LineageItemDamaged, what, false);
            }
        }
        let Extras { mut listed, roots, mut damaged, tails, next: said_next } = found;
        for id in tails {
            let what = format!("bytes that no feature brought go from the item of {id}");
            say(repairs, Issue::LineageItemDamaged, what, false);
        }
        lineage.add_lost(is_whole, &roots, &mut damaged);
        let goes = |id: &u64| lineage.items.get(id).is_some_and(|of| of.kind == TreeKind::Going);
        listed.retain(|child, _| !goes(child));
        for id in damaged {
            lineage.damaged(id, roots.contains(&id), listed.get(&id).copied(), repairs);
        }
        lineage.of_no_snapshot(repairs);
        lineage.roots(&roots, repairs);
        lineage.deletions(reading, is_whole, repairs);
        lineage.epochs(reading, repairs);
        lineage.parents(reading, repairs);
        lineage.named(all, &listed, repairs);
        // A value of an item has its limit, which no honest volume reaches.
        if lineage.name_items().values().any(|numbers| numbers.len() > NUMBERS_MAX) {
            return RepairError::refused(
                "too many names of branches and snapshots have one checksum",
            );
        }
        let largest = lineage.items.keys().last().copied().unwrap_or(MAIN).max(MAIN);
        lineage.next = said_next.max(largest + 1);
        if lineage.next != said_next && lineage.is_kept {
            say(repairs, Issue::TreeNumber, format!("the next number is {}", lineage.next), false);
        }
        Ok(lineage)
    }

    /// Takes an item as it is. `false`: it cannot stay.
    fn take(&mut self, key: &Key, value: &[u8], carried: Carried, found: &mut Extras) -> bool {
        let id = key.inode.0.saturating_sub(LINEAGE);
        let is_own = id > 0 && key.inode.0 >= LINEAGE;
        match key.kind {
            ItemKind::Tree if is_own && key.offset == 0 => match TreeItem::decode(value) {
                Ok(mut item) if id != MAIN || item.kind == TreeKind::Branch => {
                    if item.check_carried(carried).is_err() {
                        item.tail.clear();
                        found.tails.push(id);
                    }
                    self.items.insert(id, item).is_none()
                }
                _ => {
                    found.damaged.push(id);
                    true
                }
            },
            ItemKind::Root if is_own && key.offset == 0 => {
                let is_sound = RootItem::decode(value).is_ok();
                if is_sound {
                    found.roots.insert(id);
                }
                is_sound
            }
            ItemKind::Child if key.inode.0 >= LINEAGE && value.is_empty() => {
                found.listed.insert(key.offset, id);
                true
            }
            ItemKind::Lineage if !is_own && key.offset == 0 => {
                let item = LineageItem::decode(value);
                found.next = item.as_ref().map_or(0, |item| item.next);
                item.is_ok()
            }
            ItemKind::Hold | ItemKind::Origin if is_own => {
                let hold = HoldItem::decode(value);
                let is_sound = match key.kind {
                    ItemKind::Hold => hold.is_ok_and(|of| *key == HoldItem::key(id, &of.tag)),
                    _ => key.offset < OriginItem::MOST as u64 && OriginItem::decode(value).is_ok(),
                };
                if is_sound {
                    self.told.insert(*key, value.to_vec());
                }
                is_sound
            }
            ItemKind::Name => !is_own && decode_numbers(value).is_ok(),
            ItemKind::Walk => !is_own && WalkItem::decode(value).is_ok(),
            _ => false,
        }
    }

    /// Holds and origins of what is no snapshot go.
    fn of_no_snapshot(&mut self, repairs: &mut Vec<Repair>) {
        let items = &self.items;
        let is_snapshot = |key: &Key| {
            let item = items.get(&key.inode.0.saturating_sub(LINEAGE));
            item.is_some_and(|item| item.kind == TreeKind::Snapshot)
        };
        self.told.retain(|key, _| {
            if !is_snapshot(key) {
                let what = format!("the item {key:?}, which is of no snapshot, is removed");
                say(repairs, Issue::LineageItemDamaged, what, false);
            }
            is_snapshot(key)
        });
    }

    /// Whether a snapshot is held.
    fn is_held(&self, id: u64) -> bool {
        let (first, last) = HoldItem::span(id);
        self.told.range(first..=last).next().is_some()
    }

    /// In a node that is lost, the item of a branch may have stood beside its root.
    fn add_lost(&self, is_whole: bool, roots: &BTreeSet<u64>, damaged: &mut Vec<u64>) {
        if is_whole {
            return;
        }
        damaged.extend(roots.iter().filter(|id| !self.items.contains_key(id)));
        // The branch `main` has no root of its own, but an item wherever there are others.
        if !self.items.is_empty() && !self.items.contains_key(&MAIN) {
            damaged.push(MAIN);
        }
        damaged.sort_unstable();
        damaged.dedup();
    }

    /// The item of a branch or snapshot breaks a rule.
    fn damaged(&mut self, id: u64, has_root: bool, parent: Option<u64>, repairs: &mut Vec<Repair>) {
        let issue = Issue::LineageItemDamaged;
        if id == MAIN || has_root {
            let name = match id {
                MAIN => "main".into(),
                _ => format!("branch-{id}"),
            };
            let bytes = name.clone().into_bytes();
            let parent_id = parent.unwrap_or(0);
            let item = TreeItem { name: bytes, parent: parent_id, ..TreeItem::first() };
            self.items.insert(id, item);
            let what = match id {
                MAIN => "main is named main, and has no limit".into(),
                _ => format!("branch {id} is named {name}, as its own name is lost"),
            };
            say(repairs, issue, what, true);
            if parent.is_none() {
                self.cut(id, 0, issue, repairs);
            }
            return;
        }
        say(repairs, issue, format!("snapshot {id} is lost: its item says nothing"), true);
        self.lost.push(format!("snapshot {id} would be lost"));
        self.without(id, parent, issue, repairs);
    }

    fn children(&self, id: u64) -> Vec<u64> {
        self.items.iter().filter(|(_, of)| of.parent == id).map(|(child, _)| *child).collect()
    }

    /// What has grown out of a snapshot that goes has grown out of its parent from now on.
    fn without(&mut self, id: u64, parent: Option<u64>, issue: Issue, repairs: &mut Vec<Repair>) {
        let children = self.children(id);
        if let ([child], Some(parent)) = (&children[..], parent) {
            if let Some(item) = self.items.get_mut(child) {
                item.parent = parent;
            }
            return;
        }
        for child in children {
            self.cut(child, parent.unwrap_or(0), issue, repairs);
        }
    }

    /// A tree gets another parent, and blocks of its own for what it shares with trees other than that.
    fn cut(&mut self, id: u64, parent: u64, issue: Issue, repairs: &mut Vec<Repair>) {
        let Some(item) = self.items.get_mut(&id) else { return };
        item.parent = parent;
        self.cut.insert(id);
        let kind = match item.kind {
            TreeKind::Branch | TreeKind::Going => "branch",
            TreeKind::Snapshot => "snapshot",
        };
        let name = match item.name.is_empty() {
            true => id.to_string(),
            false => holdfast_base::show::name(&item.name),
        };
        let what = format!(
            "what {kind} {name} grew out of is not known: it gets copies of what it shares with others"
        );
        say(repairs, issue, what, false);
    }

    /// Whether a tree gets blocks of its own for what it shares.
    pub(crate) fn is_cut(&self, id: u64) -> bool {
        self.cut.contains(&id)
    }

    /// Clauses that name the branches and snapshots that are lost.
    pub(crate) fn into_lost(self) -> Vec<String> {
        self.lost
    }

    /// A branch or snapshot is given up.
    pub(crate) fn give_up(&mut self, id: u64) {
        self.items.remove(&id);
        self.waiting.remove(&id);
    }
}
