//! Which callers ask for durability, which one makes the batch, and how the others get their results.
//!
//! One caller leads at a time: the first that needs a batch. Callers that ask meanwhile block, or register a
//! completion callback; a callback needs no thread to be woken. A leader that accepts callbacks leads on, batch
//! after batch, until no callback is left. A leader of [`Inner::sync`] leads once; a waiting caller leads next.
//!
//! Always true: while a callback is registered, some thread leads on. No callback is lost, even if the leader panics.

use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{InodeNo, LogFallback, Lsn, Receipt, wait};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Led;
use super::gather::Gather;
use super::rhythm::Rhythm;
use crate::{Inner, Result, StoreError, step};

/// Completion callback: runs when the caller's history is durable, or never will be.
type Then = Box<dyn FnOnce(Result<Receipt>) + Send>;

/// Whether a thread leads, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leads {
    #[default]
    Nobody,
    Once,
    /// Until no callback is left.
    On,
}

#[derive(Default)]
struct QueueState {
    leads: Leads,
    /// The receipt for all callers that share the last batch.
    last: Receipt,
    rhythm: Rhythm,
    gather: Gather,
    /// Callers that wait in [`Inner::wait`].
    blocked: usize,
    /// Registered callbacks, the oldest first. Empty unless a thread leads on; only that thread removes them.
    left: Vec<Left>,
}

/// Callers that want batches.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    answered: Condvar,
    /// A callback was registered while a thread leads on, which alone may wait for that.
    asked: Condvar,
}

holdfast_base::opaque!(Queue);

impl Queue {
    /// See [`Rhythm::beside`].
    pub(super) fn beside(&self, of: Option<InodeNo>) -> Option<Duration> {
        self.state.lock().rhythm.beside(of)
    }

    /// Remembers what a batch has cost, before it is called durable.
    pub(super) fn made(&self, receipt: Receipt) {
        self.state.lock().last = receipt;
    }
}

/// What a caller asked for, and how long it has waited.
#[derive(Clone, Copy, Debug)]
struct Asked {
    upto: Lsn,
    about: InodeNo,
    own_records: u64,
    all_records: u64,
    waiting: Stopwatch,
}

/// A registered callback.
struct Left {
    asked: Asked,
    then: Then,
    /// The result of the batch that was made for it.
    outcome: Option<Result<Receipt>>,
}

/// The lead. Dropping it gives it up, also in a panic, and answers every registered callback.
struct Lead<'a> {
    inner: &'a Inner,
    is_given_up: bool,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if self.is_given_up {
            return;
        }
        let queue = &self.inner.logging.queue;
        let (left, last) = {
            let mut state = queue.state.lock();
            state.leads = Leads::Nobody;
            // Not empty only if the leader panicked while it led on.
            (std::mem::take(&mut state.left), state.last)
        };
        queue.answered.notify_all();
        for mut left in left {
            let outcome = left.outcome.take().or_else(|| self.inner.hears(&left.asked, last));
            let panicked = || Err(StoreError::Stopped("a thread panicked while it led".into()));
            (left.then)(outcome.unwrap_or_else(panicked));
        }
    }
}

impl Inner {
    /// Returns when every transaction up to `upto` is durable, by the log: one write and one flush. Costs nothing if it
    /// already is. `about`: whose records count as the caller's own in the receipt.
    pub fn sync(&self, upto: Lsn, about: InodeNo) -> Result<Receipt> {
        if self.is_durable(upto) {
            return Ok(Receipt::default());
        }
        loop {
            let asked = self.ask(upto, about);
            let mut state = self.logging.queue.state.lock();
            let lead = loop {
                if let Some(over) = self.hears(&asked, state.last) {
                    return over;
                }
                if state.leads == Leads::Nobody {
                    break self.take_lead(&mut state, Leads::Once);
                }
                self.wait(&mut state);
            };
            drop(state);
            let led = self.lead(&asked)?;
            // Waiting callers get their answer before anything else is done; after a fallback they wait for its commit.
            let _lead = matches!(led.0, Led::LogFallback(_)).then_some(lead);
            if let Some(receipt) = self.outcome(&asked, led)? {
                return Ok(receipt);
            }
        }
    }

    /// As [`Store::sync`](Inner::sync), but passes the result to `then`, before this returns or later: on the thread that makes the
    /// batch, which answers all callers that share it and makes the next one while a callback is left. The calling
    /// thread waits only while another thread makes a batch by [`Store::sync`](Inner::sync). `then` must not wait for the store, nor
    /// panic: other callers may see a panic as a volume that has stopped.
    pub fn sync_then(
        &self,
        upto: Lsn,
        about: InodeNo,
        then: impl FnOnce(Result<Receipt>) + Send + 'static,
    ) {
        if self.is_durable(upto) {
            return then(Ok(Receipt::default()));
        }
        let asked = self.ask(upto, about);
        let mut state = self.logging.queue.state.lock();
        while state.leads == Leads::Once {
            self.wait(&mut state);
            if let Some(over) = self.hears(&asked, state.last) {
                drop(state);
                return then(over);
            }
        }
        state.left.push(Left { asked, then: Box::new(then), outcome: None });
        if state.leads == Leads::On {
            drop(state);
            self.logging.queue.asked.notify_one();
            return;
        }
        let mut lead = self.take_lead(&mut state, Leads::On);
        drop(state);
        let (mut next, _) = self.tell(&mut lead);
        if next.is_some() {
            self.gather(None);
        }
        while let Some(asked) = next {
            let led = self.lead(&asked).and_then(|led| self.outcome(&asked, led));
            let outcome = led.transpose();
            let again = outcome.is_none().then(|| self.ask(asked.upto, asked.about));
            {
                // The first is still the one this batch was made for: others push behind it.
                let first = &mut self.logging.queue.state.lock().left[0];
                first.outcome = outcome;
                first.asked = again.unwrap_or(asked);
            }
            self.logging.queue.answered.notify_all();
            let answered;
            (next, answered) = self.tell(&mut lead);
            if next.is_some() {
                self.gather(Some(answered));
            }
        }
    }

    /// Waits for callers that are likely to come, if that pays: as many as were answered just now, or those that shared
    /// the last batch of the lead before. The first of those that wait already stays the first.
    fn gather(&self, answered: Option<usize>) {
        let queue = &self.logging.queue;
        let mut state = queue.state.lock();
        let (left, took) = (state.left.len(), state.rhythm.took());
        let likely = answered.unwrap_or_else(|| state.gather.likely(took));
        let Some(patience) = state.gather.patience(likely, took) else { return };
        // Those that are waited for must be heard.
        wait::will_wait();
        let time = Stopwatch::start();
        let all = left + likely;
        let _ = queue.asked.wait_while_for(&mut state, |state| state.left.len() < all, patience);
        let (came, waited) = (state.left.len() - left, left + state.blocked);
        state.gather.waited((came, waited), time.elapsed(), took);
    }

    fn ask(&self, upto: Lsn, about: InodeNo) -> Asked {
        let (own_records, all_records) = self.pending.folded().records(about);
        Asked { upto, about, own_records, all_records, waiting: Stopwatch::start() }
    }

    /// The answer for a caller that need not lead: another leader made its batch, or the volume stopped. `None` if
    /// there is none yet. A durable answer is counted here, so ask only until there is one.
    fn hears(&self, asked: &Asked, last: Receipt) -> Option<Result<Receipt>> {
        if !self.is_durable(asked.upto) {
            return self.check_running().err().map(Err);
        }
        self.counters.log_followers.increment();
        let wait_ns = asked.waiting.nanos();
        self.counters.fsync_wait_ns.add(wait_ns);
        Some(Ok(Receipt {
            own_records: asked.own_records,
            other_records: asked.all_records.saturating_sub(asked.own_records),
            wait_ns,
            led: false,
            ..last
        }))
    }

    fn wait(&self, state: &mut MutexGuard<'_, QueueState>) {
        wait::will_wait();
        state.blocked += 1;
        self.logging.queue.answered.wait(state);
        state.blocked -= 1;
    }

    fn take_lead(&self, state: &mut QueueState, leads: Leads) -> Lead<'_> {
        state.leads = leads;
        Lead { inner: self, is_given_up: false }
    }

    /// Makes a batch. Returns its outcome, and how long `asked` waited for the lead.
    fn lead(&self, asked: &Asked) -> Result<(Led, u64)> {
        let wait_ns = asked.waiting.nanos();
        self.counters.fsync_wait_ns.add(wait_ns);
        let led = self.make_batch();
        match &led {
            // Unless others had logged it all.
            Ok(Led::Logged(receipt, _)) if receipt.batch.is_some() => {
                self.logging.queue.state.lock().rhythm.batch(asked.about, receipt);
            }
            Ok(_) => {}
            // Nothing after it can be trusted (P7).
            Err(error) => step::stop(&self.stop, error.to_string()),
        }
        Ok((led?, wait_ns))
    }

    /// The leader's answer; `None` if its operation was just becoming visible and it has to make another batch.
    fn outcome(&self, asked: &Asked, (led, wait_ns): (Led, u64)) -> Result<Option<Receipt>> {
        let own_records = asked.own_records;
        match led {
            Led::Logged(receipt, logged) => {
                self.give_back(logged);
                let other_records = receipt.other_records.saturating_sub(own_records);
                let receipt = Receipt { own_records, other_records, wait_ns, led: true, ..receipt };
                Ok(self.is_durable(asked.upto).then_some(receipt))
            }
            Led::LogFallback(fallback) => {
                match fallback {
                    LogFallback::LogFull => self.counters.log_full.increment(),
                    LogFallback::TooLarge => self.counters.log_too_large.increment(),
                    LogFallback::Moved => self.counters.log_moved.increment(),
                }
                let before = self.device.stats();
                self.commit_upto(asked.upto)?;
                let after = self.device.stats();
                let receipt = Receipt {
                    fallback: Some(fallback),
                    log_bytes: after.written_bytes.saturating_sub(before.written_bytes),
                    log_writes: after.writes.saturating_sub(before.writes),
                    flushes: after.flushes.saturating_sub(before.flushes),
                    ..Receipt::default()
                };
                self.logging.queue.made(receipt);
                Ok(Some(Receipt { own_records, wait_ns, led: true, ..receipt }))
            }
        }
    }

    /// Runs all callbacks that need not wait any more, one by one: a callback that panics takes no other with it (a
    /// second panic ends the program). Returns the first callback left, for which the next batch is made; `None` ends
    /// the lead. And how many it has run.
    fn tell(&self, lead: &mut Lead<'_>) -> (Option<Asked>, usize) {
        let queue = &self.logging.queue;
        let mut answered = 0;
        loop {
            let mut state = queue.state.lock();
            let last = state.last;
            let over = state.left.iter_mut().enumerate().find_map(|(at, left)| {
                let outcome = left.outcome.take().or_else(|| self.hears(&left.asked, last));
                outcome.map(|outcome| (at, outcome))
            });
            if let Some((at, outcome)) = over {
                let Left { then, .. } = state.left.remove(at);
                drop(state);
                then(outcome);
                answered += 1;
                continue;
            }
            let next = state.left.first().map(|left| left.asked);
            if next.is_none() {
                state.leads = Leads::Nobody;
                state.gather.answered_all(answered);
                lead.is_given_up = true;
                drop(state);
                queue.answered.notify_all();
            }
            return (next, answered);
        }
    }
}
