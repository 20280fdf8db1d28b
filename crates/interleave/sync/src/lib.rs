//! What stands in the place of `holdfast-sync`: atomics, threads and channels whose every use is a place
//! where another thread may go on.
//!
//! They work only inside of a run of shuttle, which chooses who goes on.

pub use shuttle::sync::{atomic, mpsc};
pub use shuttle::thread;
