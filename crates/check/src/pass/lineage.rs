//! Pass 10: whether the items of branches and snapshots fit together.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_format::item::lineage::{LINEAGE, MAIN, child_key, decode_numbers, name_key};
use holdfast_format::item::{
    HoldItem, LineageItem, OriginItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::{ItemKind, Key, Malformed, NodePointer};

use super::Context;
use crate::issue::Issue;
use crate::lineage::Lineage;

/// What is looked at.
struct Judge<'a, 'c> {
    context: &'a mut Context<'c>,
    lineage: &'a Lineage,
    trees: BTreeMap<u64, TreeItem>,
    /// What grew out of each, by what the items of trees say.
    children: BTreeMap<u64, Vec<u64>>,
}

pub(super) fn run(context: &mut Context<'_>) {
    let lineage = std::mem::take(&mut context.lineage);
    let trees: BTreeMap<u64, TreeItem> = lineage.all().collect();
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (id, item) in trees.iter().filter(|(_, item)| item.parent != 0) {
        children.entry(item.parent).or_default().push(*id);
    }
    let is_kind = |kind| move |item: &&TreeItem| item.kind == kind;
    let branches = trees.values().filter(is_kind(TreeKind::Branch)).count() as u64;
    context.facts.branches = branches + u64::from(!trees.contains_key(&MAIN));
    let snapshots = || trees.values().filter(is_kind(TreeKind::Snapshot));
    context.facts.snapshots = snapshots().count() as u64;
    let is_nameless = |it: &&TreeItem| it.name.is_empty() || lineage.goes(it.branch);
    context.facts.nameless_snapshots = snapshots().filter(is_nameless).count() as u64;
    let mut judge = Judge { context, lineage: &lineage, trees, children };
    judge.items();
    // What cannot be read would be reported as missing.
    if judge.context.space_lost.is_empty() {
        let trees = std::mem::take(&mut judge.trees);
        for (id, item) in &trees {
            judge.number(*id);
            judge.parent(&trees, *id, item);
            judge.branch(&trees, *id, item);
        }
        judge.trees = trees;
        judge.roots();
        judge.cycles();
        judge.child_items();
        judge.names();
        judge.deletions();
    }
    context.lineage = lineage;
    context.facts.complete &= context.is_whole();
}

/// The number of a branch or snapshot in a key.
fn number(key: &Key) -> Option<u64> {
    key.inode.0.checked_sub(LINEAGE)
}

impl Judge<'_, '_> {
    fn report(&mut self, issue: Issue, what: String) {
        self.context.findings.add(issue, what);
    }

    fn name(&self, id: u64) -> String {
        self.lineage.name(id)
    }

    /// Each item for itself.
    fn items(&mut self) {
        for (key, value) in &self.lineage.0 {
            let judged = match key.kind {
                ItemKind::Tree => TreeItem::decode(value).and_then(|item| {
                    item.check_carried(self.context.volume.superblock.carried())?;
                    match number(key) == Some(MAIN) && item.kind != TreeKind::Branch {
                        true => Err(Malformed::new("tree", "main is no branch")),
                        false => Ok(()),
                    }
                }),
                ItemKind::Root => RootItem::decode(value).map(drop),
                ItemKind::Walk => WalkItem::decode(value).map(drop),
                ItemKind::Lineage => LineageItem::decode(value).map(drop),
                ItemKind::Name => decode_numbers(value).map(drop),
                ItemKind::Hold => HoldItem::decode(value).and_then(|hold| {
                    match number(key).map(|id| HoldItem::key(id, &hold.tag)) == Some(*key) {
                        true => Ok(()),
                        false => Err(Malformed::new("hold", "its key is of another tag")),
                    }
                }),
                ItemKind::Origin => OriginItem::decode(value).map(drop),
                _ => Ok(()),
            };
            let is_own = number(key).is_some_and(|number| number > 0);
            let is_placed = match key.kind {
                ItemKind::Tree | ItemKind::Root => is_own && key.offset == 0,
                ItemKind::Hold => is_own && self.is_snapshot(key),
                ItemKind::Origin => {
                    is_own && self.is_snapshot(key) && key.offset < OriginItem::MOST as u64
                }
                ItemKind::Child => value.is_empty() && number(key).is_some(),
                ItemKind::Lineage => !is_own && key.offset == 0,
                _ => !is_own,
            };
            let why = match judged {
                Ok(()) if is_placed => continue,
                Ok(()) => "no such item can be there".to_string(),
                Err(malformed) => malformed.why,
            };
            // What such a tree reaches is not known.
            self.context.others_lost |=
                matches!(key.kind, ItemKind::Tree | ItemKind::Root | ItemKind::Walk);
            self.context.findings.add(Issue::LineageItemDamaged, format!("{key:?}: {why}"));
        }
    }

    /// Whether the item of a key belongs to a snapshot; of what cannot be read that is not known.
    fn is_snapshot(&self, key: &Key) -> bool {
        let id = number(key).unwrap_or_default();
        match self.trees.get(&id) {
            Some(item) => item.kind == TreeKind::Snapshot,
            None => id != MAIN && (self.exists(id) || !self.context.space_lost.is_empty()),
        }
    }

    /// Whether the item of a branch or snapshot is there, sound or not.
    fn exists(&self, id: u64) -> bool {
        id == MAIN || self.lineage.0.contains_key(&TreeItem::key(id))
    }

    fn number(&mut self, id: u64) {
        if let Some(next) = self.lineage.next().filter(|next| id >= *next) {
            let name = self.name(id);
            self.report(
                Issue::TreeNumber,
                format!("{name} has the number {id}, the next is {next}"),
            );
        }
    }

    fn parent(&mut self, trees: &BTreeMap<u64, TreeItem>, id: u64, item: &TreeItem) {
        let name = self.name(id);
        if item.kind == TreeKind::Snapshot {
            let superblock = self.context.volume.superblock;
            let (epoch, lsn) = (superblock.epoch, superblock.lsn);
            if item.epoch > epoch || item.lsn > lsn {
                let what = format!(
                    "{name} is of epoch {} and operation {}, the volume of {epoch} and {lsn}",
                    item.epoch, item.lsn
                );
                self.report(Issue::SnapshotEpoch, what);
            }
        }
        if item.parent == 0 {
            return;
        }
        let Some(parent) = trees.get(&item.parent).filter(|of| of.kind == TreeKind::Snapshot)
        else {
            if !self.exists(item.parent) || trees.contains_key(&item.parent) || item.parent == MAIN
            {
                let what = format!("{name} grew out of {}, which is no snapshot", item.parent);
                self.report(Issue::ParentMissing, what);
            }
            return;
        };
        if item.kind == TreeKind::Snapshot && item.epoch < parent.epoch {
            let (own, before) = (item.epoch, parent.epoch);
            let before = format!("{} of epoch {before}", self.name(item.parent));
            self.report(
                Issue::SnapshotEpoch,
                format!("{name} of epoch {own} grew out of {before}"),
            );
        }
        let Some(root) = self.root_of(id, item) else { return };
        if root.epoch <= parent.epoch && root != parent.root {
            let what = format!(
                "the root of {name} is of epoch {}, that of {} is another, of epoch {}",
                root.epoch,
                self.name(item.parent),
                parent.root.epoch
            );
            self.context.findings.add(Issue::RootAge, what).block(root.block);
        }
    }

    fn root_of(&self, id: u64, item: &TreeItem) -> Option<NodePointer> {
        match item.kind {
            TreeKind::Snapshot => Some(item.root),
            TreeKind::Branch if id == MAIN => Some(self.context.volume.superblock.files),
            TreeKind::Branch | TreeKind::Going => self.lineage.root(id).map(|root| root.pointer()),
        }
    }

    /// A snapshot with a name is of a branch, and what goes may have joined one.
    fn branch(&mut self, trees: &BTreeMap<u64, TreeItem>, id: u64, item: &TreeItem) {
        if item.kind == TreeKind::Going {
            let to = trees.get(&item.branch).map(|of| of.kind);
            let is_there = to.map_or(self.exists(item.branch), |kind| kind == TreeKind::Branch);
            if item.branch != 0 && !is_there {
                let what =
                    format!("the snapshots of {id} are of {}, which is no branch", item.branch);
                self.report(Issue::BranchMissing, what);
            }
            return;
        }
        if item.kind == TreeKind::Branch || item.name.is_empty() {
            return;
        }
        let branch = trees.get(&item.branch).map(|of| of.kind);
        let is_there = branch.map_or(self.exists(item.branch), |kind| kind != TreeKind::Snapshot);
        if !is_there {
            let what =
                format!("{} is of branch {}, which does not exist", self.name(id), item.branch);
            self.report(Issue::BranchMissing, what);
        }
    }

    fn roots(&mut self) {
        let keys =
            self.lineage.0.keys().filter(|key| key.kind == ItemKind::Root && key.offset == 0);
        let rooted: BTreeSet<u64> = keys.filter_map(number).collect();
        let is_branch = |id: &u64| {
            let item = self.trees.get(id);
            item.map_or(self.exists(*id), |item| item.kind == TreeKind::Branch) && *id != MAIN
        };
        let stray: Vec<u64> = rooted.iter().copied().filter(|id| !is_branch(id)).collect();
        let all = self.trees.iter().filter(|(_, item)| item.kind == TreeKind::Branch);
        let without: Vec<u64> =
            all.map(|(id, _)| *id).filter(|id| *id != MAIN && !rooted.contains(id)).collect();
        for id in stray {
            self.report(
                Issue::BranchRoot,
                format!("there is a root of branch {id}, which is none"),
            );
        }
        for id in without {
            self.context.others_lost = true;
            self.report(Issue::BranchRoot, format!("branch {} has no root", self.name(id)));
        }
    }

    fn cycles(&mut self) {
        // Each is looked at once: those that lead to an end, or are reported.
        let mut done = BTreeSet::new();
        let starts: Vec<u64> = self.trees.keys().copied().collect();
        for start in starts {
            let (mut way, mut at) = (BTreeSet::new(), start);
            while at != 0 && !done.contains(&at) && way.insert(at) {
                at = self.trees.get(&at).map_or(0, |item| item.parent);
            }
            if way.contains(&at) {
                self.report(Issue::LineageCycle, format!("{} is its own ancestor", self.name(at)));
            }
            done.append(&mut way);
        }
    }

    fn child_items(&mut self) {
        let keys = self.lineage.0.keys().filter(|key| key.kind == ItemKind::Child);
        let listed: Vec<(u64, u64)> =
            keys.filter_map(|key| Some((number(key)?, key.offset))).collect();
        for (parent, child) in listed {
            // A branch that goes stands with number 0, and with the branch that it has joined.
            let is_right = self.trees.get(&child).is_some_and(|item| match item.kind {
                TreeKind::Going => parent == 0 || parent == item.branch,
                _ => parent != 0 && parent == item.parent,
            });
            let is_damaged =
                !self.trees.contains_key(&child) && self.exists(child) && child != MAIN;
            if !is_right && !is_damaged {
                let what = format!("{child} is listed as grown out of {}", self.name(parent));
                self.report(Issue::ChildItem, what);
            }
        }
        let all = self.children.iter().flat_map(|(parent, of)| of.iter().map(|id| (*parent, *id)));
        let going = self.trees.iter().filter(|(_, item)| item.kind == TreeKind::Going);
        let going = going.flat_map(|(id, item)| [(0, *id), (item.branch, *id)]);
        let all: BTreeSet<(u64, u64)> = all.chain(going).collect();
        let missing: Vec<(u64, u64)> = all
            .into_iter()
            .filter(|(parent, id)| !self.lineage.0.contains_key(&child_key(*parent, *id)))
            .collect();
        for (parent, id) in missing {
            let what = format!("{} is not listed with {}", self.name(id), self.name(parent));
            self.report(Issue::ChildItem, what);
        }
    }

    fn names(&mut self) {
        // Number by branch and name.
        let mut known: BTreeMap<(u64, &[u8]), u64> = BTreeMap::new();
        let (mut wrong, mut expected) = (Vec::new(), BTreeMap::<Key, BTreeSet<u64>>::new());
        for (id, item) in self.trees.iter().filter(|(_, item)| !item.name.is_empty()) {
            if let Some(other) = known.insert((self.lineage.branch_of(item), &item.name), *id) {
                wrong.push(format!("{other} and {id} are both named {}", self.name(*id)));
            }
            expected.entry(name_key(item.branch, &item.name)).or_default().insert(*id);
        }
        for (id, item) in self.trees.iter().filter(|(_, item)| item.name.is_empty()) {
            if item.kind == TreeKind::Branch {
                wrong.push(format!("branch {id} has no name"));
            }
        }
        let items = self.lineage.0.iter().filter(|(key, _)| key.kind == ItemKind::Name);
        for (key, value) in items {
            // What is damaged has its own finding.
            let Ok(numbers) = decode_numbers(value) else {
                expected.remove(key);
                continue;
            };
            let mut of = expected.remove(key).unwrap_or_default();
            for id in numbers {
                let is_damaged = !self.trees.contains_key(&id) && self.exists(id) && id != MAIN;
                if !of.remove(&id) && !is_damaged {
                    wrong.push(format!("{key:?} leads to {id}, which has another name or none"));
                }
            }
            wrong
                .extend(of.iter().map(|id| format!("{} is not found by its name", self.name(*id))));
        }
        let rest = expected.into_values().flatten();
        wrong.extend(rest.map(|id| format!("{} is not found by its name", self.name(id))));
        for what in wrong {
            self.report(Issue::TreeName, what);
        }
    }

    fn deletions(&mut self) {
        let keys = self.lineage.0.keys().filter(|key| key.kind == ItemKind::Walk);
        let walks: Vec<u64> = keys.map(|key| key.offset).collect();
        let has_begun = |lineage: &Lineage, id| {
            lineage.cursor(id).is_some_and(|cursor| cursor != WalkPlace::start())
        };
        for id in walks {
            let Some(item) = self.trees.get(&id) else {
                if !self.exists(id) || id == MAIN {
                    self.report(
                        Issue::DeletionWrong,
                        format!("{id} is being deleted and is no snapshot"),
                    );
                }
                continue;
            };
            let children = self.children.get(&id).map_or(&[][..], Vec::as_slice);
            let mut beside = children.iter().copied().chain([item.parent]);
            let why = if item.kind == TreeKind::Branch {
                "is a branch"
            } else if !item.name.is_empty() {
                "has a name"
            } else if self.lineage.is_held(id) {
                "is held"
            } else if !has_begun(self.lineage, id) {
                continue;
            } else if children.len() > 1 {
                "has more than one child"
            } else if beside.any(|other| has_begun(self.lineage, other)) {
                "stands beside another one that is"
            } else {
                continue;
            };
            let what = format!("{} is being deleted and {why}", self.name(id));
            self.report(Issue::DeletionWrong, what);
        }
        let follows = |item: &TreeItem| self.lineage.goes(item.branch);
        let following = self.trees.iter().filter(|(_, item)| follows(item)).map(|(id, _)| *id);
        for id in following.filter(|id| self.lineage.is_held(*id)).collect::<Vec<_>>() {
            let what = format!("the branch of {} goes, and it is held", self.name(id));
            self.report(Issue::DeletionWrong, what);
        }
    }
}
