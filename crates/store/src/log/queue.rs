//! Who asks for durability, who makes the batch, and how the others hear of it.
//!
//! One leads at a time, the first who needs a batch. Whoever asks meanwhile waits
//! on his thread, or leaves word what to do when he is durable: then his thread
//! does other things, and no thread has to be woken for him. Who may have word left
//! with him leads on, batch after batch, until nobody has; who only wants to know
//! of his own history leads once, and the next one takes his place.
//!
//! Always true: somebody leads on while word is left, and no word is lost, also when he panics.

use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{Escape, InodeNo, Lsn, Receipt, wait};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Led;
use super::rhythm::Rhythm;
use crate::{Inner, Result, StoreError, step};

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
    /// What those hear who share the last batch.
    last: Receipt,
    rhythm: Rhythm,
    /// Words that were left, the oldest first; none but while somebody leads on. Only he takes them out.
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

    /// A batch is about to be called durable, which has cost so much.
    pub(super) fn made(&self, receipt: Receipt) {
        self.state.lock().last = receipt;
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

/// A word that was left.
struct Left {
    asked: Asked,
    then: Then,
    /// What came of the batch that was made for it.
    outcome: Option<Result<Receipt>>,
}

/// The lead. Given up when it is dropped, also by a panic: then nobody is left without an answer.
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
            // Not empty only if who led on has panicked.
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
    /// Returns when every batch up to `upto` is durable. `about` is who asks.
    pub(crate) fn sync(&self, upto: Lsn, about: InodeNo) -> Result<Receipt> {
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
            // Those who waited have their answer before anything else is done; after an escape they wait for its
            // commit.
            let _lead = matches!(led.0, Led::Escape(_)).then_some(lead);
            if let Some(receipt) = self.outcome(&asked, led)? {
                return Ok(receipt);
            }
        }
    }

    /// As [`Inner::sync`], but `then` is told: before this returns, or by another thread that makes the batch.
    /// May make batches for others meanwhile.
    pub(crate) fn sync_then(
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
            return;
        }
        let mut lead = self.take_lead(&mut state, Leads::On);
        drop(state);
        let mut next = self.tell(&mut lead);
        while let Some(asked) = next {
            let led = self.lead(&asked).and_then(|led| self.outcome(&asked, led));
            let outcome = led.transpose();
            let again = outcome.is_none().then(|| self.ask(asked.upto, asked.about));
            {
                // The first is still the one for whom this was: others push behind it.
                let first = &mut self.logging.queue.state.lock().left[0];
                first.outcome = outcome;
                first.asked = again.unwrap_or(asked);
            }
            self.logging.queue.answered.notify_all();
            next = self.tell(&mut lead);
            if next.is_some() {
                wait::will_help();
            }
        }
    }

    fn ask(&self, upto: Lsn, about: InodeNo) -> Asked {
        let (own_records, all_records) = self.pending.lock().records(about);
        Asked { upto, about, own_records, all_records, waiting: Stopwatch::start() }
    }

    /// What somebody hears who need not lead: another one has made his batch, or the volume has stopped. To be asked
    /// until there is something, and counted then.
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

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        wait::will_wait();
        self.logging.queue.answered.wait(state);
    }

    fn take_lead(&self, state: &mut State, leads: Leads) -> Lead<'_> {
        state.leads = leads;
        Lead { inner: self, is_given_up: false }
    }

    /// Makes a batch. Returns what came of it, and how long it had to wait for the lead.
    fn lead(&self, asked: &Asked) -> Result<(Led, u64)> {
        let wait_ns = asked.waiting.nanos();
        self.counters.fsync_wait_ns.add(wait_ns);
        let led = self.make_batch();
        match &led {
            Ok(Led::Logged(receipt, _)) => {
                self.logging.queue.state.lock().rhythm.batch(asked.about, receipt);
            }
            Ok(Led::Escape(_)) => {}
            // Nobody may believe what comes after it (P7).
            Err(error) => step::stop(&self.stop, error.to_string()),
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
                let receipt = Receipt { escape: Some(escape), ..Receipt::default() };
                self.logging.queue.made(receipt);
                Ok(Some(Receipt { own_records, wait_ns, ..receipt }))
            }
        }
    }

    /// Tells all who left word and need not wait any more, one by one: whoever panics when he hears takes no other word
    /// with him (the second to do so ends the program). Returns for whom the next batch is made, the first that is
    /// left; if there is none the lead is over.
    fn tell(&self, lead: &mut Lead<'_>) -> Option<Asked> {
        let queue = &self.logging.queue;
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
                continue;
            }
            let next = state.left.first().map(|left| left.asked);
            if next.is_none() {
                state.leads = Leads::Nobody;
                lead.is_given_up = true;
                drop(state);
                queue.answered.notify_all();
            }
            return next;
        }
    }
}
