//! What an fsync cost, and why.
//!
//! Receipts are answers, not measurements of a moment: bytes, writes and
//! flushes are those of the calls that made this fsync's history durable,
//! counted where they were made.

use crate::BatchNo;

/// Why an fsync was not answered by the log alone. Each is counted and expected to be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// The log had no room; a commit made some.
    LogFull,
    /// More had changed than one batch may hold.
    TooLarge,
}

impl Escape {
    /// The reason, as a part of a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Escape::LogFull => "the log had no room",
            Escape::TooLarge => "more had changed than one batch of the log may hold",
        }
    }
}

/// What an fsync cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The batch that made it durable; `None` when nothing was undurable, or after an escape.
    pub batch: Option<BatchNo>,
    /// Whether this fsync wrote the batch; otherwise it waited for one that another wrote.
    pub led: bool,
    /// Why a commit was needed.
    pub escape: Option<Escape>,
    /// Bytes of file data that this fsync wrote to their place.
    pub data_bytes: u64,
    /// Write calls for them.
    pub data_writes: u64,
    /// Bytes of the batch, heads and padding included.
    pub log_bytes: u64,
    /// Write calls for the batch.
    pub log_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Records of the batch that tell of the file or directory itself, and of its names.
    pub own_records: u64,
    /// Records that the batch carried along: history is one sequence.
    pub other_records: u64,
    /// Nanoseconds until the file's data was written and its records made.
    pub data_ns: u64,
    /// Nanoseconds of waiting for batches of others.
    pub wait_ns: u64,
    /// Nanoseconds in which the batch was formatted.
    pub format_ns: u64,
    /// Nanoseconds in which it was written.
    pub write_ns: u64,
    /// Nanoseconds in which it was flushed.
    pub flush_ns: u64,
}

impl Receipt {
    /// Whether nothing was undurable, and nothing was done.
    pub fn is_clean(&self) -> bool {
        self.batch.is_none() && self.escape.is_none()
    }
}
