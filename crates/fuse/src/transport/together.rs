//! Keeps a lone client and the thread that serves it on one processor.
//!
//! A client waits for its answer, so it and its server hardly ever run at the same time. But the kernel wakes a thread
//! on an idle processor where it finds one, and that wake takes longer than serving most requests: 10 to 20 us on a
//! virtual machine, for every answer. On one processor each goes on where the other stops.
//!
//! So when only one client has asked for a while, the thread that serves it moves to its processor. A busy thread of
//! the lowest priority, which yields all the time, keeps the other processor from being idle: the kernel then leaves
//! both where they are. (A thread of the idle class would not do: a processor that has only such threads is idle for
//! the kernel.) The busy thread goes first, or the client would be gone when the server comes. It sleeps when nothing
//! was asked for a moment, or when a request takes longer than most flushes, and is woken before the next answer. The
//! first request of another client ends all that, and so does a client that does not stay.
//!
//! Only where there are two processors and both may be used in full, as in many sandboxes: with more, all the others
//! would have to be kept busy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::processors;

/// Requests in a row that make a client a lone one; after each so many it is looked for again.
const ROW: u32 = 32;
/// How often in a row it may be found elsewhere; then it is left alone for [`TRUCE`] requests, a multiple of [`ROW`].
const STRAYS: u32 = 8;
const TRUCE: u32 = 1024;
/// How much longer the busy thread goes on during a request: until a flush of a fast device is over. The thread that
/// serves it is woken for that, too, and sooner if no processor sleeps.
const SPINS: u32 = 8;
/// No processor.
const APART: u32 = u32::MAX;

/// The client that asks, and where it is served.
pub(super) struct Together {
    /// The two processors of this machine, if it has two.
    pair: Option<[u16; 2]>,
    /// How long the busy thread goes on after an answer.
    spin: Duration,
    /// The client that asked last.
    client: AtomicU32,
    /// Its requests so far. May wrap.
    asked: AtomicU32,
    /// Requests of unknown clients since its last one.
    unknown: AtomicU32,
    /// Requests and answers so far. May wrap.
    beats: AtomicU32,
    /// The client waits for an answer.
    is_waiting: AtomicBool,
    /// Where it is served, or [`APART`].
    place: AtomicU32,
    /// Where the busy thread is, or [`APART`].
    busy: AtomicU32,
    /// How often in a row the client was not found where it is served.
    strays: AtomicU32,
    /// The busy thread sleeps.
    is_asleep: AtomicBool,
    /// There is no busy thread any more.
    is_off: AtomicBool,
    is_over: Mutex<bool>,
    called: Condvar,
}

/// Set when it is dropped.
struct Off<'a>(&'a AtomicBool);

impl Drop for Off<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Together {
    /// No request has come so far. The busy thread goes on for `spin` after an answer; if that is zero there is none.
    pub(super) fn new(spin: Duration) -> Arc<Together> {
        let pair = processors::online().ok().and_then(|all| <[u16; 2]>::try_from(all).ok());
        // This number knows of quotas as well, which a busy thread would use up.
        let in_full = std::thread::available_parallelism().is_ok_and(|all| all.get() == 2);
        let is_of_use =
            |pair: &[u16; 2]| in_full && !spin.is_zero() && processors::may_use_all(pair);
        Together::on(pair.filter(is_of_use), spin)
    }

    /// As if these were the processors of the machine.
    pub(super) fn on(pair: Option<[u16; 2]>, spin: Duration) -> Arc<Together> {
        Arc::new(Together {
            pair,
            spin,
            client: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            unknown: AtomicU32::new(0),
            beats: AtomicU32::new(0),
            is_waiting: AtomicBool::new(false),
            place: AtomicU32::new(APART),
            busy: AtomicU32::new(APART),
            strays: AtomicU32::new(0),
            is_asleep: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
            is_over: Mutex::new(false),
            called: Condvar::new(),
        })
    }

    /// The processors, if there are two, and both may be used in full.
    pub(super) fn pair(&self) -> Option<[u16; 2]> {
        self.pair
    }

    /// Starts the busy thread, where it is of use.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        if let Some(pair) = self.pair {
            let together = Arc::clone(self);
            holdfast_sync::start("holdfast-busy", move || {
                // However it ends, no thread counts on it any more.
                let _off = Off(&together.is_off);
                together.keep_busy(pair);
            })?;
        }
        Ok(())
    }

    /// Nothing comes any more: the busy thread returns.
    pub(super) fn end(&self) {
        *self.is_over.lock() = true;
        self.part();
        self.called.notify_all();
    }

    /// Where the request of `client` (a thread; 0 if unknown) is to be served if that matters.
    /// `find` tells which processor it asks from.
    pub(super) fn place(&self, client: u32, find: impl FnOnce() -> Option<u16>) -> Option<u16> {
        self.pair?;
        if client == 0 {
            // The kernel by itself, after something that the client did; or a client in another PID namespace.
            if self.unknown.fetch_add(1, Ordering::Relaxed) >= ROW {
                self.part();
            }
        } else {
            self.count(client, find);
        }
        let place = self.place.load(Ordering::Relaxed);
        if place == APART || self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        self.is_waiting.store(true, Ordering::Relaxed);
        self.beats.fetch_add(1, Ordering::Relaxed);
        let busy = self.busy.load(Ordering::Relaxed);
        let is_ready = busy != APART && busy != place;
        u16::try_from(place).ok().filter(|_| is_ready)
    }

    fn count(&self, client: u32, find: impl FnOnce() -> Option<u16>) {
        self.unknown.store(0, Ordering::Relaxed);
        if self.client.load(Ordering::Relaxed) != client {
            self.client.store(client, Ordering::Relaxed);
            self.strays.store(0, Ordering::Relaxed);
            self.part();
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if asked.is_multiple_of(TRUCE) {
            self.strays.store(0, Ordering::Relaxed);
        }
        if asked.is_multiple_of(ROW) && self.strays.load(Ordering::Relaxed) < STRAYS {
            let found = find();
            // Another client may have asked meanwhile.
            if self.client.load(Ordering::Relaxed) == client {
                self.look(found);
            }
        }
    }

    /// An answer is about to leave.
    pub(super) fn will_answer(&self) {
        if self.place.load(Ordering::Relaxed) == APART {
            return;
        }
        self.is_waiting.store(false, Ordering::Relaxed);
        self.beats.fetch_add(1, Ordering::Relaxed);
        // A processor that is about to wake is not idle any more. No lock is taken, as that could mean waiting for a
        // thread of the lowest priority. The next call makes up for a lost one.
        if self.is_asleep.load(Ordering::Relaxed) {
            self.called.notify_one();
        }
    }

    /// A request is over, also one that has no answer, or that another thread will answer.
    pub(super) fn served(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// The client does not wait for each of its requests, or is another one.
    pub(super) fn part(&self) {
        self.asked.store(0, Ordering::Relaxed);
        self.unknown.store(0, Ordering::Relaxed);
        self.place.store(APART, Ordering::Relaxed);
    }

    /// Keeps the calling thread on a processor, or on none.
    pub(super) fn stay(&self, place: Option<u16>) -> io::Result<()> {
        match (place, &self.pair) {
            (Some(place), _) => processors::stay_on(&[place]),
            (None, Some(pair)) => processors::stay_on(pair),
            (None, None) => Ok(()),
        }
    }

    /// The client asks from `processor`.
    fn look(&self, processor: Option<u16>) {
        let place = self.place.load(Ordering::Relaxed);
        let found = processor.filter(|found| self.pair.is_some_and(|pair| pair.contains(found)));
        let found = found.map_or(APART, u32::from);
        let is_stray = place != APART && place != found;
        let strays = if is_stray { self.strays.load(Ordering::Relaxed) + 1 } else { 0 };
        self.strays.store(strays, Ordering::Relaxed);
        self.place.store(if strays < STRAYS { found } else { APART }, Ordering::Relaxed);
    }

    /// Body of the busy thread.
    fn keep_busy(&self, pair: [u16; 2]) {
        // That of the calling thread only.
        if let Err(error) = rustix::process::nice(19) {
            tracing::debug!("no thread of the lowest priority: {error}");
            return self.is_off.store(true, Ordering::Relaxed);
        }
        let mut is_over = self.is_over.lock();
        while !*is_over {
            self.is_asleep.store(true, Ordering::Relaxed);
            self.called.wait(&mut is_over);
            self.is_asleep.store(false, Ordering::Relaxed);
            if let Err(error) = MutexGuard::unlocked(&mut is_over, || self.be_busy(pair)) {
                tracing::debug!("a thread cannot be kept on a processor: {error}");
                return self.is_off.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns when nothing was asked or answered for a while. Fails if a processor cannot be used any more.
    fn be_busy(&self, pair: [u16; 2]) -> io::Result<()> {
        let mut since = Stopwatch::start();
        let mut seen = self.beats.load(Ordering::Relaxed);
        while let Some(other) = self.other(pair)
            && since.elapsed() < self.patience()
        {
            if self.busy.load(Ordering::Relaxed) != u32::from(other) {
                self.busy.store(APART, Ordering::Relaxed);
                processors::stay_on(&[other])?;
                self.busy.store(u32::from(other), Ordering::Relaxed);
            }
            // A system call, too: when it returns the kernel looks for other threads that want to run, which it may put
            // off for milliseconds where a thread only computes.
            std::thread::yield_now();
            let beats = self.beats.load(Ordering::Relaxed);
            if seen != beats {
                (seen, since) = (beats, Stopwatch::start());
            }
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.spin * if self.is_waiting.load(Ordering::Relaxed) { SPINS } else { 1 }
    }

    /// The processor to be kept busy.
    fn other(&self, [first, second]: [u16; 2]) -> Option<u16> {
        match self.place.load(Ordering::Relaxed) {
            APART => None,
            place if place == u32::from(first) => Some(second),
            _ => Some(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);

    /// What the last of so many requests in a row is told, when the client asks from `processor`.
    fn asks(together: &Together, client: u32, times: u32, processor: u16) -> Option<u16> {
        let mut place = None;
        for _ in 0..times {
            place = together.place(client, || Some(processor));
            together.will_answer();
        }
        place
    }

    /// Of a machine with processors 0 and 3, the busy thread being on 0.
    fn busy_on_0() -> Arc<Together> {
        let together = Together::on(Some([0, 3]), SPIN);
        together.busy.store(0, Ordering::Relaxed);
        together
    }

    #[test]
    fn a_client_that_asks_alone_has_a_place_until_another_one_asks() {
        let together = busy_on_0();
        assert_eq!(asks(&together, 7, ROW - 1, 3), None);
        assert_eq!(asks(&together, 7, 1, 3), Some(3));
        // The client is unknown. It may be the same one, but hardly for long.
        assert_eq!(asks(&together, 0, ROW, 0), Some(3));
        assert_eq!(asks(&together, 7, 1, 3), Some(3));
        assert_eq!(asks(&together, 0, ROW + 1, 0), None);
        assert_eq!(asks(&together, 7, ROW, 3), Some(3));
        assert_eq!(asks(&together, 8, 1, 3), None);
        assert_eq!(asks(&together, 7, ROW - 1, 3), None);
        assert_eq!(asks(&together, 7, 1, 3), Some(3));
        together.part();
        assert_eq!(asks(&together, 7, 1, 3), None);
    }

    #[test]
    fn the_server_comes_after_the_busy_thread() {
        let together = Together::on(Some([0, 3]), SPIN);
        assert_eq!(asks(&together, 7, 2 * ROW, 3), None);
        assert_eq!(together.other([0, 3]), Some(0));
        together.busy.store(0, Ordering::Relaxed);
        assert_eq!(asks(&together, 7, 1, 3), Some(3));
        // The client has gone to the other one, where the busy thread still is.
        assert_eq!(asks(&together, 7, ROW, 0), None);
        assert_eq!(together.other([0, 3]), Some(3));
        together.busy.store(3, Ordering::Relaxed);
        assert_eq!(asks(&together, 7, 1, 0), Some(0));
    }

    #[test]
    fn a_client_that_does_not_stay_is_left_alone() {
        let together = busy_on_0();
        for turn in 0..20 {
            asks(&together, 7, ROW, if turn % 2 == 0 { 3 } else { 0 });
        }
        assert_eq!((together.other([0, 3]), asks(&together, 7, ROW, 3)), (None, None));
        // Another one may stay, and this one later.
        assert_eq!(asks(&together, 8, ROW, 3), Some(3));
        for turn in 0..STRAYS + 1 {
            asks(&together, 7, ROW, if turn % 2 == 0 { 3 } else { 0 });
        }
        assert_eq!(asks(&together, 7, 1, 3), None);
        assert_eq!(asks(&together, 7, TRUCE, 3), Some(3));
    }

    #[test]
    fn who_cannot_be_found_has_no_place() {
        let together = busy_on_0();
        for processor in [None, Some(1)] {
            for _ in 0..3 * ROW {
                assert_eq!(together.place(7, || processor), None);
            }
        }
    }

    #[test]
    fn two_clients_in_turn_have_no_place() {
        let together = busy_on_0();
        for client in (7..9).cycle().take(10 * ROW as usize) {
            assert_eq!(asks(&together, client, ROW - 1, 3), None);
        }
    }

    #[test]
    fn without_the_busy_thread_nobody_is_moved() {
        let together = busy_on_0();
        assert_eq!(asks(&together, 7, ROW, 3), Some(3));
        together.is_off.store(true, Ordering::Relaxed);
        assert_eq!(asks(&together, 7, 1, 3), None);
        // What it is told when it is over already, or not wanted.
        let together = Together::new(Duration::ZERO);
        together.end();
        together.start().unwrap();
        together.end();
        assert_eq!(asks(&together, 7, 10 * ROW, 0), None);
        // A processor that is not there.
        let together = Together::on(Some([0, 4095]), SPIN);
        together.place.store(0, Ordering::Relaxed);
        assert!(together.be_busy([0, 4095]).is_err());
    }

    #[test]
    fn one_processor_or_three_are_left_as_they_are() {
        let together = Together::on(None, SPIN);
        assert_eq!(asks(&together, 7, 10 * ROW, 0), None);
        together.stay(None).unwrap();
        together.start().unwrap();
        assert_eq!(Arc::strong_count(&together), 1);
    }

    #[test]
    fn the_busy_thread_takes_its_place_sleeps_and_ends() {
        let together = Together::new(SPIN);
        let Some([first, second]) = together.pair else { return };
        together.start().unwrap();
        for processor in [first, second, first] {
            until(|| asks(&together, 7, 1, processor) == Some(processor));
        }
        until(|| together.is_asleep.load(Ordering::Relaxed));
        together.end();
        until(|| Arc::strong_count(&together) == 1);
    }

    /// Returns when it is so. Gives up after a minute.
    fn until(is_so: impl Fn() -> bool) {
        let waiting = Stopwatch::start();
        while !is_so() {
            assert!(waiting.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }
}
