//! The first data of blocks that a file has reserved: it goes straight into them, and needs no free block.
//!
//! ```text
//!  Reserved (judged, R2) > write > Sent > one flush for all > Written > Batch::publish
//! ```
//!
//! The tree says of such blocks that they read as zeros, in each state of history that a recovery may come back to. So
//! a write of them that is lost or torn is harmless. But the log and the commits name by their sums only the data of
//! blocks that they take out of the free space, so nothing would notice later that this data never arrived: it is
//! durable before the tree points at it as data.
//!
//! A second write of the same blocks is a write over data, and goes to other blocks like any other.

use std::sync::atomic::Ordering;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockRange, Lsn};
use holdfast_device::flush_unless;
use holdfast_format::Malformed;
use holdfast_format::checksum::block_sums;

use crate::space::alloc::Space;
use crate::space::{Filling, Written};
use crate::{Inner, Result, StoreError, step};

/// Blocks that a file has reserved, and whose bytes no state needs that a recovery may come back to.
#[derive(Debug)]
pub struct Reserved {
    filling: Filling,
}

/// Reserved blocks whose first data was sent to the device. It may not have arrived.
#[derive(Debug)]
pub struct Sent {
    filling: Filling,
    sums: Vec<u64>,
}

impl Sent {
    /// Which blocks.
    pub fn blocks(&self) -> BlockRange {
        self.filling.blocks()
    }

    /// One checksum for each block.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }
}

impl Inner {
    /// See [`crate::Branch::unwritten`].
    ///
    /// When a volume has snapshots, this is where it is decided which blocks qualify: those of extents that are younger
    /// than the last one. A snapshot reads the others as zeros for ever.
    pub(crate) fn unwritten(&self, blocks: BlockRange) -> Result<Reserved> {
        self.check_running()?;
        let wrong = |why| StoreError::Item {
            what: format!("the extent {blocks:?}"),
            source: Malformed::new("extent", why),
        };
        let is_data = |space: &mut Space| space.is_used(blocks) && space.can_be_data(&[blocks]);
        if !self.with_bitmaps(blocks, is_data) {
            return Err(wrong("its blocks are not in use as data"));
        }
        let filling = Filling::begin(&self.space, blocks)
            .ok_or_else(|| wrong("another extent that has its blocks was written"))?;
        // Blocks that held data before: a recovery may come back to that until the commit. The log is not enough, whose
        // batches name the data by its sum and are read again, until a commit contains them.
        let last = Lsn(self.unwrote.load(Ordering::Acquire));
        if !mutants::is(Mutant::UnwrittenEarly) {
            self.commit_upto(last)?;
        }
        Ok(Reserved { filling })
    }

    /// Writes the first data of reserved blocks and sums it. `bytes` fill the blocks exactly.
    pub fn write_in_place(&self, unwritten: Reserved, bytes: &[u8]) -> Result<Sent> {
        self.check_running()?;
        let Reserved { filling } = unwritten;
        let blocks = filling.blocks();
        assert_eq!(blocks.bytes(), Some(bytes.len() as u64), "the bytes fill the blocks exactly");
        let at = blocks.start.byte_offset().expect("the blocks are in use");
        let sums = block_sums(bytes).collect();
        self.device.write(at, bytes)?;
        self.counters.data_bytes_written.add(bytes.len() as u64);
        self.counters.reserved_bytes_written.add(bytes.len() as u64);
        Ok(Sent { filling, sums })
    }

    /// Flushes what was sent to reserved blocks: then it may be published.
    pub fn flush_in_place(&self, sent: Vec<Sent>) -> Result<Vec<Written>> {
        if sent.is_empty() {
            return Ok(Vec::new());
        }
        let flushed = flush_unless(&*self.device, Mutant::ReservedNotFlushed);
        let flushed = flushed.inspect_err(|error| step::stop(&self.stop, error.to_string()))?;
        let durable = |sent: Sent| Written::in_place(sent.filling, sent.sums, &flushed);
        Ok(sent.into_iter().map(durable).collect())
    }
}
