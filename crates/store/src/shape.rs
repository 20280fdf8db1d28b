//! The shape of an open volume: fixed by mkfs, but for its size and the lengths of its rings.

use holdfast_format::Geometry;
use holdfast_sync::atomic::{AtomicU64, Ordering};

/// The shape, as far as blocks may be given away and read by now. The superblocks may say a larger size already.
#[derive(Debug)]
pub(crate) struct Shape {
    opened: Geometry,
    volume_blocks: AtomicU64,
    /// Blocks that the signpost says, as the newest superblock does.
    signposted: AtomicU64,
    /// Blocks of log and journal that the next superblock says.
    rings: [AtomicU64; 2],
}

impl Shape {
    pub(crate) fn new(geometry: Geometry) -> Shape {
        let rings = [geometry.log_blocks, geometry.journal_blocks].map(AtomicU64::new);
        let blocks = || AtomicU64::new(geometry.volume_blocks);
        Shape { opened: geometry, volume_blocks: blocks(), signposted: blocks(), rings }
    }

    /// As it is now.
    pub(crate) fn now(&self) -> Geometry {
        let volume_blocks = self.volume_blocks.load(Ordering::Acquire);
        let [log_blocks, journal_blocks] = self.ring_lengths();
        Geometry { volume_blocks, log_blocks, journal_blocks, ..self.opened }
    }

    /// Blocks of log and journal that the next superblock says.
    pub(crate) fn ring_lengths(&self) -> [u64; 2] {
        [&self.rings[0], &self.rings[1]].map(|blocks| blocks.load(Ordering::Acquire))
    }

    /// The next superblock says these.
    pub(crate) fn has_rings(&self, blocks: [u64; 2]) {
        for (is, blocks) in self.rings.iter().zip(blocks) {
            is.store(blocks, Ordering::Release);
        }
    }

    /// Blocks that the signpost says.
    pub(crate) fn signposted(&self) -> u64 {
        self.signposted.load(Ordering::Acquire)
    }

    /// The signpost says so many.
    pub(crate) fn is_signposted(&self, volume_blocks: u64) {
        self.signposted.store(volume_blocks, Ordering::Release);
    }

    /// The volume has so many blocks from now on.
    pub(crate) fn is_of(&self, volume_blocks: u64) {
        self.volume_blocks.store(volume_blocks, Ordering::Release);
    }
}
