//! Who asks for durability, who makes the batch, and how the others hear of it.
//!
//! One leads at a time, the first who needs a batch. Whoever asks meanwhile waits
//! on his thread, or leaves word what to do when he is durable: then his thread
//! does other things, and no thread has to be woken for him. Who may have word left
//! with him leads on, batch after batch, until nobody has; who only wants to know
//! of his own history leads once, and the next one takes his place.
//!
//! Always true: somebody leads while word is left.

use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{Escape, InodeNo, Lsn, Receipt, wait};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Led;
use super::rhythm::Rhythm;
use crate::{Inner, Result, StoreError};

/// What is done when somebody's history is durable, or will not be.
type Then = Box<dyn FnOnce(Result<Receipt>) + Send>;

/// Who leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leads {
    #[default]
    Nobody,
    Once,
    /// Until no word is left.
    On,
}

#[derive(Default)]
struct State {
    leads: Leads,
    /// What the last batch cost.
    last: Receipt,
    rhythm: Rhythm,
    /// Words that were left, the oldest first.
    left: Vec<Left>,
}

/// Those who want batches.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    answered: Condvar,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    /// See [`Rhythm::beside`].
    pub(super) fn beside(&self, of: Option<InodeNo>) -> Option<Duration> {
        self.state.lock().rhythm.beside(of)
    }
}

/// Who asked for what, and since when he waits.
#[derive(Clone, Copy, Debug)]
struct Asked {
    upto: Lsn,
    about: InodeNo,
    own_records: u64,
    all_records: u64,
    waiting: Stopwatch,
}

struct Left {
    asked: Asked,
    then: Then,
}

/// The lead. Given up when it is dropped, also by a panic: then nobody is left without an answer.
struct Lead<'a> {
    inner: &'a Inner,
    is_over: bool,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let queue = &self.inner.logging.queue;
        let left = {
            let mut state = queue.state.lock();
            state.leads = Leads::Nobody;
            std::mem::take(&mut state.left)
        };
        queue.answered.notify_all();
        for Left { then, .. } in left {
            let why = || StoreError::Stopped("a thread panicked while it led".into());
            then(Err(self.inner.check_running().err().unwrap_or_else(why)));
        }
    }
}

impl Inner {
    /// Returns when every batch up to `upto` is durable. `about` is who asks.
    pub(crate) fn persist(&self, upto: Lsn, about: InodeNo) -> Result<Receipt> {
        if self.is_durable(upto) {
            return Ok(Receipt::default());
        }
        let asked = self.ask(upto, about);
        loop {
            let mut state = self.logging.queue.state.lock();
            let lead = loop {
                if let Some(over) = self.is_over(&asked, &state) {
                    return over;
                }
                if state.leads == Leads::Nobody {
                    break self.take_lead(&mut state, Leads::Once);
                }
                self.wait(&mut state);
            };
            drop(state);
            let led = self.lead(&asked);
            // Those who waited have their answer before anything else is done.
            drop(lead);
            if let Some(receipt) = self.outcome(&asked, led?)? {
                return Ok(receipt);
            }
        }
    }

    /// As [`Inner::persist`], but `then` is told: before this returns, or by another thread that makes the batch.
    /// May make batches for others meanwhile.
    pub(crate) fn persist_then(
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
        let mut lead = loop {
            if let Some(over) = self.is_over(&asked, &state) {
                drop(state);
                return then(over);
            }
            match state.leads {
                Leads::Nobody => break self.take_lead(&mut state, Leads::On),
                Leads::Once => self.wait(&mut state),
                Leads::On => return state.left.push(Left { asked, then: Box::new(then) }),
            }
        };
        drop(state);
        then(self.lead_until_durable(&asked));
        while let Some(Left { asked, then }) = self.tell(&mut lead) {
            then(self.lead_until_durable(&asked));
        }
    }

    fn ask(&self, upto: Lsn, about: InodeNo) -> Asked {
        let (own_records, all_records) = self.pending.lock().records(about);
        Asked { upto, about, own_records, all_records, waiting: Stopwatch::start() }
    }

    /// What somebody hears who need not lead: another one has made his batch, or the volume has stopped.
    fn is_over(&self, asked: &Asked, state: &State) -> Option<Result<Receipt>> {
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
            ..state.last
        }))
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        wait::will_wait();
        self.logging.queue.answered.wait(state);
    }

    fn take_lead(&self, state: &mut State, leads: Leads) -> Lead<'_> {
        state.leads = leads;
        Lead { inner: self, is_over: false }
    }

    /// Makes a batch. Returns what came of it, and how long it had to wait for the lead.
    fn lead(&self, asked: &Asked) -> Result<(Led, u64)> {
        let wait_ns = asked.waiting.nanos();
        self.counters.fsync_wait_ns.add(wait_ns);
        let led = self.make_batch();
        match &led {
            Ok(Led::Logged(receipt, _)) => {
                let mut state = self.logging.queue.state.lock();
                state.last = *receipt;
                state.rhythm.batch(asked.about, receipt);
            }
            Ok(Led::Escape(_)) => {}
            // Nobody may believe what comes after it (P7).
            Err(error) => self.stop.stop(error.to_string()),
        }
        Ok((led?, wait_ns))
    }

    /// What a leader hears; `None` if he was just becoming visible, and has to make another batch.
    fn outcome(&self, asked: &Asked, (led, wait_ns): (Led, u64)) -> Result<Option<Receipt>> {
        let own_records = asked.own_records;
        match led {
            Led::Logged(receipt, logged) => {
                self.give_back(logged);
                let other_records = receipt.other_records.saturating_sub(own_records);
                let receipt = Receipt { own_records, other_records, wait_ns, led: true, ..receipt };
                Ok(self.is_durable(asked.upto).then_some(receipt))
            }
            Led::Escape(escape) => {
                match escape {
                    Escape::LogFull => self.counters.log_full.increment(),
                    Escape::TooLarge => self.counters.log_too_large.increment(),
                }
                self.commit_upto(asked.upto)?;
                Ok(Some(Receipt {
                    escape: Some(escape),
                    own_records,
                    wait_ns,
                    ..Receipt::default()
                }))
            }
        }
    }

    /// For who leads on.
    fn lead_until_durable(&self, asked: &Asked) -> Result<Receipt> {
        loop {
            if let Some(receipt) = self.outcome(asked, self.lead(asked)?)? {
                return Ok(receipt);
            }
        }
    }

    /// Tells all who left word and need not wait any more. Returns the first of the others; if there is none the
    /// lead is over.
    fn tell(&self, lead: &mut Lead<'_>) -> Option<Left> {
        let queue = &self.logging.queue;
        let mut state = queue.state.lock();
        let mut over = Vec::new();
        let mut waiting = Vec::with_capacity(state.left.len());
        for left in std::mem::take(&mut state.left) {
            match self.is_over(&left.asked, &state) {
                Some(outcome) => over.push((left.then, outcome)),
                None => waiting.push(left),
            }
        }
        let next = (!waiting.is_empty()).then(|| waiting.remove(0));
        state.left = waiting;
        if next.is_none() {
            state.leads = Leads::Nobody;
            lead.is_over = true;
        }
        drop(state);
        queue.answered.notify_all();
        for (then, outcome) in over {
            then(outcome);
        }
        next
    }
}
