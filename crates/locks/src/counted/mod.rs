//! Locks that count, in the shape of `parking_lot` as far as the engine uses it.
//!
//! Each is a lock of `parking_lot` beside a name: the place where it is made and the type that it guards. A thread counts
//! for itself, so that counting makes threads wait no more than they do, and asks for what it has counted by [`take`]. With
//! [`trace`] it also remembers each acquisition and release in their order.
//!
//! The clock is read outside of the lock: before the first attempt and behind the release. A hold that another
//! thread has waited for begins when the waiter is awake.

mod condvar;
mod cost;
mod mutex;
mod rwlock;
mod seen;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use cost::{CountingCost, cost};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use seen::{Lock, LockClass, LockCounts, LockEvent, Way, mark, sleeps, take, trace, traced};

#[cfg(test)]
mod tests;
