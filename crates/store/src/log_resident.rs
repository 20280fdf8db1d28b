//! Data that lies in the log and not at its location yet.
//!
//! Small data travels inside a batch of the log; its extent is in the tree at
//! once, and its bytes go to their location with the next commit, before the log is
//! superseded (R5). Until that commit is durable, readers find them here. Data
//! that is freed before is never written to its location.
//!
//! A reader looks here first and at the device after: a block leaves this table
//! only when its bytes are at their location.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_device::Page;
use parking_lot::RwLock;

pub(crate) type Pages = BTreeMap<BlockNo, Page>;

#[derive(Debug, Default)]
struct Layers {
    /// Since the last commit began.
    fresh: Pages,
    /// On their way to their locations, with a commit that is being made.
    frozen: Arc<Pages>,
}

/// The log-resident blocks and their bytes.
#[derive(Debug, Default)]
pub(crate) struct LogResident {
    layers: RwLock<Layers>,
    /// Blocks of both layers, for callers that do not want to lock.
    count: AtomicUsize,
    /// Of those, the ones that no commit is writing.
    fresh: AtomicUsize,
}

impl LogResident {
    /// Bytes resident. Takes no lock.
    pub(crate) fn bytes(&self) -> usize {
        self.count.load(Ordering::Acquire).saturating_mul(BLOCK_SIZE)
    }

    /// Of those, bytes that wait for the next commit to begin. Takes no lock.
    pub(crate) fn fresh_bytes(&self) -> usize {
        self.fresh.load(Ordering::Acquire).saturating_mul(BLOCK_SIZE)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Layers) -> R) -> R {
        let mut layers = self.layers.write();
        let result = change(&mut layers);
        let count = layers.fresh.len().saturating_add(layers.frozen.len());
        self.count.store(count, Ordering::Release);
        self.fresh.store(layers.fresh.len(), Ordering::Release);
        result
    }

    /// These bytes of the blocks from `start` on are log-resident.
    pub(crate) fn add(&self, start: BlockNo, pages: impl Iterator<Item = Page>) {
        let blocks = (start.0..).map(BlockNo);
        self.change(|layers| layers.fresh.extend(blocks.zip(pages)));
    }

    /// The bytes of these blocks are not needed after the present moment.
    pub(crate) fn forget(&self, range: BlockRange) {
        if self.bytes() == 0 {
            return;
        }
        self.change(|layers| {
            let end = range.end().unwrap_or(BlockNo(u64::MAX));
            while let Some((&block, _)) = layers.fresh.range(range.start..end).next() {
                layers.fresh.remove(&block);
            }
        });
    }

    /// The log-resident bytes of the blocks of `range`.
    pub(crate) fn collect(&self, range: BlockRange) -> Vec<(BlockNo, Page)> {
        if self.bytes() == 0 {
            return Vec::new();
        }
        let layers = self.layers.read();
        let of = |pages: &Pages| -> Vec<(BlockNo, Page)> {
            let end = range.end().unwrap_or(BlockNo(u64::MAX));
            pages.range(range.start..end).map(|(block, page)| (*block, page.clone())).collect()
        };
        // A block is in one layer: it is not used again before the commit that it waits for.
        let mut found = of(&layers.frozen);
        found.extend(of(&layers.fresh));
        found
    }

    /// Commit begin: this commit writes what is log-resident now to its location.
    pub(crate) fn freeze(&self) {
        self.change(|layers| {
            assert!(layers.frozen.is_empty(), "one commit at a time");
            layers.frozen = Arc::new(std::mem::take(&mut layers.fresh));
        });
    }

    /// What a commit has to write.
    pub(crate) fn frozen(&self) -> Arc<Pages> {
        self.layers.read().frozen.clone()
    }

    /// It is durable at its location.
    pub(crate) fn thaw(&self) {
        self.change(|layers| layers.frozen = Arc::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_commit_pays_is_found_until_it_is_paid() {
        let resident = LogResident::default();
        let page = |byte| -> Page { Page::from(&[byte; BLOCK_SIZE]) };
        resident.add(BlockNo(10), [page(1), page(2)].into_iter());
        resident.freeze();
        resident.add(BlockNo(20), [page(3)].into_iter());
        resident.forget(BlockRange::new(BlockNo(10), 11));
        let found = |start, count| resident.collect(BlockRange::new(BlockNo(start), count)).len();
        assert_eq!(
            (found(10, 2), found(20, 1)),
            (2, 0),
            "the commit needs what is freed behind it"
        );
        assert_eq!(resident.frozen().len(), 2);
        resident.thaw();
        assert_eq!((found(0, 100), resident.bytes()), (0, 0));
    }
}
