//! Data that was written to blocks before any file has them, and where its bytes are.

use std::ops::Range;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_device::{Flushed, Page};

use super::filling::Filling;
use super::reservation::Allocated;
use crate::StoreError;

/// A block of data that travels inside the log.
#[derive(Clone, Debug)]
pub struct LoggedBlock {
    /// All its bytes.
    pub page: Page,
    /// The block of the tree that it replaces, if it differs from it in `changed` only; without
    /// one, its other bytes are zeros.
    pub base: Option<BlockNo>,
    /// Which bytes the log has to hold.
    pub changed: Range<usize>,
}

/// Blocks whose data write has failed. They can be reclaimed; dropped, they return as free.
#[derive(Debug)]
pub struct Unwritten {
    /// The blocks.
    pub placed: Allocated,
    /// What the device said.
    pub error: Box<StoreError>,
}

impl From<Unwritten> for StoreError {
    fn from(unwritten: Unwritten) -> StoreError {
        *unwritten.error
    }
}

/// Blocks that were allocated and whose data write has returned, or whose data will travel inside
/// the log. Returned when dropped.
#[derive(Debug)]
pub struct Written {
    location: Destination,
    sums: Vec<u64>,
    content: WrittenContent,
}

/// Where the blocks of written data come from.
#[derive(Debug)]
pub(crate) enum Destination {
    /// They were allocated for it.
    New(Allocated),
    /// The file had reserved them.
    Reserved(Filling),
}

/// Where the data of written blocks is.
#[derive(Debug)]
pub(crate) enum WrittenContent {
    /// At its location, once a flush comes.
    Sent,
    /// At its location: a flush has come.
    Durable,
    /// It travels inside the log.
    Inside(Vec<LoggedBlock>),
}

impl Written {
    pub(crate) fn new(placed: Allocated, sums: Vec<u64>) -> Written {
        Written { location: Destination::New(placed), sums, content: WrittenContent::Sent }
    }

    /// The first data of reserved blocks, with a flush that began after the write has returned (R3).
    pub(crate) fn in_place(filling: Filling, sums: Vec<u64>, _flushed: &Flushed) -> Written {
        Written { location: Destination::Reserved(filling), sums, content: WrittenContent::Durable }
    }

    /// Whether the file held the blocks before, as reserved ones.
    pub fn is_in_place(&self) -> bool {
        matches!(self.location, Destination::Reserved(_))
    }

    /// The transaction that publishes it carries its data into the log.
    pub(crate) fn in_log(placed: Allocated, sums: Vec<u64>, blocks: Vec<LoggedBlock>) -> Written {
        Written {
            location: Destination::New(placed),
            sums,
            content: WrittenContent::Inside(blocks),
        }
    }

    /// A flush that began after the write has returned (R3): neither a commit nor the log has to say what it holds.
    pub(crate) fn flushed(&mut self, _flushed: &Flushed) {
        if let WrittenContent::Sent = self.content {
            self.content = WrittenContent::Durable;
        }
    }

    /// Which blocks.
    pub fn blocks(&self) -> BlockRange {
        match &self.location {
            Destination::New(placed) => placed.blocks(),
            Destination::Reserved(filling) => filling.blocks(),
        }
    }

    /// One checksum for each block.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Moves the first `count` blocks, fewer than all, into a proof of their own: one write served two extents.
    pub fn split_front(&mut self, count: u64) -> Written {
        let all = self.blocks().count;
        assert!(0 < count && count < all, "{count} of {all} blocks");
        let rest = self.sums.split_off(count as usize);
        let sums = std::mem::replace(&mut self.sums, rest);
        let content = match &mut self.content {
            WrittenContent::Sent => WrittenContent::Sent,
            WrittenContent::Durable => WrittenContent::Durable,
            WrittenContent::Inside(blocks) => {
                let rest = blocks.split_off(count as usize);
                WrittenContent::Inside(std::mem::replace(blocks, rest))
            }
        };
        let location = match &mut self.location {
            Destination::New(placed) => Destination::New(placed.split_front(count)),
            Destination::Reserved(filling) => Destination::Reserved(filling.split_front(count)),
        };
        Written { location, sums, content }
    }

    /// The blocks that were allocated for it, if the file had not reserved them.
    pub fn into_placed(self) -> Option<Allocated> {
        match self.location {
            Destination::New(placed) => Some(placed),
            Destination::Reserved(_) => None,
        }
    }

    pub(crate) fn into_parts(self) -> (Destination, Vec<u64>, WrittenContent) {
        (self.location, self.sums, self.content)
    }
}
