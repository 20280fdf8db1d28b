//! The lock of readers and writers that counts.

use std::any::type_name;
use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::seen::{Hold, Name};

/// See `parking_lot::RwLock`.
pub struct RwLock<T> {
    name: Name,
    real: parking_lot::RwLock<T>,
}

/// See `parking_lot::RwLockReadGuard`. What is in front is dropped first, here and below.
pub struct RwLockReadGuard<'a, T> {
    real: parking_lot::RwLockReadGuard<'a, T>,
    hold: Hold,
}

/// See `parking_lot::MappedRwLockReadGuard`.
pub struct MappedRwLockReadGuard<'a, T: ?Sized> {
    real: parking_lot::MappedRwLockReadGuard<'a, T>,
    _hold: Hold,
}

/// See `parking_lot::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T> {
    real: parking_lot::RwLockWriteGuard<'a, T>,
    hold: Hold,
}

impl<T> RwLock<T> {
    /// A lock that holds `value`. It is called by the place that calls this.
    #[track_caller]
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { name: Name::new(Location::caller()), real: parking_lot::RwLock::new(value) }
    }

    /// Waits until no thread writes, or waits to write.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (real, hold) =
            self.name.take(type_name::<T>(), true, || self.real.try_read(), || self.real.read());
        RwLockReadGuard { real, hold }
    }

    /// Waits until no thread writes: the calling thread may have the lock for reading.
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        let at_once = || self.real.try_read_recursive();
        let (real, hold) =
            self.name.take(type_name::<T>(), true, at_once, || self.real.read_recursive());
        RwLockReadGuard { real, hold }
    }

    /// The lock, if no thread writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let (real, hold) = self.name.try_take(type_name::<T>(), true, || self.real.try_read())?;
        Some(RwLockReadGuard { real, hold })
    }

    /// Waits until no other thread has it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let (real, hold) =
            self.name.take(type_name::<T>(), false, || self.real.try_write(), || self.real.write());
        RwLockWriteGuard { real, hold }
    }

    /// The lock, if no other thread has it.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let (real, hold) = self.name.try_take(type_name::<T>(), false, || self.real.try_write())?;
        Some(RwLockWriteGuard { real, hold })
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

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: Debug> Debug for RwLock<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl<'a, T> RwLockReadGuard<'a, T> {
    /// The part of the value that `part` finds, still locked; or the guard as it was.
    ///
    /// # Errors
    /// `part` finds none.
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        let RwLockReadGuard { real, hold } = guard;
        match parking_lot::RwLockReadGuard::try_map(real, part) {
            Ok(real) => Ok(MappedRwLockReadGuard { real, _hold: hold }),
            Err(real) => Err(RwLockReadGuard { real, hold }),
        }
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    /// Gives the lock to the thread that has waited longest.
    pub fn unlock_fair(guard: Self) {
        let RwLockWriteGuard { real, hold } = guard;
        parking_lot::RwLockWriteGuard::unlock_fair(real);
        drop(hold);
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T: ?Sized> Deref for MappedRwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

impl<T: Debug> Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Debug + ?Sized> Debug for MappedRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Debug> Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
