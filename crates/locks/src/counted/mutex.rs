//! The mutex that counts.

use std::any::type_name;
use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::seen::{Hold, Name, Way, now, waiting};

/// See `parking_lot::Mutex`.
pub struct Mutex<T> {
    name: Name,
    real: parking_lot::Mutex<T>,
}

/// See `parking_lot::MutexGuard`. What is in front is dropped first: the lock is free before its hold is counted.
pub struct MutexGuard<'a, T> {
    real: parking_lot::MutexGuard<'a, T>,
    name: &'a Name,
    /// `None` while the lock is given away for a while.
    hold: Option<Hold>,
}

impl<T> Mutex<T> {
    /// A mutex that holds `value`. It is called by the place that calls this.
    #[track_caller]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { name: Name::new(Location::caller()), real: parking_lot::Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let (at_once, patiently) = (|| self.real.try_lock(), || self.real.lock());
        let (real, hold) = self.name.take(type_name::<T>(), false, at_once, patiently);
        MutexGuard { real, name: &self.name, hold: Some(hold) }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let (real, hold) = self.name.try_take(type_name::<T>(), false, || self.real.try_lock())?;
        Some(MutexGuard { real, name: &self.name, hold: Some(hold) })
    }

    /// Whether it is held.
    pub fn is_locked(&self) -> bool {
        self.real.is_locked()
    }

    /// The value, by the only reference to it.
    pub fn get_mut(&mut self) -> &mut T {
        self.real.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.real.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: Debug> Debug for Mutex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Gives the lock away while `work` goes on.
    pub fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        guard.away(|real| parking_lot::MutexGuard::unlocked(real, work))
    }

    /// Gives the lock to the thread that has waited longest.
    pub fn unlock_fair(guard: Self) {
        let MutexGuard { real, hold, .. } = guard;
        parking_lot::MutexGuard::unlock_fair(real);
        drop(hold);
    }

    /// Does what gives the lock away and takes it again.
    pub(super) fn away<U>(
        &mut self,
        work: impl FnOnce(&mut parking_lot::MutexGuard<'a, T>) -> U,
    ) -> U {
        drop(self.hold.take());
        let asked = now();
        let (result, waited) = waiting(|| work(&mut self.real));
        let how = (Way::Again, false);
        self.hold = Some(Hold::begin(self.name, type_name::<T>(), how, asked, Some(waited)));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

impl<T: Debug> Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
