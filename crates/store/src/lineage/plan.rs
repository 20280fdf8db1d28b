//! What the items of the lineage become by one change of it: made from what they are, before anything changes.

mod new_branch;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Epoch, Lsn, Timestamp};
use holdfast_format::item::lineage::{
    LINEAGE, MAIN, MAIN_NAME, child_key, decode_numbers, judge_name, name_key,
};
use holdfast_format::item::{LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace};
use holdfast_format::limits::{COUNTER_MAX, value_max};
use holdfast_format::{ItemKind, Key, Malformed, NodePointer};

use crate::StoreError;
use crate::apply::Halt;
use crate::error::LineageError;
use crate::transaction::Changes;
use crate::tree::{Bound, Forest, Root, TreeNo};

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

    /// The branch or snapshot of this number.
    pub(super) fn item(&self, number: u64) -> PlanResult<TreeItem> {
        match self.get(&TreeItem::key(number))? {
            Some(bytes) => {
                TreeItem::decode(&bytes).map_err(|why| damage(&format!("tree {number}"), why))
            }
            None if number == MAIN => Ok(first_branch()),
            None => refuse(LineageError::NotFound(format!("number {number}"))),
        }
    }

    fn put_item(&mut self, number: u64, item: &TreeItem) {
        self.put(TreeItem::key(number), item.encode());
    }

    fn snapshot(&self, number: u64) -> PlanResult<TreeItem> {
        let item = self.item(number)?;
        let is_there = item.kind == TreeKind::Snapshot && !self.is_deleted(number)?;
        if is_there { Ok(item) } else { refuse(LineageError::NotFound(shown(&item.name))) }
    }

    fn branch(&self, number: u64) -> PlanResult<TreeItem> {
        let item = self.item(number)?;
        if item.kind == TreeKind::Branch { Ok(item) } else { refuse(LineageError::Snapshot) }
    }

    fn is_deleted(&self, number: u64) -> PlanResult<bool> {
        Ok(self.get(&WalkItem::key(number))?.is_some())
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

    /// The branch (`of` is 0) or the snapshot of a branch that has this name.
    pub(super) fn named(&self, of: u64, name: &[u8]) -> PlanResult<Option<u64>> {
        for number in self.numbers(&name_key(of, name))? {
            if self.get(&TreeItem::key(number))?.is_none() && number != MAIN {
                let why = format!("{number} has the sum of `{}`, but does not exist", shown(name));
                return Err(damage("a name", Malformed::new("names", why)));
            }
            let item = self.item(number)?;
            if item.name == name && item.branch == of {
                return Ok(Some(number));
            }
        }
        let is_main = of == 0 && name == MAIN_NAME && self.get(&TreeItem::key(MAIN))?.is_none();
        Ok(is_main.then_some(MAIN))
    }

    fn numbers(&self, key: &Key) -> PlanResult<Vec<u64>> {
        match self.get(key)? {
            Some(bytes) => decode_numbers(&bytes).map_err(|why| damage("a name", why)),
            None => Ok(Vec::new()),
        }
    }

    /// A name that none has yet leads to `number`.
    fn add_name(&mut self, of: u64, name: &[u8], number: u64) -> PlanResult<()> {
        judge_name(name).map_err(|why| Halt::Failed(LineageError::Name(why).into()))?;
        if self.named(of, name)?.is_some() {
            return refuse(LineageError::Exists(shown(name)));
        }
        let key = name_key(of, name);
        let mut numbers = self.numbers(&key)?;
        numbers.push(number);
        self.put_numbers(key, numbers)
    }

    fn take_name(&mut self, of: u64, name: &[u8], number: u64) -> PlanResult<()> {
        if name.is_empty() {
            return Ok(());
        }
        let key = name_key(of, name);
        let mut numbers = self.numbers(&key)?;
        numbers.retain(|other| *other != number);
        self.put_numbers(key, numbers)
    }

    /// Nothing keeps names from having one sum, if an attacker looks for such: then the list of their numbers may be full.
    fn put_numbers(&mut self, key: Key, mut numbers: Vec<u64>) -> PlanResult<()> {
        numbers.sort_unstable();
        numbers.dedup();
        let value: Vec<u8> = numbers.iter().flat_map(|no| no.to_le_bytes()).collect();
        if value.len() > value_max(self.forest.node_size) {
            return refuse(LineageError::Name("too many other names have the same checksum"));
        }
        match value.is_empty() {
            true => self.delete(key),
            false => self.put(key, value),
        }
        Ok(())
    }

    /// What has grown out of a snapshot: the first of them, no more than `most`.
    pub(super) fn children(&self, number: u64, most: usize) -> PlanResult<Vec<u64>> {
        let mut children = Vec::new();
        let mut at = Some(child_key(number, 0));
        let last = child_key(number, u64::MAX);
        while let Some(from) = at {
            let visit = &mut |key: Key, _: &[u8]| {
                children.push(key.offset);
                ControlFlow::Continue(())
            };
            at = self.forest.scan_leaf(TreeNo::SPACE, &from, &last, visit)?;
            if children.len() > most {
                break;
            }
        }
        let span = child_key(number, 0)..=last;
        let before = self.before.into_iter().flat_map(|before| before.range(span.clone()));
        for (key, value) in before.chain(self.changed.range(span.clone())) {
            children.retain(|child| *child != key.offset);
            if value.is_some() {
                children.push(key.offset);
            }
        }
        children.truncate(most);
        Ok(children)
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

    /// The root of the open tree of a branch, how many inodes it has, and how many blocks it refers to.
    pub(super) fn head(&self, branch: u64) -> PlanResult<(Root, u64, u64)> {
        if let Some(no) = self.forest.trees.find(branch) {
            let of = self.forest.trees.get(no);
            let inodes = if no == TreeNo::MAIN { self.main_inodes } else { of.inodes };
            return Ok((of.root, inodes, of.referenced));
        }
        let Some(bytes) = self.get(&RootItem::key(branch))? else {
            return Err(damage("a branch", Malformed::new(RootItem::TITLE, "it has no root")));
        };
        let item = RootItem::decode(&bytes).map_err(|why| damage("a branch", why))?;
        let root = Root { pointer: item.pointer(), level: item.level };
        Ok((root, item.inode_count, item.referenced_blocks))
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
            ..first_branch()
        };
        self.put_item(number, &branch);
        let root = RootItem::of(of.root, of.level, of.inode_count, of.referenced_blocks);
        self.put(RootItem::key(number), root.bytes().to_vec());
        self.adopt(number, 0, snapshot);
        Ok(number)
    }

    pub(super) fn rename(&mut self, number: u64, name: &[u8]) -> PlanResult<u64> {
        let mut item = self.item(number)?;
        if self.is_deleted(number)? {
            return refuse(LineageError::NotFound(shown(&item.name)));
        }
        if item.name == name {
            return Ok(number);
        }
        self.add_name(item.branch, name, number)?;
        self.take_name(item.branch, &item.name, number)?;
        item.name = name.to_vec();
        self.put_item(number, &item);
        Ok(number)
    }

    pub(super) fn hold(&mut self, snapshot: u64, held: bool) -> PlanResult<u64> {
        let mut item = self.snapshot(snapshot)?;
        let holds = item.holds;
        item.holds = if held { holds.saturating_add(1) } else { holds.saturating_sub(1) };
        self.put_item(snapshot, &item);
        Ok(snapshot)
    }

    pub(super) fn limit(&mut self, branch: u64, blocks: u64) -> PlanResult<u64> {
        let mut item = self.branch(branch)?;
        item.limit = blocks;
        self.put_branch(branch, &item)?;
        Ok(branch)
    }

    pub(super) fn delete_snapshot(&mut self, snapshot: u64) -> PlanResult<u64> {
        let mut item = self.snapshot(snapshot)?;
        if item.holds > 0 {
            return refuse(LineageError::Held(shown(&item.name)));
        }
        self.take_name(item.branch, &item.name, snapshot)?;
        item.name = Vec::new();
        self.put_item(snapshot, &item);
        self.begin_walk(snapshot);
        Ok(snapshot)
    }

    /// The deletion of a snapshot that has no name begins; it goes on when no two trees have grown out of it.
    pub(super) fn begin_walk(&mut self, snapshot: u64) {
        self.put(WalkItem::key(snapshot), WalkItem::at(&WalkPlace::start()).bytes().to_vec());
        self.begun.push(snapshot);
    }

    /// The present tree of a branch becomes a snapshot out of which nothing has grown (S2).
    fn leave_behind(
        &mut self,
        branch: u64,
        name: &[u8],
        now: Timestamp,
    ) -> PlanResult<(u64, Epoch)> {
        let of = self.branch(branch)?;
        let (root, inode_count, referenced_blocks) = self.head(branch)?;
        let number = self.next_number()?;
        if !name.is_empty() {
            self.add_name(branch, name, number)?;
        }
        // What changed in this epoch is sealed with it; otherwise nothing in the tree is as young as this epoch.
        let has_changed = root.pointer.epoch == self.forest.epoch;
        self.seals |= has_changed && !mutants::is(Mutant::EpochNotEnded);
        let present = self.forest.epoch;
        let epoch = if has_changed { present } else { Epoch(present.0.saturating_sub(1)) };
        let snapshot = TreeItem {
            kind: TreeKind::Snapshot,
            parent: of.parent,
            branch,
            epoch,
            lsn: self.lsn,
            created: now,
            holds: 0,
            root: root.pointer,
            level: root.level,
            inode_count,
            referenced_blocks,
            limit: 0,
            name: name.to_vec(),
        };
        self.put_item(number, &snapshot);
        self.adopt(branch, of.parent, 0);
        self.adopt(number, 0, of.parent);
        Ok((number, epoch))
    }

    /// Takes a snapshot of a branch; with an empty name one that has none.
    pub(super) fn take(&mut self, branch: u64, name: &[u8], now: Timestamp) -> PlanResult<u64> {
        let (number, epoch) = self.leave_behind(branch, name, now)?;
        let mut of = self.branch(branch)?;
        of.parent = number;
        if of.name.is_empty() {
            of.name = MAIN_NAME.to_vec();
        }
        self.put_branch(branch, &of)?;
        self.adopt(branch, 0, number);
        self.turns.push(Turn { branch, to: TurnTo::Child { snapshot: number, epoch } });
        Ok(number)
    }

    /// Writes the item of a branch. The first one gets its item, and the name in it, with the first snapshot.
    fn put_branch(&mut self, branch: u64, item: &TreeItem) -> PlanResult<()> {
        if self.get(&TreeItem::key(branch))?.is_none() {
            let key = name_key(0, &item.name);
            let mut numbers = self.numbers(&key)?;
            numbers.push(branch);
            self.put_numbers(key, numbers)?;
        }
        self.put_item(branch, item);
        Ok(())
    }

    /// A branch goes back to a snapshot (S6). What it was gets a name, or is deleted.
    pub(super) fn roll_back(
        &mut self,
        branch: u64,
        to: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> PlanResult<u64> {
        self.snapshot(to)?;
        self.turn_to(branch, to, kept_as, now)
    }

    /// The head of a branch becomes that of a snapshot; what it was gets a name, or is deleted.
    fn turn_to(
        &mut self,
        branch: u64,
        to: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> PlanResult<u64> {
        let target = self.item(to)?;
        let (left, _) = self.leave_behind(branch, kept_as.unwrap_or_default(), now)?;
        if kept_as.is_none() {
            self.begin_walk(left);
        }
        let mut of = self.branch(branch)?;
        of.parent = to;
        self.put_branch(branch, &of)?;
        self.adopt(branch, 0, to);
        if branch != MAIN {
            let (inodes, referenced) = (target.inode_count, target.referenced_blocks);
            let root = RootItem::of(target.root, target.level, inodes, referenced);
            self.put(RootItem::key(branch), root.bytes().to_vec());
        }
        let root = Root { pointer: target.root, level: target.level };
        let to = TurnTo::Rolled {
            snapshot: to,
            epoch: target.epoch,
            root,
            inodes: target.inode_count,
            referenced: target.referenced_blocks,
        };
        self.turns.push(Turn { branch, to });
        Ok(left)
    }

    /// A fork is promoted: a branch becomes what it is, and it is no branch any more. What the branch was gets a name, or is
    /// deleted. The fork's snapshots, which `snapshots` are, become those of the branch.
    pub(super) fn promote(
        &mut self,
        branch: u64,
        fork: u64,
        snapshots: &[u64],
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> PlanResult<u64> {
        if fork == MAIN {
            return refuse(LineageError::First);
        }
        let of_fork = self.branch(fork)?;
        if fork == branch {
            return refuse(LineageError::Exists(shown(&of_fork.name)));
        }
        for snapshot in snapshots {
            self.give_snapshot(*snapshot, branch)?;
        }
        let (head, _) = self.leave_behind(fork, b"", now)?;
        self.give_snapshot(head, branch)?;
        let left = self.turn_to(branch, head, kept_as, now)?;
        // The branch is all that has grown out of it.
        self.begin_walk(head);
        self.take_name(0, &of_fork.name, fork)?;
        self.delete(TreeItem::key(fork));
        self.delete(RootItem::key(fork));
        self.turns.push(Turn { branch: fork, to: TurnTo::Gone });
        Ok(left)
    }

    /// From now on it is a snapshot of another branch.
    fn give_snapshot(&mut self, snapshot: u64, branch: u64) -> PlanResult<()> {
        let mut item = self.item(snapshot)?;
        if !item.name.is_empty() {
            self.add_name(branch, &item.name, snapshot)?;
            self.take_name(item.branch, &item.name, snapshot)?;
        }
        item.branch = branch;
        self.put_item(snapshot, &item);
        Ok(())
    }

    /// Deletes a branch with its snapshots (S5), which `snapshots` are.
    pub(super) fn delete_branch(
        &mut self,
        branch: u64,
        snapshots: &[u64],
        now: Timestamp,
    ) -> PlanResult<u64> {
        if branch == MAIN {
            return refuse(LineageError::First);
        }
        for snapshot in snapshots {
            self.refuse_forks(branch, *snapshot)?;
        }
        let of = self.branch(branch)?;
        let (left, _) = self.leave_behind(branch, b"", now)?;
        self.begin_walk(left);
        for snapshot in snapshots {
            if !self.is_deleted(*snapshot)? {
                self.delete_snapshot(*snapshot)?;
            }
        }
        self.take_name(0, &of.name, branch)?;
        self.delete(TreeItem::key(branch));
        self.delete(RootItem::key(branch));
        self.turns.push(Turn { branch, to: TurnTo::Gone });
        Ok(left)
    }

    /// Fails if another branch has grown out of a snapshot of this one, or out of what grew out of it and is being deleted:
    /// the answer is the same before such a deletion and behind it.
    fn refuse_forks(&self, branch: u64, snapshot: u64) -> PlanResult<()> {
        if self.is_deleted(snapshot)? {
            return Ok(());
        }
        let mut forks = Vec::new();
        let mut parents = vec![snapshot];
        // On a damaged volume what has grown out of one another may go round.
        let mut seen = BTreeSet::new();
        while let Some(parent) = parents.pop() {
            if !seen.insert(parent) {
                continue;
            }
            for child in self.children(parent, usize::MAX)? {
                let item = self.item(child)?;
                match item.kind {
                    TreeKind::Branch if child != branch => forks.push(shown(&item.name)),
                    TreeKind::Snapshot if self.is_deleted(child)? => parents.push(child),
                    TreeKind::Snapshot if item.branch != branch => {
                        let of = self.name_of(item.branch)?;
                        forks.push(format!("{of}@{}", shown(&item.name)));
                    }
                    _ => {}
                }
            }
        }
        if forks.is_empty() {
            return Ok(());
        }
        let snapshot = shown(&self.item(snapshot)?.name);
        refuse(LineageError::HasForks { snapshot, forks: forks.join(", ") })
    }

    fn name_of(&self, number: u64) -> PlanResult<String> {
        match self.get(&TreeItem::key(number))? {
            Some(_) => Ok(shown(&self.item(number)?.name)),
            None => Ok(format!("number {number}")),
        }
    }

    /// A deletion has come to its end: what grew out of the snapshot has its parent now.
    pub(super) fn end_walk(&mut self, snapshot: u64, child: Option<u64>) -> PlanResult<()> {
        let of = self.item(snapshot)?;
        self.adopt(snapshot, of.parent, 0);
        if let Some(child) = child.filter(|_| !mutants::is(Mutant::ChildKeepsParent)) {
            let mut item = self.item(child)?;
            item.parent = of.parent;
            self.put_item(child, &item);
            self.adopt(child, snapshot, of.parent);
        }
        self.delete(TreeItem::key(snapshot));
        self.delete(WalkItem::key(snapshot));
        Ok(())
    }
}

/// The branch that mkfs makes, as long as it has no item.
pub(super) fn first_branch() -> TreeItem {
    TreeItem {
        kind: TreeKind::Branch,
        parent: 0,
        branch: 0,
        epoch: Epoch(0),
        lsn: Lsn(0),
        created: Timestamp::default(),
        holds: 0,
        root: NodePointer { block: holdfast_base::BlockNo(0), epoch: Epoch(0) },
        level: 0,
        inode_count: 0,
        referenced_blocks: 0,
        limit: 0,
        name: MAIN_NAME.to_vec(),
    }
}

/// The first and the last key of all branches and snapshots.
pub(super) fn trees_span() -> (Key, Key) {
    let first = Key::new(holdfast_base::InodeNo(LINEAGE + 1), ItemKind::Inode, 0);
    (first, Key::MAX)
}
