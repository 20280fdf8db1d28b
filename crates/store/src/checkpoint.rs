//! T3, the checkpoint: nodes go to their blocks, and the journal before it is dead.
//!
//! ```text
//!  seal, at a commit -> write nodes -> flush -> superblock -> flush -> release
//! ```
//!
//! - seal: the dirty nodes of a commit are taken; writers and commits go on in
//!   the next epoch, with new blocks.
//! - write: the sealed nodes go to their new blocks, sorted, neighbours in one call.
//! - publish: the superblock, after the flush that covers all it reaches (R1), then a flush for itself.
//! - release: nodes are clean, the journal before the seal is dead, and the old
//!   locations may be given away (R2).
//!
//! A write or flush that fails stops the volume (P7). So does a thread that dies anywhere between seal and release
//! ([`Step`]): the next checkpoint would publish an epoch whose nodes reach what was sealed and never written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, Lsn};
use holdfast_device::flush_unless;
use holdfast_format::{Superblock, node};

use parking_lot::MutexGuard;

use crate::cache::SealedNode;
use crate::commit::{Committed, STEP};
use crate::journal::Journal;
use crate::lineage::Sealing;
use crate::log::Moved;
use crate::mend::AT_ONCE;
use crate::nodes::NodeWrite;
use crate::sealed::{LeftOver, Sealed};
use crate::space::alloc::Space;
use crate::space::slots::NodeSlots;
use crate::step::Step;
use crate::superblock::Present;
use crate::tree::Forest;
use crate::{Inner, Result, StoreError, nodes, superblock};

/// A checkpoint that is durable.
#[derive(Debug)]
struct Published<'a> {
    /// Of its nodes.
    blocks: Vec<BlockNo>,
    superblock: Superblock,
    journal_head: u64,
    step: Step<'a>,
}

impl Inner {
    /// Makes everything so far durable at its location, so that an opening has nothing to recover.
    pub fn checkpoint(&self) -> Result<()> {
        self.run_checkpoint(self.lock_checkpoints()?)
    }

    /// One checkpoint is made at a time, and what a change of the lineage has sealed before it is written first.
    pub(crate) fn lock_checkpoints(&self) -> Result<MutexGuard<'_, ()>> {
        let one = self.one_checkpoint.lock();
        self.mend_waiting(AT_ONCE);
        let left = self.left_over.lock().take();
        if let Some(left) = left {
            self.complete(left.taken_up(self.step("a checkpoint")))?;
        }
        Ok(one)
    }

    /// Writes what was sealed, and what is dead with that is released.
    fn complete(&self, sealed: Sealed<'_>) -> Result<()> {
        let published = self.write_sealed(sealed)?;
        // What was read while it was written: from the release on other places may be given away.
        self.mend_waiting(AT_ONCE);
        self.release(&mut self.journal.lock(), published);
        Ok(())
    }

    /// As [`Inner::checkpoint`], under the lock that lets one at a time do it.
    pub(crate) fn run_checkpoint(&self, one: MutexGuard<'_, ()>) -> Result<()> {
        self.checkpoint_or_commit(one, true, None)
    }

    /// Makes a commit that changes the lineage, and the checkpoint of what it seals.
    pub(crate) fn checkpoint_with(
        &self,
        one: MutexGuard<'_, ()>,
        sealing: &mut Sealing<'_>,
    ) -> Result<()> {
        self.checkpoint_or_commit(one, false, Some(sealing))
    }

    fn checkpoint_or_commit(
        &self,
        _one: MutexGuard<'_, ()>,
        seal: bool,
        mut sealing: Option<&mut Sealing<'_>>,
    ) -> Result<()> {
        let sealed = {
            let mut journal = self.journal.lock();
            let done = match self.commit(&mut journal, seal, sealing.as_deref_mut()) {
                Ok(Committed::Done(sealed)) => Ok(sealed),
                Ok(Committed::NoRoom) => {
                    self.checkpoint_instead(&mut journal, sealing.as_deref_mut()).map(|()| None)
                }
                Err(error) => Err(error),
            };
            if let (Err(_), Some(sealing)) = (&done, sealing.as_deref_mut()) {
                self.put_back(sealing);
            }
            done?
        };
        let Some(sealed) = sealed else {
            return Ok(());
        };
        if sealing.is_some() && self.throttle.has_threads() {
            *self.left_over.lock() = Some(LeftOver::of(*sealed));
            self.throttle.want_checkpoint();
            return Ok(());
        }
        self.complete(*sealed)
    }

    /// Makes transactions up to `upto` durable although a commit found no room for them.
    pub(crate) fn checkpoint_for_room(&self, upto: Lsn) -> Result<()> {
        let _one = self.lock_checkpoints()?;
        let mut journal = self.journal.lock();
        if self.committed.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        // The checkpoint that was waited for may have made room.
        match self.commit(&mut journal, false, None)? {
            Committed::Done(_) => Ok(()),
            Committed::NoRoom => self.checkpoint_instead(&mut journal, None),
        }
    }

    /// Makes the checkpoint that a commit without room becomes. The journal says where it stands, for readers
    /// that have no superblock of it.
    fn checkpoint_instead(
        &self,
        journal: &mut Journal,
        sealing: Option<&mut Sealing<'_>>,
    ) -> Result<()> {
        self.counters.journal_full.increment();
        self.checkpoint_at_once_with(journal, sealing)?;
        let epoch = self.superblock.lock().epoch;
        // All of it is durable. But a failed write is reported to every caller, not only to this one (P7).
        let step = self.step("a checkpoint");
        step.check(journal.say_left_out(&*self.device, epoch))?;
        step.end();
        Ok(())
    }

    /// Makes a checkpoint without the journal, of everything so far: mkfs has none yet.
    pub(crate) fn first_checkpoint(&self) -> Result<()> {
        let _one = self.lock_checkpoints()?;
        self.checkpoint_at_once(&mut self.journal.lock())
    }

    /// Seals without a commit. Commits wait until it is durable, because what they would log is based
    /// on nodes that nothing durable holds yet.
    ///
    /// The journal lacks a number from here on: a reader without this checkpoint's superblock, because it rotted,
    /// notices as soon as anything was written behind it (P6).
    pub(crate) fn checkpoint_at_once(&self, journal: &mut Journal) -> Result<()> {
        self.checkpoint_at_once_with(journal, None)
    }

    fn checkpoint_at_once_with(
        &self,
        journal: &mut Journal,
        mut sealing: Option<&mut Sealing<'_>>,
    ) -> Result<()> {
        self.check_running()?;
        let log = sealing.as_ref().map(|_| self.log_for_sealing());
        let (mut sealed, step, time) = self.stop_changers(|forest, space| {
            let time = Stopwatch::start();
            self.check_damage(space)?;
            self.carry_roots(forest, space)?;
            if let Some(sealing) = sealing.as_deref_mut() {
                self.put_items(sealing, forest, space)?;
            }
            self.carry_all_groups(forest, space)?;
            self.check_damage(space)?;
            if let Some(sealing) = sealing.as_deref_mut() {
                self.turn(sealing, forest, space);
                self.turned(sealing, forest);
                self.pending.hold_back();
            }
            let lsn = Lsn(self.lsn.load(Ordering::Acquire));
            let log = self.pending.place();
            let step = self.freeze_moment(forest, space, log, "a checkpoint");
            Ok((self.seal(forest, space, lsn), step, time))
        })?;
        log.into_iter().for_each(Moved::stays);
        self.frozen(time);
        journal.leave_a_number_out();
        sealed.stands_behind(journal);
        let resident = match mutants::is(Mutant::LogResidentNotRecovered) {
            true => Default::default(),
            false => self.log_resident.frozen(),
        };
        step.check(self.write_log_resident(&resident))?;
        let published = self.write_sealed(sealed)?;
        self.thaw(published.superblock.lsn);
        step.end();
        self.release(journal, published);
        Ok(())
    }

    /// Takes the dirty nodes and what the superblock will say; from here on the next epoch changes. Nothing that was
    /// sealed before may still be on its way: nodes of this epoch reach it.
    pub(crate) fn seal(&self, forest: &mut Forest, space: &mut Space, lsn: Lsn) -> Sealed<'_> {
        assert_eq!(forest.sealed, None, "an epoch that was sealed has not been published");
        let step = self.step("a checkpoint");
        forest.sealed = Some(forest.epoch);
        let superblock = self.superblock_of(forest, space, lsn);
        space.freed.seal();
        let slots = forest.cache.dirty_slots();
        let nodes = forest.cache.seal();
        self.throttle.sealed_are(slots);
        self.throttle.cache_is(&forest.cache);
        forest.epoch = forest.epoch.next();
        Sealed { nodes, superblock, journal_head: 0, step }
    }

    /// Writes and publishes what was sealed.
    fn write_sealed<'a>(&self, sealed: Sealed<'a>) -> Result<Published<'a>> {
        let time = Stopwatch::start();
        let Sealed { nodes, superblock, journal_head, step } = sealed;
        let geometry = self.geometry();
        let stored = |node: &SealedNode| geometry.blocks_of(node::stored(&node.bytes, &geometry));
        let bytes = nodes.iter().map(stored).sum::<u64>() * BLOCK_BYTES;
        let done = step.check(self.try_write_sealed(nodes, &superblock));
        let nanos = time.nanos();
        self.counters.checkpoint_ns.add(nanos);
        let (blocks, runs) = done?;
        self.counters.checkpoint_bytes.add(bytes);
        self.throttle.checkpoint_took(bytes, runs, nanos);
        Ok(Published { blocks, superblock, journal_head, step })
    }

    /// Returns the blocks of the nodes, and in how many runs they were written.
    fn try_write_sealed(
        &self,
        nodes: Vec<SealedNode>,
        superblock: &Superblock,
    ) -> Result<(Vec<BlockNo>, u64)> {
        let mut order: Vec<NodeWrite<'_>> =
            nodes.iter().map(|node| (node.block, &node.bytes[..])).collect();
        order.sort_unstable_by_key(|(block, _)| *block);
        if mutants::is(Mutant::NodeForgotten) && order.len() > 1 {
            order.remove(order.len() / 2);
        }
        let mut newer = Vec::new();
        if mutants::is(Mutant::SealNotCopied) {
            newer = self.changed_behind_the_seal(&order);
        }
        for (location, (_, bytes)) in order.iter_mut().zip(&newer) {
            location.1 = bytes;
        }
        let has_threads = self.throttle.has_threads();
        let runs =
            nodes::write(&*self.device, &self.stop, &superblock.geometry, &order, has_threads)?;
        let count = order.len() as u64;
        // Their bytes are not read here any more: a change of such a node need not copy it from now on.
        let blocks = nodes.into_iter().map(|node| node.block).collect();
        self.counters.checkpoint_nodes.add(count);
        let reached = flush_unless(&*self.device, Mutant::CheckpointFlush)?;
        let epoch = self.superblock.lock().epoch;
        let present = Present { epoch, blocks: self.shape.signposted() };
        let _published = superblock::publish(&*self.device, superblock, present, reached)?;
        self.shape.is_signposted(superblock.geometry.volume_blocks);
        Ok((blocks, runs))
    }

    /// What [`Mutant::SealNotCopied`] writes: each node as its copy is by now.
    fn changed_behind_the_seal(&self, order: &[NodeWrite<'_>]) -> Vec<(BlockNo, Vec<u8>)> {
        let forest = self.forest.read();
        let newer = order.iter().map(|(block, bytes)| {
            (*block, forest.cache.changed_copy_of(*block).unwrap_or_else(|| bytes.to_vec()))
        });
        newer.collect()
    }

    /// The superblock is durable: nothing before it is needed any more.
    fn release(&self, journal: &mut Journal, published: Published<'_>) {
        *self.superblock.lock() = published.superblock.clone();
        for part in published.blocks.chunks(STEP) {
            self.forest.write().cache.written(part, published.superblock.epoch);
        }
        let sealed = self.forest.write().sealed.take();
        assert_eq!(sealed, Some(published.superblock.epoch), "one checkpoint at a time");
        let freed = self.space.lock().freed.unseal();
        for part in freed.chunks(STEP) {
            self.space.lock().give_away(part);
        }
        self.space.lock().groups.evict();
        self.space_was_freed();
        self.throttle.sealed_are(NodeSlots::none());
        journal.release(published.journal_head);
        self.counters.checkpoints.increment();
        self.throttle.journal_is(journal.used_bytes(), &self.counters);
        self.throttle.relieved();
        published.step.end();
    }

    /// The last act of a store: nothing is left to recover, and the journal says so.
    pub(crate) fn close(self: &Arc<Inner>) -> Result<()> {
        match self.may_shorten_rings() {
            true => self.shorten_rings()?,
            false => self.checkpoint()?,
        }
        if self.hides_damage() {
            match self.expect_rings() {
                Ok(()) => self.first_checkpoint()?,
                // A new volume whose superblock says something else is one with rings: it could be opened no more.
                Err(StoreError::NoSpace) => {
                    tracing::warn!(
                        "the host has no room: no superblock says what was found damaged"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        self.discard_at_close();
        let _one = self.lock_checkpoints()?;
        let epoch = self.superblock.lock().epoch;
        self.journal.lock().end(&*self.device, epoch)?;
        if let Some(keeper) = &self.guard {
            keeper.leave(&*self.device);
        }
        Ok(())
    }
}
