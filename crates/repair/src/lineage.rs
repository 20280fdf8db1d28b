//! Branches and snapshots: which trees stay, in which order, and the items that say so.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::Issue;
use holdfast_check::reading::{TreeRoot, VolumeReading};
use holdfast_format::item::lineage::{LINEAGE, MAIN, child_key, decode_numbers, name_key};
use holdfast_format::item::{LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace};
use holdfast_format::{ItemKind, Key, NodePointer};

use crate::error::RepairError;
use crate::plan::Repair;

/// What the lineage will be.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// The items of branches and snapshots that stay.
    items: BTreeMap<u64, TreeItem>,
    /// Snapshots whose deletion comes to its end with the repair.
    ended: BTreeSet<u64>,
    /// Snapshots whose deletion has not begun, and stays to be done.
    waiting: BTreeSet<u64>,
    next: u64,
    /// Whether there is more than `main` without an item.
    is_kept: bool,
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

/// Fails where branches and snapshots may have stood in a node of the space tree that is damaged, unless that is accepted and nothing
/// tells of any: then `main` is all there is.
fn whole(
    reading: &VolumeReading<'_>,
    accepts_loss: bool,
    repairs: &mut Vec<Repair>,
) -> Result<(), RepairError> {
    if reading.is_lineage_whole() {
        return Ok(());
    }
    let what =
        "branches, snapshots and settings may have stood in a damaged node of the space tree";
    if !reading.lineage().is_empty() {
        return RepairError::refused(format!(
            "{what}, and others are there: nothing is written, as it is not known which blocks are whose; copy the files out"
        ));
    }
    if !accepts_loss {
        return RepairError::refused(format!(
            "{what}: nothing is written, as a repair loses them; copy the device, then say --accept-loss"
        ));
    }
    say(repairs, Issue::NodeDamaged, format!("{what}: they are lost, and main stays"), true);
    Ok(())
}

impl Lineage {
    /// Reads the lineage, and decides what becomes of it.
    pub(crate) fn read(
        reading: &VolumeReading<'_>,
        accepts_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<Lineage, RepairError> {
        let all = reading.lineage();
        whole(reading, accepts_loss, repairs)?;
        let mut lineage = Lineage { is_kept: !all.is_empty(), ..Lineage::default() };
        let mut listed: BTreeMap<u64, u64> = BTreeMap::new();
        let mut roots = BTreeSet::new();
        let mut damaged = Vec::new();
        let mut said_next = 0;
        for (key, value) in all {
            let id = key.inode.0.saturating_sub(LINEAGE);
            let is_own = id > 0 && key.inode.0 >= LINEAGE;
            let is_sound = match key.kind {
                ItemKind::Tree if is_own && key.offset == 0 => match TreeItem::decode(value) {
                    Ok(item) => lineage.items.insert(id, item).is_none(),
                    Err(_) => {
                        damaged.push(id);
                        true
                    }
                },
                ItemKind::Root if is_own && key.offset == 0 => {
                    let is_sound = RootItem::decode(value).is_ok();
                    if is_sound {
                        roots.insert(id);
                    }
                    is_sound
                }
                ItemKind::Child if is_own && value.is_empty() => {
                    listed.insert(key.offset, id);
                    true
                }
                ItemKind::Lineage if !is_own && key.offset == 0 => {
                    let item = LineageItem::decode(value);
                    said_next = item.as_ref().map_or(0, |item| item.next);
                    item.is_ok()
                }
                ItemKind::Name => !is_own && decode_numbers(value).is_ok(),
                ItemKind::Walk => !is_own && WalkItem::decode(value).is_ok(),
                _ => false,
            };
            if !is_sound {
                say(
                    repairs,
                    Issue::LineageItemDamaged,
                    format!("the item {key:?} is removed"),
                    false,
                );
            }
        }
        for id in damaged {
            lineage.damaged(id, roots.contains(&id), listed.get(&id).copied(), repairs)?;
        }
        lineage.roots(&roots, repairs);
        lineage.deletions(reading, repairs)?;
        lineage.parents()?;
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

    /// The item of a branch or snapshot breaks a rule.
    fn damaged(
        &mut self,
        id: u64,
        has_root: bool,
        parent: Option<u64>,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), RepairError> {
        if id == MAIN || has_root {
            // Without its parent it would free what snapshots reach.
            let Some(parent) = parent.filter(|_| id != MAIN) else {
                let name = if id == MAIN { "main".into() } else { format!("branch {id}") };
                return RepairError::refused(format!(
                    "what tells of {name} is damaged, and it is not known which blocks are its own: nothing is written; copy the files out"
                ));
            };
            let name = format!("branch-{id}");
            let item = branch(name.clone().into_bytes(), parent);
            self.items.insert(id, item);
            let what = format!("branch {id} is named {name}, as its own name is lost");
            say(repairs, Issue::LineageItemDamaged, what, true);
            return Ok(());
        }
        let children: Vec<u64> =
            self.items.iter().filter(|(_, of)| of.parent == id).map(|(child, _)| *child).collect();
        if children.len() > 1 || (!children.is_empty() && parent.is_none()) {
            return RepairError::refused(format!(
                "what tells of snapshot {id} is lost, and other branches have grown out of it: nothing is written, as their blocks could not be told apart; copy their files out"
            ));
        }
        for child in children {
            if let Some(item) = self.items.get_mut(&child) {
                item.parent = parent.unwrap_or(0);
            }
        }
        say(
            repairs,
            Issue::LineageItemDamaged,
            format!("snapshot {id} is lost: its item says nothing"),
            true,
        );
        Ok(())
    }

    fn roots(&mut self, roots: &BTreeSet<u64>, repairs: &mut Vec<Repair>) {
        let is_branch = |item: &TreeItem| item.kind == TreeKind::Branch;
        for id in roots {
            if *id == MAIN || !self.items.get(id).is_some_and(is_branch) {
                say(
                    repairs,
                    Issue::BranchRoot,
                    format!("the root of branch {id}, which is none, is removed"),
                    true,
                );
            }
        }
        let without: Vec<u64> = { self.items.iter() }
            .filter(|(id, item)| **id != MAIN && is_branch(item) && !roots.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in without {
            let item = self.items.remove(&id);
            let name = item.map_or(String::new(), |item| holdfast_base::show::name(&item.name));
            say(repairs, Issue::BranchRoot, format!("branch {name} is lost: it has no root"), true);
        }
    }

    /// Deletions that have begun come to their end: what a walk has passed is not the snapshot's any more, and the
    /// space tree is made anew without the rest.
    fn deletions(
        &mut self,
        reading: &VolumeReading<'_>,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), RepairError> {
        let walks = reading
            .lineage()
            .iter()
            .filter(|(key, _)| key.kind == ItemKind::Walk && key.inode.0 == LINEAGE);
        for (key, value) in walks {
            let Ok(place) = WalkItem::decode(value) else { continue };
            let id = key.offset;
            let Some(item) = self.items.get(&id) else {
                say(
                    repairs,
                    Issue::DeletionWrong,
                    format!("{id}, which does not exist, is not deleted"),
                    false,
                );
                continue;
            };
            let (is_snapshot, parent) = (item.kind == TreeKind::Snapshot, item.parent);
            let is_right = is_snapshot && item.name.is_empty() && item.holds == 0;
            if place == WalkPlace::start() || !is_snapshot {
                if is_right {
                    self.waiting.insert(id);
                } else {
                    say(
                        repairs,
                        Issue::DeletionWrong,
                        format!(
                            "{id} is not deleted, as it is no snapshot, or has a name or holds"
                        ),
                        false,
                    );
                }
                continue;
            }
            let children: Vec<u64> = { self.items.iter() }
                .filter(|(_, of)| of.parent == id)
                .map(|(child, _)| *child)
                .collect();
            if children.len() > 1 {
                return RepairError::refused(format!(
                    "snapshot {id} is being deleted, and {} trees have grown out of it: nothing is written, as their blocks could not be told apart; copy their files out",
                    children.len()
                ));
            }
            if !is_right {
                say(
                    repairs,
                    Issue::DeletionWrong,
                    format!(
                        "the deletion of snapshot {id}, which has a name or holds, has begun and comes to its end"
                    ),
                    true,
                );
            }
            for child in children {
                if let Some(item) = self.items.get_mut(&child) {
                    item.parent = parent;
                }
            }
            self.items.remove(&id);
            self.ended.insert(id);
        }
        Ok(())
    }

    /// What follows from parents that cannot be is beyond a repair: which blocks are a branch's own would be a guess.
    fn parents(&self) -> Result<(), RepairError> {
        for (id, item) in self.items.iter().filter(|(_, item)| item.parent != 0) {
            let parent = self.items.get(&item.parent);
            if parent.is_none_or(|parent| parent.kind != TreeKind::Snapshot) {
                return RepairError::refused(format!(
                    "{id} grew out of {}, which is no snapshot: nothing is written, as it is not known which blocks are its own; copy its files out",
                    item.parent
                ));
            }
            let (mut at, mut steps) = (item.parent, 0);
            while at != 0 {
                at = self.items.get(&at).map_or(0, |item| item.parent);
                steps += 1;
                if steps > self.items.len() {
                    return RepairError::refused(format!(
                        "{id} is its own ancestor: nothing is written, as it is not known which blocks are its own; copy its files out"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Each has a name of its own, and is found by it and with its parent.
    fn named(
        &mut self,
        all: &BTreeMap<Key, Vec<u8>>,
        listed: &BTreeMap<u64, u64>,
        repairs: &mut Vec<Repair>,
    ) {
        let branches: BTreeSet<u64> = { self.items.iter() }
            .filter(|(_, item)| item.kind == TreeKind::Branch)
            .map(|(id, _)| *id)
            .chain([MAIN])
            .collect();
        let mut known: BTreeSet<(u64, Vec<u8>)> = BTreeSet::new();
        for (id, item) in &mut self.items {
            if !item.name.is_empty()
                && item.kind == TreeKind::Snapshot
                && !branches.contains(&item.branch)
            {
                item.branch = MAIN;
                say(
                    repairs,
                    Issue::BranchMissing,
                    format!("snapshot {id} is of main now, as its branch does not exist"),
                    false,
                );
            }
            let mut name = item.name.clone();
            if name.is_empty() && item.kind == TreeKind::Branch {
                name = format!("branch-{id}").into_bytes();
            }
            let mut more = 0;
            while !name.is_empty() && known.contains(&(item.branch, name.clone())) {
                more += 1;
                let kept = String::from_utf8_lossy(&item.name).chars().take(60).collect::<String>();
                name = format!("{kept}.{id}.{more}").into_bytes();
            }
            if name != item.name {
                let what = format!("{id} is named {}", holdfast_base::show::name(&name));
                say(repairs, Issue::TreeName, what, false);
                item.name = name;
            }
            if !item.name.is_empty() {
                known.insert((item.branch, item.name.clone()));
            }
        }
        let of = |kind| all.iter().filter(move |(key, _)| key.kind == kind);
        let names: BTreeMap<Key, Vec<u8>> =
            of(ItemKind::Name).map(|(key, value)| (*key, value.clone())).collect();
        if names != self.name_items() {
            say(repairs, Issue::TreeName, "branches and snapshots are found by their names", false);
        }
        let parents = self.items.iter().filter(|(_, item)| item.parent != 0);
        if self.ended.is_empty()
            && !parents
                .map(|(id, item)| (*id, item.parent))
                .eq(listed.iter().map(|(a, b)| (*a, *b)))
        {
            say(repairs, Issue::ChildItem, "what grew out of a snapshot is listed with it", false);
        }
    }

    fn name_items(&self) -> BTreeMap<Key, Vec<u8>> {
        let mut names: BTreeMap<Key, BTreeSet<u64>> = BTreeMap::new();
        for (id, item) in self.items.iter().filter(|(_, item)| !item.name.is_empty()) {
            names.entry(name_key(item.branch, &item.name)).or_default().insert(*id);
        }
        let value = |ids: BTreeSet<u64>| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        names.into_iter().map(|(key, ids)| (key, value(ids))).collect()
    }

    /// The trees that stay, each behind its parent; and those that go with the repair.
    pub(crate) fn trees(&self, reading: &VolumeReading<'_>) -> (Vec<TreeRoot>, Vec<TreeRoot>) {
        let (ended, stay): (Vec<_>, Vec<_>) =
            { reading.trees().iter().cloned() }.partition(|tree| self.ended.contains(&tree.id));
        let parent = |id: u64| self.items.get(&id).map_or(0, |item| item.parent);
        let depth = |id: u64| {
            let (mut depth, mut at) = (0, parent(id));
            while at != 0 {
                (depth, at) = (depth + 1, parent(at));
            }
            depth
        };
        let known = |tree: &TreeRoot| tree.id == MAIN || self.items.contains_key(&tree.id);
        let mut stay: Vec<(u64, TreeRoot)> = { stay.into_iter().filter(known) }
            .map(|tree| {
                let tree = TreeRoot { parent: parent(tree.id), cursor: None, ..tree };
                (depth(tree.id), tree)
            })
            .collect();
        stay.sort_by_key(|(depth, tree)| (*depth, tree.id));
        (stay.into_iter().map(|(_, tree)| tree).collect(), ended)
    }

    /// How many snapshots go, as their deletion had begun.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// The items for a space tree.
    pub(crate) fn encode(&self, roots: &[Root]) -> BTreeMap<Key, Vec<u8>> {
        let mut items = BTreeMap::new();
        if !self.is_kept {
            return items;
        }
        let next = LineageItem { next: self.next, reserved: [0; 8] };
        items.insert(LineageItem::KEY, next.bytes().to_vec());
        items.append(&mut self.name_items());
        let by_id: BTreeMap<u64, &Root> = roots.iter().map(|root| (root.id, root)).collect();
        for (id, item) in &self.items {
            let mut item = item.clone();
            match (item.kind, by_id.get(id)) {
                (TreeKind::Snapshot, Some(root)) => {
                    (item.root, item.level) = (root.root, root.level);
                    item.inode_count = root.inode_count;
                    item.referenced_blocks = root.referenced;
                }
                (TreeKind::Branch, Some(root)) if *id != MAIN => {
                    let value =
                        RootItem::of(root.root, root.level, root.inode_count, root.referenced);
                    items.insert(RootItem::key(*id), value.bytes().to_vec());
                }
                _ => {}
            }
            if item.parent != 0 {
                items.insert(child_key(item.parent, *id), Vec::new());
            }
            items.insert(TreeItem::key(*id), item.encode());
        }
        for id in &self.waiting {
            items.insert(WalkItem::key(*id), WalkItem::at(&WalkPlace::start()).bytes().to_vec());
        }
        items
    }
}

/// A branch of which little is known.
fn branch(name: Vec<u8>, parent: u64) -> TreeItem {
    TreeItem {
        kind: TreeKind::Branch,
        parent,
        branch: 0,
        epoch: Default::default(),
        lsn: Default::default(),
        created: Default::default(),
        holds: 0,
        root: NodePointer { block: Default::default(), epoch: Default::default() },
        level: 0,
        inode_count: 0,
        referenced_blocks: 0,
        limit: 0,
        name,
    }
}
