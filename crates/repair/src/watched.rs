//! The device of a volume that is read for a repair. What it does not read while a plan is made would be missing from the plan in
//! silence, and the check of the result would find nothing: so it is remembered.

use std::sync::{Mutex, PoisonError};

use holdfast_device::{Device, DeviceError, forward};

/// A device that remembers the first read that failed.
#[derive(Debug)]
pub(crate) struct Watched<'d> {
    under: &'d dyn Device,
    failed: Mutex<Option<String>>,
}

impl<'d> Watched<'d> {
    pub(crate) fn new(under: &'d dyn Device) -> Watched<'d> {
        Watched { under, failed: Mutex::default() }
    }

    /// What the device said, if a read has failed.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Device for Watched<'_> {
    forward!(under: write, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn data_from(&self, at: u64) -> u64 {
        self.under.data_from(at)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.under.read(at, into).inspect_err(|error| {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| error.to_string());
        })
    }
}
