//! What is written while the volume rests and no caller waits.
//!
//! What is pending is appended to the log without a flush: a program that is killed loses none of it, power may
//! take it. To a recovery such batches are some of those that the next flush was to make durable: each
//! header names the last batch whose flush had returned, whichever thread wrote it.
//!
//! And the last batch and the last commit are confirmed: something behind each says that it was durable. Until then
//! one that has rotted looks like one that never arrived.

use std::sync::atomic::Ordering;

use holdfast_base::{InodeNo, Lsn, Receipt};

use crate::{Inner, Result, Store};

impl Store {
    /// Returns when the host has every transaction up to `upto`: it survives a kill of this program, but perhaps not a power
    /// cut. Callers that come together share one write. Where the log cannot take it, it becomes durable instead; `about` as
    /// in [`Store::sync`](Inner::sync).
    pub fn hand_over(&self, upto: Lsn, about: InodeNo) -> Result<()> {
        if self.durable() >= upto || self.inner.append_all()? >= upto {
            return Ok(());
        }
        self.inner.sync(upto, about).map(drop)
    }
}

impl Inner {
    /// Appends what is pending to the log, without a flush: it survives a kill of this program, but perhaps not a power
    /// cut. Later calls of [`Store::sync`](Inner::sync) make it durable. For when the volume rests: no caller waits for it.
    pub fn append(&self) -> Result<()> {
        self.append_all().map(drop)
    }

    /// As [`Inner::append`]; returns up to which operation all is in the log or durable. Does nothing where a commit has to hold it, as
    /// the log has no room, or an operation is too large. A recovery must not have to read much data to judge it: above that a flush
    /// comes first.
    fn append_all(&self) -> Result<Lsn> {
        self.check_running()?;
        let mut log = self.logging.log.lock();
        let before = log.waiting().map_or(Lsn(0), |appended| appended.last);
        let before = before.max(Lsn(self.durable.load(Ordering::Acquire)));
        let Ok((generations, step)) = self.take_pending(&log) else { return Ok(before) };
        let Some(last) = generations.back().map(|generation| generation.last) else {
            step.end();
            return Ok(before);
        };
        let mut receipt = Receipt::default();
        let named = step.check(self.write_batches(&mut log, &generations, &mut receipt))?;
        // Commits go on naming this data: no flush has made it durable.
        let blocks = named.iter().map(|extent| extent.count).sum();
        let place = log.appended(last, blocks);
        self.pending.set_place(place);
        self.count_batches(generations.len() as u64, &receipt);
        self.log_is_used();
        step.end();
        drop(log);
        self.give_back(generations);
        Ok(last)
    }

    /// Confirms on the device, once and durably, what is durable: should the last batch of the log or the last commit
    /// rot from now on, an opening misses it, instead of taking it for one that a power cut tore. For when the volume
    /// rests. Costs nothing if it was written already. Returns whether anything was written.
    pub fn confirm(&self) -> Result<bool> {
        self.check_running()?;
        let step = self.step("a confirmation");
        let confirmed = step.check(self.try_confirm())?;
        step.end();
        Ok(confirmed)
    }

    fn try_confirm(&self) -> Result<bool> {
        let commit = {
            let mut journal = self.journal.lock();
            let epoch = self.superblock.lock().epoch;
            journal.confirm(&*self.device, epoch)?
        };
        let batch = self.confirm_batch()?;
        if !commit && !batch {
            return Ok(false);
        }
        let _durable = self.device.flush()?;
        self.counters.confirmations.increment();
        Ok(true)
    }

    fn confirm_batch(&self) -> Result<bool> {
        let mut log = self.logging.log.lock();
        let durable = self.durable.load(Ordering::Acquire);
        if durable <= self.committed.load(Ordering::Acquire) {
            // A commit holds all that the log does.
            return Ok(false);
        }
        let tail = self.pending.tail();
        let written = log.confirm(&*self.device, &tail, Lsn(durable))?;
        Ok(written.inspect(|bytes| self.counters.log_bytes_written.add(*bytes)).is_some())
    }
}
