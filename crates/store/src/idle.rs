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
    ended: Mutex<bool>,
    changed: Condvar,
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
            drop(self.ended.lock());
            self.changed.notify_all();
        }
    }

    /// Waits so long, whatever changes; true if the end has come.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut ended = self.ended.lock();
        while !*ended && !self.changed.wait_for(&mut ended, until.left()).timed_out() {}
        *ended
    }

    /// Waits so long, or until something changes; true if the end has come. Does not begin if it is not `still`.
    pub fn sleep(&self, time: Duration, still: impl FnOnce() -> bool) -> bool {
        let until = Deadline::after(time);
        self.asleep.store(true, Ordering::SeqCst);
        if still() {
            let mut ended = self.ended.lock();
            while !*ended && self.asleep.load(Ordering::Acquire) {
                if self.changed.wait_for(&mut ended, until.left()).timed_out() {
                    break;
                }
            }
        }
        self.asleep.store(false, Ordering::Release);
        *self.ended.lock()
    }

    /// Ends all waiting, for good.
    pub fn end(&self) {
        *self.ended.lock() = true;
        self.changed.notify_all();
    }
}
