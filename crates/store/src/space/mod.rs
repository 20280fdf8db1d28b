//! Which blocks are free: tokens for space on its way into a file.

use holdfast_base::BlockRange;

/// Space taken before an operation starts. What is left returns when it is dropped.
#[derive(Debug)]
pub struct Reservation {}

impl Reservation {
    /// Data blocks not yet allocated.
    pub fn blocks(&self) -> u64 {
        unimplemented!()
    }

    /// Moves `blocks` data blocks (at most all) into a reservation of their own.
    pub fn split(&mut self, blocks: u64) -> Reservation {
        let _ = blocks;
        unimplemented!()
    }

    /// Adds what `other` holds to this one.
    pub fn merge(&mut self, other: Reservation) {
        let _ = other;
        unimplemented!()
    }
}

/// Blocks that were allocated and belong to nobody yet. Returned when dropped.
#[derive(Debug)]
pub struct Placed {}

impl Placed {
    /// Which blocks.
    pub fn blocks(&self) -> BlockRange {
        unimplemented!()
    }
}

/// Blocks that were allocated and whose data write has returned. Returned when dropped.
#[derive(Debug)]
pub struct Written {}

impl Written {
    /// Which blocks.
    pub fn blocks(&self) -> BlockRange {
        unimplemented!()
    }

    /// One checksum for each block.
    pub fn sums(&self) -> &[u64] {
        unimplemented!()
    }

    /// Forgets the checksums.
    pub fn into_placed(self) -> Placed {
        unimplemented!()
    }
}

/// How full a volume is, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// Blocks of the data zone.
    pub total: u64,
    /// Blocks that hold nothing (freed ones that are not reusable yet included).
    pub free: u64,
    /// Blocks that a user can still fill with data.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
}
