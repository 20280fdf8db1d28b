//! What the items of the lineage become by one change of it: made from what they are, before anything changes.
//!
//! Here is the plan itself, and what changes one item. Names are in `names.rs`, holds in `holds.rs`, heads that become snapshots or move in
//! `heads.rs`, what begins and ends deletions in `deletions.rs`.

mod deletions;
mod heads;
mod holds;
mod names;
mod new_branch;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{Epoch, Lsn, Timestamp};
use holdfast_format::item::lineage::{LINEAGE, MAIN, child_key};
use holdfast_format::item::{LineageItem, RootItem, TreeItem, TreeKind, WalkItem};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::{ItemKind, Key, Malformed};

use crate::StoreError;
use crate::apply::Halt;
use crate::error::LineageError;
use crate::transaction::Changes;
use crate::tree::{Bound, Forest, MissingSet, Root, TreeNo};

/// What holds the next number.
const LINEAGE_ITEM: &str = "the item of the lineage";

/// The result of planning: a node may be missing.
pub(super) type PlanResult<T> = std::result::Result<T, Halt>;

/// A change of the lineage that has come to no tree yet.
pub(crate) struct Planned {
    /// Of the items.
    pub(crate) changes: Changes,
    /// The branch or snapshot that it made, or is about.
    pub(super) number: u64,
    /// What the open tree of a branch becomes, with the commit.
    pub(super) turns: Vec<Turn>,
    /// Snapshots whose deletion begins.
    pub(super) begun: Vec<u64>,
    /// The epoch ends with it.
    pub(crate) seals: bool,
}

/// What becomes of the open tree of a branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) branch: u64,
    pub(super) to: TurnTo,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TurnTo {
    /// It has grown out of a snapshot that was just taken.
    Child {
        snapshot: u64,
        epoch: Epoch,
    },
    /// It is a snapshot's tree, and has grown out of that.
    Rolled {
        snapshot: u64,
        epoch: Epoch,
        root: Root,
        inodes: u64,
        referenced: u64,
    },
    Gone,
}

/// Values of items; `None`: there is none.
pub(super) type Items = BTreeMap<Key, Option<Vec<u8>>>;

/// The lineage as a change sees it, with what the change has done so far.
pub(super) struct Plan<'a> {
    forest: &'a Forest,
    lsn: Lsn,
    /// Inodes in `main`.
    main_inodes: u64,
    /// Items as they were before this change was tried first.
    before: Option<&'a Items>,
    changed: Items,
    turns: Vec<Turn>,
    begun: Vec<u64>,
    seals: bool,
}

fn damage(what: &str, source: Malformed) -> Halt {
    Halt::Failed(StoreError::Item { what: what.into(), source })
}

fn refuse<T>(why: LineageError) -> PlanResult<T> {
    Err(Halt::Failed(why.into()))
}

/// A name as people read it.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

impl<'a> Plan<'a> {
    pub(super) fn new(forest: &'a Forest, lsn: Lsn, main_inodes: u64) -> Plan<'a> {
        let changed = BTreeMap::new();
        let (turns, begun) = (Vec::new(), Vec::new());
        Plan { forest, lsn, main_inodes, before: None, changed, turns, begun, seals: false }
    }

    /// The same change once more: `before` is what the items were that it has changed.
    pub(super) fn again(self, before: &'a Items) -> Plan<'a> {
        Plan { before: Some(before), ..self }
    }

    pub(super) fn done(self, number: u64) -> Planned {
        let mut changes = Changes::default();
        for (key, value) in &self.changed {
            match value {
                Some(value) => changes.put(*key, value),
                None => changes.delete(*key),
            }
        }
        Planned { changes, number, turns: self.turns, begun: self.begun, seals: self.seals }
    }

    fn get(&self, key: &Key) -> PlanResult<Option<Vec<u8>>> {
        if let Some(changed) = self.changed.get(key) {
            return Ok(changed.clone());
        }
        if let Some(before) = self.before.and_then(|before| before.get(key)) {
            return Ok(before.clone());
        }
        Ok(self.forest.get(TreeNo::SPACE, key)?.map(<[u8]>::to_vec))
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changed.insert(key, Some(value));
    }

    fn delete(&mut self, key: Key) {
        self.changed.insert(key, None);
    }

    /// The item of a number, if it has one.
    fn tree(&self, number: u64) -> PlanResult<Option<TreeItem>> {
        let Some(bytes) = self.get(&TreeItem::key(number))? else { return Ok(None) };
        let item = TreeItem::decode(&bytes)
            .and_then(|item| item.check_carried(self.forest.volume.carried).map(|()| item));
        item.map(Some).map_err(|why| damage(&format!("tree {number}"), why))
    }

    /// The branch or snapshot of this number, as its item says.
    pub(super) fn item(&self, number: u64) -> PlanResult<TreeItem> {
        match self.tree(number)? {
            Some(item) if item.kind != TreeKind::Going => Ok(item),
            None if number == MAIN => Ok(TreeItem::first()),
            _ => refuse(LineageError::Gone(format!("number {number}"))),
        }
    }

    /// The same, as it is seen: what is deleted has no name, and what has joined another branch is of that.
    pub(super) fn seen(&self, number: u64) -> PlanResult<TreeItem> {
        let mut item = self.item(number)?;
        if item.kind == TreeKind::Snapshot {
            if self.goes(item.branch)? {
                item.name.clear();
            }
            item.branch = self.branch_of(&item)?;
        }
        Ok(item)
    }

    fn put_item(&mut self, number: u64, item: &TreeItem) {
        self.put(TreeItem::key(number), item.encode());
    }

    fn snapshot(&self, number: u64) -> PlanResult<TreeItem> {
        let item = self.item(number)?;
        let is_there = item.kind == TreeKind::Snapshot && !self.is_deleted(number)?;
        if is_there { Ok(item) } else { refuse(LineageError::NoSnapshot(shown(&item.name))) }
    }

    fn branch(&self, number: u64) -> PlanResult<TreeItem> {
        let item = self.item(number)?;
        if item.kind == TreeKind::Branch { Ok(item) } else { refuse(LineageError::Snapshot) }
    }

    /// Whether a snapshot is being deleted: its own deletion has begun, or its branch goes.
    pub(super) fn is_deleted(&self, number: u64) -> PlanResult<bool> {
        let item = self.item(number)?;
        let goes = item.kind == TreeKind::Snapshot && self.goes(item.branch)?;
        Ok(goes || self.is_walked(number)?)
    }

    fn is_walked(&self, number: u64) -> PlanResult<bool> {
        Ok(self.get(&WalkItem::key(number))?.is_some())
    }

    /// Whether a branch is gone, and its snapshots are deleted.
    fn goes(&self, branch: u64) -> PlanResult<bool> {
        Ok(self.goes_to(branch)? == Some(0))
    }

    /// Of a branch that goes: the one that its snapshots are of now, or 0.
    pub(super) fn goes_to(&self, branch: u64) -> PlanResult<Option<u64>> {
        let of = self.tree(branch)?.filter(|of| of.kind == TreeKind::Going);
        Ok(of.map(|of| of.branch))
    }

    /// The branch that a snapshot is of, whatever its item says still.
    fn branch_of(&self, snapshot: &TreeItem) -> PlanResult<u64> {
        let joined = self.goes_to(snapshot.branch)?.filter(|to| *to != 0);
        Ok(joined.unwrap_or(snapshot.branch))
    }

    /// Says all at once that is missing of what these keys lead to.
    fn expect_loaded(&self, keys: impl Iterator<Item = Key>) -> PlanResult<()> {
        let mut missing = MissingSet::default();
        for key in keys {
            let looked = self.forest.get(TreeNo::SPACE, &key);
            if looked.is_err_and(|one| !missing.add(one)) {
                break;
            }
        }
        Ok(missing.none()?)
    }

    /// A number that nothing had before.
    fn next_number(&mut self) -> PlanResult<u64> {
        let item = match self.get(&LineageItem::KEY)? {
            Some(bytes) => LineageItem::decode(&bytes).map_err(|why| damage(LINEAGE_ITEM, why))?,
            None => LineageItem { next: MAIN + 1, reserved: [0; 8] },
        };
        let wrong =
            |why: String| Err(damage(LINEAGE_ITEM, Malformed::new(LineageItem::TITLE, why)));
        // No volume counts so far, and what is written has to be valid.
        if item.next > COUNTER_MAX / 2 {
            return wrong(format!("it has counted to {}", item.next));
        }
        if let Some(last) = self.last_number()?.filter(|last| *last >= item.next) {
            return wrong(format!("the next number is {}, but {last} is in use", item.next));
        }
        let next = LineageItem { next: item.next.saturating_add(1), ..item };
        self.put(LineageItem::KEY, next.bytes().to_vec());
        Ok(item.next)
    }

    /// The largest number that an item has which was there before this change.
    fn last_number(&self) -> PlanResult<Option<u64>> {
        let (first, last) = trees_span();
        let mut found = None;
        let mut at = Some(Bound::Included(last));
        while let Some(to) = at.filter(|_| found.is_none()) {
            let next = self.forest.scan_leaf_back(TreeNo::SPACE, &first, &to, &mut |key, _| {
                // This change has put it when it was tried before.
                if self.before.is_some_and(|before| before.get(&key) == Some(&None)) {
                    return ControlFlow::Continue(());
                }
                found = key.inode.0.checked_sub(LINEAGE);
                ControlFlow::Break(())
            })?;
            at = next.map(Bound::Excluded);
        }
        Ok(found)
    }

    /// What has grown out of a snapshot, or, of 0, the branches that go: the first of them, no more than `most`.
    pub(super) fn children(&self, number: u64, most: usize) -> PlanResult<Vec<u64>> {
        let found = self.between((child_key(number, 0), child_key(number, u64::MAX)), most)?;
        Ok(found.keys().map(|key| key.offset).take(most).collect())
    }

    /// The items from one key to another, both included; of more than `most` some.
    fn between(&self, span: (Key, Key), most: usize) -> PlanResult<BTreeMap<Key, Vec<u8>>> {
        let mut found = BTreeMap::new();
        let (mut at, last) = (Some(span.0), span.1);
        while let Some(from) = at.filter(|_| found.len() <= most) {
            let visit = &mut |key: Key, value: &[u8]| {
                found.insert(key, value.to_vec());
                ControlFlow::Continue(())
            };
            at = self.forest.scan_leaf(TreeNo::SPACE, &from, &last, visit)?;
        }
        let before = self.before.into_iter().flat_map(|before| before.range(span.0..=last));
        for (key, value) in before.chain(self.changed.range(span.0..=last)) {
            match value {
                Some(value) => found.insert(*key, value.clone()),
                None => found.remove(key),
            };
        }
        Ok(found)
    }

    /// From now on `child` has grown out of another snapshot.
    fn adopt(&mut self, child: u64, from: u64, to: u64) {
        if from != 0 {
            self.delete(child_key(from, child));
        }
        if to != 0 {
            self.put(child_key(to, child), Vec::new());
        }
    }

    pub(super) fn fork(&mut self, snapshot: u64, name: &[u8], now: Timestamp) -> PlanResult<u64> {
        let of = self.snapshot(snapshot)?;
        let number = self.next_number()?;
        self.add_name(0, name, number)?;
        let branch = TreeItem {
            kind: TreeKind::Branch,
            parent: snapshot,
            lsn: self.lsn,
            created: now,
            name: name.to_vec(),
            ..TreeItem::first()
        };
        self.put_item(number, &branch);
        let root = RootItem::of(of.root, of.level, of.inode_count, of.referenced_blocks);
        self.put(RootItem::key(number), root.bytes().to_vec());
        self.adopt(number, 0, snapshot);
        Ok(number)
    }

    pub(super) fn limit(&mut self, branch: u64, blocks: u64) -> PlanResult<u64> {
        let mut item = self.branch(branch)?;
        item.limit = blocks;
        self.put_branch(branch, &item)?;
        Ok(branch)
    }
}

/// The first and the last key of all branches and snapshots.
pub(super) fn trees_span() -> (Key, Key) {
    let first = Key::new(holdfast_base::InodeNo(LINEAGE + 1), ItemKind::Inode, 0);
    (first, Key::MAX)
}
