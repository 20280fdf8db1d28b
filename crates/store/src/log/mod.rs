//! T1, the fsync log: what is pending becomes durable with one write and one flush.
//!
//! ```text
//!  take what is pending -> format -> write -> FLUSH -> answer all waiting callers
//! ```
//!
//! One batch is made at a time, by the first caller that needs it (the leader). The others block or register a
//! completion callback ([`queue`]); most find their operations in this batch or the next. So answers come in the order
//! of LSNs, all callers of a batch get the same one, and a batch is written after the flush of the one before it.
//!
//! No lock that operations take is held across I/O (R4), and nothing here waits
//! for a commit or a checkpoint, unless the ring is truly full.

mod around_mark;
mod arrivals;
mod bounds;
mod format;
mod gather;
pub(crate) mod generation;
mod validate;
mod validate_blocks;
mod validate_lineage;
pub(crate) mod parts;
pub(crate) mod pending;
mod pending_log;
mod position;
mod queue;
mod rest;
mod values;
pub(crate) mod recover;
pub(crate) mod replay;
mod rhythm;
mod ring;

use holdfast_sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::switch::Batching;
use holdfast_base::{InodeNo, LogFallback, Lsn, Receipt};
use holdfast_device::flush_unless;
use holdfast_format::journal::DataExtent;
use holdfast_format::log::LogMark;
use holdfast_format::log::{BATCH_BYTES_MAX, DATA_BLOCKS_MAX};
use parking_lot::{Mutex, MutexGuard};

use crate::step::Step;
use crate::{Inner, Result};

use format::BatchFormat;
use generation::Generation;
use pending::{Generations, SPARES};
pub(crate) use pending_log::PendingLog;
pub(crate) use position::LogPosition;
use queue::Queue;
use ring::Span;
pub(crate) use ring::{Log, Ring};

/// The log of an open store and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct Logging {
    queue: Queue,
    log: Mutex<Log>,
    batching: Batching,
}

impl Logging {
    pub(crate) fn new(ring: Ring, place: LogPosition, batching: Batching) -> Logging {
        Logging { queue: Queue::default(), log: Mutex::new(Log::new(ring, place)), batching }
    }

    /// Until it is said otherwise, no batch goes on at the ring's start: the ring is about to be longer.
    pub(crate) fn keeps_before_the_end(&self, yes: bool) {
        self.log.lock().keeps_before_the_end(yes);
    }

    /// Whether the batch before the mark goes on at the ring's start: in a longer ring it would lie elsewhere.
    pub(crate) fn is_split_before_the_mark(&self) -> bool {
        let place = self.log.lock().place();
        place.before > place.mark.next
    }

    /// The ring has so many bytes from now on.
    pub(crate) fn has_length(&self, bytes: u64) {
        self.log.lock().has_length(bytes);
    }

    /// While it is held no batch is written; the next one goes to the ring's start.
    pub(crate) fn at_start<'a>(&'a self, pending: &'a PendingLog) -> Moved<'a> {
        let start = |mark| LogMark { next: 0, sum: 0, ..mark };
        self.moved(pending, |was| LogPosition { mark: start(was.mark), before: 0, ..was })
    }

    /// While it is held no batch is written; the next one leaves a number out, which counts as durable: a reader that lacks
    /// what comes before finds a hole there, and applies the batch to nothing older.
    pub(crate) fn without_a_number<'a>(&'a self, pending: &'a PendingLog) -> Moved<'a> {
        let next = |mark: LogMark| match mutants::is(Mutant::SealKeepsNumber) {
            true => mark,
            false => LogMark { batch: mark.batch.next(), ..mark },
        };
        self.moved(pending, |was| LogPosition { mark: next(was.mark), ..was })
    }

    fn moved<'a>(
        &'a self,
        pending: &'a PendingLog,
        to: impl FnOnce(LogPosition) -> LogPosition,
    ) -> Moved<'a> {
        let mut log = self.log.lock();
        let was = log.place();
        let place = to(was);
        log.goes_on_at(place);
        pending.set_place(place);
        Moved { log, pending, was: Some(was) }
    }

    /// How long a batch takes, if anything but `of` was fsynced lately.
    pub(crate) fn beside(&self, of: Option<InodeNo>) -> Option<Duration> {
        self.queue.beside(of)
    }
}

/// The log at another place, or number. Where it is not said to stay, it goes on where it was.
pub(crate) struct Moved<'a> {
    log: MutexGuard<'a, Log>,
    pending: &'a PendingLog,
    was: Option<LogPosition>,
}

impl Moved<'_> {
    /// A commit or a superblock says so: no batch is written before that is durable, and with it all before.
    pub(crate) fn stays(mut self) {
        self.log.is_durable();
        self.was = None;
    }

    /// As [`Moved::stays`], in a ring of so many bytes.
    pub(crate) fn stays_in(mut self, bytes: u64) {
        self.log.has_length(bytes);
        self.stays();
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        if let Some(was) = self.was.take() {
            self.log.goes_on_at(was);
            self.pending.set_place(was);
        }
    }
}

/// How a leader's work ended.
enum Led {
    /// What it cost, and what is durable now and no longer needed in memory.
    Logged(Receipt, Generations),
    LogFallback(LogFallback),
}

/// Why nothing was taken of what is pending.
enum NotTaken {
    LogFallback(LogFallback),
    /// A commit that changes the lineage is being made.
    HeldBack,
}

impl Inner {
    fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable.load(Ordering::Acquire) >= lsn.0
    }

    /// Makes everything durable that is pending now, or was appended before.
    fn make_batch(&self) -> Result<Led> {
        // What was taken would be lost, and the next caller would find nothing to wait for.
        let (mut log, generations, step) = loop {
            self.check_running()?;
            let log = self.logging.log.lock();
            match self.take_pending(&log) {
                Ok((generations, step)) => break (log, generations, step),
                Err(NotTaken::LogFallback(fallback)) => return Ok(Led::LogFallback(fallback)),
                Err(NotTaken::HeldBack) => {
                    drop(log);
                    self.counters.log_held_back.increment();
                    // The commit holds this lock until it is durable.
                    drop(self.journal.lock());
                }
            }
        };
        let waiting = log.waiting().map(|appended| appended.last);
        let Some(last) = generations.back().map(|generation| generation.last).or(waiting) else {
            step.end();
            // All of it was logged meanwhile: the caller finds it durable.
            return Ok(Led::Logged(Receipt::default(), Generations::new()));
        };
        let mut receipt = Receipt::default();
        let named = step.check(self.write_batches(&mut log, &generations, &mut receipt))?;
        let time = Stopwatch::start();
        let _durable = step.check(flush_unless(&*self.device, Mutant::LogFlush))?;
        mutants::do_late();
        receipt.flushes += 1;
        receipt.flush_ns = time.nanos();
        let place = log.flushed();
        receipt.batch = Some(place.mark.batch);
        self.space.lock().unflushed.flushed(&named);
        self.pending.set_place(place);
        // A caller that finds its history durable finds the cost, too.
        self.logging.queue.made(receipt);
        self.durable.fetch_max(last.0, Ordering::AcqRel);
        self.count_batches(generations.len() as u64, &receipt);
        self.counters.log_flushes.increment();
        self.counters.log_flush_ns.add(receipt.flush_ns);
        self.log_is_used();
        step.end();
        Ok(Led::Logged(receipt, generations))
    }

    /// Takes what is pending, if the log has room for all of it. The step ends when a batch of it is durable or
    /// appended.
    fn take_pending(&self, log: &Log) -> std::result::Result<(Generations, Step<'_>), NotTaken> {
        let mut pending = self.pending.folded();
        if self.pending.is_held_back() {
            return Err(NotTaken::HeldBack);
        }
        if pending.has_moves() {
            return Err(NotTaken::LogFallback(LogFallback::Moved));
        }
        let mut needed = 0;
        for bound in pending.bounds() {
            if bound > BATCH_BYTES_MAX {
                return Err(NotTaken::LogFallback(LogFallback::TooLarge));
            }
            needed += bound;
        }
        if needed as u64 > log.room(&pending.tail()) {
            return Err(NotTaken::LogFallback(LogFallback::LogFull));
        }
        if mutants::is(Mutant::AnswerBeforeWrite) {
            self.durable.store(self.lsn.load(Ordering::Acquire), Ordering::Release);
        }
        let step = self.step("a batch of the log");
        Ok((pending.take(), step))
    }

    /// Writes batches of what was taken; much data is flushed before. Returns the data that waits for their flush.
    fn write_batches(
        &self,
        log: &mut Log,
        generations: &Generations,
        receipt: &mut Receipt,
    ) -> Result<Vec<DataExtent>> {
        let own = generations.iter().map(|of| of.unflushed_blocks()).sum::<u64>();
        let data_is_durable = own + log.waiting().map_or(0, |of| of.blocks) > DATA_BLOCKS_MAX;
        if data_is_durable {
            // No recovery shall have to read so much.
            let _data = flush_unless(&*self.device, Mutant::LogDataFlush)?;
            self.counters.log_data_flushes.increment();
            receipt.flushes += 1;
            log.appended_are_durable();
        }
        let how = BatchFormat { batching: self.logging.batching, data_is_durable };
        let named = self.format_batches(log, generations, how, receipt);
        let time = Stopwatch::start();
        (receipt.log_bytes, receipt.log_writes) = log.write(&*self.device)?;
        receipt.write_ns = time.nanos();
        Ok(named)
    }

    /// These changes are not needed any more: some of the memory is used again.
    pub(crate) fn give_back(&self, gone: Generations) {
        let spares = gone.into_iter().filter_map(Generation::emptied).take(SPARES).collect();
        let _surplus = self.pending.give_back(spares);
    }

    /// Tells the throttle what the log holds.
    pub(crate) fn log_is_used(&self) {
        let told = |all, fresh, waiting| {
            self.throttle.log_is(all, fresh, &self.counters);
            self.throttle.pending_is(waiting);
        };
        self.pending.tell_work(&self.log_resident, told);
    }

    /// Puts the batches into the log's buffer. Returns the data that their flush makes durable.
    fn format_batches(
        &self,
        log: &mut Log,
        generations: &Generations,
        how: BatchFormat,
        receipt: &mut Receipt,
    ) -> Vec<DataExtent> {
        let time = Stopwatch::start();
        let mut named = Vec::new();
        for generation in generations {
            let written = format::format(generation, how, log.begin());
            log.end(Span {
                after: generation.after,
                last: generation.last,
                inode_next: self.inode_next.load(Ordering::Acquire),
                inode_count: generation.inode_count,
                records: written.records,
                data_bytes: written.data_bytes,
            });
            named.extend(written.named);
            receipt.other_records += u64::from(written.records);
            self.counters.log_data_bytes.add(written.data_bytes);
        }
        receipt.format_ns = time.nanos();
        named
    }

    fn count_batches(&self, batches: u64, receipt: &Receipt) {
        let counters = &self.counters;
        counters.log_batches.add(batches);
        counters.log_records.add(receipt.other_records);
        counters.log_bytes_written.add(receipt.log_bytes);
        counters.log_writes.add(receipt.log_writes);
        counters.log_format_ns.add(receipt.format_ns);
        counters.log_write_ns.add(receipt.write_ns);
    }
}
