//! Consecutive blocks of a file, with one checksum for each.

use holdfast_base::{BlockNo, BlockRange};

use crate::Malformed;
use crate::codec::{Fixed, Reader};
use crate::limits::{EXTENT_BLOCKS_MAX, value_max};

record! {
    /// The head of an extent; a CRC-64/NVME (u64) for each block follows if it is written.
    #[derive(Copy)]
    pub struct ExtentHead("extent", 16 bytes) {
        /// First block on the device.
        block: u64,
        /// Number of blocks, at least 1.
        count: u32,
        /// 0: written, checksums follow. 1: allocated but never written, reads as zeros.
        state: u32,
    }
}

/// Most blocks in one extent item: its checksums fill at most the longest value.
pub const fn extent_blocks_max(node_size: usize) -> u64 {
    let fit = ((value_max(node_size) - ExtentHead::SIZE) / 8) as u64;
    if fit < EXTENT_BLOCKS_MAX { fit } else { EXTENT_BLOCKS_MAX }
}

/// Consecutive blocks of a file on consecutive blocks of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they are.
    pub blocks: BlockRange,
    /// One checksum for each block; empty when the blocks were allocated but never written.
    pub sums: Vec<u64>,
}

impl Extent {
    /// Whether the blocks hold data. Otherwise they read as zeros.
    pub fn is_written(&self) -> bool {
        !self.sums.is_empty()
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Appends the bytes on disk.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(ExtentHead::SIZE + 8 * self.sums.len());
        let head = ExtentHead {
            block: self.blocks.start.0,
            count: self.blocks.count as u32,
            state: u32::from(!self.is_written()),
        };
        head.write(out);
        for sum in &self.sums {
            sum.write(out);
        }
    }

    /// Reads and judges an extent. Whether its blocks lie inside the volume is the caller's to check.
    pub fn decode(bytes: &[u8]) -> Result<Extent, Malformed> {
        let fail = |why: String| Err(Malformed::new(ExtentHead::TITLE, why));
        let mut reader = Reader::new(ExtentHead::TITLE, bytes);
        let head = ExtentHead::read(&mut reader)?;
        let rest = reader.rest();
        let blocks = BlockRange::new(BlockNo(head.block), head.count.into());
        if blocks.is_empty() || blocks.end().is_none() {
            return fail(format!("blocks {blocks:?} make no sense"));
        }
        let sums = match head.state {
            0 if rest.len() as u64 == blocks.count * 8 => {
                rest.as_chunks::<8>().0.iter().map(|sum| u64::from_le_bytes(*sum)).collect()
            }
            1 if rest.is_empty() => Vec::new(),
            state => {
                return fail(format!(
                    "state {state} with {} bytes of checksums for {} blocks",
                    rest.len(),
                    blocks.count
                ));
            }
        };
        Ok(Extent { blocks, sums })
    }
}
