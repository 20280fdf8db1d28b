//! Floor 0: atomics, threads and channels, under a name that a test can replace.
//!
//! These are those of the standard library, and nothing else. `interleave`
//! compiles device, store and posix once more with others in this place (and
//! with other locks in the place of `parking_lot`), which let a test choose who
//! runs next. So it is the real code that is tested.
//!
//! Knows nothing of who uses them.

pub use std::sync::{atomic, mpsc};
pub use std::thread;
