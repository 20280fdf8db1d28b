//! What a mount counts: requests of the kernel, by kind, and the operations of programs, with their times.
//!
//! One operation of a program may be several requests, or none.

mod operations;
mod requests;

pub(crate) use operations::Timed;
pub use operations::{BUCKETS, BucketScale, Latency, Operation, Operations};
pub use requests::{RequestKind, Requests};
