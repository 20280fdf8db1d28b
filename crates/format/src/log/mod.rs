//! The fsync log: batches in a ring, each the changes of some operations, as keys and values.
//!
//! ```text
//!  | batch | batch | batch | ... free ... |       a batch may go on at the ring's start
//!
//!  batch:  header | records | zeros up to the sector's end
//! ```
//!
//! A batch holds what the operations behind `after`, up to `last`, made of the
//! files tree: each key that they changed once, with its final value, and the
//! blocks that they took and gave back. Applied as a whole to a volume at
//! `after` it gives the volume at `last`, and nothing else does. Each batch
//! carries the sum of the one before it, so that batches of a history that was
//! given up are never taken for those of this one.
//!
//! Data that was written together with a batch is named in it with its sum;
//! small data lies inside. A batch is written after the flush of the one before
//! it returned, or together with it for one flush: only those behind the last
//! that a header calls durable can be incomplete, or lack their data.

pub mod frame;
pub mod inode;
pub mod record;
mod varint;

pub use frame::LogHeader;
pub use record::{Content, Decoder, Dropped, Encoder, Patch, Record};

use holdfast_base::BatchNo;

use crate::Geometry;

/// Largest batch, in bytes, header and padding included.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// The ring is addressed in units of this, whatever the sectors of the device are.
pub const UNIT: u64 = 512;
/// Most bytes of batches between two commits: what recovery keeps in memory.
pub const REPLAY_BYTES_MAX: u64 = 256 << 20;
/// Most blocks of all data that one batch names with a sum: 4 MiB, which a recovery reads to see
/// whether they arrived.
pub const DATA_BLOCKS_MAX: u64 = 1024;

/// Where the log goes on: what the next batch must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMark {
    /// The last batch before it.
    pub batch: BatchNo,
    /// Byte of the ring at which the next batch begins; a multiple of [`UNIT`], below the ring's length.
    pub next: u64,
    /// `sum` of the batch before; 0 where none need be there.
    pub sum: u64,
}

impl LogMark {
    /// The mark of a volume without a batch.
    pub const START: LogMark = LogMark { batch: BatchNo(0), next: 0, sum: 0 };

    /// Fails unless it lies in the ring.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), String> {
        let inside = geometry.log().bytes().is_some_and(|bytes| self.next < bytes);
        if inside && self.next.is_multiple_of(UNIT) {
            Ok(())
        } else {
            Err(format!("byte {} is no place in the log", self.next))
        }
    }
}
