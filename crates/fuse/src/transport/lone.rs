//! Serves a lone client on its own processor.
//!
//! A client waits for its answer, so it and the thread that serves it hardly ever run at the same time. But the kernel
//! wakes a thread on an idle processor where it finds one, and on a virtual machine that wake takes longer than serving
//! most requests. On one processor each goes on where the other stops.
//!
//! So when one client has asked [`ROW`] times in a row, the thread that serves it moves to its processor. A busy thread
//! of the lowest priority, which yields all the time, keeps the other processor from being idle: the kernel then leaves
//! both where they are. (A thread of the idle class would not do: a processor that has only such threads is idle for
//! the kernel.) The busy thread goes first, or the client would be gone when the server comes. It sleeps when nothing
//! was asked for a while, and ends when nothing was asked for long. The first request of another client ends all that, and so does a client that does not stay.
//!
//! Only on machines with two processors, both of which may be used in full: with more, all the others would have to be
//! kept busy. A ring's thread is on the client's processor anyway, and only needs the busy thread.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::processors;

/// Requests in a row that make a client a lone one; after each so many it is looked for again.
const ROW: i32 = 32;
/// A client that was found elsewhere is left alone for so many requests.
const TRUCE: i32 = 1024;
/// How much longer than a reader polls the busy thread goes on: until a flush of a fast device is over.
const SPINS: u32 = 8;
/// How long the busy thread sleeps before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// No processor.
const NONE: u32 = u32::MAX;

/// The client that asks, and where it is served.
pub(super) struct Lone {
    /// The two processors of this machine, if it has two.
    pub(super) pair: Option<[u16; 2]>,
    /// How long the busy thread goes on when nothing is asked.
    patience: Duration,
    /// The client that asked last.
    client: AtomicU32,
    /// Its requests since it was looked for; below 0 during a truce.
    asked: AtomicI32,
    /// Requests of unknown clients since its last one.
    unknown: AtomicI32,
    /// Where it is served, or [`NONE`].
    place: AtomicU32,
    /// Where the busy thread is, or [`NONE`].
    busy: AtomicU32,
    /// Requests and answers so far. May wrap.
    beats: AtomicU32,
    /// The busy thread sleeps.
    is_asleep: AtomicBool,
    /// Requests come: the busy thread is started for the first lone client.
    is_in_use: AtomicBool,
    /// There is a busy thread.
    is_there: AtomicBool,
    is_over: Mutex<bool>,
    called: Condvar,
    /// Itself, for the busy thread.
    own: Weak<Lone>,
}

impl Lone {
    /// For readers that poll for `spin`. If that is zero, or on any other machine, no client is served so.
    pub(super) fn new(spin: Duration) -> Arc<Lone> {
        let pair = processors::online().ok().and_then(|all| <[u16; 2]>::try_from(all).ok());
        // This number knows of quotas as well, which a busy thread would use up.
        let in_full = std::thread::available_parallelism().is_ok_and(|all| all.get() == 2);
        let is_of_use =
            |pair: &[u16; 2]| in_full && !spin.is_zero() && processors::may_use_all(pair);
        Lone::on(pair.filter(is_of_use), spin)
    }

    pub(super) fn on(pair: Option<[u16; 2]>, spin: Duration) -> Arc<Lone> {
        Arc::new_cyclic(|own| Lone {
            pair,
            patience: SPINS * spin,
            client: AtomicU32::new(0),
            asked: AtomicI32::new(0),
            unknown: AtomicI32::new(0),
            place: AtomicU32::new(NONE),
            busy: AtomicU32::new(NONE),
            beats: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            is_in_use: AtomicBool::new(false),
            is_there: AtomicBool::new(false),
            is_over: Mutex::new(false),
            called: Condvar::new(),
            own: Weak::clone(own),
        })
    }

    /// From now on requests come.
    pub(super) fn begin(&self) {
        self.is_in_use.store(true, Relaxed);
    }

    /// Starts the busy thread, where it is of use and not there.
    pub(super) fn start(&self) -> io::Result<()> {
        // A thread of the lowest priority may hold the lock: the next look at the client is early enough.
        let Some(is_over) = self.is_over.try_lock() else { return Ok(()) };
        let (Some(pair), Some(lone)) = (self.pair, self.own.upgrade()) else { return Ok(()) };
        if *is_over || self.is_there.swap(true, Relaxed) {
            return Ok(());
        }
        let started = holdfast_sync::start("holdfast-busy", move || {
            if let Err(error) = lone.keep_busy(pair) {
                tracing::debug!("no thread keeps a processor busy: {error}");
            }
            // Nothing is counted on it any more.
            lone.busy.store(NONE, Relaxed);
            lone.is_there.store(false, Relaxed);
        });
        if started.is_err() {
            self.is_there.store(false, Relaxed);
        }
        started.map(drop)
    }

    /// Nothing comes any more: the busy thread returns.
    pub(super) fn end(&self) {
        *self.is_over.lock() = true;
        self.part(0);
        self.called.notify_all();
    }

    /// An answer is about to leave.
    pub(super) fn will_answer(&self) {
        if self.place.load(Relaxed) != NONE {
            self.beats.fetch_add(1, Relaxed);
            // A processor that is about to wake is not idle any more. No lock is taken, as that could mean waiting for
            // a thread of the lowest priority. The next call makes up for a lost one.
            if self.is_asleep.load(Relaxed) {
                self.called.notify_one();
            }
        }
    }

    /// Where the request of `client` (a thread; 0 if unknown) is to be served if that matters. `find` tells which
    /// processor it asks from, if that is known.
    pub(super) fn place(&self, client: u32, find: impl FnOnce() -> Option<u16>) -> Option<u16> {
        self.pair?;
        if client == 0 {
            // The kernel by itself, after something that the client did; or a client in another PID namespace.
            if self.unknown.fetch_add(1, Relaxed) >= ROW {
                self.part(0);
            }
        } else {
            self.unknown.store(0, Relaxed);
            if self.client.swap(client, SeqCst) != client {
                self.part(0);
            }
            if self.asked.fetch_add(1, Relaxed) + 1 >= ROW {
                self.asked.store(0, Relaxed);
                find().into_iter().for_each(|processor| self.found(client, processor));
            }
        }
        self.beats.fetch_add(1, Relaxed);
        let (place, busy) = (self.place.load(Relaxed), self.busy.load(Relaxed));
        u16::try_from(place).ok().filter(|_| busy != NONE && busy != place)
    }

    /// As [`Lone::place`], for a ring's thread, which is on the processor of its client already. A client that does not
    /// sleep until it has its answer is none that a busy thread would help.
    pub(super) fn asked_at(&self, client: u32, processor: Option<u16>) {
        let _ = self.place(client, || processors::of_sleeper(client).and(processor));
    }

    /// The client asks from this processor. Another one may have asked while that was found out.
    fn found(&self, client: u32, processor: u16) {
        let is_same = || self.client.load(SeqCst) == client;
        if self.is_in_use.load(Relaxed)
            && !self.is_there.load(Relaxed)
            && let Err(error) = self.start()
        {
            tracing::debug!("no thread keeps a processor busy: {error}");
        }
        let place = self.place.load(Relaxed);
        if place == NONE {
            if self.pair.is_some_and(|pair| pair.contains(&processor)) {
                self.place.store(processor.into(), SeqCst);
                // Whichever of the two comes later, this or the other one's request, sees what the first has done.
                if !is_same() {
                    self.part(0);
                }
            }
        } else if place != u32::from(processor) && is_same() {
            self.part(-TRUCE);
        }
    }

    /// The client does not wait for each of its requests, does not stay, or is another one.
    fn part(&self, asked: i32) {
        self.asked.store(asked, Relaxed);
        self.unknown.store(0, Relaxed);
        self.place.store(NONE, SeqCst);
    }

    /// Body of the busy thread. Fails if a processor cannot be used any more.
    fn keep_busy(&self, pair: [u16; 2]) -> io::Result<()> {
        // That of the calling thread only.
        rustix::process::nice(19)?;
        let mut is_over = self.is_over.lock();
        while !*is_over {
            self.is_asleep.store(true, Relaxed);
            let slept = self.called.wait_for(&mut is_over, IDLE);
            self.is_asleep.store(false, Relaxed);
            if slept.timed_out() {
                // Another one is started for the next lone client.
                break;
            }
            MutexGuard::unlocked(&mut is_over, || self.be_busy(pair))?;
        }
        Ok(())
    }

    /// Returns when nothing was asked or answered for a while.
    fn be_busy(&self, pair: [u16; 2]) -> io::Result<()> {
        let (mut since, mut seen) = (Stopwatch::start(), self.beats.load(Relaxed));
        while since.elapsed() < self.patience {
            let place = self.place.load(Relaxed);
            if place == NONE {
                break;
            }
            let other = if place == u32::from(pair[0]) { pair[1] } else { pair[0] };
            if self.busy.load(Relaxed) != u32::from(other) {
                self.busy.store(NONE, Relaxed);
                processors::stay_on(&[other])?;
                self.busy.store(other.into(), Relaxed);
            }
            // A system call, too: when it returns the kernel looks for other threads that want to run, which it may put
            // off for milliseconds where a thread only computes.
            std::thread::yield_now();
            let beats = self.beats.load(Relaxed);
            if seen != beats {
                (seen, since) = (beats, Stopwatch::start());
            }
        }
        Ok(())
    }
}

/// Where the calling thread is: beside a lone client, or anywhere.
pub(super) struct Affinity {
    lone: Arc<Lone>,
    at: Cell<Option<u16>>,
}

impl Affinity {
    /// Anywhere, whatever was before: a thread inherits the affinity of the thread that started it.
    pub(super) fn anywhere(lone: &Arc<Lone>) -> Affinity {
        let place = Affinity { lone: Arc::clone(lone), at: Cell::new(None) };
        place.stay(None);
        place
    }

    /// Goes to where a request of `client` is to be served.
    pub(super) fn serve(&self, client: u32) {
        self.go(self.lone.place(client, || processors::of_sleeper(client)));
    }

    /// Whether a lone client is there, too.
    pub(super) fn is_beside_client(&self) -> bool {
        self.at.get().is_some()
    }

    /// The client is served anywhere, as it asks more before it has its answer.
    pub(super) fn part(&self) {
        self.lone.part(0);
        self.leave();
    }

    pub(super) fn leave(&self) {
        self.go(None);
    }

    fn go(&self, at: Option<u16>) {
        if self.at.get() != at {
            let is_kept = self.stay(at);
            if !is_kept {
                self.stay(None);
            }
            self.at.set(at.filter(|_| is_kept));
        }
    }

    /// Keeps the calling thread on a processor, or on none.
    fn stay(&self, at: Option<u16>) -> bool {
        let kept = match (at, &self.lone.pair) {
            (Some(at), _) => processors::stay_on(&[at]),
            (None, Some(pair)) => processors::stay_on(pair),
            (None, None) => Ok(()),
        };
        if let Err(error) = &kept {
            tracing::debug!("a thread cannot be kept on processor {at:?} (none: on any): {error}");
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests;
