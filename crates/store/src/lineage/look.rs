//! Looking at the lineage, and opening what it names.

use std::sync::atomic::Ordering;

use holdfast_base::{Epoch, Lsn};
use holdfast_format::Malformed;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::item::{HoldItem, OriginItem, RootItem, TreeItem, TreeKind, WalkItem};

use super::plan::{Plan, PlanResult, Planned};
use crate::apply::Halt;
use crate::error::LineageError;
use crate::tree::open::{Ancestry, OpenTree, Walked};
use crate::tree::{Forest, OpenHandle, Root, TreeNo};
use crate::{Inner, Result, StoreError};

/// A branch or snapshot.
#[derive(Clone, Debug)]
pub struct TreeInfo {
    /// Its number, which nothing else of the volume ever has.
    pub number: u64,
    /// What is known of it.
    pub item: TreeItem,
    /// It is being deleted: it has no name any more.
    pub is_deleted: bool,
    /// Blocks that it refers to: those of its nodes, and those that its extents have on the device. What it shares with
    /// others counts in full. Of what is being deleted: what it was.
    pub referenced_blocks: u64,
    /// Inodes in it.
    pub inodes: u64,
    /// Of a snapshot: while it has any, it is not deleted.
    pub holds: Vec<HoldItem>,
    /// Of a snapshot that was received: what it is a copy of, the one that was sent first.
    pub origins: Vec<OriginItem>,
}

impl TreeInfo {
    /// As its item says it, which of a branch knows nothing of its head.
    pub(super) fn at_rest(number: u64, item: TreeItem) -> TreeInfo {
        let (inodes, referenced_blocks) = (item.inode_count, item.referenced_blocks);
        let (holds, origins) = (Vec::new(), Vec::new());
        TreeInfo { number, item, is_deleted: false, referenced_blocks, inodes, holds, origins }
    }
}

impl Inner {
    /// Runs `look` over the lineage until it misses no node.
    pub(super) fn look_at<R>(
        &self,
        mut look: impl FnMut(&mut Plan<'_>) -> PlanResult<R>,
    ) -> Result<(R, Planned)> {
        let mut loading = self.loading_some();
        loop {
            let missing = {
                let forest = self.forest.read();
                let inodes = self.space.lock().inodes;
                let lsn = Lsn(self.lsn.load(Ordering::Acquire));
                let mut plan = Plan::new(&forest, lsn, inodes);
                match look(&mut plan) {
                    Ok(done) => return Ok((done, plan.done(0))),
                    Err(Halt::Failed(error)) => return Err(error),
                    Err(Halt::Missing(missing)) => missing,
                }
            };
            loading.load(missing)?;
        }
    }

    /// What `plan` makes of the lineage, for the log.
    pub(super) fn plan(
        &self,
        plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> Result<Planned> {
        let (number, planned) = self.look_at(plan)?;
        Ok(Planned { number, ..planned })
    }

    /// The branch (`of` is 0) or the snapshot of a branch that has this name.
    pub(crate) fn find_tree(&self, of: u64, name: &[u8]) -> Result<u64> {
        let found = match self.look_at(|plan| plan.named(of, name)) {
            Err(_) if of == 0 && name == TreeItem::first().name && self.has_main_alone() => {
                Some(MAIN)
            }
            looked => looked?.0,
        };
        found.ok_or_else(|| {
            let name = super::plan::shown(name);
            let missing = if of == 0 { LineageError::NoBranch } else { LineageError::NoSnapshot };
            missing(name).into()
        })
    }

    /// Whether the space tree does not read, of a volume that is open to be read: `main` is there, as the superblock has its root.
    pub(super) fn has_main_alone(&self) -> bool {
        self.read_only && self.space.lock().is_unknown()
    }

    /// What is known of a branch or snapshot.
    pub(crate) fn tree_item(&self, number: u64) -> Result<TreeItem> {
        match self.look_at(|plan| plan.seen(number)) {
            Err(_) if number == MAIN && self.has_main_alone() => Ok(TreeItem::first()),
            looked => Ok(looked?.0),
        }
    }

    /// Whether a snapshot is being deleted.
    pub(crate) fn is_deleted(&self, number: u64) -> Result<bool> {
        Ok(self.look_at(|plan| plan.is_deleted(number))?.0)
    }

    /// A branch or snapshot that is not being deleted.
    pub(crate) fn tree_info(&self, number: u64) -> Result<TreeInfo> {
        let look = |plan: &mut Plan<'_>| {
            let item = plan.seen(number)?;
            let (inodes, referenced_blocks) = match item.kind {
                TreeKind::Snapshot => (item.inode_count, item.referenced_blocks),
                TreeKind::Branch | TreeKind::Going => {
                    let (_, inodes, referenced_blocks) = plan.head(number)?;
                    (inodes, referenced_blocks)
                }
            };
            let (holds, origins) = (plan.holds(number)?, plan.origins(number)?);
            let is_deleted = false;
            Ok(TreeInfo { number, item, is_deleted, referenced_blocks, inodes, holds, origins })
        };
        match self.look_at(look) {
            Err(_) if number == MAIN && self.has_main_alone() => Ok(main_alone()),
            looked => Ok(looked?.0),
        }
    }

    /// What a tree owns that has grown out of this snapshot.
    pub(super) fn ancestry_of(&self, snapshot: u64) -> Result<Ancestry> {
        if snapshot == 0 {
            return Ok(Ancestry::default());
        }
        let item = self.tree_item(snapshot)?;
        if item.kind != TreeKind::Snapshot {
            return Err(not_a_snapshot(snapshot));
        }
        let walk = match self.get(TreeNo::SPACE, &WalkItem::key(snapshot))? {
            None => None,
            Some(bytes) => {
                let cursor = WalkItem::decode(&bytes).map_err(|source| StoreError::Item {
                    what: format!("the deletion of snapshot {snapshot}"),
                    source,
                })?;
                Some(Walked { above: self.epoch_of(item.parent)?, cursor })
            }
        };
        Ok(Ancestry { snapshot, parent: item.epoch, walk })
    }

    /// The epoch of a snapshot; 0 if there is none.
    pub(super) fn epoch_of(&self, snapshot: u64) -> Result<Epoch> {
        match snapshot {
            0 => Ok(Epoch(0)),
            number => Ok(self.tree_item(number)?.epoch),
        }
    }

    /// Opens the tree of a branch or snapshot, for as long as the handle is kept. The caller holds the lineage's lock, or is
    /// alone.
    pub(crate) fn open_tree(&self, number: u64) -> Result<OpenHandle> {
        if let Some(open) = self.held_if_open(number) {
            return Ok(open);
        }
        if self.forest.read().trees.are_many() {
            self.close_trees();
        }
        let item = self.tree_item(number)?;
        let (root, inodes, referenced) = match item.kind {
            TreeKind::Snapshot => {
                let root = Root { pointer: item.root, level: item.level };
                (root, item.inode_count, item.referenced_blocks)
            }
            TreeKind::Branch | TreeKind::Going => {
                let of_root =
                    |source| StoreError::Item { what: format!("branch {number}"), source };
                let bytes = self.get(TreeNo::SPACE, &RootItem::key(number))?;
                let bytes =
                    bytes.ok_or_else(|| of_root(Malformed::new("root", "there is none")))?;
                let item = RootItem::decode(&bytes).map_err(of_root)?;
                let root = Root { pointer: item.pointer(), level: item.level };
                (root, item.inode_count, item.referenced_blocks)
            }
        };
        let is_snapshot = item.kind == TreeKind::Snapshot;
        let ancestry = match is_snapshot {
            true => Ancestry::default(),
            false => self.or_owns_nothing(number, self.ancestry_of(item.parent))?,
        };
        let mut forest = self.forest.write();
        is_older(root, &forest, number)?;
        Ok(forest.open(OpenTree {
            ancestry,
            judged_from: ancestry.parent,
            inodes,
            inodes_carried: inodes,
            referenced,
            referenced_carried: referenced,
            limit: item.limit,
            ..OpenTree::at(number, root)
        }))
    }

    fn held_if_open(&self, number: u64) -> Option<OpenHandle> {
        let forest = self.forest.read();
        forest.trees.find(number).map(|no| forest.trees.hold(no))
    }

    /// Closes the trees of which nothing is left in memory. The caller holds the lineage's lock.
    pub(crate) fn close_trees(&self) {
        let mut forest = self.forest.write();
        let epoch = forest.epoch;
        let space = self.space.lock();
        // What is promised to a tree is counted by its number.
        forest.trees.close_unheld(epoch, |no| space.promises.growth_of(no.number()) == 0);
    }

    /// Opens a branch at the root that the log gives it, before the log is replayed. What it owns is found with that.
    pub(crate) fn open_root(&self, branch: u64, item: &RootItem) -> Result<OpenHandle> {
        if let Some(open) = self.held_if_open(branch) {
            return Ok(open);
        }
        let mut forest = self.forest.write();
        let root = Root { pointer: item.pointer(), level: item.level };
        is_older(root, &forest, branch)?;
        let tree = OpenTree {
            inodes: item.inode_count,
            inodes_carried: item.inode_count,
            referenced: item.referenced_blocks,
            referenced_carried: item.referenced_blocks,
            ..OpenTree::at(branch, root)
        };
        Ok(forest.open(tree))
    }

    /// What a branch owns that was opened before the log was replayed, and its limit.
    pub(crate) fn find_ancestry(&self, tree: TreeNo) -> Result<()> {
        let number = self.forest.read().trees.get(tree).number;
        let item = self.tree_item(number);
        let limit = item.as_ref().map_or(0, |of| of.limit);
        let ancestry = item.and_then(|of| self.ancestry_of(of.parent));
        let ancestry = self.or_owns_nothing(number, ancestry)?;
        let mut forest = self.forest.write();
        forest.trees.grew_out_of(tree, ancestry);
        forest.trees.get_mut(tree).limit = limit;
        Ok(())
    }

    /// In an opening for reading, a branch can be read whatever is wrong with what it grew out of: then it owns nothing. One for
    /// writing has to know what is free.
    fn or_owns_nothing(&self, branch: u64, ancestry: Result<Ancestry>) -> Result<Ancestry> {
        match ancestry {
            Err(error) if self.read_only => {
                tracing::error!("what branch {branch} grew out of cannot be read: {error}");
                self.counters.parents_unreadable.increment();
                Ok(Ancestry::of_nothing())
            }
            done => done,
        }
    }

    /// What `main` owns, and its limit, when a volume is opened.
    pub(crate) fn find_ancestry_of_main(&self) -> Result<()> {
        self.find_ancestry(TreeNo::MAIN)
    }

    /// Tells an open tree how far the deletion of the snapshot has come that it grew out of, as the log says.
    pub(crate) fn follow_walk(&self, snapshot: u64) -> Result<()> {
        let ancestry = self.ancestry_of(snapshot)?;
        let mut forest = self.forest.write();
        for tree in forest.trees.grown_out_of(snapshot) {
            forest.trees.follow(tree, &ancestry);
        }
        Ok(())
    }
}

/// The branch that a volume is made with, as nothing says otherwise.
pub(super) fn main_alone() -> TreeInfo {
    TreeInfo::at_rest(MAIN, TreeItem::first())
}

/// Fails if a root would be of the present epoch, in which nothing of a tree that is opened was born: it could name a node that is
/// being changed in memory.
fn is_older(root: Root, forest: &Forest, number: u64) -> Result<()> {
    match root.pointer.epoch < forest.epoch {
        true => Ok(()),
        false => Err(StoreError::Item {
            what: format!("branch or snapshot {number}"),
            source: Malformed::new("root", "it is younger than the volume"),
        }),
    }
}

fn not_a_snapshot(number: u64) -> StoreError {
    StoreError::Item {
        what: format!("tree {number}"),
        source: Malformed::new("tree", "others have grown out of it, but it is a branch"),
    }
}
