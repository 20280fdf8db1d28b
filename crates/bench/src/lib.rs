//! Floor 5: what Holdfast costs, measured and printed as it is.
//!
//! A workload is a function that is timed as a whole; its figures come with
//! what the device was asked meanwhile. Nothing here asserts a time, and
//! nothing is left out because it looks bad. Every workload does the same
//! things for the same seed; only the clock and the timers differ.
//!
//! Knows the public library, and of other filesystems what everybody knows who mounts them.

pub mod accounting;
pub mod delay;
pub mod files;
pub mod fsync;
pub mod journal;
pub mod latency;
pub mod library;
pub mod log_data;
pub mod mechanisms;
pub mod nodes;
pub mod ops;
pub mod peers;
pub mod pending;
pub mod recovery;
pub mod renames;
pub mod result;
pub mod scaling;
pub mod systems;

mod counts;
mod cut;
mod names;
mod work;

pub use counts::Counts;
