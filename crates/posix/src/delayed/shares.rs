//! Space for the tree nodes that delayed data will need when it is written back (P8).

use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::{Branch, Need, Reservation, StoreError};
use parking_lot::Mutex;

use super::Shared;
use super::totals::Totals;

/// Blocks of delayed data for which one share of nodes is kept: one put with all its splits, some five nodes or more.
/// Written back one by one all over a file, so many blocks make less than 16 KiB of items.
const SHARE_BLOCKS: u64 = 128;

/// Space for nodes that is reserved while data is delayed, see [`Shared::promise_nodes`].
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<Vec<Reservation>>);

/// Pages that are about to wait for reserved blocks, counted with those that do.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    totals: &'a Totals,
    pages: u64,
}

impl Claim<'_> {
    /// How many.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.totals.forget_expected(self.pages as usize);
    }
}

impl Shared {
    /// Shares of nodes that the delayed data needs, and `blocks` more. Pages for reserved blocks have a share from the
    /// first page on: on a full volume nothing else is kept for them.
    fn shares_wanted(&self, blocks: u64) -> usize {
        let waiting = (self.totals.bytes() / BLOCK_SIZE) as u64 + blocks;
        let in_place = self.totals.in_place() as u64;
        (waiting / SHARE_BLOCKS + in_place.div_ceil(SHARE_BLOCKS)) as usize
    }

    /// Keeps space for the nodes that `blocks` more blocks of delayed data may need when they are written back, so that
    /// other operations cannot fill the volume before (P8).
    pub(crate) fn promise_nodes(&self, store: &Branch, blocks: u64) -> Result<(), StoreError> {
        for _ in 0..self.missing_shares(blocks) {
            // Reserving may wait for a checkpoint, so not under the lock.
            let share = store.reserve(Need::Grow { changes: 1, blocks: 0 })?;
            self.shares.0.lock().push(share);
        }
        Ok(())
    }

    /// As [`Shared::promise_nodes`], out of what is free now; returns whether that was enough.
    pub(crate) fn promise_nodes_now(
        &self,
        store: &Branch,
        blocks: u64,
    ) -> Result<bool, StoreError> {
        for _ in 0..self.missing_shares(blocks) {
            match store.reserve_now(Need::Grow { changes: 1, blocks: 0 })? {
                Some(share) => self.shares.0.lock().push(share),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn missing_shares(&self, blocks: u64) -> usize {
        self.shares_wanted(blocks).saturating_sub(self.shares.0.lock().len())
    }

    /// Gives back what [`Shared::promise_nodes`] keeps beyond what the delayed data needs.
    pub(crate) fn release_nodes(&self) {
        let wanted = self.shares_wanted(0);
        let surplus = {
            let mut shares = self.shares.0.lock();
            if shares.len() <= wanted {
                return;
            }
            shares.split_off(wanted)
        };
        drop(surplus);
    }

    /// Gives back all of it: a writeback needs it now.
    pub(crate) fn use_nodes(&self) {
        let shares = std::mem::take(&mut *self.shares.0.lock());
        drop(shares);
    }

    /// Keeps space for the nodes that so many more pages for reserved blocks may need when they are written back.
    pub(crate) fn claim(&self, store: &Branch, pages: u64) -> Result<Claim<'_>, StoreError> {
        self.totals.expect_in_place(pages as usize);
        let claim = Claim { totals: &self.totals, pages };
        while self.shares.0.lock().len() < self.shares_wanted(0) {
            // Reserving may wait for a checkpoint, so not under the lock.
            let share = store.reserve(Need::Fill { changes: 1 })?;
            self.shares.0.lock().push(share);
        }
        Ok(claim)
    }
}
