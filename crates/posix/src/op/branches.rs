//! Snapshots, forks and rollback of branches, and what lists say of them.
//!
//! Each is durable when its call returns, and happens as a whole or not at all (P12). What changes the tree of this branch
//! closes its gate for that moment. A branch or snapshot is meant by its
//! name or its number, see [`Which`].

use std::sync::atomic::Ordering;

use holdfast_base::{InodeNo, Lsn, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::{TreeItem, TreeKind};
use holdfast_store::{Pin, Store, StoreError, TreeInfo};

use crate::core::Core;
use crate::heads_differ::HeadsDiffer;
use crate::op::settle::with_branch;
use crate::which::name_of;
use crate::*;

/// A branch, as a list of them shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Its number, which nothing else of the volume ever has.
    pub number: u64,
    /// When it was made; of `main`: nothing is known.
    pub created: Timestamp,
    /// The number of the snapshot that it grew out of.
    pub parent: Option<u64>,
    /// Blocks that it refers to. What it shares with others counts in full.
    pub referenced: u64,
    /// Most blocks that it may refer to.
    pub limit: Option<u64>,
    /// Inodes in it.
    pub inodes: u64,
    /// It is open in this program.
    pub is_open: bool,
}

/// A snapshot, as a list of them shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name; empty: it has none, and is kept for what grew out of it.
    pub name: Vec<u8>,
    /// Its number, which nothing else of the volume ever has.
    pub number: u64,
    /// The number of the branch that it was taken of.
    pub branch: u64,
    /// When it was taken.
    pub created: Timestamp,
    /// Its place in history: the last operation before it.
    pub lsn: Lsn,
    /// The number of the snapshot that its branch had grown out of.
    pub parent: Option<u64>,
    /// While it has any, it is not deleted.
    pub holds: Vec<HoldItem>,
    /// What it is a copy of, if it was received: the snapshot that was sent, then those that this was a copy of.
    pub origins: Vec<OriginItem>,
    /// Inodes in it.
    pub inodes: u64,
    /// It is open in this program.
    pub is_open: bool,
}

impl FileSystem {
    /// The name of the branch, or of the branch of this snapshot, as it is now.
    pub fn branch_name(&self) -> Result<Vec<u8>> {
        Ok(name_of(self.tree(self.branch_number()?)?))
    }

    /// The name of this snapshot, if it is one.
    pub fn snapshot_name(&self) -> Result<Option<Vec<u8>>> {
        let store = &self.core.store;
        match store.is_snapshot() {
            true => Ok(Some(self.tree(store.number())?.name)),
            false => Ok(None),
        }
    }

    /// Takes a snapshot of this branch, and returns its number. It shows each write that had returned.
    pub fn snapshot(&self, name: &[u8]) -> Result<u64> {
        self.core.expect_writable()?;
        self.snapshot_number(self.core.store.number(), name)
    }

    /// As [`FileSystem::snapshot`], of any branch, whether it is open or not.
    pub fn snapshot_of<'a>(&self, branch: impl Into<Which<'a>>, name: &[u8]) -> Result<u64> {
        self.snapshot_number(self.branch_no(branch.into())?, name)
    }

    /// As [`FileSystem::snapshot_of`], of a branch that is a copy of these snapshots.
    pub fn snapshot_of_copy<'a>(
        &self,
        branch: impl Into<Which<'a>>,
        name: &[u8],
        of: &[OriginItem],
    ) -> Result<u64> {
        let branch = self.branch_no(branch.into())?;
        let now = Timestamp::now();
        self.with_branch(branch, |store, _| Ok(store.snapshot_of_copy(branch, name, of, now)?))
    }

    /// Makes a branch `new` out of a snapshot of this branch; `None`: out of what is open here, as it is now. Returns its
    /// number.
    pub fn fork(&self, new: &[u8], from: Option<&[u8]>) -> Result<u64> {
        match from {
            Some(from) => {
                let branch = Which::Numbered(self.branch_number()?);
                self.fork_number(new, self.snapshot_no(branch, from.into())?)
            }
            None => self.fork_number(new, self.core.store.number()),
        }
    }

    /// As [`FileSystem::fork`], of any branch or of a snapshot of it.
    pub fn fork_of<'a>(
        &self,
        new: &[u8],
        branch: impl Into<Which<'a>>,
        from: Option<Which<'_>>,
    ) -> Result<u64> {
        let branch = branch.into();
        let from = match from {
            Some(from) => self.snapshot_no(branch, from)?,
            None => self.branch_no(branch)?,
        };
        self.fork_number(new, from)
    }

    /// Makes a branch that has grown out of nothing: as a new volume it has a root directory (mode 755, of root) and nothing in
    /// it. Returns its number.
    pub fn new_branch(&self, name: &[u8]) -> Result<u64> {
        self.expect_changeable()?;
        let items = [(Key::inode(InodeNo::ROOT), super::volume::root((0, 0), 0o755).encode())];
        Ok(self.core.store.store().new_branch(name, &items, 1, Timestamp::now())?)
    }

    /// Takes this branch back to one of its snapshots. What it was is kept as a snapshot of the name `keep`, or deleted.
    ///
    /// Files that are open go on with what the snapshot has of them; those that it does not have answer ESTALE. See
    /// [`FileSystem::watch_rollback`].
    pub fn rollback(&self, to: &[u8], keep: Option<&[u8]>) -> Result<()> {
        self.core.expect_writable()?;
        let branch = self.core.store.number();
        let to = self.snapshot_no(Which::Numbered(branch), to.into())?;
        self.rollback_number(branch, to, keep)
    }

    /// As [`FileSystem::rollback`], of any branch, whether it is open or not.
    pub fn rollback_of<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        to: impl Into<Which<'b>>,
        keep: Option<&[u8]>,
    ) -> Result<()> {
        let branch = self.branch_no(branch.into())?;
        let to = self.snapshot_no(Which::Numbered(branch), to.into())?;
        self.rollback_number(branch, to, keep)
    }

    fn snapshot_number(&self, branch: u64, name: &[u8]) -> Result<u64> {
        self.with_branch(branch, |store, _| Ok(store.snapshot(branch, name, Timestamp::now())?))
    }

    fn fork_number(&self, new: &[u8], from: u64) -> Result<u64> {
        let fork = |store: &Store| Ok(store.fork(from, new, Timestamp::now())?);
        match self.tree(from)?.kind {
            TreeKind::Branch | TreeKind::Going => self.with_branch(from, |store, _| fork(store)),
            TreeKind::Snapshot => {
                self.expect_changeable()?;
                fork(self.core.store.store())
            }
        }
    }

    fn rollback_number(&self, branch: u64, to: u64, keep: Option<&[u8]>) -> Result<()> {
        let turn = |store: &Store| Ok(store.roll_back(branch, to, keep, Timestamp::now())?);
        let warm = self.warm(branch, to);
        self.with_branch(branch, |store, open| {
            let Some(core) = open else { return turn(store) };
            if keep.is_some() {
                // Writes that came since are part of what is kept.
                core.write_back()?;
            }
            rollback::roll_back(core, warm.as_ref(), || turn(store).map(|()| true)).map(drop)
        })?;
        drop(warm);
        if keep.is_none() {
            self.volume.volume.deletions.begin();
        }
        Ok(())
    }

    /// Reads what is compared while a branch stands still that gets the head of another one.
    pub(crate) fn warm(&self, branch: u64, other: u64) -> Option<Pin> {
        let core = self.volume.volume.find(branch)?;
        HeadsDiffer::warm(&core.store, other)
    }

    /// Runs `act` while a branch stands still, and nothing is opened or deleted. If it is open, all that had been written is in
    /// its tree.
    pub(crate) fn with_branch<T>(
        &self,
        branch: u64,
        act: impl FnOnce(&Store, Option<&Core>) -> Result<T>,
    ) -> Result<T> {
        with_branch(&self.volume.volume, branch, act)
    }

    /// Sets the callback for a rollback of this branch. Whatever is cached of inodes and names that may differ is void: attributes,
    /// content, listings, and that a name is missing. `tell` runs when the branch is
    /// rolled back, before any call sees that: it must not wait, nor call this filesystem. The first callback stays.
    pub fn watch_rollback(&self, tell: impl Fn(&Turned<'_>) + Send + Sync + 'static) {
        let _ = self.core.rolled_back.set(Box::new(tell));
    }

    /// How often this branch was rolled back since it was opened. What was read before it moved may be of a head that is
    /// gone.
    pub fn turns(&self) -> u64 {
        self.core.turns.load(Ordering::Acquire)
    }

    /// How often branches and snapshots of the volume have changed since it was opened, see
    /// [`holdfast_store::Store::lineage_changes`].
    pub fn lineage_changes(&self) -> u64 {
        self.core.store.lineage_changes()
    }

    /// All branches of the volume, in the order in which they were made.
    pub fn branches(&self) -> Result<Vec<BranchInfo>> {
        let trees = self.core.store.trees()?.into_iter();
        let branches = trees.filter(|of| of.item.kind == TreeKind::Branch && !of.is_deleted);
        Ok(branches.map(|of| self.branch_info(of)).collect())
    }

    /// A branch. Costs the same however many there are.
    pub fn find_branch<'a>(&self, branch: impl Into<Which<'a>>) -> Result<BranchInfo> {
        Ok(self.branch_info(self.info(self.branch_no(branch.into())?)?))
    }

    /// A snapshot of any branch. Costs the same however many there are.
    pub fn find_snapshot<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
    ) -> Result<SnapshotInfo> {
        let number = self.snapshot_no(branch.into(), snapshot.into())?;
        Ok(self.snapshot_info(self.info(number)?))
    }

    /// The snapshots of this branch, in the order in which they were taken; of a snapshot: of its branch.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        self.snapshots_of_number(self.branch_number()?)
    }

    /// The snapshots of any branch, in the order in which they were taken.
    pub fn snapshots_of<'a>(&self, branch: impl Into<Which<'a>>) -> Result<Vec<SnapshotInfo>> {
        self.snapshots_of_number(self.branch_no(branch.into())?)
    }

    /// The snapshots of all branches, in the order in which they were taken.
    pub fn all_snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let trees = self.core.store.trees()?.into_iter();
        let snapshots = trees.filter(|of| of.item.kind == TreeKind::Snapshot && !of.is_deleted);
        Ok(snapshots.map(|of| self.snapshot_info(of)).collect())
    }

    /// All branches and all snapshots, as they are at one moment; also the snapshots that have no name any more and are still there:
    /// others have grown out of them, they are looked at, or their deletion is on its way. A way from a branch to what it has grown out
    /// of may lead through one, and between two looks it may go.
    pub fn lineage(&self) -> Result<(Vec<BranchInfo>, Vec<SnapshotInfo>)> {
        let trees = self.core.store.trees()?;
        let of_kind = |kind| trees.iter().filter(move |of| of.item.kind == kind);
        let branches = of_kind(TreeKind::Branch).filter(|of| !of.is_deleted);
        let branches = branches.map(|of| self.branch_info(of.clone())).collect();
        let snapshots = of_kind(TreeKind::Snapshot).map(|of| self.snapshot_info(of.clone()));
        Ok((branches, snapshots.collect()))
    }

    /// Gives a branch another name.
    pub fn rename_branch<'a>(&self, branch: impl Into<Which<'a>>, new_name: &[u8]) -> Result<()> {
        self.expect_changeable()?;
        Ok(self.core.store.rename_tree(self.branch_no(branch.into())?, new_name)?)
    }

    /// Gives a snapshot of a branch another name.
    pub fn rename_snapshot<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
        new_name: &[u8],
    ) -> Result<()> {
        self.expect_changeable()?;
        let number = self.snapshot_no(branch.into(), snapshot.into())?;
        Ok(self.core.store.rename_tree(number, new_name)?)
    }

    /// Holds a snapshot under a tag: it is not deleted until each of its holds has been ended. EEXIST if there is one of this tag.
    pub fn hold<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
        tag: &[u8],
    ) -> Result<()> {
        self.expect_changeable()?;
        let number = self.snapshot_no(branch.into(), snapshot.into())?;
        Ok(self.core.store.store().hold(number, tag, Timestamp::now())?)
    }

    /// Ends the [`FileSystem::hold`] of a tag. ENOENT if there is none.
    pub fn unhold<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
        tag: &[u8],
    ) -> Result<()> {
        self.expect_changeable()?;
        let number = self.snapshot_no(branch.into(), snapshot.into())?;
        Ok(self.core.store.store().unhold(number, tag)?)
    }

    /// Limits the blocks that a branch may refer to; `None`: no limit. What would make it refer to more
    /// is refused with EDQUOT; what it refers to by now stays.
    pub fn limit<'a>(&self, branch: impl Into<Which<'a>>, blocks: Option<u64>) -> Result<()> {
        self.expect_changeable()?;
        Ok(self.core.store.limit(self.branch_no(branch.into())?, blocks.unwrap_or(0))?)
    }

    pub(super) fn expect_changeable(&self) -> Result<()> {
        match self.volume.volume.options.read_only {
            true => Err(StoreError::ReadOnly.into()),
            false => Ok(()),
        }
    }

    pub(crate) fn tree(&self, number: u64) -> Result<TreeItem> {
        Ok(self.core.store.store().tree(number)?)
    }

    /// The number of this branch, or of this snapshot.
    pub fn tree_number(&self) -> u64 {
        self.core.store.number()
    }

    /// The number of this branch, or of the branch of this snapshot.
    pub fn branch_number(&self) -> Result<u64> {
        let store = &self.core.store;
        match store.is_snapshot() {
            true => Ok(self.tree(store.number())?.branch),
            false => Ok(store.number()),
        }
    }

    /// What is known of a branch or snapshot that has a name.
    fn info(&self, number: u64) -> Result<TreeInfo> {
        Ok(self.core.store.store().tree_info(number)?)
    }

    pub(super) fn snapshots_of_number(&self, branch: u64) -> Result<Vec<SnapshotInfo>> {
        let trees = self.core.store.trees()?.into_iter();
        let is_of = |of: &TreeInfo| {
            of.item.kind == TreeKind::Snapshot && of.item.branch == branch && !of.is_deleted
        };
        Ok(trees.filter(is_of).map(|of| self.snapshot_info(of)).collect())
    }

    fn branch_info(&self, of: TreeInfo) -> BranchInfo {
        BranchInfo {
            number: of.number,
            created: of.item.created,
            parent: Some(of.item.parent).filter(|parent| *parent != 0),
            referenced: of.referenced_blocks,
            limit: Some(of.item.limit).filter(|limit| *limit != 0),
            inodes: of.inodes,
            is_open: self.volume.volume.is_open(of.number),
            name: name_of(of.item),
        }
    }

    fn snapshot_info(&self, of: TreeInfo) -> SnapshotInfo {
        SnapshotInfo {
            number: of.number,
            branch: of.item.branch,
            created: of.item.created,
            lsn: of.item.lsn,
            parent: Some(of.item.parent).filter(|parent| *parent != 0),
            holds: of.holds,
            origins: of.origins,
            inodes: of.inodes,
            is_open: self.volume.volume.is_open(of.number),
            name: of.item.name,
        }
    }
}
