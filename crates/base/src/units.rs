//! Blocks and the arithmetic on them.
//!
//! A block is 4 KiB. [`BlockNo`] counts blocks from the start of the device;
//! [`BlockRange`] is half-open. Arithmetic on values that came from a disk is
//! checked and returns `Option`.

use std::fmt;

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;
/// Bytes in a block, for arithmetic in 64 bits.
pub const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;

id!(
    /// The number of a block, counted from the start of the device.
    BlockNo(u64), "b"
);

impl BlockNo {
    /// Byte offset of the block on the device; `None` if it does not fit 64 bits.
    pub fn byte_offset(self) -> Option<u64> {
        self.0.checked_mul(BLOCK_BYTES)
    }
}

/// `count` blocks from `start` on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockRange {
    /// First block.
    pub start: BlockNo,
    /// Number of blocks.
    pub count: u64,
}

impl BlockRange {
    /// `count` blocks from `start` on.
    pub const fn new(start: BlockNo, count: u64) -> Self {
        Self { start, count }
    }

    /// The first block after the range; `None` if it does not fit 64 bits.
    pub fn end(self) -> Option<BlockNo> {
        self.start.0.checked_add(self.count).map(BlockNo)
    }

    /// The first block, and the first behind the range: at most the largest number.
    pub const fn ends(self) -> (u64, u64) {
        (self.start.0, self.start.0.saturating_add(self.count))
    }

    /// Whether the range holds no block.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Bytes in the range; `None` if that does not fit 64 bits.
    pub fn bytes(self) -> Option<u64> {
        self.count.checked_mul(BLOCK_BYTES)
    }

    /// Whether the range lies inside `limit` blocks and does not overflow.
    pub fn fits_below(self, limit: u64) -> bool {
        self.end().is_some_and(|end| end.0 <= limit)
    }
}

impl fmt::Debug for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}+{}", self.start.0, self.count)
    }
}

/// How many blocks hold `bytes` bytes.
pub const fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Largest multiple of the block size that is not above `bytes`.
pub const fn align_down(bytes: u64) -> u64 {
    bytes - bytes % BLOCK_BYTES
}

/// Smallest multiple of the block size that is not below `bytes`; `None` on overflow.
pub const fn align_up(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_near_the_end_of_the_number_line_does_not_wrap() {
        let range = BlockRange::new(BlockNo(u64::MAX - 1), 4);
        assert_eq!(range.end(), None);
        assert!(!range.fits_below(u64::MAX));
        assert_eq!(align_up(u64::MAX), None);
        assert_eq!(align_down(8191), 4096);
        assert_eq!(blocks_for(4097), 2);
    }
}
