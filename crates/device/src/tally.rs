//! Counts what a device has been asked, without locks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::DeviceStats;

/// The counters behind [`DeviceStats`]. Calls that failed count as well: they were asked.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
}

impl Tally {
    /// One read of `len` bytes.
    pub(crate) fn read(&self, len: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// One write of `len` bytes.
    pub(crate) fn write(&self, len: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// One flush.
    pub(crate) fn flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// One discard.
    pub(crate) fn discard(&self) {
        self.discards.fetch_add(1, Ordering::Relaxed);
    }

    /// The present values.
    pub(crate) fn stats(&self) -> DeviceStats {
        DeviceStats {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
            discards: self.discards.load(Ordering::Relaxed),
        }
    }
}
