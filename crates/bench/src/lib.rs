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
mod work;

pub use counts::Counts;

use std::time::Duration;

use serde::Serialize;

/// One measured workload.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub workload: &'static str,
    /// Bytes of a tree node of the volume.
    pub node_size: usize,
    /// How many of what `unit` names.
    pub count: u64,
    /// What is counted: `files`, `MiB`, `fsyncs`.
    pub unit: &'static str,
    /// Time taken.
    pub seconds: f64,
    /// `count / seconds`.
    pub per_second: f64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Writes of the device.
    pub writes: u64,
    /// Flushes of the device.
    pub flushes: u64,
}

impl Row {
    fn new(workload: &'static str, node_size: usize, count: u64, unit: &'static str) -> Row {
        Row {
            workload,
            node_size,
            count,
            unit,
            seconds: 0.0,
            per_second: 0.0,
            written_bytes: 0,
            writes: 0,
            flushes: 0,
        }
    }

    fn took(mut self, time: Duration) -> Row {
        self.seconds = time.as_secs_f64();
        self.per_second = self.count as f64 / self.seconds.max(1e-9);
        self
    }
}
