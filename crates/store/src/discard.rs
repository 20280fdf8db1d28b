//! Free space goes back to the device, or to the host of an image: by a thread of its own, and when it is asked for.
//!
//! ```text
//!  a commit or checkpoint frees blocks -> their pieces are discardable -> they stay untouched for a while
//!    -> set aside -> discard, no lock held -> free again, or unbacked until the host is asked
//! ```
//!
//! A discard is no promise: whatever becomes of it, the volume is what it was, and only space is lost that a later
//! one finds ([`Inner::trim`]). So nothing waits for it but a caller that finds no space at all, and its
//! errors stop nothing. A thread that dies in one has given its blocks back (`Aside` in `discard/round.rs`).

mod round;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::wait;
use holdfast_device::{DeviceError, Discards};
use holdfast_sync::atomic::{AtomicBool, Ordering};
use holdfast_sync::thread::JoinHandle;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::options::Discard;
use crate::space::discard::Scope;
use crate::{Inner, OpenOptions};
use round::Round;
pub use trim::Trimmed;

/// So long a volume goes on with discards when it is closed.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// When free space goes back by itself.
#[derive(Debug)]
pub(crate) struct Discarder {
    is_on: AtomicBool,
    /// What became free waits so long; zero: it is given back at once, in ranges of any length.
    delay: Duration,
    /// Held by the caller that discards.
    one: Mutex<()>,
    /// Nothing is discarded any more. Set under that lock.
    is_closed: AtomicBool,
    state: Mutex<DiscarderState>,
    changed: Condvar,
    said: Mutex<String>,
}

#[derive(Debug, Default)]
struct DiscarderState {
    ended: bool,
    /// Something became free since the last round began.
    freed: bool,
    /// A round is under way, or to come.
    is_busy: bool,
    is_running: bool,
}

impl Discarder {
    /// As `options` say of a device with these discards. `has_holes`: it is an image that its host has not given whole.
    pub(crate) fn new(options: &OpenOptions, discards: Discards, has_holes: bool) -> Discarder {
        let is_on = !options.read_only
            && match (options.discard, discards) {
                (Discard::Off, _) | (_, Discards::Refused) => false,
                (Discard::On, _) => true,
                (Discard::Auto, Discards::OfHost { .. }) => has_holes,
                (Discard::Auto, Discards::OfDevice { .. }) => false,
            };
        Discarder {
            is_on: AtomicBool::new(is_on),
            delay: options.discard_delay,
            one: Mutex::default(),
            is_closed: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            said: Mutex::default(),
        }
    }

    /// Whether free space goes back by itself.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// No discard is under way while it is held. Taken before the locks of the store.
    pub(crate) fn no_discard(&self) -> MutexGuard<'_, ()> {
        self.one.lock()
    }

    /// Something became free.
    fn freed(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.freed, true) {
            state.is_busy = true;
            self.changed.notify_all();
        }
    }

    /// The thread ends.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until something has become free; false at the end.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock();
        while !state.freed && !state.ended {
            state.is_busy = false;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        state.freed = false;
        !state.ended
    }

    /// Waits so long; false at the end.
    fn rest(&self, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut state = self.state.lock();
        while !state.ended && !until.is_over() {
            let _ = self.changed.wait_for(&mut state, until.left());
        }
        !state.ended
    }

    /// Says an error in the log, once.
    fn say(&self, error: &DeviceError) {
        let why = error.to_string();
        let mut said = self.said.lock();
        if *said != why {
            tracing::warn!("free space does not go back: {why}");
            *said = why;
        }
    }
}

/// A caller that finds too little space, until it has got it or goes away.
pub(crate) struct Wanting<'a>(&'a Inner);

impl<'a> Wanting<'a> {
    pub(crate) fn begin(inner: &'a Inner) -> Wanting<'a> {
        inner.space.lock().wants_space(true);
        Wanting(inner)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.space.lock().wants_space(false);
        self.0.host_answered.notify_all();
    }
}

/// Starts the thread that gives free space back, and adds it to `threads`. Without it the volume does all else: the
/// space goes back when the volume is closed, or [asked for](Inner::trim). The same if it panics.
pub(crate) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) {
    if !inner.discarder.is_on() {
        return;
    }
    inner.discarder.state.lock().is_running = true;
    let started = {
        let ends = Ends(inner.clone());
        holdfast_sync::start("discard", move || {
            let ends = ends;
            work(&ends.0);
        })
    };
    match started {
        Ok(thread) => threads.push(thread),
        Err(error) => tracing::warn!(
            "the system gives no thread for discards ({error}): free space goes back when the volume is closed"
        ),
    }
}

fn work(inner: &Inner) {
    let discarder = &inner.discarder;
    while discarder.wait_for_work() {
        loop {
            let before = inner.work_of_rings();
            if !discarder.rest(discarder.delay) {
                return;
            }
            match inner.discard_round(Scope::Quiet, &mut |took| discarder.rest(took)) {
                Round::Done => {
                    if inner.work_of_rings() == before
                        && let Err(error) = inner.shorten_rings()
                    {
                        tracing::warn!("the rings stay as they are: {error}");
                    }
                    break;
                }
                Round::Left if discarder.delay.is_zero() => break,
                Round::Left => {}
                Round::Over => return,
            }
        }
    }
}

/// A thread that has ended, in whatever way, has no waiters.
struct Ends(Arc<Inner>);

impl Drop for Ends {
    fn drop(&mut self) {
        let discarder = &self.0.discarder;
        let mut state = discarder.state.lock();
        (state.is_running, state.is_busy) = (false, false);
        discarder.changed.notify_all();
    }
}

impl Inner {
    /// What a commit or a checkpoint has freed may go back.
    pub(crate) fn space_was_freed(&self) {
        if !self.discarder.is_on() {
            return;
        }
        let waiting = self.space.lock().discardable_bytes();
        self.counters.discard_waiting_bytes.set(waiting);
        if waiting > 0 {
            self.discarder.freed();
        }
    }

    /// Without threads, and without a delay: what became free goes back now. No lock is held.
    pub(crate) fn discard_alone(&self) {
        if !self.discarder.is_on() || !self.discarder.delay.is_zero() || self.throttle.has_threads()
        {
            return;
        }
        // Another caller is at it: the next operation looks again.
        if self.discarder.one.is_locked() {
            return;
        }
        if std::mem::take(&mut self.discarder.state.lock().freed) {
            self.discard_round(Scope::Discardable, &mut |_| true);
        }
    }

    /// The last discards of a volume that is closed. When this returns none is under way, and none begins: another program may have
    /// the device, and those blocks, as soon as the volume is left.
    pub(crate) fn discard_at_close(&self) {
        self.discarder.end();
        // The thread gives up what it has not begun, which is discardable again.
        drop(self.discarder.one.lock());
        if self.discarder.is_on() {
            let until = Deadline::after(CLOSE_MAX);
            let all_may_go = self.space.lock().all_may_go();
            let scope = if all_may_go { Scope::All } else { Scope::Discardable };
            self.discard_round(scope, &mut |_| !until.is_over());
        }
        let _one = self.discarder.one.lock();
        self.discarder.is_closed.store(true, Ordering::Release);
    }

    /// Waits until nothing that became free is on its way back to the device by itself. At once if none is to go back.
    pub fn wait_for_discards(&self) {
        let mut state = self.discarder.state.lock();
        while state.is_running && state.is_busy && !state.ended {
            wait::will_wait();
            self.discarder.changed.wait(&mut state);
        }
    }

    /// Waits for the end of a discard, if one is under way: what it holds is free then, or can be asked for. Says whether it did.
    pub(crate) fn wait_for_discard(&self) -> bool {
        let mut space = self.space.lock();
        let Some(ended) = space.discard_under_way() else {
            return false;
        };
        wait::will_wait();
        self.host_answered.wait_while(&mut space, |space| space.discards_ended() == ended);
        true
    }
}
