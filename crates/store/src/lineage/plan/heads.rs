//! The head of a branch: it becomes a snapshot, and the branch goes on from there, from another snapshot (S6), or from what a
//! fork was (S6a).

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Epoch, Timestamp};
use holdfast_format::Malformed;
use holdfast_format::item::lineage::{MAIN, MAIN_NAME, name_key};
use holdfast_format::item::{OriginItem, RootItem, TreeItem, TreeKind};

use super::{Plan, PlanResult, Turn, TurnTo, damage, refuse, shown};
use crate::error::LineageError;
use crate::tree::{Root, TreeNo};

impl Plan<'_> {
    /// The root of the open tree of a branch, how many inodes it has, and how many blocks it refers to.
    pub(in crate::lineage) fn head(&self, branch: u64) -> PlanResult<(Root, u64, u64)> {
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

    /// The present tree of a branch becomes a snapshot out of which nothing has grown (S2).
    pub(super) fn leave_behind(
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
            root: root.pointer,
            level: root.level,
            inode_count,
            referenced_blocks,
            limit: 0,
            name: name.to_vec(),
            tail: Vec::new(),
        };
        self.put_item(number, &snapshot);
        self.adopt(branch, of.parent, 0);
        self.adopt(number, 0, of.parent);
        Ok((number, epoch))
    }

    /// Takes a snapshot of a branch; with an empty name one that has none.
    pub(in crate::lineage) fn take(
        &mut self,
        branch: u64,
        name: &[u8],
        now: Timestamp,
    ) -> PlanResult<u64> {
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

    /// As [`Plan::take`], of what is a copy of snapshots of other volumes.
    pub(in crate::lineage) fn take_copy(
        &mut self,
        branch: u64,
        name: &[u8],
        of: &[OriginItem],
        now: Timestamp,
    ) -> PlanResult<u64> {
        let number = self.take(branch, name, now)?;
        for (index, of) in (0..).zip(of.iter().take(OriginItem::MOST)) {
            let bytes = of.bytes();
            OriginItem::decode(&bytes).map_err(|why| damage("an origin", why))?;
            self.put(OriginItem::key(number, index), bytes.to_vec());
        }
        Ok(number)
    }

    /// Writes the item of a branch. The first one gets its item, and the name in it, with the first snapshot.
    pub(super) fn put_branch(&mut self, branch: u64, item: &TreeItem) -> PlanResult<()> {
        if self.get(&TreeItem::key(branch))?.is_none() {
            self.list_name(0, &item.name, branch)?;
        }
        self.put_item(branch, item);
        Ok(())
    }

    /// A branch goes back to a snapshot (S6). What it was gets a name, or is deleted.
    pub(in crate::lineage) fn roll_back(
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

    /// Fails if a branch cannot become what a fork is.
    pub(in crate::lineage) fn expect_fork(&self, branch: u64, fork: u64) -> PlanResult<()> {
        if fork == MAIN {
            return refuse(LineageError::First);
        }
        let of_fork = self.branch(fork)?;
        if fork == branch {
            return refuse(LineageError::Exists(shown(&of_fork.name)));
        }
        self.branch(branch).map(drop)
    }

    /// Fails if one of these snapshots, of a branch or of a fork, has the name of one of the other's, or its sum.
    pub(in crate::lineage) fn expect_apart(
        &self,
        branch: u64,
        fork: u64,
        snapshots: &[u64],
    ) -> PlanResult<()> {
        self.expect_loaded(snapshots.iter().map(|number| TreeItem::key(*number)))?;
        let mut names = Vec::new();
        for number in snapshots {
            let Some(item) = self.tree(*number)?.filter(|item| !item.name.is_empty()) else {
                continue;
            };
            let other = [(branch, fork), (fork, branch)].into_iter();
            let other = other.filter(|(of, _)| *of == item.branch).map(|(_, other)| other);
            names.extend(other.map(|other| (other, item.name.clone())));
        }
        self.expect_loaded(names.iter().map(|(other, name)| name_key(*other, name)))?;
        for (other, name) in names {
            self.expect_free(other, &name)?;
        }
        Ok(())
    }

    /// A fork is promoted: a branch becomes what it is, and it is no branch any more. What the branch was gets a name, or is
    /// deleted. If the fork has snapshots they are the branch's, and [`Plan::follow`] does with their items what is left: so this costs the same
    /// however many they are. None has the name of one of the branch: [`Plan::expect_apart`].
    pub(in crate::lineage) fn promote(
        &mut self,
        branch: u64,
        fork: u64,
        has_snapshots: bool,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> PlanResult<u64> {
        self.expect_fork(branch, fork)?;
        let of_fork = self.branch(fork)?;
        let (head, _) = self.leave_behind(fork, b"", now)?;
        // The branch is all that has grown out of it.
        self.begin_walk(head);
        let item = self.item(head)?;
        self.put_item(head, &TreeItem { branch, ..item });
        // First its snapshots: none of their names is for what the branch was.
        self.end_branch(fork, &of_fork.name, has_snapshots.then_some(branch))?;
        self.turn_to(branch, head, kept_as, now)
    }
}
