//! The shape of an open volume: fixed by mkfs, but for its size.

use holdfast_format::Geometry;
use holdfast_sync::atomic::{AtomicU64, Ordering};

/// The shape, as far as blocks may be given away and read by now. The superblocks may say a larger size already.
#[derive(Debug)]
pub(crate) struct Shape {
    opened: Geometry,
    volume_blocks: AtomicU64,
}

impl Shape {
    pub(crate) fn new(geometry: Geometry) -> Shape {
        Shape { opened: geometry, volume_blocks: AtomicU64::new(geometry.volume_blocks) }
    }

    /// As it is now.
    pub(crate) fn now(&self) -> Geometry {
        Geometry { volume_blocks: self.volume_blocks.load(Ordering::Acquire), ..self.opened }
    }

    /// The volume has so many blocks from now on.
    pub(crate) fn is_of(&self, volume_blocks: u64) {
        self.volume_blocks.store(volume_blocks, Ordering::Release);
    }
}
