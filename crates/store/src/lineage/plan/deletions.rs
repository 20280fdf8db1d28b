//! Deletions of snapshots and branches: how they begin (S4, S5), and what their end leaves.

use std::collections::BTreeSet;

use holdfast_base::Timestamp;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::{OriginItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace};

use super::{Plan, PlanResult, Turn, TurnTo, refuse, shown};
use crate::error::LineageError;

impl Plan<'_> {
    pub(in crate::lineage) fn delete_snapshot(&mut self, snapshot: u64) -> PlanResult<u64> {
        let mut item = self.snapshot(snapshot)?;
        let tags: Vec<_> = self.holds(snapshot)?.iter().map(|hold| shown(&hold.tag)).collect();
        if !tags.is_empty() {
            return refuse(LineageError::Held {
                snapshot: shown(&item.name),
                tags: tags.join("`, `"),
            });
        }
        self.take_name(item.branch, &item.name, snapshot)?;
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

    /// Deletes a branch with its snapshots (S5), which `snapshots` are.
    pub(in crate::lineage) fn delete_branch(
        &mut self,
        branch: u64,
        snapshots: &[u64],
        now: Timestamp,
    ) -> PlanResult<u64> {
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
