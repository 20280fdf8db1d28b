//! T2, the commit: what changed since the last one goes into the journal.
//!
//! ```text
//!  early groups -> freeze: groups, ranges, bytes -> frames, one flush -> thaw
//! ```
//!
//! - freeze: writers wait while the last dirty groups are carried into the space
//!   tree and the changed bytes are copied. No I/O, no search of the cache.
//! - write: frames, and one flush that makes them durable together with the data
//!   they name. Large data is flushed before, so that no recovery has to read it.
//! - thaw: history is durable up to the freeze, and data freed before it may be
//!   given away (R2).
//!
//! A commit that finds no room in the journal becomes a checkpoint (P8), which
//! is counted. A write or flush that fails stops the volume (P7).

use std::sync::atomic::Ordering;

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{Epoch, InodeNo, Lsn};
use holdfast_device::flush_unless;
use holdfast_format::journal::{CommitHead, DataExtent};
use holdfast_format::{Geometry, Superblock};

use crate::apply::Halt;
use crate::journal::Journal;
use crate::lineage::Sealing;
use crate::log::{LogPosition, Moved};
use crate::sealed::Sealed;
use crate::space::alloc::Space;
use crate::step::Step;
use crate::tree::{Forest, TreeNo};
use crate::{Inner, Result, superblock};

/// Bytes of a cancelled node in a commit.
const CANCEL_BYTES: usize = 8;

/// Ranges given away, or nodes looked at, under one hold of a lock.
pub(crate) const STEP: usize = 1024;

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Committed<'a> {
    /// Everything is durable. Holds what was sealed, if that was wanted and there was something.
    Done(Option<Box<Sealed<'a>>>),
    /// The journal has no room; nothing was changed.
    NoRoom,
}

/// What was taken while operations were stopped.
enum Frozen<'a> {
    /// Nothing changed since the last commit.
    Idle,
    NoRoom,
    /// The payload is in the journal's buffer.
    Commit {
        lsn: Lsn,
        epoch: Epoch,
        flush_data: bool,
        sealed: Option<Box<Sealed<'a>>>,
        /// Until the thaw.
        step: Step<'a>,
    },
    /// All that is in memory is committed already.
    Sealed(Box<Sealed<'a>>),
}

impl Inner {
    /// Returns when every transaction up to `upto` is contained in a durable commit.
    pub(crate) fn commit_upto(&self, upto: Lsn) -> Result<()> {
        if self.committed.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        {
            // The commit for which this caller waited may have covered it.
            let mut journal = self.journal.lock();
            if self.committed.load(Ordering::Acquire) >= upto.0 {
                return Ok(());
            }
            if let Committed::Done(_) = self.commit(&mut journal, false, None)? {
                return Ok(());
            }
        }
        self.checkpoint_for_room(upto)
    }

    /// Makes durable what is in memory, although no transaction says so: steps of deletions.
    pub(crate) fn commit_steps(&self) -> Result<()> {
        {
            let mut journal = self.journal.lock();
            if let Committed::Done(_) = self.commit(&mut journal, false, None)? {
                return Ok(());
            }
        }
        self.checkpoint()
    }

    /// Makes everything so far durable in the journal. With `seal`, the dirty nodes are sealed at the
    /// same moment, for a checkpoint.
    /// With `sealing`, the change of the lineage is part of it.
    pub(crate) fn commit(
        &self,
        journal: &mut Journal,
        seal: bool,
        sealing: Option<&mut Sealing<'_>>,
    ) -> Result<Committed<'_>> {
        self.check_running()?;
        self.carry_groups_early()?;
        journal.make_room_for(self.throttle.payload_estimate());
        match self.freeze(journal, seal, sealing)? {
            Frozen::Idle => Ok(Committed::Done(None)),
            Frozen::NoRoom => Ok(Committed::NoRoom),
            Frozen::Sealed(mut sealed) => {
                sealed.stands_behind(journal);
                Ok(Committed::Done(Some(sealed)))
            }
            Frozen::Commit { lsn, epoch, flush_data, mut sealed, step } => {
                step.check(self.write_commit(journal, epoch, flush_data))?;
                self.thaw(lsn);
                if let Some(sealed) = &mut sealed {
                    sealed.stands_behind(journal);
                }
                step.end();
                Ok(Committed::Done(sealed))
            }
        }
    }

    fn freeze(
        &self,
        journal: &mut Journal,
        seal: bool,
        mut sealing: Option<&mut Sealing<'_>>,
    ) -> Result<Frozen<'_>> {
        let log = sealing.as_ref().map(|_| self.log_for_sealing());
        let (frozen, time) = self.stop_changers(|forest, space| {
            let time = Stopwatch::start();
            Ok((self.take(journal, seal, sealing.as_deref_mut(), (forest, space))?, time))
        })?;
        if let Frozen::Commit { .. } = frozen {
            log.into_iter().for_each(Moved::stays);
            self.frozen(time);
        }
        Ok(frozen)
    }

    /// What a commit takes while writers are stopped.
    fn take(
        &self,
        journal: &mut Journal,
        seal: bool,
        mut sealing: Option<&mut Sealing<'_>>,
        (forest, space): (&mut Forest, &mut Space),
    ) -> std::result::Result<Frozen<'_>, Halt> {
        let lsn = Lsn(self.lsn.load(Ordering::Acquire));
        let is_committed = lsn.0 == self.committed.load(Ordering::Acquire);
        let is_idle =
            is_committed && space.groups.dirty_count() == 0 && forest.cache.is_committed();
        if is_idle && sealing.is_none() {
            // A commit need not have a node, and must not stay in the journal for that.
            let is_checkpoint = forest.cache.dirty_nodes() == 0 && journal.used_bytes() == 0;
            let wanted = seal && !is_checkpoint;
            return Ok(match wanted {
                true => Frozen::Sealed(Box::new(self.seal(forest, space, lsn))),
                false => Frozen::Idle,
            });
        }
        self.check_damage(space)?;
        // Roots as they are come first: a branch that is rolled back, or goes, has another one behind, or none.
        self.carry_roots(forest, space)?;
        if let Some(sealing) = &mut sealing {
            self.put_items(sealing, forest, space)?;
        }
        self.carry_all_groups(forest, space)?;
        self.check_damage(space)?;
        if let Some(sealing) = &mut sealing {
            self.turn(sealing, forest, space);
        }
        // Read before the mark that the commit holds: the tail must not pass that.
        let log = self.pending.place();
        if !self.format(journal, forest, space, lsn) {
            if let Some(sealing) = &mut sealing {
                self.turn_back(sealing, forest, space);
            }
            return Ok(Frozen::NoRoom);
        }
        let flush_data = space.unflushed.is_flushed_first();
        let step = self.freeze_moment(forest, space, log, "a commit");
        let seal = seal || sealing.as_ref().is_some_and(|sealing| sealing.seals());
        if let Some(sealing) = sealing {
            self.turned(sealing, forest);
            self.pending.hold_back();
        }
        self.throttle.cache_is(&forest.cache);
        let epoch = forest.epoch;
        let sealed = seal.then(|| Box::new(self.seal(forest, space, lsn)));
        Ok(Frozen::Commit { lsn, epoch, flush_data, sealed, step })
    }

    /// The present moment becomes durable next: what waits for that is set apart from what comes after. The log
    /// stood at `log`, or further. Ends with the thaw of what `name` says.
    pub(crate) fn freeze_moment(
        &self,
        forest: &mut Forest,
        space: &mut Space,
        log: LogPosition,
        name: &'static str,
    ) -> Step<'_> {
        let step = self.step(name);
        space.unflushed.clear();
        space.freed.freeze();
        forest.trees.freeze();
        self.log_resident.freeze();
        self.pending.freeze(log);
        self.throttle.commit_begins();
        step
    }

    /// Carries the dirty groups into the space tree until none is left.
    pub(crate) fn carry_all_groups(
        &self,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<(), crate::tree::MissingSet> {
        let time = Stopwatch::start();
        let carried = self.carry_groups(forest, space, usize::MAX);
        self.counters.frozen_groups_ns.add(time.nanos());
        #[cfg(debug_assertions)]
        let carried = carried.and_then(|()| self.compare_groups(forest, space));
        carried
    }

    /// Copies what changed into the journal's buffer; false, and nothing is changed, if it has no room.
    fn format(
        &self,
        journal: &mut Journal,
        forest: &mut Forest,
        space: &mut Space,
        lsn: Lsn,
    ) -> bool {
        let mut frozen = std::mem::take(&mut journal.frozen);
        forest.cache.freeze(&mut frozen);
        let cancels = forest.cache.cancelled().len();
        let extents = space.unflushed.extents();
        let head = CommitHead {
            nodes: frozen.nodes() as u32,
            cancels: cancels as u32,
            extents: extents.len() as u32,
            ..CommitHead::of(&self.superblock_of(forest, space, lsn))
        };
        let size = CommitHead::SIZE
            + frozen.size()
            + cancels * CANCEL_BYTES
            + extents.len() * DataExtent::SIZE;
        let fits = journal.fits(size);
        if fits {
            let payload = &mut journal.payload;
            payload.clear();
            payload.reserve(size);
            head.write(payload);
            forest.cache.format(&frozen, payload);
            for block in forest.cache.cancelled() {
                payload.extend_from_slice(&block.0.to_le_bytes());
            }
            forest.cache.clear_cancelled();
            for extent in extents {
                extent.write(payload);
            }
            assert_eq!(payload.len(), size, "the size comes from the same copy");
            self.counters.commit_nodes.add(frozen.nodes() as u64);
            self.counters.commit_ranges.add(frozen.ranges() as u64);
            self.counters.commit_range_bytes.add(frozen.range_bytes());
        }
        journal.frozen = frozen;
        fits
    }

    /// The moment that was frozen last is durable. Makes blocks reusable that were freed before it, in steps, so that
    /// no caller waits long.
    pub(crate) fn thaw(&self, lsn: Lsn) {
        self.log_resident.thaw();
        if self.forest.read().trees.has_frozen() {
            self.forest.write().trees.thaw();
        }
        self.committed.store(lsn.0, Ordering::Release);
        self.durable.fetch_max(lsn.0, Ordering::AcqRel);
        // After it is known to be durable: a leader that takes what is pending now needs nothing of before.
        let gone = self.pending.thaw();
        self.give_back(gone);
        self.log_is_used();
        let freed = self.space.lock().freed.thaw();
        for part in freed.chunks(STEP) {
            self.space.lock().give_away(part);
        }
        self.space.lock().groups.evict();
        self.space_was_freed();
    }

    fn write_commit(&self, journal: &mut Journal, epoch: Epoch, flush_data: bool) -> Result<()> {
        // Log-resident data must be at its location before the log is superseded (R5).
        if !mutants::is(Mutant::LogResidentNotCommitted) {
            self.write_log_resident(&self.log_resident.frozen())?;
        }
        if flush_data {
            self.counters.commit_data_flushes.increment();
            let _data = flush_unless(&*self.device, Mutant::CommitDataFlush)?;
        }
        let (bytes, _durable) = journal.write(&*self.device, epoch)?;
        mutants::do_late();
        self.counters.commits.increment();
        self.counters.journal_bytes_written.add(bytes);
        self.throttle.journal_is(journal.used_bytes(), &self.counters);
        Ok(())
    }

    /// What a superblock would say of this moment, but for the journal.
    pub(crate) fn superblock_of(&self, forest: &Forest, space: &Space, lsn: Lsn) -> Superblock {
        let (files, space_root) = (forest.root(TreeNo::MAIN), forest.root(TreeNo::SPACE));
        let present = self.superblock.lock().clone();
        let [log_blocks, journal_blocks] = self.shape.ring_lengths();
        Superblock {
            epoch: forest.epoch,
            geometry: Geometry { log_blocks, journal_blocks, ..present.geometry },
            files: files.pointer,
            files_level: files.level,
            space: space_root.pointer,
            space_level: space_root.level,
            lsn,
            inode_next: InodeNo(self.inode_next.load(Ordering::Acquire)),
            inode_count: space.inodes,
            used_blocks: space.used_blocks(),
            referenced_blocks: forest.trees.get(TreeNo::MAIN).referenced,
            log: self.pending.place().mark,
            writer: superblock::WRITER.into(),
            fault: self.fault.lock().clone(),
            ..present
        }
    }

    /// Gives back memory that is kept for commits and batches to come, unless one is being made: a burst leaves
    /// megabytes. For moments at which nothing is done.
    pub fn give_back_memory(&self) {
        if let Some(_one) = self.lineage.try_lock() {
            self.close_trees();
        }
        if let Some(mut journal) = self.journal.try_lock() {
            journal.give_back_memory();
        }
        drop(self.pending.take_spares());
        self.regions.give_back();
    }

    /// Counts a freeze that has just ended.
    pub(crate) fn frozen(&self, time: Stopwatch) {
        let nanos = time.nanos();
        self.counters.frozen_ns.add(nanos);
        self.counters.frozen_max_ns.raise_to(nanos);
        self.freezes.lock().record(nanos, &self.counters);
    }
}
