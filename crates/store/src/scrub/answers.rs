//! Whether the device answers at all: what a device that has gone does not read is no damage.
//!
//! ```text
//!  reads that fail in a row: what they say is held back
//!    -> one that succeeds                      -> it is told
//!    -> ROW of them, or the end of the tree    -> probe: superblock, far copy, places far apart
//!         one of these is read                 -> it is told
//!         none                                 -> the scrub ends with StoreError::NoAnswer, and it is forgotten
//! ```
//!
//! What is forgotten was not marked as verified, nor anything above it: a scrub that goes on comes there again.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::DeviceError;

use super::Damaged;
use crate::{Inner, Result, StoreError};

/// So many reads that fail one behind the other are a reason to ask. A device that has gone may take half a minute for each.
const ROW: u32 = 16;
/// Places that are asked besides those of the superblock.
const PLACES: u64 = 6;

/// Reads that have failed one behind the other, and what they say.
#[derive(Default)]
pub(super) struct Row {
    failed: u32,
    last: Option<StoreError>,
    held: Vec<(Damaged, String)>,
}

impl Row {
    /// The device has read something. Returns what is to be told.
    #[must_use = "it is damage"]
    pub(super) fn end(&mut self) -> Vec<(Damaged, String)> {
        (self.failed, self.last) = (0, None);
        std::mem::take(&mut self.held)
    }

    /// A read has failed. Returns whether the device is to be asked.
    pub(super) fn has_failed(&mut self, error: StoreError) -> bool {
        self.last = Some(error);
        self.failed = self.failed.saturating_add(1);
        self.failed >= ROW
    }

    /// What is damaged; `None`: it is held back.
    pub(super) fn hold(&mut self, what: Damaged, why: String) -> Option<(Damaged, String)> {
        if self.failed == 0 {
            return Some((what, why));
        }
        self.held.push((what, why));
        None
    }

    /// Asks the device, if a read has failed. Returns what is to be told.
    ///
    /// # Errors
    /// [`StoreError::NoAnswer`].
    pub(super) fn ask(&mut self, inner: &Inner) -> Result<Vec<(Damaged, String)>> {
        if let Some(error) = self.last.take() {
            let _of_a_place = probe(inner, error)?;
        }
        Ok(self.end())
    }
}

/// Reads places far apart behind a call that has failed with `error`, which comes back if the device reads any of them.
///
/// # Errors
/// [`StoreError::NoAnswer`]: it reads none.
pub(super) fn probe(inner: &Inner, error: StoreError) -> Result<StoreError> {
    let source = match error {
        StoreError::Device(source @ DeviceError::Io { .. }) => source,
        // The device has read what is wrong.
        error => return Ok(error),
    };
    let superblock = inner.superblock.lock().clone();
    let geometry = superblock.geometry;
    let step = geometry.volume_blocks.checked_div(PLACES).unwrap_or(0);
    let apart = (0..PLACES).map(|at| BlockNo(at.saturating_mul(step)));
    for place in [superblock.slot(), geometry.far_copy()].into_iter().chain(apart) {
        let Some(at) = place.byte_offset() else { continue };
        match inner.device.read(at, &mut [0; BLOCK_SIZE]) {
            Ok(()) => return Ok(StoreError::Device(source)),
            Err(DeviceError::Io { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(StoreError::NoAnswer { source })
}
