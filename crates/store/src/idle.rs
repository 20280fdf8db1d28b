//! Whether the volume rests: work for idle times sleeps here, and the first change wakes it.
//!
//! A change costs a look at a flag. One that is missed (it comes while the sleeper lies down) is seen when the
//! sleeper's time is over.

use holdfast_sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use parking_lot::{Condvar, Mutex};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Idle {
    asleep: AtomicBool,
    state: Mutex<Wakeup>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wakeup {
    ended: bool,
    /// There is work that waits for no rest.
    called: bool,
}

impl Idle {
    /// Something has changed.
    #[inline]
    pub fn stir(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::AcqRel) {
            // The sleeper has looked at the flag, or looks again.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }

    /// There is work that waits for no rest: a pause ends at once, the present one or the next.
    pub fn call(&self) {
        self.state.lock().called = true;
        self.stir();
        self.changed.notify_all();
    }

    /// Waits so long, whatever changes, unless [called](Idle::call); true if the end has come.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut state = self.state.lock();
        while !state.ended && !state.called {
            if self.changed.wait_for(&mut state, until.left()).timed_out() {
                break;
            }
        }
        state.called = false;
        state.ended
    }

    /// Waits so long, or until something changes; true if the end has come. Does not begin if it is not `still`.
    pub fn sleep(&self, time: Duration, still: impl FnOnce() -> bool) -> bool {
        let until = Deadline::after(time);
        self.asleep.store(true, Ordering::SeqCst);
        if still() {
            let mut state = self.state.lock();
            while !state.ended && self.asleep.load(Ordering::Acquire) {
                if self.changed.wait_for(&mut state, until.left()).timed_out() {
                    break;
                }
            }
        }
        self.asleep.store(false, Ordering::Release);
        self.state.lock().ended
    }

    /// Ends all waiting, for good.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would wait for ever.
    #[test]
    fn a_call_ends_the_present_pause_and_the_next() {
        let idle = Idle::default();
        let long = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| idle.pause(long));
            idle.call();
            assert!(!waits.join().unwrap());
            idle.call();
            assert!(!idle.pause(long));
            let waits = scope.spawn(|| idle.pause(long));
            idle.end();
            assert!(waits.join().unwrap());
        });
    }
}
