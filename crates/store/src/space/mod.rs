//! Which blocks are free, and the tokens for space on its way into a file.
//!
//! `Reservation`, `Allocated` and `Written` cannot be copied or made elsewhere:
//! holding one is the proof that the step before has happened (R3).

pub(crate) mod alloc;
pub(crate) mod freed;
pub(crate) mod group;
pub(crate) mod hidden;
pub(crate) mod promise;
pub(crate) mod record;

use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_device::Flushed;
use parking_lot::Mutex;

use crate::StoreError;
use crate::transaction::LoggedBlock;
use alloc::Space;

pub(crate) type SharedSpace = Arc<Mutex<Space>>;

/// Space taken before an operation starts. What is left returns when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    space: SharedSpace,
    pub(crate) slots: u64,
    blocks: u64,
}

impl Reservation {
    /// The slots that `promise` says, and `blocks` that it has promised with them.
    pub(crate) fn take(
        space: &SharedSpace,
        blocks: u64,
        promise: impl FnOnce(&mut Space) -> Option<u64>,
    ) -> Option<Self> {
        let slots = promise(&mut space.lock())?;
        Some(Reservation { space: space.clone(), slots, blocks })
    }

    /// Data blocks not yet allocated.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Moves `blocks` data blocks (at most all) into a reservation of their own.
    pub fn split(&mut self, blocks: u64) -> Reservation {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Reservation { space: self.space.clone(), slots: 0, blocks }
    }

    /// Adds what `other` holds to this one.
    pub fn merge(&mut self, mut other: Reservation) {
        self.slots += std::mem::take(&mut other.slots);
        self.blocks += std::mem::take(&mut other.blocks);
    }

    /// Takes back blocks that were placed and that no transaction has published: they become free, and promised as
    /// before, in one step, so that no other reservation gets them in between (P8).
    pub fn reclaim(&mut self, mut placed: Allocated) {
        placed.published = true;
        self.blocks += placed.blocks.count;
        self.space.lock().take_back(placed.blocks);
    }

    /// One with nothing in it, of the space that `placed` belongs to.
    pub fn empty_for(placed: &Allocated) -> Reservation {
        Reservation { space: placed.space.clone(), slots: 0, blocks: 0 }
    }

    pub(crate) fn place(&mut self, want: u64, goal: Option<BlockNo>) -> Option<Allocated> {
        let want = want.min(self.blocks);
        if want == 0 {
            return None;
        }
        let blocks = self.space.lock().take_data(want, goal)?;
        self.blocks -= blocks.count;
        Some(Allocated { space: self.space.clone(), blocks, published: false })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.slots > 0 || self.blocks > 0 {
            self.space.lock().forget(self.slots, self.blocks);
        }
    }
}

/// Blocks that were allocated and have no owner yet. Returned when dropped.
#[derive(Debug)]
pub struct Allocated {
    space: SharedSpace,
    blocks: BlockRange,
    published: bool,
}

impl Allocated {
    /// Which blocks.
    pub fn blocks(&self) -> BlockRange {
        self.blocks
    }

    /// The blocks belong to a file now.
    pub(crate) fn published(mut self) -> BlockRange {
        self.published = true;
        self.blocks
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        if !self.published {
            self.space.lock().release(self.blocks);
        }
    }
}

/// Blocks whose data write has failed. They can be reclaimed; dropped, they return as free.
#[derive(Debug)]
pub struct Unwritten {
    /// The blocks.
    pub placed: Allocated,
    /// What the device said.
    pub error: StoreError,
}

impl From<Unwritten> for StoreError {
    fn from(unwritten: Unwritten) -> StoreError {
        unwritten.error
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
    Reserved(BlockRange),
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
    pub(crate) fn in_place(blocks: BlockRange, sums: Vec<u64>, _flushed: &Flushed) -> Written {
        Written { location: Destination::Reserved(blocks), sums, content: WrittenContent::Durable }
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
            Destination::New(placed) => placed.blocks,
            Destination::Reserved(blocks) => *blocks,
        }
    }

    /// One checksum for each block.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Moves the first `count` blocks, fewer than all, into a proof of their own: one write served two extents.
    pub fn split_front(&mut self, count: u64) -> Written {
        let BlockRange { start, count: all } = self.blocks();
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
        let front = BlockRange::new(start, count);
        let rest = BlockRange::new(BlockNo(start.0 + count), all - count);
        let location = match &mut self.location {
            Destination::New(placed) => {
                placed.blocks = rest;
                Destination::New(Allocated {
                    space: placed.space.clone(),
                    blocks: front,
                    published: false,
                })
            }
            Destination::Reserved(blocks) => {
                *blocks = rest;
                Destination::Reserved(front)
            }
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
