//! Recovery of the log: its batches become visible again, in order, before anybody sees the volume.
//!
//! First every block that any batch names is pinned, so that no node that the
//! replay copies lands on it (R7). Then the records are applied as the
//! operations were. Nothing is written until all of it is in memory; then a
//! checkpoint makes it durable, and the log is dead. Power may fail at any write
//! of that: the superblock, the journal and the log are whole until then (P9).

use std::sync::atomic::Ordering;

use holdfast_base::{BLOCK_SIZE, BlockRange, Lsn, TreeId};
use holdfast_format::checksum::crc64;
use holdfast_format::log::{Content, LogMark, Patch, Record};
use holdfast_format::{Key, Malformed, Superblock};

use super::replay::{Logged, LoggedBatch};
use super::{Log, Place, Ring};
use crate::apply::Slots;
use crate::batch::Change;
use crate::owed::Page;
use crate::read::Failed;
use crate::{Inner, Result, StoreError};

/// Most bytes of data that lie in a log: a patch of no byte makes a block, and memory must not follow what a
/// hostile one claims. Many times what gathers in a volume that is in use.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// Changes of a batch that are applied under one hold of the locks.
const AT_ONCE: usize = 64;

impl Inner {
    /// Brings a volume that was just opened at `superblock` to the end of its log.
    ///
    /// # Errors
    /// Refuses a log with a hole, unless nothing is written: what lies behind it was durable, and would be lost.
    pub(crate) fn recover_log(&mut self, superblock: &Superblock, logged: Logged) -> Result<()> {
        if let Some(damage) = &logged.damage {
            let why = format!("the log is damaged: {damage}");
            if !self.read_only {
                return Err(StoreError::Refused(format!(
                    "{why}; mount it read-only to copy what is left"
                )));
            }
            tracing::error!("{why}; what was done before it can be read");
        }
        self.pin(superblock, &logged.batches)?;
        for batch in &logged.batches {
            self.replay(superblock, batch)?;
        }
        self.counters.recovered_batches.set(logged.batches.len() as u64);
        self.counters.recovered_log_bytes.set(logged.bytes);
        if self.read_only {
            return Ok(());
        }
        let ring = Ring::new(
            &self.geometry,
            &*self.device,
            holdfast_format::node::volume_tag(&superblock.uuid),
        );
        let mark = follow(&logged, &ring);
        // The superblock's mark is where the ring is still read from, until the next commit.
        let place = Place { mark, head: logged.walked };
        *self.logging.log.get_mut() = Log::new(ring, place);
        self.pending.get_mut().set_place(place);
        let is_moved = mark.next != logged.mark.next;
        // Also what a commit contains was read, and is not known to be durable: nothing may be chained to it.
        if logged.walked == 0 && !is_moved {
            return Ok(());
        }
        // It was read, and is not known to be durable: a flush may have failed.
        for (block, bytes) in &logged.data {
            let at = block.byte_offset().expect("the decoder has judged the blocks");
            self.device.write(at, bytes)?;
        }
        // Not by a commit: the superblock has to say where the log goes on, even if nothing else changed.
        let _one = self.one_checkpoint.lock();
        self.checkpoint_at_once(&mut self.journal.lock())
    }

    /// Takes every block that the log names out of the free space.
    fn pin(&self, superblock: &Superblock, batches: &[LoggedBatch]) -> Result<()> {
        for batch in batches {
            for record in batch.records(superblock) {
                if let Record::Take(blocks, _) = record.map_err(|source| batch.damage(source))? {
                    let mut space = self.space.lock();
                    if !space.claim(blocks) {
                        return Err(refuse(batch, format!("the blocks {blocks:?} are not free")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies a batch.
    fn replay(&self, superblock: &Superblock, batch: &LoggedBatch) -> Result<()> {
        let mut changes = Vec::new();
        for record in batch.records(superblock) {
            match record.map_err(|source| batch.damage(source))? {
                Record::Put(key, value) => changes.push(Change::Put(key, value.to_vec())),
                Record::Inode(no, item) => changes.push(Change::Put(Key::inode(no), item.encode())),
                Record::Delete(key) => changes.push(Change::Delete(key)),
                Record::Take(blocks, content) => {
                    self.space.lock().publish(blocks);
                    if let Content::Inside(patches) = content {
                        if self.owed.bytes() as u64 > DATA_BYTES_MAX {
                            return Err(refuse(batch, "the log holds too much data".into()));
                        }
                        self.patch(blocks, &patches)?;
                    }
                }
                Record::Free(blocks) => self.give_back(batch, blocks)?,
            }
            if changes.len() >= AT_ONCE {
                self.change(&mut changes)?;
            }
        }
        self.change(&mut changes)?;
        let header = &batch.header;
        self.lsn.store(header.last, Ordering::Release);
        self.inode_next.fetch_max(header.inode_next, Ordering::AcqRel);
        self.space.lock().inodes = header.inode_count;
        // No operation is pending: the log holds them all.
        self.pending.lock().restart(Lsn(header.last));
        self.durable.store(header.last, Ordering::Release);
        Ok(())
    }

    fn give_back(&self, batch: &LoggedBatch, blocks: BlockRange) -> Result<()> {
        let mut space = self.space.lock();
        if !space.is_used(blocks) {
            return Err(refuse(batch, format!("the blocks {blocks:?} are not in use")));
        }
        space.free(blocks, false);
        self.owed.forget(blocks);
        Ok(())
    }

    fn change(&self, changes: &mut Vec<Change>) -> Result<()> {
        let mut failed = Failed::default();
        let mut at = 0;
        while at < changes.len() {
            let mut forest = self.forest.write();
            let (key, delete) = match &changes[at] {
                Change::Put(key, _) => (key, false),
                Change::Delete(key) => (key, true),
            };
            if let Err(missing) = forest.prepare(TreeId::Files, key, delete) {
                drop(forest);
                self.load(missing, &mut failed)?;
                continue;
            }
            let mut space = self.space.lock();
            let homes = &mut Slots { space: &mut space, promised: &mut 0 };
            match &changes[at] {
                Change::Put(key, value) => forest.put(TreeId::Files, key, value, homes),
                Change::Delete(key) => forest.delete(TreeId::Files, key, homes),
            }
            if let Some(damage) = &space.damage {
                return Err(StoreError::Refused(format!("{damage}; run fsck")));
            }
            drop(space);
            forest.cache.evict();
            at += 1;
        }
        changes.clear();
        Ok(())
    }

    /// Makes the bytes of blocks whose data lies inside the log. They are owed to their places.
    ///
    /// A base that cannot be read keeps a volume from being opened for writing: the log that holds the rest of
    /// the block would be given up, and a later try may read it.
    fn patch(&self, blocks: BlockRange, patches: &[Patch<'_>]) -> Result<()> {
        let mut pages: Vec<Page> = Vec::new();
        for patch in patches {
            let mut page = Box::new([0; BLOCK_SIZE]);
            if let Some(base) = patch.base
                && let Err(error) = self.read_data(BlockRange::new(base, 1), &mut page[..])
            {
                tracing::error!(
                    "block {base}, the base of one of {blocks:?}, cannot be read: {error}"
                );
                if !self.read_only {
                    return Err(error);
                }
                // The checksum of the new block says so: it speaks against its file alone.
            }
            patch.apply(&mut page);
            pages.push(Page::from(page));
        }
        self.owed.add(blocks.start, pages.into_iter());
        Ok(())
    }
}

fn refuse(batch: &LoggedBatch, why: String) -> StoreError {
    batch.damage(Malformed::new("log batch", why))
}

/// Where the log of a recovered volume goes on: behind its last batch, at a place where a batch may begin.
fn follow(logged: &Logged, ring: &Ring) -> LogMark {
    let mut mark = logged.mark;
    mark.next = ring.align(mark.next);
    if logged.given_up {
        // It is whole, and would count as soon as somebody writes the same data to the same place:
        // nothing may follow its sum, nor take its place in the chain.
        mark.sum = crc64(&mark.sum.to_le_bytes());
    }
    mark
}
