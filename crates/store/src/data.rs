//! File data on its way to and from the device.

use holdfast_base::{BLOCK_SIZE, BlockRange};
use holdfast_format::Malformed;
use holdfast_format::checksum::crc64;

use crate::space::{Placed, Written};
use crate::{Inner, Result, StoreError};

impl Inner {
    pub(crate) fn write_data(&self, placed: Placed, bytes: &[u8]) -> Result<Written> {
        self.check_running()?;
        let blocks = placed.blocks();
        assert_eq!(blocks.bytes(), Some(bytes.len() as u64), "the bytes fill the blocks exactly");
        let at = blocks.start.byte_offset().expect("allocated blocks lie inside the volume");
        let sums = bytes.chunks_exact(BLOCK_SIZE).map(crc64).collect();
        self.device.write(at, bytes)?;
        self.counters.data_bytes_written.add(bytes.len() as u64);
        Ok(Written::new(placed, sums))
    }

    pub(crate) fn read_data(&self, blocks: BlockRange, into: &mut [u8]) -> Result<()> {
        if !self.geometry.holds_data(blocks) {
            return Err(StoreError::Item {
                what: format!("the extent {blocks:?}"),
                source: Malformed::new("extent", "its blocks lie outside the data zone"),
            });
        }
        assert_eq!(blocks.bytes(), Some(into.len() as u64), "the buffer fits the blocks exactly");
        let at = blocks.start.byte_offset().expect("the blocks lie inside the volume");
        self.device.read(at, into)?;
        self.counters.data_bytes_read.add(into.len() as u64);
        Ok(())
    }
}
