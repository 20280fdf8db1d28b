//! Whether what a batch says of branches and snapshots can be.
//!
//! By the log come forks of snapshots, names, holds, limits, snapshots that follow their branch, and deletions that begin; all else comes with
//! commits. So a batch makes a branch at the root of a snapshot that is there, and of what is there it changes the name, the limit, and the
//! branch where that has joined another. A root
//! of another branch, a cursor that has moved or a parent that none had would make the replay free what others reach (P10).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use holdfast_base::Epoch;
use holdfast_format::item::lineage::{LINEAGE, MAIN, decode_numbers};
use holdfast_format::item::{
    HoldItem, LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::{ItemKind, Key, Malformed};

use crate::tree::TreeNo;
use crate::{Inner, StoreError};

/// What a batch makes of items of the lineage, one value for each.
pub(super) type Items = BTreeMap<Key, Option<Vec<u8>>>;

/// Why a batch does not count.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It cannot be.
    Batch(String),
    /// What was there before it cannot be read.
    Before(StoreError),
}

impl From<String> for Wrong {
    fn from(why: String) -> Wrong {
        Wrong::Batch(why)
    }
}

impl From<Malformed> for Wrong {
    fn from(why: Malformed) -> Wrong {
        Wrong::Batch(why.to_string())
    }
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Wrong {
        Wrong::Before(error)
    }
}

type Judged<T = ()> = std::result::Result<T, Wrong>;

/// The lineage as the batches make it that were judged so far, in front of the volume before the log.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    trees: BTreeMap<u64, TreeItem>,
    roots: BTreeMap<u64, RootItem>,
    /// Snapshots whose deletion a batch begins.
    walks: BTreeSet<u64>,
    /// Holds that batches put, or end.
    holds: BTreeMap<Key, bool>,
    next: Option<u64>,
}

fn refuse<T>(why: impl Into<String>) -> Judged<T> {
    Err(Wrong::Batch(why.into()))
}

/// The number of a branch or snapshot in a key, 0 for what all share.
fn number(key: &Key) -> Judged<u64> {
    match key.inode.0.checked_sub(LINEAGE) {
        Some(number) => Ok(number),
        None => refuse(format!("{key:?} is no key of the lineage")),
    }
}

impl Lineage {
    /// Judges what a batch says, and names the branches that its other records are of.
    pub(super) fn batch(&mut self, inner: &Inner, items: &Items, named: &BTreeSet<u64>) -> Judged {
        // Most batches change no item: damage there is no reason to doubt what they say of files.
        if items.is_empty() {
            return self.judge_named(inner, named);
        }
        let next = self.next(inner)?;
        let grown = grown_out_of(items)?;
        let mut now = Lineage { next: Some(next), ..Lineage::default() };
        for (key, value) in items {
            let (number, is_first) = (number(key)?, key.offset == 0);
            let Some(value) = value else {
                match key.kind {
                    ItemKind::Name if number == 0 => {}
                    ItemKind::Hold if number > 0 => drop(now.holds.insert(*key, false)),
                    _ => return refuse(format!("{key:?} goes, which only commits can say")),
                }
                continue;
            };
            match key.kind {
                ItemKind::Lineage if number == 0 && is_first => {
                    now.next = Some(LineageItem::decode(value)?.next);
                }
                ItemKind::Name if number == 0 => {
                    decode_numbers(value)?;
                }
                ItemKind::Tree if number > 0 && is_first => {
                    now.trees.insert(number, TreeItem::decode(value)?);
                }
                ItemKind::Root if number > 0 && is_first => {
                    now.roots.insert(number, RootItem::decode(value)?);
                }
                ItemKind::Walk if number == 0 => {
                    if WalkItem::decode(value)? != WalkPlace::start() {
                        return refuse(format!("the deletion of {} begins midway", key.offset));
                    }
                    now.walks.insert(key.offset);
                }
                ItemKind::Child if number > 0 && value.is_empty() => {}
                ItemKind::Hold if *key == HoldItem::key(number, &HoldItem::decode(value)?.tag) => {
                    now.holds.insert(*key, true);
                }
                _ => return refuse(format!("{key:?} cannot be there")),
            }
        }
        let behind = now.next.unwrap_or(next);
        if behind < next {
            return refuse(format!("the next number goes back from {next} to {behind}"));
        }
        self.judge_trees(inner, &mut now, &grown, next..behind)?;
        self.judge_holds(inner, &now)?;
        self.trees.append(&mut now.trees);
        self.roots.append(&mut now.roots);
        self.walks.append(&mut now.walks);
        self.holds.append(&mut now.holds);
        self.next = Some(behind);
        self.judge_named(inner, named)
    }

    /// Judges the branches that records name.
    fn judge_named(&self, inner: &Inner, named: &BTreeSet<u64>) -> Judged {
        for id in named.iter().filter(|id| **id != MAIN) {
            let is_branch = self.tree(inner, *id)?.is_some_and(|of| of.kind == TreeKind::Branch);
            if !is_branch || self.root(inner, *id)?.is_none() {
                return refuse(format!("there is no branch {id}"));
            }
        }
        Ok(())
    }

    /// Judges branches and snapshots of a batch. Those that are new have numbers of `given`.
    fn judge_trees(
        &self,
        inner: &Inner,
        now: &mut Lineage,
        grown: &BTreeMap<u64, u64>,
        given: std::ops::Range<u64>,
    ) -> Judged {
        let mut made = BTreeSet::new();
        for (id, item) in &mut now.trees {
            match self.tree(inner, *id)? {
                Some(before) => {
                    let joined = self.goes_to(inner, &before)?.unwrap_or(before.branch);
                    let branch = if item.branch == joined { joined } else { before.branch };
                    let TreeItem { name, limit, .. } = item.clone();
                    let mine = TreeItem { name, limit, branch, ..before.clone() };
                    if mine != (TreeItem { parent: before.parent, ..item.clone() }) {
                        return refuse(format!("{id} becomes another branch or snapshot"));
                    }
                    *item = mine;
                }
                None if *id == MAIN => {
                    if item.kind != TreeKind::Branch || item.parent != 0 {
                        return refuse("the first branch is not what it was made as");
                    }
                }
                None => {
                    let parent = grown.get(id).copied().unwrap_or_default();
                    if item.kind != TreeKind::Branch || !given.contains(id) {
                        return refuse(format!("{id} is no new branch"));
                    }
                    let begins = self.root_of_snapshot(inner, parent)?;
                    if begins.is_none() || now.roots.get(id).copied() != begins {
                        return refuse(format!("{id} does not begin as snapshot {parent} is"));
                    }
                    item.parent = parent;
                    made.insert(*id);
                }
            }
        }
        let stray = now.roots.keys().chain(grown.keys()).find(|id| !made.contains(id));
        if let Some(id) = stray {
            return refuse(format!("it says where {id} begins or grew, which it does not make"));
        }
        for id in &now.walks {
            let of = now
                .trees
                .get(id)
                .cloned()
                .map_or_else(|| self.tree(inner, *id), |of| Ok(Some(of)))?;
            let may_go = of.is_some_and(|of| of.kind == TreeKind::Snapshot && of.name.is_empty());
            if !may_go || self.is_walked(inner, *id)? {
                return refuse(format!("the deletion of {id} cannot begin"));
            }
        }
        for (id, item) in now.trees.iter().filter(|(_, of)| !of.name.is_empty()) {
            if item.kind == TreeKind::Snapshot
                && (now.walks.contains(id) || self.is_deleted(inner, *id, item)?)
            {
                return refuse(format!("{id} is being deleted and has a name"));
            }
        }
        Ok(())
    }

    /// Judges holds of a batch, and that nothing is held whose deletion it begins.
    fn judge_holds(&self, inner: &Inner, now: &Lineage) -> Judged {
        for (key, _) in now.holds.iter().filter(|(_, is_put)| **is_put) {
            let id = number(key)?;
            let of = self.tree(inner, id)?.filter(|of| of.kind == TreeKind::Snapshot);
            let is_there = match of.filter(|_| !now.walks.contains(&id)) {
                Some(of) => !self.is_deleted(inner, id, &of)?,
                None => false,
            };
            if !is_there {
                return refuse(format!("there is no snapshot {id} to be held"));
            }
        }
        for id in &now.walks {
            let (first, last) = HoldItem::span(*id);
            let mut held = BTreeSet::new();
            inner.scan(TreeNo::SPACE, &first, &last, &mut |key, _| {
                held.insert(key);
                ControlFlow::Continue(())
            })?;
            for (key, is_put) in self.holds.range(first..=last).chain(now.holds.range(first..=last))
            {
                match is_put {
                    true => held.insert(*key),
                    false => held.remove(key),
                };
            }
            if !held.is_empty() {
                return refuse(format!("{id} is being deleted and has holds"));
            }
        }
        Ok(())
    }

    /// A branch or snapshot before the batch.
    fn tree(&self, inner: &Inner, id: u64) -> Judged<Option<TreeItem>> {
        if let Some(item) = self.trees.get(&id) {
            return Ok(Some(item.clone()));
        }
        let bytes = inner.get(TreeNo::SPACE, &TreeItem::key(id))?;
        bytes.map(|bytes| TreeItem::decode(&bytes)).transpose().map_err(before("tree", id))
    }

    fn root(&self, inner: &Inner, id: u64) -> Judged<Option<RootItem>> {
        if let Some(item) = self.roots.get(&id) {
            return Ok(Some(*item));
        }
        let bytes = inner.get(TreeNo::SPACE, &RootItem::key(id))?;
        bytes.map(|bytes| RootItem::decode(&bytes)).transpose().map_err(before("branch", id))
    }

    /// The epoch of the snapshot that a branch has grown out of, as it is behind the batches so far; 0 if there is none.
    pub(super) fn parent_epoch(
        &self,
        inner: &Inner,
        branch: u64,
    ) -> std::result::Result<Epoch, StoreError> {
        let found = self.tree(inner, branch).and_then(|of| {
            let parent = of.map_or(0, |of| of.parent);
            let parent = if parent == 0 { None } else { self.tree(inner, parent)? };
            Ok(parent.map_or(Epoch(0), |of| of.epoch))
        });
        found.map_err(|wrong| match wrong {
            Wrong::Before(error) => error,
            Wrong::Batch(why) => StoreError::Refused(why),
        })
    }

    /// Where a branch that the log makes begins.
    pub(super) fn made(&self, id: u64) -> Option<&RootItem> {
        self.roots.get(&id)
    }

    /// Where a fork of a snapshot begins, if one can be made.
    fn root_of_snapshot(&self, inner: &Inner, id: u64) -> Judged<Option<RootItem>> {
        let Some(of) = self.tree(inner, id)?.filter(|of| of.kind == TreeKind::Snapshot) else {
            return Ok(None);
        };
        if self.is_deleted(inner, id, &of)? {
            return Ok(None);
        }
        Ok(Some(RootItem::of(of.root, of.level, of.inode_count, of.referenced_blocks)))
    }

    /// Whether a snapshot is being deleted before the batch, by itself or as its branch goes.
    fn is_deleted(&self, inner: &Inner, id: u64, of: &TreeItem) -> Judged<bool> {
        Ok(self.goes_to(inner, of)? == Some(0) || self.is_walked(inner, id)?)
    }

    /// The branch that a snapshot is of before the batch, or 0, if the one that its item says goes.
    fn goes_to(&self, inner: &Inner, of: &TreeItem) -> Judged<Option<u64>> {
        let branch = if of.branch == 0 { None } else { self.tree(inner, of.branch)? };
        Ok(branch.filter(|branch| branch.kind == TreeKind::Going).map(|branch| branch.branch))
    }

    /// Whether the deletion of a snapshot has begun before the batch.
    fn is_walked(&self, inner: &Inner, id: u64) -> Judged<bool> {
        Ok(self.walks.contains(&id) || inner.get(TreeNo::SPACE, &WalkItem::key(id))?.is_some())
    }

    /// The next number before the batch.
    fn next(&self, inner: &Inner) -> Judged<u64> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        match inner.get(TreeNo::SPACE, &LineageItem::KEY)? {
            Some(bytes) => {
                let item = LineageItem::decode(&bytes).map_err(before("the lineage", 0))?;
                Ok(item.next)
            }
            None => Ok(MAIN.saturating_add(1)),
        }
    }
}

fn before(what: &str, id: u64) -> impl FnOnce(Malformed) -> Wrong {
    let what = if id == 0 { what.to_owned() } else { format!("{what} {id}") };
    move |source| Wrong::Before(StoreError::Item { what, source })
}

/// The snapshot that each child key of a batch puts a branch beside.
fn grown_out_of(items: &Items) -> Judged<BTreeMap<u64, u64>> {
    let mut grown = BTreeMap::new();
    for (key, _) in items.iter().filter(|(key, _)| key.kind == ItemKind::Child) {
        if grown.insert(key.offset, number(key)?).is_some() {
            return refuse(format!("{} grew out of two snapshots", key.offset));
        }
    }
    Ok(grown)
}
