//! Floor 0: the locks of all crates, which know them as `parking_lot`.
//!
//! The workspace gives this crate that name. As shipped it is `parking_lot`, by its own types. With the feature `counted`,
//! which only `make locks` asks for, the names are those of [`counted`]: locks that count how often each is taken, how long
//! it is held and waited for. So it is the real code that is measured.
//!
//! Knows nothing of what the locks guard.

pub mod counted;

/// Whether the locks of this program count.
pub const COUNTED: bool = cfg!(feature = "counted");

#[cfg(feature = "counted")]
pub use counted::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitTimeoutResult,
};
#[cfg(not(feature = "counted"))]
pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitTimeoutResult,
};
