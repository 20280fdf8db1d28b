//! What one operation changes: the unit that is visible, and durable, as a whole.

use holdfast_base::BlockRange;
use holdfast_format::Key;
use holdfast_format::item::Extent;
use holdfast_format::journal::{self, DataExtent};

use crate::space::{Placed, Written};

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value now.
    Put(Key, Vec<u8>),
    /// The key has no value now. It may have had none before.
    Delete(Key),
}

/// Everything that one operation changes.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) changes: Vec<Change>,
    pub(crate) freed: Vec<BlockRange>,
    pub(crate) placed: Vec<Placed>,
    /// What of it was written, with its sums.
    pub(crate) written: Vec<DataExtent>,
    pub(crate) inodes_added: i64,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Gives `key` a value of at most [`crate::Store::value_max`] bytes. A later change of the same key wins.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changes.push(Change::Put(key, value));
    }

    /// Takes the value of `key` away.
    pub fn delete(&mut self, key: Key) {
        self.changes.push(Change::Delete(key));
    }

    /// Gives blocks back. They are reusable only when this batch is durable (R2).
    pub fn free(&mut self, blocks: BlockRange) {
        if !blocks.is_empty() {
            self.freed.push(blocks);
        }
    }

    /// Says that written blocks belong to a file from this batch on; returns the extent to put.
    pub fn publish(&mut self, written: Written) -> Extent {
        let extent = Extent { blocks: written.blocks(), sums: written.sums().to_vec() };
        self.written.push(DataExtent {
            block: extent.blocks.start.0,
            count: extent.blocks.count,
            sum: journal::commit::data_sum(&extent.sums),
        });
        self.placed.push(written.into_placed());
        extent
    }

    /// Says that allocated blocks belong to a file from this batch on although never written.
    pub fn publish_unwritten(&mut self, placed: Placed) -> Extent {
        let extent = Extent { blocks: placed.blocks(), sums: Vec::new() };
        self.placed.push(placed);
        extent
    }

    /// Counts inodes that this batch adds (or, below zero, removes) for statfs.
    pub fn count_inodes(&mut self, added: i64) {
        self.inodes_added += added;
    }

    /// Number of puts and deletes: what to reserve.
    pub fn changes(&self) -> u32 {
        u32::try_from(self.changes.len()).unwrap_or(u32::MAX)
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.freed.is_empty() && self.placed.is_empty()
    }
}
