//! Deletions of snapshots and branches: how they begin (S4), how snapshots follow their branch (S5), and what the end leaves.

use std::collections::BTreeSet;

use holdfast_base::Timestamp;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::Malformed;
use holdfast_format::item::lineage::{child_key, name_key};
use holdfast_format::item::{
    HoldItem, OriginItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};

use super::{Plan, PlanResult, Turn, TurnTo, damage, refuse, shown};
use crate::error::LineageError;

impl Plan<'_> {
    pub(in crate::lineage) fn delete_snapshot(&mut self, snapshot: u64) -> PlanResult<u64> {
        let mut item = self.snapshot(snapshot)?;
        self.expect_unheld(snapshot, &item)?;
        self.take_name(item.branch, &item.name, snapshot)?;
        item.branch = self.branch_of(&item)?;
        item.name = Vec::new();
        self.put_item(snapshot, &item);
        self.begin_walk(snapshot);
        Ok(snapshot)
    }

    /// The deletion of a snapshot that has no name begins; it goes on when no two trees have grown out of it.
    pub(in crate::lineage) fn begin_walk(&mut self, snapshot: u64) {
        self.put(WalkItem::key(snapshot), WalkItem::at(&WalkPlace::start()).bytes().to_vec());
        self.begun.push(snapshot);
    }

    /// Deletes a branch (S5). If it `has_snapshots` they have no names any more as well, and [`Plan::follow`] does with them what
    /// is left: so this costs the same however many they are. Nothing keeps one of them: [`Plan::expect_unkept`].
    pub(in crate::lineage) fn delete_branch(
        &mut self,
        branch: u64,
        has_snapshots: bool,
        now: Timestamp,
    ) -> PlanResult<u64> {
        let of = self.branch(branch)?;
        let (left, _) = self.leave_behind(branch, b"", now)?;
        self.begin_walk(left);
        self.end_branch(branch, &of.name, has_snapshots.then_some(0))?;
        Ok(left)
    }

    /// A branch is there no more. If it has snapshots they are of the branch `snapshots_to` now, or, with 0, are deleted: they follow it.
    pub(super) fn end_branch(
        &mut self,
        branch: u64,
        name: &[u8],
        snapshots_to: Option<u64>,
    ) -> PlanResult<()> {
        self.take_name(0, name, branch)?;
        self.delete(RootItem::key(branch));
        match snapshots_to {
            Some(to) => {
                self.put_item(branch, &TreeItem::going(to));
                self.put(child_key(0, branch), Vec::new());
                self.adopt(branch, 0, to);
            }
            None => self.delete(TreeItem::key(branch)),
        }
        self.turns.push(Turn { branch, to: TurnTo::Gone });
        Ok(())
    }

    /// These snapshots follow their branch, which goes: their deletions begin, or they become another one's. Those that are gone, or being
    /// deleted already, are passed over. Nothing holds one that is deleted: a branch does not go before, and a hold that is there nevertheless is
    /// damage, which ends no data.
    pub(in crate::lineage) fn follow(&mut self, branch: u64, snapshots: &[u64]) -> PlanResult<()> {
        let Some(to) = self.goes_to(branch)? else { return Ok(()) };
        let (tree, walk) = (TreeItem::key, WalkItem::key);
        let keys = |number: &u64| [tree(*number), walk(*number), HoldItem::span(*number).0];
        self.expect_loaded(snapshots.iter().flat_map(keys))?;
        let mut left = Vec::new();
        for number in snapshots {
            let item = self.tree(*number)?.filter(|item| item.kind == TreeKind::Snapshot);
            let Some(item) = item.filter(|item| item.branch == branch) else { continue };
            if self.is_walked(*number)? {
                continue;
            }
            if to == 0 && !self.holds(*number)?.is_empty() {
                let why = Malformed::new("tree", "its branch goes, and it is held");
                return Err(damage(&format!("snapshot {number}"), why));
            }
            left.push((*number, item));
        }
        let names = left.iter().flat_map(|(_, item)| [branch, to].map(|of| (of, &item.name)));
        self.expect_loaded(names.map(|(of, name)| name_key(of, name)))?;
        for (number, item) in left {
            self.take_name(branch, &item.name, number)?;
            if to == 0 {
                self.put_item(number, &TreeItem { name: Vec::new(), ..item });
                self.begin_walk(number);
                continue;
            }
            if !item.name.is_empty() {
                // Before the fork was promoted it was seen that none of the branch has it.
                self.list_name(to, &item.name, number)?;
            }
            self.put_item(number, &TreeItem { branch: to, ..item });
        }
        Ok(())
    }

    /// All snapshots have followed a branch.
    pub(in crate::lineage) fn end_going(&mut self, branch: u64) -> PlanResult<()> {
        let Some(to) = self.goes_to(branch)? else { return Ok(()) };
        self.delete(TreeItem::key(branch));
        self.delete(child_key(0, branch));
        self.adopt(branch, to, 0);
        Ok(())
    }

    /// Fails if a snapshot is held, or another branch has grown out of it, or out of what grew out of it and is being deleted:
    /// the answer is the same before such a deletion and behind it. One that is gone, or of another branch, keeps nothing.
    pub(in crate::lineage) fn expect_unkept(&self, branch: u64, snapshot: u64) -> PlanResult<()> {
        let of = self.tree(snapshot)?.filter(|of| of.kind == TreeKind::Snapshot);
        let Some(of) = of else { return Ok(()) };
        if self.branch_of(&of)? != branch || self.is_deleted(snapshot)? {
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
                        let of = self.name_of(self.branch_of(&item)?)?;
                        forks.push(format!("{of}@{}", shown(&item.name)));
                    }
                    _ => {}
                }
            }
        }
        if !forks.is_empty() {
            let forks = forks.join(", ");
            return refuse(LineageError::HasForks { snapshot: shown(&of.name), forks });
        }
        self.expect_unheld(snapshot, &of)
    }

    /// A deletion has come to its end: what grew out of the snapshot has its parent now.
    pub(in crate::lineage) fn end_walk(
        &mut self,
        snapshot: u64,
        child: Option<u64>,
    ) -> PlanResult<()> {
        let of = self.item(snapshot)?;
        self.adopt(snapshot, of.parent, 0);
        if let Some(child) = child.filter(|_| !mutants::is(Mutant::ChildKeepsParent)) {
            let mut item = self.item(child)?;
            item.parent = of.parent;
            self.put_item(child, &item);
            self.adopt(child, snapshot, of.parent);
        }
        for origin in self.between(OriginItem::span(snapshot), usize::MAX)?.into_keys() {
            self.delete(origin);
        }
        self.delete(TreeItem::key(snapshot));
        self.delete(WalkItem::key(snapshot));
        Ok(())
    }
}
