//! What a power cut leaves for certain, and what it may leave.
//!
//! A [`Cut`] moves along the events of a recording. It holds the stable bytes
//! (covered by a flush) and the pending writes (all others), in the order in
//! which they were issued.
//!
//! Rules, with the contract of [`crate::Device`] as their reason:
//! - A flush covers the writes that returned before it began.
//! - A failed flush covers nothing, and the writes that it should have covered
//!   stay pending for ever: no later flush makes them certain.
//! - Writes to the same sector apply in the order of issue, whatever is lost
//!   between them. A pending write that had returned before a covered write of
//!   the same sector was issued can not come back in that sector.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::event::Event;
use crate::Device;
use crate::memory::MemoryDevice;

/// A write that a power cut may take away.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Index of its event.
    pub(super) event: usize,
    /// Byte offset.
    pub(super) at: u64,
    /// The bytes.
    pub(super) bytes: Arc<[u8]>,
    /// For each sector, whether it may still appear.
    pub(super) live: Vec<bool>,
    /// For each sector, the sum of its number and content: thousands of images ask for them.
    pub(super) sums: Vec<u64>,
    returned: Option<usize>,
    /// A flush that should have covered it failed.
    doomed: bool,
}

impl Pending {
    /// Sector numbers and the bytes of those sectors that may still appear, with their index.
    pub(super) fn sectors(&self, size: u64) -> impl Iterator<Item = (usize, u64, &[u8])> {
        let parts = self.bytes.chunks(size as usize).enumerate();
        parts
            .filter(|(index, _)| self.live[*index])
            .map(move |(index, bytes)| (index, self.at / size + index as u64, bytes))
    }

    /// The first physical sector that it touches, and the one behind the last.
    pub(super) fn physical(&self, size: u64) -> (u64, u64) {
        (self.at / size, (self.at + self.bytes.len() as u64).div_ceil(size))
    }

    fn is_covered_by(&self, began: usize) -> bool {
        !self.doomed && self.returned.is_some_and(|returned| returned <= began)
    }
}

/// A power cut at one moment of a recording.
#[derive(Debug)]
pub struct Cut {
    index: usize,
    pub(super) sector_size: u64,
    pub(super) physical_size: u64,
    pub(super) stable: MemoryDevice,
    /// Sums of the stable sectors that differ from the base, and all of them in one.
    pub(super) sums: HashMap<u64, u64>,
    pub(super) fingerprint: u64,
    pub(super) pending: Vec<Pending>,
}

impl Cut {
    pub(super) fn new(base: &MemoryDevice) -> Cut {
        Cut {
            index: 0,
            sector_size: base.sector_size().into(),
            physical_size: base.physical_sector_size().into(),
            stable: base.snapshot(),
            sums: HashMap::new(),
            fingerprint: 0,
            pending: Vec::new(),
        }
    }

    /// How many events have happened.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many writes may be lost or torn here.
    pub fn unflushed(&self) -> usize {
        self.pending.len()
    }

    /// Moves the cut behind the next event.
    pub fn advance(&mut self, event: &Event) {
        match event {
            Event::Write { at, bytes, returned }
            | Event::Discard { at, junk: bytes, returned, .. }
                if !bytes.is_empty() =>
            {
                let first = *at / self.sector_size;
                let sectors = (first..).zip(bytes.chunks(self.sector_size as usize));
                self.pending.push(Pending {
                    event: self.index,
                    at: *at,
                    bytes: Arc::clone(bytes),
                    live: vec![true; bytes.len().div_ceil(self.sector_size as usize)],
                    sums: sectors.map(|(sector, bytes)| sum(sector, bytes)).collect(),
                    returned: *returned,
                    doomed: false,
                })
            }
            Event::Flush { began } => self.flush(*began),
            Event::FlushFailed { .. } => {
                for pending in &mut self.pending {
                    pending.doomed = true;
                }
            }
            _ => {}
        }
        self.index += 1;
    }

    /// Whether this write covers a physical sector, and leaves what was durable there.
    pub(super) fn is_as_before(&self, pending: &Pending, physical: u64) -> bool {
        let at = physical * self.physical_size;
        let Some(from) = at.checked_sub(pending.at) else { return false };
        let (from, len) = (from as usize, self.physical_size as usize);
        let mut before = vec![0; len];
        pending.bytes.get(from..from + len).is_some_and(|bytes| {
            self.stable.get(at, &mut before);
            bytes == before
        })
    }

    /// What a physical sector reads as that was destroyed, and where it lies. What the device ends in is left out.
    pub(super) fn junk(&self, physical: u64) -> (u64, Vec<u8>) {
        let at = physical * self.physical_size;
        (at, super::junk(at, u64::min(self.physical_size, self.stable.len() - at) as usize))
    }

    /// The sums of its sectors.
    pub(super) fn junk_sums(&self, physical: u64) -> Vec<(u64, u64)> {
        let (at, junk) = self.junk(physical);
        let sectors = (at / self.sector_size..).zip(junk.chunks(self.sector_size as usize));
        sectors.map(|(sector, bytes)| (sector, sum(sector, bytes))).collect()
    }

    fn flush(&mut self, began: usize) {
        let mut waiting: Vec<Pending> = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if !pending.is_covered_by(began) {
                waiting.push(pending);
                continue;
            }
            for (index, sector, bytes) in pending.sectors(self.sector_size) {
                self.stable.put(sector * self.sector_size, bytes);
                let sum = pending.sums[index];
                let before = self.sums.insert(sector, sum).unwrap_or(0);
                self.fingerprint ^= before ^ sum;
            }
            for older in &mut waiting {
                if older.returned.is_some_and(|returned| returned <= pending.event) {
                    bury(older, &pending, self.sector_size);
                }
            }
        }
        waiting.retain(|pending| pending.live.contains(&true));
        self.pending = waiting;
    }
}

/// Marks the sectors in which `newer` writes hide `older` for good.
fn bury(older: &mut Pending, newer: &Pending, sector_size: u64) {
    let first = older.at / sector_size;
    for (_, sector, _) in newer.sectors(sector_size) {
        let live = sector.checked_sub(first).and_then(|index| older.live.get_mut(index as usize));
        if let Some(live) = live {
            *live = false;
        }
    }
}

/// A sum of one sector's number and content.
fn sum(sector: u64, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    sector.hash(&mut hasher);
    bytes.hash(&mut hasher);
    hasher.finish()
}
