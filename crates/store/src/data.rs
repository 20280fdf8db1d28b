//! File data on its way to and from the device.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, InodeNo};
use holdfast_device::flush_unless;
use holdfast_format::Malformed;
use holdfast_format::checksum::{block_sum, block_sums};
use holdfast_format::log::DATA_BLOCKS_MAX;

use crate::log_resident::Pages;
use crate::space::{Allocated, LoggedBlock, Unwritten, Written};
use crate::{Inner, Result, StoreError, step};

/// Blocks of one write: 1 MiB.
const RUN_BLOCKS: usize = 256;

impl Inner {
    /// Writes data to blocks that were allocated for it and sums it. `bytes` fill the blocks exactly. An error returns
    /// the blocks, so that their promise can be kept.
    pub fn write(
        &self,
        placed: Allocated,
        bytes: &[u8],
    ) -> std::result::Result<Written, Unwritten> {
        if let Err(error) = self.check_running() {
            return Err(Unwritten { placed, error: Box::new(error) });
        }
        let blocks = placed.blocks();
        assert_eq!(blocks.bytes(), Some(bytes.len() as u64), "the bytes fill the blocks exactly");
        let at = blocks.start.byte_offset().expect("allocated blocks lie inside the volume");
        let sums = block_sums(bytes).collect();
        if mutants::is(Mutant::LateWrite) {
            let (device, bytes) = (self.device.clone(), bytes.to_vec());
            mutants::later(move || drop(device.write(at, &bytes)));
            return Ok(Written::new(placed, sums));
        }
        if let Err(error) = self.device.write(at, bytes) {
            return Err(Unwritten { placed, error: Box::new(error.into()) });
        }
        self.counters.data_bytes_written.add(bytes.len() as u64);
        Ok(Written::new(placed, sums))
    }

    /// For `blocks` blocks that were written and are published next: if there are many and anything but `of` was
    /// fsynced lately, waits for a flush, so that the batches of others need none for this data.
    pub fn flush_for_others<'a>(
        &self,
        written: impl Iterator<Item = &'a mut Written>,
        blocks: u64,
        of: Option<InodeNo>,
    ) -> Result<()> {
        // One flush for each so many blocks; what saturates is to be flushed.
        if self.pending.unflushed_blocks().saturating_add(blocks) <= DATA_BLOCKS_MAX {
            return Ok(());
        }
        let Some(patience) = self.logging.beside(of) else {
            return Ok(());
        };
        let sent = self.pending.folded().sent();
        let flushed = match mutants::is(Mutant::StrangerDataFlush) {
            true => flush_unless(&*self.device, Mutant::StrangerDataFlush),
            false => self.device.join_flush(patience),
        };
        let flushed = flushed.inspect_err(|error| step::stop(&self.stop, error.to_string()))?;
        written.for_each(|written| written.flushed(&flushed));
        // What others published before it is durable as well, and leaves room for as much until the next.
        let durable = self.pending.folded().flushed(&sent, &flushed);
        self.space.lock().unflushed.flushed(&durable);
        Ok(())
    }

    /// Sums data that travels inside the log, with the transaction that publishes it; it goes to the blocks that were
    /// allocated for it with the next commit. `blocks` fill them exactly.
    pub fn log_data(&self, placed: Allocated, blocks: Vec<LoggedBlock>) -> Result<Written> {
        self.check_running()?;
        assert_eq!(placed.blocks().count, blocks.len() as u64, "the pages fill the blocks exactly");
        let sums = blocks.iter().map(|block| block_sum(&block.page[..])).collect();
        Ok(Written::in_log(placed, sums, blocks))
    }

    /// Reads blocks of data. The caller verifies the checksums: it has the extent.
    pub fn read(&self, blocks: BlockRange, into: &mut [u8]) -> Result<()> {
        if !self.geometry().holds_data(blocks) {
            return Err(StoreError::Item {
                what: format!("the extent {blocks:?}"),
                source: Malformed::new("extent", "its blocks lie outside the data zone"),
            });
        }
        assert_eq!(blocks.bytes(), Some(into.len() as u64), "the buffer fits the blocks exactly");
        // Before the device is asked: see `log_resident`.
        let mut resident = self.log_resident.collect(blocks);
        if mutants::is(Mutant::LogResidentNotRead) {
            resident.clear();
        }
        if resident.len() as u64 != blocks.count {
            let at = blocks.start.byte_offset().expect("the blocks lie inside the volume");
            self.device.read(at, into)?;
            self.counters.data_bytes_read.add(into.len() as u64);
        }
        let (places, _) = into.as_chunks_mut::<BLOCK_SIZE>();
        for (block, page) in resident {
            // Log-resident blocks were looked for from the first block on.
            let at = block.0.saturating_sub(blocks.start.0);
            places[at as usize].copy_from_slice(&page[..]);
        }
        Ok(())
    }

    /// Writes log-resident bytes to their locations, neighbours in one call.
    pub(crate) fn write_log_resident(&self, pages: &Pages) -> Result<()> {
        let mut run: Vec<u8> = Vec::new();
        let mut start = BlockNo(0);
        for (&block, page) in pages {
            let behind = start.0.checked_add((run.len() / BLOCK_SIZE) as u64);
            let follows = behind == Some(block.0);
            if !follows || run.len() >= RUN_BLOCKS * BLOCK_SIZE {
                self.write_run(start, &run)?;
                run.clear();
                start = block;
            }
            run.extend_from_slice(&page[..]);
        }
        self.write_run(start, &run)
    }

    fn write_run(&self, start: BlockNo, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let at = start.byte_offset().expect("the blocks were allocated");
        if self.device.write(at, bytes).is_err() {
            // Once more, each alone: the extent is in the tree, so there is no other place, and the volume stops.
            let blocks = (start.0..).map(BlockNo).zip((at..).step_by(BLOCK_SIZE));
            for ((block, at), page) in blocks.zip(bytes.chunks(BLOCK_SIZE)) {
                let written = self.device.write(at, page);
                written.map_err(|source| StoreError::NoPlace { block, source })?;
            }
        }
        self.counters.data_bytes_written.add(bytes.len() as u64);
        Ok(())
    }
}
