//! Locks whose every use is a point where another thread may go on.
//!
//! They have the shape of `parking_lot`, as far as the engine uses it, and replace
//! it when `interleave` compiles it.
//! They work only inside a run of shuttle, which chooses the thread that goes on.
//!
//! A wait with a time ends at random, as soon as others had their turn: no test
//! waits for a clock.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::thread;

/// See `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// See `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` while it waits for a condition.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex that holds `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Some(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        MutexGuard { mutex: self, held }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, held: Some(held) })
    }

    /// Whether it is held.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// The value, by the only reference to it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Debug for Mutex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> MutexGuard<'_, T> {
    /// Lets the lock go, as behind each other end of a lock here.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it is away only while it waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it is away only while it waits")
    }
}

impl<T: Debug> Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// See `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

/// See `parking_lot::RwLockReadGuard`.
pub type RwLockReadGuard<'a, T> = shuttle::sync::RwLockReadGuard<'a, T>;
/// See `parking_lot::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T>(shuttle::sync::RwLockWriteGuard<'a, T>);

impl<T> RwLockWriteGuard<'_, T> {
    /// Lets the lock go. Any thread that waits may have it next, as behind each other end of a lock here.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Debug> Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> RwLock<T> {
    /// A lock that holds `value`.
    pub fn new(value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }

    /// Waits until no thread writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if no thread writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until no other thread has it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value, by the only reference to it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Debug for RwLock<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

/// See `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

/// See `parking_lot::WaitTimeoutResult`.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// No thread waits yet.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Releases the lock until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("it is away only while it waits");
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until `condition` does not hold.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Releases the lock while others run; whether the time is over is random.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) -> WaitTimeoutResult {
        drop(guard.held.take());
        thread::yield_now();
        guard.held = Some(guard.mutex.0.lock().unwrap_or_else(PoisonError::into_inner));
        WaitTimeoutResult(shuttle::rand::thread_rng().gen_range(0..2) == 0)
    }

    /// Waits until `condition` does not hold, or the time is over: that is random.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) -> WaitTimeoutResult {
        while condition(guard) {
            if self.wait_for(guard, time).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Lets one go on.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Lets all go on.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
