//! A handle of one branch or snapshot: the map of its files, in the store that all of them share.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::{BlockRange, Epoch, InodeNo, Lsn, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::item::{OriginItem, TreeItem, TreeKind};

use crate::error::LineageError;
use crate::tree::open::OpenTree;
use crate::tree::{OpenHandle, TreeNo};
use crate::{
    Differing, Inner, LookedAt, NameChange, Need, Pin, Reservation, Reserved, Result, SpaceUse,
    Store, StoreError, Transaction, TreeInfo,
};

/// A branch, or a snapshot that is only read. What it does not say itself is asked of the [`Store`].
#[derive(Clone, Debug)]
pub struct Branch {
    store: Arc<Store>,
    tree: TreeNo,
    /// Keeps the tree open.
    _open: OpenHandle,
    number: u64,
    is_snapshot: bool,
}

impl Deref for Branch {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Branch {
    /// The branch that mkfs made.
    pub fn main(store: Arc<Store>) -> Branch {
        let open = store.inner.forest.read().trees.hold(TreeNo::MAIN);
        Branch::of(store, open, MAIN, false)
    }

    fn of(store: Arc<Store>, open: OpenHandle, number: u64, is_snapshot: bool) -> Branch {
        Branch { store, tree: open.no, _open: open, number, is_snapshot }
    }

    /// A branch by its name, or one of its snapshots.
    pub fn open(store: Arc<Store>, branch: &[u8], snapshot: Option<&[u8]>) -> Result<Branch> {
        Branch::find(store, |inner| inner.find_tree(0, branch), snapshot)
    }

    /// The branch that mkfs made, whatever its name is now, or one of its snapshots.
    pub fn open_first(store: Arc<Store>, snapshot: Option<&[u8]>) -> Result<Branch> {
        Branch::find(store, |_| Ok(MAIN), snapshot)
    }

    /// A branch, or a snapshot, by its number. It is not deleted meanwhile.
    pub fn open_number(store: Arc<Store>, number: u64) -> Result<Branch> {
        let (tree, item) = {
            let inner = &store.inner;
            let _one = inner.lineage.lock();
            (inner.open_tree(number)?, inner.tree_item(number)?)
        };
        Ok(Branch::of(store, tree, number, item.kind == TreeKind::Snapshot))
    }

    fn find(
        store: Arc<Store>,
        branch: impl FnOnce(&Inner) -> Result<u64>,
        snapshot: Option<&[u8]>,
    ) -> Result<Branch> {
        let (number, tree) = {
            let inner = &store.inner;
            let _one = inner.lineage.lock();
            let branch = branch(inner)?;
            let number = snapshot.map_or(Ok(branch), |name| inner.find_tree(branch, name))?;
            (number, inner.open_tree(number)?)
        };
        Ok(Branch::of(store, tree, number, snapshot.is_some()))
    }

    /// The store that it shares with other branches.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Its number, which nothing else of the volume ever has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// Inodes in it.
    pub fn inode_count(&self) -> u64 {
        match self.tree {
            TreeNo::MAIN => self.store.inner.space.lock().inodes,
            tree => self.store.inner.forest.read().trees.get(tree).inodes,
        }
    }

    /// Whether what was born then belongs to this branch alone (S1), see [`Branch::parent_epoch`].
    pub fn owns(&self, birth: Epoch) -> bool {
        self.store.inner.forest.read().trees.get(self.tree).owns_for_good(birth)
    }

    /// The epoch of the snapshot that it grew out of, 0 if there is none: what was born later belongs to it alone (S1). When
    /// that snapshot has gone, it counts until a commit says so: a recovery that finds it still must not meet blocks of it as
    /// if they were the branch's own.
    pub fn parent_epoch(&self) -> Epoch {
        self.store.inner.forest.read().trees.get(self.tree).sure_parent()
    }

    /// How full the volume is for this branch: within its limit, if it has one. As [`Store::space_use_lately`].
    pub fn space_use(&self) -> SpaceUse {
        let all = self.store.space_use_lately();
        let forest = self.store.inner.forest.read();
        let OpenTree { limit, referenced, .. } = *forest.trees.get(self.tree);
        if limit == 0 {
            return all;
        }
        let free = limit.saturating_sub(referenced);
        let promised = self.store.inner.space.lock().promises.growth_of(self.tree.number());
        SpaceUse {
            total: limit.min(all.total),
            free: free.min(all.free),
            available: free.saturating_sub(promised).min(all.available),
            ..all
        }
    }

    /// Blocks that it refers to: those of its nodes, and those that its extents have on the device. What it shares with
    /// other branches and snapshots counts in full.
    pub fn referenced_blocks(&self) -> u64 {
        self.store.inner.forest.read().trees.get(self.tree).referenced
    }

    /// The value of `key`.
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.inner.get(self.tree, key)
    }

    /// Whether [`Branch::get`] of this key has all it needs in memory.
    pub fn is_in_memory(&self, key: &Key) -> bool {
        self.store.inner.is_in_memory(self.tree, key)
    }

    /// Calls `visit` for the items from `from` to `to`, both included, upwards, until it breaks.
    /// Items of one leaf are seen at one moment; between leaves others may change the tree.
    /// `visit` runs under the tree's lock: it must be short and must not call the store.
    pub fn scan(
        &self,
        from: &Key,
        to: &Key,
        mut visit: impl FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.store.inner.scan(self.tree, from, to, &mut visit)
    }

    /// Like [`Branch::scan`], downwards from `to` to `from`.
    pub fn scan_back(
        &self,
        from: &Key,
        to: &Key,
        mut visit: impl FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.store.inner.scan_back(self.tree, from, to, &mut visit)
    }

    /// Calls `visit` with the items that it and another branch or snapshot do not have alike, step by step: each compares two leaves, or
    /// passes what is the same. Ends when that says so, and if it does not `read`, where a node is not in memory. Says whether all was
    /// compared; of several moments, if one of both changes meanwhile.
    pub fn compare(
        &self,
        other: &Pin,
        reads: bool,
        visit: impl FnMut(VecDeque<Differing>) -> ControlFlow<()>,
    ) -> Result<bool> {
        self.store.inner.compare((self.tree, other.tree()), reads, visit)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_snapshot { Err(StoreError::ReadOnly) } else { Ok(()) }
    }

    /// Takes space for an operation before it starts (P8), or says [`StoreError::NoSpace`], or [`StoreError::Limit`] if
    /// the branch would refer to more than it may.
    /// Unused parts return when the reservation is dropped. May wait for a checkpoint that
    /// makes freed blocks usable again.
    pub fn reserve(&self, need: Need) -> Result<Reservation> {
        self.check_writable()?;
        self.store.inner.reserve(self.tree, need)
    }

    /// As [`Branch::reserve`], out of what is free now, without a commit or checkpoint. `None` if that is not enough.
    pub fn reserve_now(&self, need: Need) -> Result<Option<Reservation>> {
        self.check_writable()?;
        self.store.inner.reserve_now(self.tree, need)
    }

    /// Whether [`Branch::apply`] surely finds room for the nodes of a transaction of so many changes: on a volume that
    /// is nearly full, a smaller transaction may be better.
    pub fn has_room_for(&self, changes: u32, reservation: &Reservation) -> bool {
        self.store.inner.has_slots_for(self.tree, changes, reservation.slots)
    }

    /// Makes a transaction visible as one step and returns its place in history. One refused for lack of space has
    /// changed nothing, and its placed blocks are back in the reservation.
    pub fn apply(&self, transaction: Transaction, reservation: &mut Reservation) -> Result<Lsn> {
        self.check_writable()?;
        self.store.inner.apply(self.tree, transaction, reservation)
    }

    /// Allows writing `blocks` in place (R2), which an extent of the tree reserves and which were not written since.
    /// The caller keeps the extent as it is until then. Waits for a commit if blocks that held data were made reserved
    /// lately. An extent of a damaged volume may be refused, as [`StoreError::Item`]. `None`: a snapshot has the blocks
    /// as well, which are so old.
    pub fn unwritten(&self, blocks: BlockRange, birth: Epoch) -> Result<Option<Reserved>> {
        self.check_writable()?;
        if !self.owns(birth) {
            return Ok(None);
        }
        self.store.inner.unwritten(blocks).map(Some)
    }

    /// Ends the store, if no other branch of it is open.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.store) {
            Ok(store) => store.close(),
            Err(_) => Ok(()),
        }
    }
}

/// Branches and snapshots. Each change is durable when its call returns, and happens as a whole or not at all (P12).
impl Store {
    /// Its first branch, for a caller that wants no other.
    pub fn into_main(self) -> Branch {
        Branch::main(Arc::new(self))
    }

    /// The number of a branch, or of a snapshot of one.
    pub fn find_tree(&self, branch: &[u8], snapshot: Option<&[u8]>) -> Result<u64> {
        let _one = self.inner.lineage.lock();
        let number = self.inner.find_tree(0, branch)?;
        snapshot.map_or(Ok(number), |name| self.inner.find_tree(number, name))
    }

    /// The number of the snapshot of a branch that has this name.
    pub fn find_snapshot(&self, branch: u64, name: &[u8]) -> Result<u64> {
        let _one = self.inner.lineage.lock();
        self.inner.find_tree(branch, name)
    }

    /// A branch or snapshot, with how many blocks it refers to.
    pub fn tree_info(&self, number: u64) -> Result<TreeInfo> {
        let _one = self.inner.lineage.lock();
        self.inner.tree_info(number)
    }

    /// How often branches and snapshots have been made, deleted, renamed or changed otherwise since the volume was opened. What
    /// was found behind that count is true until it is another one.
    pub fn lineage_changes(&self) -> u64 {
        self.inner.lineage_changes.load(Ordering::Acquire)
    }

    /// From now on `listen` hears of each change of snapshots' names when it is seen. It must not wait, nor call the store: branches and
    /// snapshots are locked. The first one stays.
    pub fn listen_to_names(&self, listen: impl Fn(&NameChange) + Send + Sync + 'static) {
        self.inner.name_listener.set(Box::new(listen));
    }

    /// What is known of a branch or snapshot.
    pub fn tree(&self, number: u64) -> Result<TreeItem> {
        let _one = self.inner.lineage.lock();
        self.inner.tree_item(number)
    }

    /// Takes a snapshot of a branch as it is now (S2): of everything that was applied. Returns its number.
    pub fn snapshot(&self, branch: u64, name: &[u8], now: Timestamp) -> Result<u64> {
        Ok(self.inner.snapshot(branch, named(name)?, now)?.number)
    }

    /// As [`Store::snapshot`], of a branch that is a copy of these snapshots of other volumes, the one that was sent first. That is known with the
    /// snapshot, and goes with it.
    pub fn snapshot_of_copy(
        &self,
        branch: u64,
        name: &[u8],
        of: &[OriginItem],
        now: Timestamp,
    ) -> Result<u64> {
        Ok(self.inner.snapshot_of_copy(branch, named(name)?, of, now)?.number)
    }

    /// Makes a branch out of a snapshot, or out of another branch as it is now (S3). Returns its number.
    pub fn fork(&self, from: u64, name: &[u8], now: Timestamp) -> Result<u64> {
        let item = self.tree(from)?;
        let made = match item.kind {
            TreeKind::Snapshot => self.inner.fork(from, named(name)?, now)?,
            TreeKind::Branch | TreeKind::Going => self.inner.fork_live(from, named(name)?, now)?,
        };
        self.durable_behind(made.lsn)?;
        Ok(made.number)
    }

    /// Makes a branch that has grown out of nothing, with `items` in its tree, which fit into a leaf and have so many `inodes`.
    /// Returns its number.
    pub fn new_branch(
        &self,
        name: &[u8],
        items: &[(Key, Vec<u8>)],
        inodes: u64,
        now: Timestamp,
    ) -> Result<u64> {
        Ok(self.inner.new_branch(named(name)?, items, inodes, now)?.number)
    }

    /// Takes a branch back to a snapshot of the volume (S6). What it was is kept as a snapshot of the name `kept_as`, or
    /// deleted. Nothing that was read of the branch before is good any more.
    pub fn roll_back(
        &self,
        branch: u64,
        to: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<()> {
        let kept_as = kept_as.map(named).transpose()?;
        self.inner.roll_back(branch, to, kept_as, now).map(drop)
    }

    /// Whether a branch is surely what a snapshot is, which it has grown out of. False: it is not known. The branch does not change meanwhile.
    pub fn is_unchanged_since(&self, branch: u64, snapshot: u64) -> Result<bool> {
        let _one = self.inner.lineage.lock();
        let tree = self.inner.open_tree(branch)?;
        self.inner.is_unchanged_since(tree.no, branch, snapshot)
    }

    /// Promotes a fork: a branch becomes what it is, in one step, after which there is no fork any more. Snapshots of the fork become snapshots
    /// of the branch. What the branch was is kept as a snapshot of the name `kept_as`, or deleted. Nothing that was read of
    /// either before is good any more. False, and nothing is changed: so much has changed since the look that it comes [again](Inner::look_again)
    /// first, for which no call has to wait.
    pub fn promote_looked(
        &self,
        looked: &mut LookedAt,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<bool> {
        let kept_as = kept_as.map(named).transpose()?;
        Ok(self.inner.promote_looked(looked, kept_as, now)?.is_some())
    }

    /// As [`Store::promote_looked`], with the look.
    pub fn promote(
        &self,
        branch: u64,
        fork: u64,
        kept_as: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<()> {
        let mut looked = self.look_before_promotion(branch, fork)?;
        while !self.promote_looked(&mut looked, kept_as, now)? {
            self.look_again(&mut looked)?;
        }
        Ok(())
    }

    /// Gives a branch or snapshot another name.
    pub fn rename_tree(&self, number: u64, name: &[u8]) -> Result<()> {
        let made = self.inner.rename_tree(number, named(name)?)?;
        self.durable_behind(made.lsn)
    }

    /// Holds a snapshot under a tag, which it must not be held under yet: what is held is not deleted.
    pub fn hold(&self, snapshot: u64, tag: &[u8], now: Timestamp) -> Result<()> {
        let made = self.inner.hold(snapshot, tag, now)?;
        self.durable_behind(made.lsn)
    }

    /// Ends the hold of this tag, which there must be.
    pub fn unhold(&self, snapshot: u64, tag: &[u8]) -> Result<()> {
        let made = self.inner.unhold(snapshot, tag)?;
        self.durable_behind(made.lsn)
    }

    /// Limits the blocks that a branch refers to; 0: no limit. What it refers to by now stays: it does not grow until it has
    /// shrunk.
    pub fn limit(&self, branch: u64, blocks: u64) -> Result<()> {
        let made = self.inner.limit(branch, blocks)?;
        self.durable_behind(made.lsn)
    }

    /// Deletes a snapshot (S4): its name is gone when this returns, its space comes back by [`Store::work_off_deletions`](Inner::work_off_deletions).
    pub fn delete_snapshot(&self, snapshot: u64) -> Result<()> {
        let made = self.inner.delete_snapshot(snapshot)?;
        self.durable_behind(made.lsn)
    }

    /// Deletes a branch and its snapshots (S5), as [`Store::delete_snapshot`]. It must not be open. False as with [`Store::promote_looked`].
    pub fn delete_looked(&self, looked: &mut LookedAt, now: Timestamp) -> Result<bool> {
        Ok(self.inner.delete_looked(looked, now)?.is_some())
    }

    /// As [`Store::delete_looked`], with the look.
    pub fn delete_branch(&self, branch: u64, now: Timestamp) -> Result<()> {
        let mut looked = self.look_before_deletion(branch)?;
        while !self.delete_looked(&mut looked, now)? {
            self.look_again(&mut looked)?;
        }
        Ok(())
    }

    /// Completes a checkpoint that the last change of the lineage has left, or waits for one that is being made: the next
    /// change begins with that, and its caller may let others wait.
    pub fn complete_checkpoint(&self) -> Result<()> {
        self.inner.lock_checkpoints().map(drop)
    }

    /// The number that [`Store::next_inode`] gives next: no inode of any branch has it, or a higher one.
    pub fn inode_counter(&self) -> InodeNo {
        InodeNo(self.inner.inode_next.load(Ordering::Relaxed))
    }

    fn durable_behind(&self, lsn: Lsn) -> Result<()> {
        self.inner.sync(lsn, InodeNo::ROOT).map(drop)
    }
}

/// A name, if it can be one.
fn named(name: &[u8]) -> Result<&[u8]> {
    match holdfast_format::item::lineage::judge_name(name) {
        Ok(()) => Ok(name),
        Err(why) => Err(LineageError::Name(why).into()),
    }
}
