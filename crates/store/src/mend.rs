//! A bad place of a node is written again from the sound one: the same bytes at the same place, the only overwrite there is.
//!
//! ```text
//!  a node is read from its copy, and the tree wants it -> waits until the volume is open
//!    -> under the lock of checkpoints: read both again -> write
//! ```
//!
//! - The place must still be the node's when it is written. It was when the tree took the node in; and the place of a node is
//!   given to others only when a superblock has become durable behind that (R2). So a mend is made under the lock that lets one
//!   checkpoint be made at a time, and only if the newest superblock is the one of then. Otherwise it is forgotten: the next
//!   read of the node finds the bad place again.
//! - The bitmaps must say that nodes are in all its places. Where they are wrong a file may have got one of them, and fsck decides whose it
//!   is: the mend is not made.
//! - The sound place is not written, so a crash amid a mend leaves a sound one. No flush is waited for: until one comes, the node is
//!   as safe as before.
//! - No caller waits for many mends: a reader makes two, one lock for each; a holder of the lock of checkpoints makes a few. None is made
//!   under the journal's lock: commits go on, and with them fsyncs. What is left over is found again by the next read.
//! - Nothing is mended on a volume that is read-only or has stopped (P7), and before it is decided that the volume is opened (P9).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::{BlockNo, BlockRange, Epoch};
use holdfast_format::node::Expected;
use holdfast_sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;

use crate::space::alloc::Space;
use crate::verified::BadPlace;
use crate::{Inner, Result};

/// Mends that wait, at most: a few KiB of memory. More are found again.
const WAITING_MAX: usize = 256;
/// Mends that are made while a checkpoint could be made: on a disk these take a quarter of a second.
pub(crate) const AT_ONCE: usize = 8;

/// A node of which one place is bad.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mend {
    pub(crate) expected: Expected,
    pub(crate) bad: BlockRange,
    pub(crate) sound: BlockRange,
    /// That of the newest superblock before the tree took the node in.
    pub(crate) epoch: Epoch,
}

/// Whether a tree leads to a node in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    Yes,
    No,
    /// Something above it is damaged by now.
    Unknown,
}

/// What waits to be mended.
#[derive(Debug, Default)]
pub(crate) struct Mends {
    /// By the first block of the bad place.
    waiting: Mutex<BTreeMap<BlockNo, Mend>>,
    /// The volume is opened. An opening that is refused leaves it as it was.
    is_open: AtomicBool,
}

impl Mends {
    /// One that can still be made at this epoch; those that cannot are forgotten.
    fn next(&self, epoch: Epoch) -> Option<Mend> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, mend| mend.epoch == epoch);
        waiting.pop_first().map(|(_, mend)| mend)
    }
}

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
            let mut waiting = self.mends.waiting.lock();
            if waiting.len() < WAITING_MAX {
                waiting.insert(mend.bad.start, mend);
            }
        }
        // This caller may be the one that makes a commit.
        if self.journal.is_locked() {
            return;
        }
        // This one, and one that has waited for a checkpoint.
        for _ in 0..2 {
            // Not awaited: the reader may be the maker of the checkpoint.
            let Some(_one) = self.one_checkpoint.try_lock() else { return };
            self.mend_waiting(1);
        }
    }

    /// The volume is opened for writing: what was found meanwhile may be mended.
    pub(crate) fn begin_mends(&self) {
        self.mends.is_open.store(true, Ordering::Release);
        if let Some(_one) = self.one_checkpoint.try_lock() {
            self.mend_waiting(AT_ONCE);
        }
    }

    /// Mends of what waits so many at most. The caller holds the lock that lets one checkpoint be made at a time.
    pub(crate) fn mend_waiting(&self, most: usize) {
        if !self.mends.is_open.load(Ordering::Acquire) {
            return;
        }
        for _ in 0..most {
            let next = self.mends.next(self.published_epoch());
            let Some(mend) = next.filter(|_| self.check_running().is_ok()) else { return };
            // It may have become free since it was read.
            if self.has_places(&mend.expected) {
                let _told = self.mend_one(&mend);
            }
        }
    }

    /// Mends a node to which a scrub has come, if its tree leads to it when no checkpoint can give its places away. `None`: it does not.
    /// Otherwise whether the bad place has it now, or why not.
    pub(crate) fn mend_for_scrub(
        &self,
        expected: &Expected,
        (bad, sound): (BlockRange, BlockRange),
        is_led_to: impl FnOnce() -> Result<Led>,
    ) -> Result<Option<std::result::Result<(), String>>> {
        let _one = self.one_checkpoint.lock();
        let epoch = self.published_epoch();
        // Asked before: a tree that lets go of the node afterwards leads to it no more.
        let has_places = self.has_places(expected);
        let why = match is_led_to()? {
            Led::No => return Ok(None),
            Led::Unknown => "what leads to it is damaged",
            Led::Yes if self.read_only || self.check_running().is_err() => "nothing is written",
            Led::Yes if !has_places => {
                "it is not marked as in use by nodes; `holdfast fsck -y` decides whose it is"
            }
            Led::Yes => {
                let mend = Mend { expected: *expected, bad, sound, epoch };
                return Ok(Some(self.mend_one(&mend).map_err(|error| error.to_string())));
            }
        };
        Ok(Some(Err(why.into())))
    }

    /// Whether the bitmaps say that all places of a node are in use by nodes.
    fn has_places(&self, expected: &Expected) -> bool {
        if self.read_only {
            return false;
        }
        let (block, stored) = (expected.pointer.block, expected.stored(&self.geometry()));
        let is_node = |space: &mut Space| {
            let is_known =
                !space.groups_of(BlockRange::new(block, 1)).any(|of| space.groups.is_lost(of));
            space.loaded && is_known && space.is_node(block, stored)
        };
        // A node and its copy lie in one group.
        self.with_bitmaps(BlockRange::new(block, 1), is_node)
    }

    /// Writes the bad place. The caller holds the lock that lets one checkpoint be made at a time, and has asked whose the place is.
    fn mend_one(&self, mend: &Mend) -> Result<()> {
        let block = mend.bad.start;
        let done = self.read_place(&mend.expected, mend.sound).and_then(|bytes| {
            if self.read_place(&mend.expected, mend.bad).is_ok_and(|now| now == bytes) {
                return Ok(false);
            }
            let at = block.byte_offset().expect("the node lies inside the volume");
            self.device.write(at, &bytes)?;
            Ok(true)
        });
        match &done {
            Ok(true) => {
                self.counters.copies_mended.increment();
                tracing::warn!("block {block} was written again, from block {}", mend.sound.start);
            }
            // Another caller was faster.
            Ok(false) => {}
            Err(error) => {
                self.counters.copies_unmendable.increment();
                tracing::error!("block {block} cannot be written again: {error}");
            }
        }
        done.map(|_| ())
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
