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
    /// Those whose parent is another than it was, though what they share with others is not known by that: each gets blocks of its own.
    cut: BTreeSet<u64>,
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

/// Fails where branches and snapshots may have stood in a node of the space tree that is damaged, unless that is accepted: then those of
/// which nothing tells are lost. Returns whether all of it reads.
fn whole(
    reading: &VolumeReading<'_>,
    accepts_loss: bool,
    repairs: &mut Vec<Repair>,
) -> Result<bool, RepairError> {
    if reading.is_lineage_whole() {
        return Ok(true);
    }
    let what =
        "branches, snapshots and settings may have stood in a damaged node of the space tree";
    if !accepts_loss {
        return RepairError::refused(format!(
            "{what}: nothing is written, as a repair loses them; copy the device, then say --accept-loss"
        ));
    }
    let left = match reading.lineage().is_empty() {
        true => "main stays",
        false => "main stays, and those of which other nodes tell",
    };
    say(repairs, Issue::NodeDamaged, format!("{what}: they are lost; {left}"), true);
    Ok(false)
}

impl Lineage {
    /// Reads the lineage, and decides what becomes of it.
    pub(crate) fn read(
        reading: &VolumeReading<'_>,
        accepts_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<Lineage, RepairError> {
        let all = reading.lineage();
        let is_whole = whole(reading, accepts_loss, repairs)?;
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
                    Ok(item) if id != MAIN || item.kind == TreeKind::Branch => {
                        lineage.items.insert(id, item).is_none()
                    }
                    _ => {
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
        if !is_whole {
            lineage.add_lost(&roots, &mut damaged);
        }
        for id in damaged {
            lineage.damaged(id, roots.contains(&id), listed.get(&id).copied(), repairs);
        }
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

    /// In a node that is lost, the item of a branch may have stood beside its root.
    fn add_lost(&self, roots: &BTreeSet<u64>, damaged: &mut Vec<u64>) {
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
            let item = branch(name.clone().into_bytes(), parent.unwrap_or(0));
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
            TreeKind::Branch => "branch",
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

    /// A branch or snapshot is given up.
    pub(crate) fn give_up(&mut self, id: u64) {
        self.items.remove(&id);
        self.waiting.remove(&id);
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
        is_whole: bool,
        repairs: &mut Vec<Repair>,
    ) {
        let issue = Issue::DeletionWrong;
        let walks = reading
            .lineage()
            .iter()
            .filter(|(key, _)| key.kind == ItemKind::Walk && key.inode.0 == LINEAGE);
        let mut begun = BTreeSet::new();
        for (key, value) in walks {
            let id = key.offset;
            let Some(item) = self.items.get(&id) else {
                let what = format!("{id}, which does not exist, is not deleted");
                say(repairs, issue, what, false);
                continue;
            };
            let is_snapshot = item.kind == TreeKind::Snapshot;
            let is_right = is_snapshot && item.name.is_empty() && item.holds == 0;
            // Of one that says nothing it is not known how far it has come.
            let at_start = WalkItem::decode(value).is_ok_and(|place| place == WalkPlace::start());
            if is_right && at_start {
                self.waiting.insert(id);
            } else if at_start || !is_snapshot {
                let what =
                    format!("{id} is not deleted, as it is no snapshot, or has a name or holds");
                say(repairs, issue, what, false);
            } else {
                begun.insert(id);
                if !is_right {
                    let what = format!(
                        "the deletion of snapshot {id}, which has a name or holds, has begun and comes to its end"
                    );
                    say(repairs, issue, what, true);
                }
            }
        }
        // How far a deletion has come may have stood in a node that is lost: what it has passed is not the snapshot's any more.
        let is_nameless =
            |(_, item): &(&u64, &TreeItem)| item.kind == TreeKind::Snapshot && item.name.is_empty();
        if !is_whole {
            let nameless = self.items.iter().filter(is_nameless).map(|(id, _)| *id);
            begun.extend(nameless.filter(|id| !self.waiting.contains(id)));
        }
        for id in begun {
            let parent = self.items.get(&id).map(|item| item.parent);
            self.without(id, parent, issue, repairs);
            self.items.remove(&id);
            self.ended.insert(id);
        }
    }

    /// No snapshot is older than its root, nor younger than the volume.
    fn epochs(&mut self, reading: &VolumeReading<'_>, repairs: &mut Vec<Repair>) {
        let superblock = reading.superblock();
        let snapshots = self.items.iter_mut().filter(|(_, item)| item.kind == TreeKind::Snapshot);
        for (id, item) in snapshots {
            let epoch = item.epoch.max(item.root.epoch).min(superblock.epoch);
            let lsn = item.lsn.min(superblock.lsn);
            if (item.epoch, item.lsn) != (epoch, lsn) {
                (item.epoch, item.lsn) = (epoch, lsn);
                let what = format!("snapshot {id} is of epoch {epoch}, and of operation {lsn}");
                say(repairs, Issue::SnapshotEpoch, what, false);
            }
        }
    }

    /// What grew out of something that cannot be has grown out of nothing.
    fn parents(&mut self, reading: &VolumeReading<'_>, repairs: &mut Vec<Repair>) {
        let roots: BTreeMap<u64, NodePointer> =
            reading.trees().iter().map(|tree| (tree.id, tree.root)).collect();
        let ids: Vec<u64> = self.items.keys().copied().collect();
        // All that were looked at before are on no circle.
        let mut done = BTreeSet::new();
        for id in ids {
            let Some(item) = self.items.get(&id).filter(|item| item.parent != 0) else { continue };
            let parent = self.items.get(&item.parent);
            let Some(parent) = parent.filter(|parent| parent.kind == TreeKind::Snapshot) else {
                self.cut(id, 0, Issue::ParentMissing, repairs);
                continue;
            };
            let is_older = item.kind == TreeKind::Snapshot && item.epoch < parent.epoch;
            let is_other = |root: &NodePointer| root.epoch <= parent.epoch && *root != parent.root;
            if is_older {
                self.cut(id, 0, Issue::SnapshotEpoch, repairs);
            } else if roots.get(&id).is_some_and(is_other) {
                self.cut(id, 0, Issue::RootAge, repairs);
            } else if self.is_on_circle(id, &done) {
                self.cut(id, 0, Issue::LineageCycle, repairs);
            }
            done.insert(id);
        }
    }

    fn is_on_circle(&self, id: u64, done: &BTreeSet<u64>) -> bool {
        let (mut way, mut at) = (BTreeSet::new(), id);
        while at != 0 && !done.contains(&at) && way.insert(at) {
            at = self.items.get(&at).map_or(0, |item| item.parent);
        }
        at == id
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
        let known = |tree: &TreeRoot| tree.id == MAIN || self.items.contains_key(&tree.id);
        let depths = self.depths();
        let depth = |id: u64| depths.get(&id).copied().unwrap_or(0);
        let stay = stay.into_iter().filter(known).chain(self.rooted(reading));
        let mut stay: Vec<TreeRoot> = stay
            .map(|tree| {
                let item = self.items.get(&tree.id);
                let snapshot = tree.snapshot.and(item.map(|item| item.epoch.0));
                let parent = item.map_or(0, |item| item.parent);
                TreeRoot { parent, cursor: None, snapshot, ..tree }
            })
            .collect();
        // What gets blocks of its own comes behind those that keep theirs.
        stay.sort_by_key(|tree| (depth(tree.id), self.is_cut(tree.id), tree.id));
        (stay, ended)
    }

    /// Branches whose root is there and whose item was not.
    fn rooted(&self, reading: &VolumeReading<'_>) -> Vec<TreeRoot> {
        let known: BTreeSet<u64> = reading.trees().iter().map(|tree| tree.id).collect();
        let is_missing = |(id, item): &(&u64, &TreeItem)| {
            item.kind == TreeKind::Branch && **id != MAIN && !known.contains(id)
        };
        let roots = self.items.iter().filter(is_missing).filter_map(|(id, item)| {
            let root = RootItem::decode(reading.lineage().get(&RootItem::key(*id))?).ok()?;
            Some(TreeRoot {
                id: *id,
                name: holdfast_base::show::name(&item.name),
                root: root.pointer(),
                level: root.level,
                parent: item.parent,
                snapshot: None,
                inode_count: root.inode_count,
                cursor: None,
            })
        });
        roots.collect()
    }

    /// How many snapshots each tree has before it.
    fn depths(&self) -> BTreeMap<u64, usize> {
        let mut depths = BTreeMap::new();
        for id in self.items.keys() {
            let (mut way, mut at) = (Vec::new(), *id);
            while at != 0 && !depths.contains_key(&at) {
                way.push(at);
                at = self.items.get(&at).map_or(0, |item| item.parent);
            }
            let first = depths.get(&at).map_or(0, |depth| depth + 1);
            depths.extend(way.into_iter().rev().zip(first..));
        }
        depths
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
