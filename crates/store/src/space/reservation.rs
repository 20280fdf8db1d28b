//! Space on its way to an operation: promised before it starts, then taken.

use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange};
use parking_lot::Mutex;

use super::alloc::Space;
use super::delayed::Delayed;
use super::groups::Wants;
use super::promise::Wanted;
use super::slots::NodeSlots;
use crate::Result;

pub(crate) type SharedSpace = Arc<Mutex<Space>>;

/// Space taken before an operation starts. What is left returns when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    space: SharedSpace,
    /// The number of the open tree that it is for.
    tree: u32,
    pub(crate) slots: NodeSlots,
    blocks: u64,
    /// How many of them the tree is to refer to more than now. The blocks that leave first are others: then too much
    /// counts for a while, never too little.
    growth: u64,
    delayed: Delayed,
}

impl Reservation {
    /// What `promise` says that it has promised to a tree.
    pub(crate) fn take(
        space: &SharedSpace,
        tree: u32,
        promise: impl FnOnce(&mut Space) -> Result<Option<Wanted>>,
    ) -> Result<Option<Self>> {
        let mut locked = space.lock();
        let Some(Wanted { slots, blocks, growth, delayed }) = promise(&mut locked)? else {
            return Ok(None);
        };
        locked.promises.will_grow(tree, growth);
        drop(locked);
        Ok(Some(Reservation { space: space.clone(), tree, slots, blocks, growth, delayed }))
    }

    /// What of the growth leaves with `blocks`.
    fn growth_with(&mut self, blocks: u64) -> u64 {
        let growth = self.growth.saturating_sub(self.blocks - blocks);
        self.growth -= growth;
        growth
    }

    /// What it keeps for the nodes of delayed data, which may wait longer than the rest of it.
    pub fn metadata_reservation(&mut self) -> MetadataReservation {
        MetadataReservation {
            space: self.space.clone(),
            delayed: std::mem::take(&mut self.delayed),
        }
    }

    /// Data blocks not yet allocated.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many of them its branch is to refer to more than now.
    pub fn growth(&self) -> u64 {
        self.growth
    }

    /// Moves `blocks` data blocks (at most all) into a reservation of their own.
    pub fn split(&mut self, blocks: u64) -> Reservation {
        let blocks = blocks.min(self.blocks);
        let growth = self.growth_with(blocks);
        self.blocks -= blocks;
        let mut part = Reservation::empty(&self.space, self.tree);
        (part.blocks, part.growth) = (blocks, growth);
        part
    }

    /// Adds what `other` holds to this one.
    pub fn merge(&mut self, mut other: Reservation) {
        assert_eq!(self.tree, other.tree, "what is promised to a branch is not another's");
        self.growth += std::mem::take(&mut other.growth);
        self.slots += std::mem::take(&mut other.slots);
        self.blocks += std::mem::take(&mut other.blocks);
        self.delayed += std::mem::take(&mut other.delayed);
    }

    /// Takes back blocks that were placed and that no transaction has published: they become free, and promised as
    /// before, in one step, so that no other reservation gets them in between (P8).
    pub fn reclaim(&mut self, mut placed: Allocated) {
        placed.published = true;
        self.blocks += placed.blocks.count;
        self.growth += placed.growth;
        self.space.lock().take_back(placed.blocks);
    }

    /// One with nothing in it, of the space that `placed` belongs to.
    pub fn empty_for(placed: &Allocated) -> Reservation {
        Reservation::empty(&placed.space, placed.tree)
    }

    fn empty(space: &SharedSpace, tree: u32) -> Reservation {
        let (space, delayed) = (space.clone(), Delayed::default());
        Reservation { space, tree, slots: NodeSlots::none(), blocks: 0, growth: 0, delayed }
    }

    pub(crate) fn place(
        &mut self,
        want: u64,
        goal: Option<BlockNo>,
    ) -> std::result::Result<Option<Allocated>, Wants> {
        let want = want.min(self.blocks);
        if want == 0 {
            return Ok(None);
        }
        let taken = self.space.lock().take_data(want, goal)?;
        let Some(blocks) = taken else { return Ok(None) };
        let growth = self.growth_with(blocks.count);
        self.blocks -= blocks.count;
        let (space, tree) = (self.space.clone(), self.tree);
        Ok(Some(Allocated { space, tree, blocks, growth, published: false }))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let holds_slots = self.slots != NodeSlots::none() || self.delayed != Delayed::default();
        if holds_slots || self.blocks > 0 || self.growth > 0 {
            let mut space = self.space.lock();
            space.promises.forget(self.slots, self.blocks);
            space.promises.grown(self.tree, self.growth);
            space.promises.landed(self.delayed);
        }
    }
}

/// Blocks that were allocated and have no owner yet. Returned when dropped.
#[derive(Debug)]
pub struct Allocated {
    space: SharedSpace,
    tree: u32,
    blocks: BlockRange,
    /// How many of them the tree is to refer to more than now.
    growth: u64,
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
        let growth = self.growth.saturating_sub(self.blocks.count);
        self.growth -= growth;
        let (space, tree) = (self.space.clone(), self.tree);
        Allocated { space, tree, blocks, growth, published: false }
    }

    /// The blocks belong to a file now. So many of them had been promised for its growth to the tree of this number.
    pub(crate) fn published(mut self) -> (BlockRange, u32, u64) {
        self.published = true;
        (self.blocks, self.tree, self.growth)
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        if !self.published {
            let mut space = self.space.lock();
            space.release(self.blocks);
            space.promises.grown(self.tree, self.growth);
        }
    }
}

/// Delayed data whose nodes are kept until this is dropped, or made smaller.
#[derive(Debug)]
pub struct MetadataReservation {
    space: SharedSpace,
    delayed: Delayed,
}

impl MetadataReservation {
    /// What it is.
    pub fn delayed(&self) -> Delayed {
        self.delayed
    }

    /// Adds what `other` holds.
    pub fn merge(&mut self, mut other: MetadataReservation) {
        self.delayed += std::mem::take(&mut other.delayed);
    }

    /// No more than `delayed` waits: the rest is in the tree, or gone.
    pub fn shrink_to(&mut self, delayed: Delayed) {
        let runs = self.delayed.runs.saturating_sub(delayed.runs);
        let pages = self.delayed.pages.saturating_sub(delayed.pages);
        let landed = Delayed { runs, pages };
        if landed != Delayed::default() {
            self.delayed -= landed;
            self.space.lock().promises.landed(landed);
        }
    }
}

impl Drop for MetadataReservation {
    fn drop(&mut self) {
        if self.delayed != Delayed::default() {
            self.space.lock().promises.landed(self.delayed);
        }
    }
}
