//! Recovery of the log: its batches become visible again, in order, before any caller sees the volume.
//!
//! First every batch is judged, and every block that one names is pinned, so that
//! no node that the replay copies lands on it (R7). Then the records are applied as the
//! operations were. Nothing is written until all of it is in memory; then a
//! checkpoint makes it durable, and the log is dead. Power may fail at any write
//! of that: the superblock, the journal and the log are whole until then (P9).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::Ordering;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo, Lsn};
use holdfast_device::Page;
use holdfast_format::item::Extent;
use holdfast_format::item::TreeItem;
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::log::{Content, Dropped, Patch, Record};
use holdfast_format::{ItemKind, Key, Superblock};

use super::replay::{Broken, Logged, LoggedBatch};
use super::validate::Validator;
use super::{Log, LogPosition, Ring};
use crate::apply::Slots;
use crate::before_mark::BeforeMark;
use crate::dropped_extents::owned;
use crate::room::slots_at_most;
use crate::space::slots::NodeSlots;
use crate::transaction::Changes;
use crate::tree::TreeNo;
use crate::{Inner, Result, StoreError};

/// Most bytes of data that lie in a log: a patch of no byte makes a block, and memory must not follow what a
/// hostile one claims. Many times what gathers in a volume that is in use.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// Changes of a batch that are applied under one hold of the locks.
const AT_ONCE: usize = 64;

/// How batches are applied, and what of them could not be.
struct Replay<'a> {
    superblock: &'a Superblock,
    last_birth: Epoch,
    /// What batches give back is known to be theirs. Otherwise a reader frees nothing, which needs no space.
    frees: bool,
    /// Changes of keys in nodes that do not read.
    left_out: u64,
}

impl Inner {
    /// Brings a volume that was just opened at `superblock` to the end of its log, in memory. All batches are
    /// judged before the first is applied. After an error the volume must not be used. A reader loses what changes of damaged nodes
    /// the log has: returns that, as a sentence.
    pub(crate) fn replay_log(
        &self,
        superblock: &Superblock,
        logged: &Logged,
    ) -> std::result::Result<Option<String>, Broken> {
        let mut judge = Validator::new(self, superblock);
        for (at, batch) in logged.batches.iter().enumerate() {
            judge.batch(batch).map_err(|error| Broken { batch: at, error })?;
        }
        let mut replay = Replay {
            superblock,
            last_birth: logged.last_birth,
            frees: !judge.is_blind(),
            left_out: 0,
        };
        for (at, batch) in logged.batches.iter().enumerate() {
            self.replay(&mut replay, batch).map_err(|error| Broken { batch: at, error })?;
        }
        self.counters.recovered_batches.set(logged.batches.len() as u64);
        self.counters.recovered_log_bytes.set(logged.bytes);
        let said = |count| format!("changes of {count} keys by fsyncs belong into damaged nodes");
        Ok((replay.left_out > 0).then_some(replay.left_out).map(said))
    }

    /// Makes what was replayed durable: the log goes on behind it, and nothing before is needed. `before` is what lies before
    /// the mark of the journal.
    pub(crate) fn finish_log(&mut self, logged: Logged, before: BeforeMark) -> Result<()> {
        let ring = Ring::new(self.superblock.get_mut(), &*self.device);
        let (mark, gap) = ring.aligned(logged.mark);
        // The superblock's mark is where the ring is still read from, until the next commit.
        let head = logged.walked.saturating_add(gap);
        self.journal.get_mut().keep_before(before.len());
        let is_marked = before.is_fine() && logged.before.is_fine();
        let before = logged.before.len();
        let mut place = LogPosition { head, before, ..LogPosition::at(mark) };
        *self.logging.log.get_mut() = Log::new(ring, place);
        // Also what a commit contains was read, and is not known to be durable: nothing may be chained to it.
        if logged.is_clean && logged.walked == 0 && gap == 0 && is_marked {
            self.pending.begin_at(place);
            return Ok(());
        }
        if !mutants::is(Mutant::TornReturns) {
            place = self.mark_rings()?;
        }
        if !mutants::is(Mutant::LogPlaceForgotten) {
            self.pending.set_place(place);
        }
        // It was read, and is not known to be durable: a flush may have failed.
        let data = if mutants::is(Mutant::LogDataNotAgain) { &[] } else { &logged.data[..] };
        for (block, bytes) in data {
            let at = block.byte_offset().expect("the decoder has judged the blocks");
            self.device.write(at, bytes)?;
        }
        // Not by a commit: the superblock has to say where the log goes on, even if nothing else changed.
        // Nothing is left to be written: the volume was opened just now.
        let _one = self.one_checkpoint.lock();
        let done = self.checkpoint_at_once(&mut self.journal.lock());
        match done {
            Err(error @ StoreError::NoPlace { block, .. }) => {
                // The log is whole as long as nothing says otherwise: it is better kept than its data given up.
                let whose = owner(&logged, self.superblock.get_mut(), block)
                    .map_or(String::new(), |inode| format!(" of inode {inode}"));
                Err(StoreError::Refused(format!(
                    "{error}; nothing{whose} is lost: copy the volume to another device and mount it there, \
                     or mount it read-only"
                )))
            }
            done => done,
        }
    }

    /// Both rings go on behind a marker: nothing of before follows it, and it is durable with the superblock that has its sum (R12).
    pub(crate) fn mark_rings(&mut self) -> Result<LogPosition> {
        // Behind the mark may lie a batch that was given up, or a torn one. What is written next goes to the
        // same place, may be torn as well, and complete the old one where both are equal (P3): so nothing of
        // before may follow from here. The epoch of the checkpoint does that for commits. Nor may it pass for the end,
        // should the superblock that says so rot (P6): the marker has a number of its own.
        let last = Lsn(self.lsn.load(Ordering::Acquire));
        let place = self.logging.log.get_mut().write_marker(&*self.device, last)?;
        let epoch = self.superblock.get_mut().epoch;
        let journal = self.journal.get_mut();
        if !journal.has_before() {
            journal.write_marker(&*self.device, epoch)?;
        }
        Ok(place)
    }

    /// Applies a batch.
    fn replay(&self, replay: &mut Replay<'_>, batch: &LoggedBatch) -> Result<()> {
        let superblock = replay.superblock;
        let (mut changes, mut freed) = (Changes::default(), Vec::new());
        let (mut lineage, mut dropped) = (Changes::default(), Vec::new());
        // Until the batch is applied.
        let (mut tree, mut opened) = (TreeNo::MAIN, Vec::new());
        // The lineage counts as it is behind the batch, wherever its records stand: it may make the branches that others are of.
        for record in batch.records(superblock) {
            match record.map_err(|source| batch.damage(source))? {
                Record::Put(key, value) if key.kind.is_lineage() => lineage.put(key, value),
                Record::Delete(key) if key.kind.is_lineage() => lineage.delete(key),
                _ => {}
            }
        }
        self.change_lineage(&mut lineage, replay)?;
        for record in batch.records(superblock) {
            match record.map_err(|source| batch.damage(source))? {
                Record::Put(key, _) | Record::Delete(key) if key.kind.is_lineage() => {}
                Record::Put(key, value) => changes.put(key, value),
                Record::Inode(no, item) => changes.put(Key::inode(no), &item.bytes()),
                Record::Delete(key) => changes.delete(key),
                Record::Branch { id, inode_count } => {
                    self.change(tree, &mut changes, replay)?;
                    let open = self.open_tree(id)?;
                    tree = open.no;
                    opened.push(open);
                    self.find_ancestry(tree)?;
                    let mut forest = self.forest.write();
                    forest.trees.get_mut(tree).inodes = inode_count;
                    forest.trees.changes(tree);
                }
                Record::Drop(of) => dropped.push((tree, of)),
                Record::Take(blocks, content) => {
                    self.space.lock().publish(blocks);
                    if let Content::Inside(patches) = content {
                        if self.log_resident.bytes() as u64 > DATA_BYTES_MAX {
                            return Err(batch.refuse("the log holds too much data"));
                        }
                        self.patch(blocks, &patches)?;
                    }
                }
                Record::Free(blocks) => freed.push(blocks),
            }
            if changes.len() >= AT_ONCE {
                self.change(tree, &mut changes, replay)?;
            }
        }
        self.change(tree, &mut changes, replay)?;
        freed.extend(self.free_again(&dropped));
        // Last: some of it may have been taken by the same batch, wherever the records stand.
        if replay.frees && !self.space.lock().can_be_data(&freed) {
            return Err(batch.refuse("it gives back blocks that are counted as blocks of nodes"));
        }
        for blocks in freed {
            self.with_bitmaps(blocks, |space| {
                if replay.frees && !mutants::is(Mutant::FreedStaysUsed) {
                    space.free_data(blocks);
                }
                if mutants::is(Mutant::FreedInRecovery) {
                    space.release(blocks);
                }
            });
            self.log_resident.forget(blocks);
        }
        let header = &batch.header;
        self.lsn.store(header.last, Ordering::Release);
        if !mutants::is(Mutant::InodeNextForgotten) {
            self.inode_next.fetch_max(header.inode_next, Ordering::AcqRel);
        }
        self.space.lock().inodes = header.inode_count;
        // No operation is pending: the log holds them all.
        self.pending.folded().restart(Lsn(header.last));
        self.durable.store(header.last, Ordering::Release);
        Ok(())
    }

    /// Carries out what a batch says of branches and snapshots. One that is there keeps its parent: only commits change that,
    /// and the log has what it was in memory.
    fn change_lineage(&self, changes: &mut Changes, replay: &mut Replay<'_>) -> Result<()> {
        if changes.len() == 0 {
            return Ok(());
        }
        let mut kept = Changes::default();
        for change in changes.iter() {
            let before = match change.key.kind {
                ItemKind::Tree => self.get(TreeNo::SPACE, &change.key)?,
                _ => None,
            };
            let judged = |bytes: &[u8]| {
                let what = || format!("{:?}", change.key);
                TreeItem::decode(bytes).map_err(|source| StoreError::Item { what: what(), source })
            };
            match (change.value, before) {
                (Some(value), Some(before)) => {
                    let item = TreeItem { parent: judged(&before)?.parent, ..judged(value)? };
                    kept.put(change.key, &item.encode());
                }
                (Some(value), None) if change.key.kind == ItemKind::Tree => {
                    let item = judged(value)?;
                    let parent = put_beside(changes, &change.key).unwrap_or(item.parent);
                    kept.put(change.key, &TreeItem { parent, ..item }.encode());
                }
                (Some(value), None) => kept.put(change.key, value),
                (None, _) => kept.delete(change.key),
            }
        }
        let walks = changes.iter().filter(|change| change.key.kind == ItemKind::Walk);
        let walks: Vec<u64> = walks.map(|change| change.key.offset).collect();
        changes.clear();
        for change in kept.iter().filter(|change| change.key.kind == ItemKind::Tree) {
            let item = change.value.and_then(|value| TreeItem::decode(value).ok());
            let number = change.key.inode.0.checked_sub(LINEAGE);
            let mut forest = self.forest.write();
            // One that a later batch opens finds the limit in its item.
            if let Some((item, tree)) = item.zip(number.and_then(|no| forest.trees.find(no))) {
                forest.trees.get_mut(tree).limit = item.limit;
            }
        }
        self.change(TreeNo::SPACE, &mut kept, replay)?;
        walks.into_iter().try_for_each(|snapshot| self.follow_walk(snapshot))
    }

    /// Which of the blocks are free that branches gave up, as the lineage is that was found.
    fn free_again(&self, dropped: &[(TreeNo, Dropped)]) -> Vec<BlockRange> {
        let forest = self.forest.read();
        let owned = dropped.iter().map(|(tree, of)| owned(&forest.trees.get(*tree).ancestry, of));
        owned.map(|of| of.blocks).filter(|blocks| !blocks.is_empty()).collect()
    }

    fn change(&self, tree: TreeNo, changes: &mut Changes, replay: &mut Replay<'_>) -> Result<()> {
        let mut loading = self.loading();
        let (mut at, mut joins) = (0usize, true);
        if tree != TreeNo::SPACE {
            changes.be_born_by(replay.last_birth);
        }
        while let Some(change) = changes.get(at) {
            let may_join = joins && change.value.is_none();
            let mut forest = self.forest.write();
            let prepared = match forest.prepare(tree, &change.key, may_join) {
                Ok(prepared) => prepared,
                Err(missing) => {
                    drop(forest);
                    match loading.load(missing) {
                        Ok(()) => {}
                        Err(error) if !self.read_only => return Err(error),
                        // It may be a neighbour, without which the change can be.
                        Err(_) if may_join => joins = false,
                        Err(_) => {
                            replay.left_out = replay.left_out.saturating_add(1);
                            // It counts what lies in memory.
                            (at, joins) = (at.saturating_add(1), true);
                        }
                    }
                    continue;
                }
            };
            let mut space = self.space.lock();
            if let Err(wanted) = space.expect_slots(slots_at_most(&forest, tree, 1)) {
                drop(space);
                drop(forest);
                loading.load(wanted)?;
                continue;
            }
            let slots = &mut Slots { space: &mut space, promised: &mut NodeSlots::none() };
            forest.carry_out(tree, change, prepared, slots);
            if let Some(damage) = &space.damage {
                return Err(StoreError::Refused(format!("{damage}; run fsck")));
            }
            drop(space);
            forest.cache.evict();
            drop(forest);
            // A batch may change more nodes than fit into memory: each change keeps its own.
            loading = self.loading();
            // It counts what lies in memory.
            (at, joins) = (at.saturating_add(1), true);
        }
        changes.clear();
        Ok(())
    }

    /// Makes the bytes of blocks whose data lies inside the log. They become log-resident.
    ///
    /// A base that cannot be read keeps a volume from being opened for writing: the log that holds the rest of
    /// the block would be given up, and a later try may read it.
    fn patch(&self, blocks: BlockRange, patches: &[Patch<'_>]) -> Result<()> {
        let mut pages: Vec<Page> = Vec::new();
        for patch in patches {
            let mut page = Page::zeroed();
            let bytes = page.bytes_mut();
            if let Some(base) = patch.base.filter(|_| !mutants::is(Mutant::BaseForgotten))
                && let Err(error) = self.read(BlockRange::new(base, 1), &mut bytes[..])
            {
                tracing::error!(
                    "block {base}, the base of one of {blocks:?}, cannot be read: {error}"
                );
                if !self.read_only {
                    return Err(error);
                }
                // The checksum of the new block says so: it speaks against its file alone.
            }
            patch.apply(bytes);
            pages.push(page);
        }
        self.log_resident.add(blocks.start, pages.into_iter());
        Ok(())
    }
}

/// The snapshot that a new branch was put beside. Its item may have a later parent: that of a snapshot whose deletion ended in
/// memory behind the fork, and which the commit that the replay begins with has still.
fn put_beside(changes: &Changes, branch: &Key) -> Option<u64> {
    let number = branch.inode.0.checked_sub(LINEAGE)?;
    let is_child = |key: &Key| key.kind == ItemKind::Child && key.offset == number;
    let beside = changes.iter().find(|other| other.value.is_some() && is_child(&other.key))?;
    beside.key.inode.0.checked_sub(LINEAGE)
}

/// The inode whose data belongs to `block`, as the log says.
fn owner(logged: &Logged, superblock: &Superblock, block: BlockNo) -> Option<InodeNo> {
    let records = logged.batches.iter().rev().flat_map(|batch| batch.records(superblock));
    records.into_iter().find_map(|record| match record {
        Ok(Record::Put(key, value)) if key.kind == ItemKind::Extent => {
            let blocks = Extent::decode(value).ok()?.blocks;
            let is_inside = block >= blocks.start && blocks.end().is_some_and(|end| block < end);
            is_inside.then_some(key.inode)
        }
        _ => None,
    })
}
