//! Floor 0: atomics, threads and channels, under a name that a test can replace.
//!
//! Atomics and channels are those of the standard library. So are threads, but for their start, which may be
//! refused: see [`start()`]. `interleave`
//! compiles device, store and posix once more with others instead (and
//! with other locks instead of `parking_lot`), which let a test choose the
//! thread that runs next. So it is the real code that is tested.
//!
//! Knows nothing of its users.

mod start;

pub use start::{on_threads, refuse, refused, start};
pub use std::sync::{atomic, mpsc};

/// Threads, but for their start: see [`start()`].
pub mod thread {
    pub use std::thread::{JoinHandle, sleep, yield_now};
}
