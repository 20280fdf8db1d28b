//! A device that is asked once for what it does not read: a disk tries for seconds before it gives up a sector, and a check asks many questions
//! of the same bytes.
//!
//! What failed whole fails again as a part of more, without a call; what lies within it may read, and is asked for. So the ranges that are
//! remembered become as small as the reads are. A write or a discard there forgets them, as it may heal the sectors.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Device, DeviceError, Discards, forward};

/// The smallest sector there is: a read of any byte of it is a read of all.
const UNIT: u64 = 512;
/// Most ranges that are remembered; of more, each is asked for again.
const RANGES_MAX: usize = 1 << 16;

/// See the head of this file. It is for a time in which a device is read, not for a volume that is open.
#[derive(Debug)]
pub struct Remembering {
    under: Arc<dyn Device>,
    /// Starts of ranges that did not read, their ends, and why. None lies within another.
    failed: Mutex<BTreeMap<u64, (u64, String)>>,
}

/// Where the sectors of these bytes begin and end.
fn sectors(at: u64, len: u64) -> (u64, u64) {
    (at / UNIT * UNIT, at.saturating_add(len).div_ceil(UNIT).saturating_mul(UNIT))
}

impl Remembering {
    /// `under`, of which nothing is known.
    pub fn over(under: Arc<dyn Device>) -> Remembering {
        Remembering { under, failed: Mutex::default() }
    }

    /// Why a part of these bytes did not read.
    fn why(&self, at: u64, len: u64) -> Option<String> {
        let (start, end) = sectors(at, len);
        // Ends go up as starts do: the first that begins here ends first.
        let failed = self.failed.lock();
        let (_, (last, why)) = failed.range(start..).next()?;
        (*last <= end).then(|| why.clone())
    }

    fn remember(&self, at: u64, len: u64, why: String) {
        let (start, end) = sectors(at, len);
        let mut failed = self.failed.lock();
        // None is within this one, or it would not have been asked for; this one says more than those around it.
        let around: Vec<u64> = {
            let before = failed.range(..=start).rev().take_while(|(_, (last, _))| *last >= end);
            before.map(|(first, _)| *first).collect()
        };
        around.iter().for_each(|first| drop(failed.remove(first)));
        if failed.len() < RANGES_MAX {
            failed.insert(start, (end, why));
        }
    }

    fn forget(&self, at: u64, len: u64) {
        let (start, end) = sectors(at, len);
        let mut failed = self.failed.lock();
        let met: Vec<u64> = {
            let before = failed.range(..end).rev().take_while(|(_, (last, _))| *last > start);
            before.map(|(first, _)| *first).collect()
        };
        met.iter().for_each(|first| drop(failed.remove(first)));
    }
}

impl Device for Remembering {
    forward!(under: flush, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let len = into.len() as u64;
        if let Some(why) = self.why(at, len) {
            return Err(DeviceError::Io { call: "read", at, len, source: io::Error::other(why) });
        }
        self.under.read(at, into).inspect_err(|error| {
            if let DeviceError::Io { source, .. } = error {
                self.remember(at, len, source.to_string());
            }
        })
    }

    fn data_from(&self, at: u64) -> u64 {
        self.under.data_from(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.forget(at, bytes.len() as u64);
        self.under.write(at, bytes)
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.forget(at, len);
        self.under.discard(at, len)
    }

    fn discards(&self) -> Discards {
        self.under.discards()
    }
}
