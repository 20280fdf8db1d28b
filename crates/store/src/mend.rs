//! A bad place of a node is written again from the sound one: the same bytes at the same place, the only overwrite there is.
//!
//! ```text
//!  a node is read from its copy, and the tree wants it -> waits -> under the lock of checkpoints: read both again -> write
//! ```
//!
//! - The place must still be the node's when it is written. It was when the tree took the node in; and the place of a node is
//!   given to others only when a superblock has become durable behind that (R2). So a mend is made under the lock that lets one
//!   checkpoint be made at a time, and only if the newest superblock is the one of then. Otherwise it is forgotten: the next
//!   read of the node finds the bad place again.
//! - The sound place is not written, so a crash amid a mend leaves a sound one. No flush is waited for: until one comes, the node is
//!   as safe as before.
//! - Nothing is mended on a volume that is read-only or has stopped (P7).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange, Epoch};
use holdfast_format::node::Expected;
use parking_lot::Mutex;

use crate::verified::BadPlace;
use crate::{Inner, Result};

/// Mends that wait, at most: a few KiB of memory. More are found again.
const WAITING_MAX: usize = 256;

/// A node of which one place is bad.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mend {
    pub(crate) expected: Expected,
    pub(crate) bad: BlockRange,
    pub(crate) sound: BlockRange,
    /// That of the newest superblock before the tree took the node in.
    pub(crate) epoch: Epoch,
}

/// What waits to be mended, by the first block of the bad place.
#[derive(Debug, Default)]
pub(crate) struct Mends(Mutex<BTreeMap<BlockNo, Mend>>);

impl Inner {
    /// That of the newest superblock: places of nodes that are in use now stay theirs until there is another.
    pub(crate) fn published_epoch(&self) -> Epoch {
        self.superblock.lock().epoch
    }

    /// A node was read from one place, because the other is bad.
    pub(crate) fn copy_was_used(&self, expected: &Expected, bad: &BadPlace, sound: BlockRange) {
        self.counters.copies_used.increment();
        tracing::warn!(
            "block {} of the {:?} tree does not hold its node: {}; block {} does",
            bad.place.start,
            expected.tree,
            bad.why,
            sound.start
        );
    }

    /// The node is one that its tree wants: it is mended at once, or when the checkpoint under way lets it.
    pub(crate) fn mend(&self, mend: Mend) {
        if self.read_only {
            return;
        }
        {
            let mut waiting = self.mends.0.lock();
            if waiting.len() < WAITING_MAX {
                waiting.insert(mend.bad.start, mend);
            }
        }
        // Not awaited: who makes a checkpoint may be the one who reads.
        if let Some(_one) = self.one_checkpoint.try_lock() {
            self.mend_waiting();
        }
    }

    /// Mends what waits. The caller holds the lock that lets one checkpoint be made at a time.
    pub(crate) fn mend_waiting(&self) {
        // Before the bitmaps are known, it is not known either whose a place is.
        if self.mends.0.lock().is_empty() || !self.space.lock().loaded {
            return;
        }
        let waiting = std::mem::take(&mut *self.mends.0.lock());
        for mend in waiting.into_values() {
            if self.check_running().is_err() {
                return;
            }
            if self.published_epoch() == mend.epoch {
                self.mend_one(&mend);
            }
        }
    }

    fn mend_one(&self, mend: &Mend) {
        let block = mend.bad.start;
        if self.read_place(&mend.expected, mend.bad).is_ok() {
            return;
        }
        let done = self.read_place(&mend.expected, mend.sound).and_then(|bytes| {
            let at = block.byte_offset().expect("the node lies inside the volume");
            Ok(self.device.write(at, &bytes)?)
        });
        match done {
            Ok(()) => {
                self.counters.copies_mended.increment();
                tracing::warn!("block {block} was written again, from block {}", mend.sound.start);
            }
            Err(error) => {
                self.counters.copies_unmendable.increment();
                tracing::error!("block {block} cannot be written again: {error}");
            }
        }
    }

    /// The bytes of a node in one of its places, judged.
    pub(crate) fn read_place(&self, expected: &Expected, place: BlockRange) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; self.geometry().node_size];
        self.read_blocks(place, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        self.opened(expected, bytes.clone())?;
        Ok(bytes)
    }
}
