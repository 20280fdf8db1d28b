//! Space on its way to an operation: promised before it starts, then taken.

use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange};
use parking_lot::Mutex;

use super::alloc::Space;

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

    /// Cuts the first `count` blocks off.
    pub(super) fn split_front(&mut self, count: u64) -> Allocated {
        let BlockRange { start, count: all } = self.blocks;
        self.blocks = BlockRange::new(BlockNo(start.0 + count), all - count);
        let blocks = BlockRange::new(start, count);
        Allocated { space: self.space.clone(), blocks, published: false }
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
