//! The rings of a volume in a sparse image: taken from the host by an opening, of a new volume by its first change.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch};
use holdfast_device::DeviceError;
use holdfast_format::Geometry;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;

use crate::space::unbacked::PIECE_BYTES;
use crate::{Inner, Result, StoreError};

/// Zeros that are written at a time.
const ZEROS_BYTES: usize = 1 << 20;
/// The epoch in which mkfs leaves a volume.
pub(crate) const MADE: Epoch = Epoch(2);

/// Bytes that the first change of a new volume takes of the host of a sparse image: what is in use of both rings, and a piece each for nodes,
/// their copies and data.
pub fn first_change_bytes(geometry: &Geometry) -> u64 {
    let rings: u64 = geometry.with_first_rings().rings().map(|ring| ring.count * BLOCK_BYTES).sum();
    rings + (geometry.node_copies().0 + 1) * PIECE_BYTES
}

/// Whether the rings of a new volume are still to be taken from the host.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    wait: AtomicBool,
    /// Held by the taker.
    one: Mutex<()>,
}

impl Inner {
    /// An opening for writing takes both rings from the host. Those of a new volume, without a write yet, are
    /// taken by its first change: until then an image of any size takes no more of the host than mkfs wrote. Nothing is
    /// there that could be removed to make room, so that change may be refused (P8).
    pub(crate) fn take_rings_from_host(&self, is_new: bool) -> Result<()> {
        if self.device.room().is_none() {
            return Ok(());
        }
        if is_new {
            // What mkfs has written is asked for, to learn whether the host can give ahead of need.
            let written = SUPERBLOCK_SLOTS[0].0 * BLOCK_BYTES;
            match self.device.take_room(written, BLOCK_BYTES) {
                Err(error) if !error.is_no_space() => return Err(error.into()),
                _ => self.rings.wait.store(self.device.room().is_some(), Ordering::Release),
            }
            return Ok(());
        }
        self.take_rings().map_err(|error| match error.is_no_space() {
            true => StoreError::Refused(format!(
                "the host has no room for the log and the journal of this volume ({} MiB); make room there, or mount it read-only",
                self.ring_bytes() >> 20
            )),
            false => error.into(),
        })
    }

    /// Takes from the host what is in use of both rings, in all their places.
    fn take_rings(&self) -> std::result::Result<(), DeviceError> {
        self.geometry().rings().try_for_each(|ring| {
            self.device.take_room(ring.start.0 * BLOCK_BYTES, ring.count * BLOCK_BYTES)
        })
    }

    /// Before a change: the rings are the volume's, or there is no space.
    ///
    /// The log of a new volume is written as well, not only reserved: a host that must convert blocks under an fsync turns
    /// one flush into two.
    pub(crate) fn expect_rings(&self) -> Result<()> {
        if !self.rings.wait.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.rings.one.lock();
        if !self.rings.wait.load(Ordering::Acquire) {
            return Ok(());
        }
        // A host that gives less than is asked may keep the part that it had: it would be full for nothing.
        let room = self.device.room().map(|room| room.saturating_add(self.device.given()));
        if room.is_some_and(|room| room < self.ring_bytes()) {
            self.counters.no_space.increment();
            return Err(StoreError::NoSpace);
        }
        let geometry = self.geometry();
        // In front of the mark are the markers of mkfs and of recoveries. Where they go up to the very end, all of it is written.
        let marked = match self.pending.place().mark.next.div_ceil(BLOCK_BYTES) {
            0 => geometry.log_blocks,
            blocks => blocks.min(geometry.log_blocks),
        };
        let rest =
            |log: BlockRange| BlockRange::new(BlockNo(log.start.0 + marked), log.count - marked);
        let mut logs = geometry.places_of_ring(geometry.log()).map(rest);
        match self.take_rings().and_then(|()| logs.try_for_each(|log| self.write_zeros(log))) {
            Ok(()) => {
                self.rings.wait.store(false, Ordering::Release);
                Ok(())
            }
            Err(error) if error.is_no_space() => {
                self.counters.no_space.increment();
                Err(StoreError::NoSpace)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the host must give besides before anything is changed, in bytes.
    pub(crate) fn rings_to_take(&self) -> u64 {
        match self.rings.wait.load(Ordering::Acquire) {
            true => self.ring_bytes(),
            false => 0,
        }
    }

    /// Bytes that are in use of both rings, in all their places.
    fn ring_bytes(&self) -> u64 {
        self.geometry().rings().map(|ring| ring.count * BLOCK_BYTES).sum()
    }

    pub(crate) fn write_zeros(&self, blocks: BlockRange) -> std::result::Result<(), DeviceError> {
        let zeros = vec![0; ZEROS_BYTES];
        let (start, len) = (blocks.start.0 * BLOCK_BYTES, blocks.count * BLOCK_BYTES);
        for at in (0..len).step_by(ZEROS_BYTES) {
            let part = (len - at).min(ZEROS_BYTES as u64) as usize;
            self.device.write(start + at, &zeros[..part])?;
        }
        Ok(())
    }
}
