//! A device that does not read everywhere, as a salvage sees it: what does not read is zeros.
//!
//! Nothing is lost by that: superblocks, nodes, frames, batches and blocks of data count only if their checksums match, and zeros
//! match only where zeros were.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, DeviceError, Discards, Flushed, forward};

/// Blocks that are remembered as not readable, so that a slow device is not asked again: 16 MiB of memory or so.
const REMEMBERED_MAX: usize = 1 << 18;

/// Reads what can be read of a device, and writes nothing. No read fails.
#[derive(Debug)]
pub struct Tolerant<'d> {
    under: &'d dyn Device,
    bad: Mutex<BTreeSet<u64>>,
}

impl<'d> Tolerant<'d> {
    /// In front of a device of which not all reads.
    pub fn new(under: &'d dyn Device) -> Tolerant<'d> {
        Tolerant { under, bad: Mutex::default() }
    }

    fn bad(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // A set of numbers is whole at any moment.
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks that did not read so far; counted up to 262,144.
    pub fn unreadable(&self) -> u64 {
        self.bad().len() as u64
    }

    /// Whether a block that is known not to read lies in the range.
    fn is_known_bad(&self, at: u64, len: u64) -> bool {
        let (first, end) = (at / BLOCK_BYTES, at.saturating_add(len).div_ceil(BLOCK_BYTES));
        self.bad().range(first..end.max(first)).next().is_some()
    }

    /// Reads a range. What does not read, or lies behind the end of a device that was cut short, is zeros.
    pub(crate) fn fill(&self, at: u64, into: &mut [u8]) {
        let inside = self.under.len().saturating_sub(at).min(into.len() as u64);
        let (here, beyond) = into.split_at_mut(inside as usize);
        if !here.is_empty() {
            self.fill_inside(at, here);
        }
        beyond.fill(0);
    }

    /// Reads a range, half of it where all does not read, down to single blocks.
    fn fill_inside(&self, at: u64, into: &mut [u8]) {
        let len = into.len() as u64;
        let is_known = self.is_known_bad(at, len);
        if !is_known && self.under.read(at, into).is_ok() {
            return;
        }
        // Parts are whole blocks, but for the first and the last: what lies beside a block that does not read is not lost with it.
        let middle = at.saturating_add(len / 2) / BLOCK_BYTES * BLOCK_BYTES;
        let middle = if middle > at { middle } else { (at / BLOCK_BYTES + 1) * BLOCK_BYTES };
        let half = middle - at;
        if half >= len {
            into.fill(0);
            let mut bad = self.bad();
            if bad.len() < REMEMBERED_MAX {
                bad.insert(at / BLOCK_BYTES);
            }
            return;
        }
        let (first, second) = into.split_at_mut(half as usize);
        self.fill_inside(at, first);
        self.fill_inside(at.saturating_add(half), second);
    }
}

impl Device for Tolerant<'_> {
    forward!(under: sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.fill(at, into);
        Ok(())
    }

    fn data_from(&self, at: u64) -> u64 {
        self.under.data_from(at)
    }

    fn write(&self, _at: u64, _bytes: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::unsupported("write"))
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        Err(DeviceError::unsupported("flush"))
    }

    fn discard(&self, _at: u64, _len: u64) -> Result<(), DeviceError> {
        Err(DeviceError::unsupported("discard"))
    }

    fn discards(&self) -> Discards {
        Discards::Refused
    }

    // It takes no write, so a host is never asked for room.
    fn room(&self) -> Option<u64> {
        None
    }

    fn given(&self) -> u64 {
        0
    }

    fn take_room(&self, _at: u64, _len: u64) -> Result<(), DeviceError> {
        Err(DeviceError::unsupported("take_room"))
    }

    fn len(&self) -> u64 {
        self.under.len()
    }
}
