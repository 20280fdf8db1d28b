//! Space on its way to an operation: promised before it starts, then taken.

use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange};
use parking_lot::Mutex;

use super::alloc::Space;
use super::delayed::Delayed;
use super::promise::Wanted;

pub(crate) type SharedSpace = Arc<Mutex<Space>>;

/// Space taken before an operation starts. What is left returns when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    space: SharedSpace,
    pub(crate) slots: u64,
    blocks: u64,
    delayed: Delayed,
}

impl Reservation {
    /// What `promise` says that it has promised.
    pub(crate) fn take(
        space: &SharedSpace,
        promise: impl FnOnce(&mut Space) -> Option<Wanted>,
    ) -> Option<Self> {
        let Wanted { slots, blocks, delayed } = promise(&mut space.lock())?;
        Some(Reservation { space: space.clone(), slots, blocks, delayed })
    }

    /// What it keeps for the nodes of delayed data, which may wait longer than the rest of it.
    pub fn kept_nodes(&mut self) -> KeptNodes {
        KeptNodes { space: self.space.clone(), delayed: std::mem::take(&mut self.delayed) }
    }

    /// Data blocks not yet allocated.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Moves `blocks` data blocks (at most all) into a reservation of their own.
    pub fn split(&mut self, blocks: u64) -> Reservation {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Reservation { space: self.space.clone(), slots: 0, blocks, delayed: Delayed::default() }
    }

    /// Adds what `other` holds to this one.
    pub fn merge(&mut self, mut other: Reservation) {
        self.slots += std::mem::take(&mut other.slots);
        self.blocks += std::mem::take(&mut other.blocks);
        self.delayed += std::mem::take(&mut other.delayed);
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
        let delayed = Delayed::default();
        Reservation { space: placed.space.clone(), slots: 0, blocks: 0, delayed }
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
        let is_empty = self.slots == 0 && self.blocks == 0 && self.delayed == Delayed::default();
        if !is_empty {
            let mut space = self.space.lock();
            space.forget(self.slots, self.blocks);
            space.landed(self.delayed);
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

/// Delayed data whose nodes are kept until this is dropped, or made smaller.
#[derive(Debug)]
pub struct KeptNodes {
    space: SharedSpace,
    delayed: Delayed,
}

impl KeptNodes {
    /// What it is.
    pub fn delayed(&self) -> Delayed {
        self.delayed
    }

    /// Adds what `other` holds.
    pub fn merge(&mut self, mut other: KeptNodes) {
        self.delayed += std::mem::take(&mut other.delayed);
    }

    /// No more than `delayed` waits: the rest is in the tree, or gone.
    pub fn shrink_to(&mut self, delayed: Delayed) {
        let runs = self.delayed.runs.saturating_sub(delayed.runs);
        let pages = self.delayed.pages.saturating_sub(delayed.pages);
        let landed = Delayed { runs, pages };
        if landed != Delayed::default() {
            self.delayed -= landed;
            self.space.lock().landed(landed);
        }
    }
}

impl Drop for KeptNodes {
    fn drop(&mut self) {
        if self.delayed != Delayed::default() {
            self.space.lock().landed(self.delayed);
        }
    }
}
