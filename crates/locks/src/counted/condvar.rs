//! The condition that counts the waits for it as such of its mutex.

use std::time::Duration;

use holdfast_base::clock::Deadline;

use super::mutex::MutexGuard;

/// See `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

/// See `parking_lot::WaitTimeoutResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition for which no thread waits.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Wakes a thread; whether one waited.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    /// Wakes all threads that wait; how many.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }

    /// Gives the lock away until the thread is woken.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.away(|real| self.0.wait(real));
    }

    /// The same, but for `time` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult(guard.away(|real| self.0.wait_for(real, time)).timed_out())
    }

    /// Waits while `condition` holds.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait(guard);
        }
    }

    /// Waits while `condition` holds, but for `time` at most. The time is over only if it still holds then.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) -> WaitTimeoutResult {
        let until = Deadline::after(time);
        while condition(&mut **guard) {
            if self.wait_for(guard, until.left()).timed_out() {
                return WaitTimeoutResult(condition(&mut **guard));
            }
        }
        WaitTimeoutResult(false)
    }
}
