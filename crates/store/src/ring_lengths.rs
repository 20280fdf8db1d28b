//! How much of its room each ring has in use: more ahead of need, and less when nothing needs it (P8).
//!
//! ```text
//!  a ring is filled to a quarter -> host gives more -> zeros (log) -> CHECKPOINT that says it -> the ring goes on into it
//!  at rest: CHECKPOINT that says less, both rings at their starts -> what lies behind goes back to the host
//! ```
//!
//! - A length changes with a superblock and with nothing else, so a reader finds a ring as long as its superblock says. Both superblocks
//!   name the same first block.
//! - *Longer:* until the superblock is durable no batch goes on at the ring's start, and no commit is made: what is written behind its mark lies at the same place
//!   in a ring of either length, and so does the batch before it, or it is done as for a shorter one. The journal is empty behind it, and begins at its start.
//! - *Shorter:* no batch either is written meanwhile, and the log begins at its start as well: the ring of the superblock of before is left as it was until the new one is
//!   durable.
//! - A host that refuses changes nothing: the next checkpoint has the old lengths.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::{FIRST_JOURNAL_BLOCKS, FIRST_LOG_BLOCKS};

use parking_lot::MutexGuard;

use crate::{Inner, Result, StoreError};

/// A ring becomes so many times as long.
const TIMES: u64 = 4;
/// A ring is longer than this part of what is in use of the volume only where it is short: 4 MiB.
const SHARE: u64 = 16;
const SHORT_BLOCKS: u64 = (4 << 20) / BLOCK_BYTES;
/// A ring takes no more than this part of what the host has left.
const HOST_SHARE: u64 = 8;

impl Inner {
    /// Makes the rings longer that fill, as far as they have room and the host gives it, which is asked with no lock held.
    pub(crate) fn lengthen_rings(&self) -> Result<()> {
        let lengths = |of: &Geometry| (of.log_blocks, of.journal_blocks);
        let old = self.superblock.lock().geometry;
        let new = self.longer(&old);
        if lengths(&new) == lengths(&old) || !self.take_growth(&old, &new) {
            self.throttle.rings_stay();
            return Ok(());
        }
        let one = self.lock_checkpoints()?;
        // If they became shorter meanwhile, what was given may have gone back.
        let now = self.superblock.lock().geometry;
        if lengths(&now) != lengths(&old) {
            return Ok(());
        }
        self.change_rings(&one, &new)
    }

    /// Both rings get the lengths of `new`, where there is place for that.
    fn change_rings(&self, one: &MutexGuard<'_, ()>, new: &Geometry) -> Result<()> {
        let log = &self.logging;
        let is_longer = new.log_blocks >= self.superblock.lock().geometry.log_blocks;
        // From here on no batch becomes one that is split.
        log.keeps_before_the_end(is_longer);
        if is_longer && !log.is_split_before_the_mark() {
            let bytes = new.log_blocks * BLOCK_BYTES;
            let done = self.turn_rings(new).inspect(|()| log.has_length(bytes));
            log.keeps_before_the_end(false);
            return done;
        }
        log.keeps_before_the_end(false);
        self.turn_rings_from_start(one, new)
    }

    /// Both rings go on at their starts, in the lengths of `new`. No batch is written meanwhile. The log's lock comes before the journal's
    /// here: whatever takes both holds `one_checkpoint`.
    fn turn_rings_from_start(&self, _one: &MutexGuard<'_, ()>, new: &Geometry) -> Result<()> {
        let log = self.logging.at_start(&self.pending);
        self.turn_rings(new)?;
        log.stays_in(new.log_blocks * BLOCK_BYTES);
        Ok(())
    }

    /// Makes a checkpoint with both rings at their starts, and marks that name nothing of before.
    pub(crate) fn begin_rings_anew(&self) -> Result<()> {
        let one = self.lock_checkpoints()?;
        let geometry = self.superblock.lock().geometry;
        self.turn_rings_from_start(&one, &geometry)
    }

    /// Log and journal have so many blocks in use from now on: what the store else decides by itself. For tests.
    ///
    /// # Errors
    /// Those of a checkpoint; refused where the rings have no such room.
    #[doc(hidden)]
    pub fn rings_of(&self, log_blocks: u64, journal_blocks: u64) -> Result<()> {
        let one = self.lock_checkpoints()?;
        let old = self.superblock.lock().geometry;
        let new = Geometry { log_blocks, journal_blocks, ..old };
        new.check().map_err(|malformed| StoreError::Refused(malformed.why))?;
        self.change_rings(&one, &new)
    }

    /// The shape with what is to be in use of each ring.
    fn longer(&self, old: &Geometry) -> Geometry {
        let used = self.space.lock().used_blocks();
        let most = SHORT_BLOCKS.max(used / SHARE);
        let longer = |now: u64, room: u64| match (now * TIMES).min(most).min(room) {
            // A little more is not worth a checkpoint.
            longer if longer >= now + now / 2 => longer,
            _ => now,
        };
        let [log, journal] = self.throttle.rings_that_fill();
        let log_blocks = if log { longer(old.log_blocks, old.log_room()) } else { old.log_blocks };
        let journal_blocks = if journal {
            longer(old.journal_blocks, old.journal_room())
        } else {
            old.journal_blocks
        };
        Geometry { log_blocks, journal_blocks, ..*old }
    }

    /// Takes from the host what is to be in use, and writes the log's: a host that must convert blocks under an fsync turns one flush into
    /// two. Says whether the host gives it.
    fn take_growth(&self, old: &Geometry, new: &Geometry) -> bool {
        let log = behind(old.log(), new.log());
        let parts: Vec<_> = beyond(old, new).collect();
        let bytes: u64 = parts.iter().map(|part| part.count * BLOCK_BYTES).sum();
        let room = self.device.room();
        if room.is_some_and(|room| room / HOST_SHARE < bytes) {
            return false;
        }
        let take = |part: &BlockRange| match room {
            Some(_) => self.device.take_room(part.start.0 * BLOCK_BYTES, part.count * BLOCK_BYTES),
            None => Ok(()),
        };
        let given = parts.iter().try_for_each(take);
        let written = given
            .and_then(|()| new.places_of_ring(log).try_for_each(|part| self.write_zeros(part)));
        written.inspect_err(|error| tracing::debug!("the rings stay as they are: {error}")).is_ok()
    }

    /// At rest: the rings are as long as those of a new volume, where what lies behind goes back to a host.
    pub(crate) fn shorten_rings(&self) -> Result<()> {
        if !self.may_shorten_rings() {
            return Ok(());
        }
        let one = self.lock_checkpoints()?;
        let old = self.superblock.lock().geometry;
        let new = shortest(&old);
        if new == old {
            return Ok(());
        }
        self.change_rings(&one, &new)?;
        let (log_blocks, journal_blocks) = (old.log_room(), old.journal_room());
        for part in beyond(&new, &Geometry { log_blocks, journal_blocks, ..old }) {
            let (at, len) = (part.start.0 * BLOCK_BYTES, part.count * BLOCK_BYTES);
            if let Err(error) = self.device.discard(at, len) {
                tracing::debug!("the rings do not go back: {error}");
            }
        }
        Ok(())
    }

    /// Batches and commits so far: while they are as many, nothing needs longer rings.
    pub(crate) fn work_of_rings(&self) -> [u64; 2] {
        [self.counters.log_batches.get(), self.counters.commits.get()]
    }

    /// Whether a ring has room for more than is in use, or may have some day.
    pub(crate) fn has_short_rings(&self) -> bool {
        let is = self.superblock.lock().geometry;
        self.device.room().is_some()
            || is.log_blocks < is.log_room()
            || is.journal_blocks < is.journal_room()
    }

    /// Whether the rings have more in use than those of a new volume, and what is given up goes back to a host.
    pub(crate) fn may_shorten_rings(&self) -> bool {
        let old = self.superblock.lock().geometry;
        shortest(&old) != old
            && self.rings_to_take() == 0
            && self.discarder.is_on()
            && self.device.room().is_some()
    }

    /// Makes the checkpoint whose superblock says the lengths of `new`, and goes on with them. The journal goes on at its start.
    fn turn_rings(&self, new: &Geometry) -> Result<()> {
        let mut journal = self.journal.lock();
        let before = self.shape.ring_lengths();
        let was = journal.begin_in(new.journal());
        self.shape.has_rings([new.log_blocks, new.journal_blocks]);
        self.checkpoint_at_once(&mut journal).inspect_err(|_| {
            // Nothing was written, or the volume has stopped.
            journal.is_again(was);
            self.shape.has_rings(before);
        })?;
        self.throttle.rings_are(new);
        let mut space = self.space.lock();
        space.rings_have(new.rings().map(|ring| ring.count).sum());
        space.unflushed.journal_is(new.journal_blocks);
        drop(space);
        let epoch = self.superblock.lock().epoch;
        let step = self.step("a checkpoint");
        step.check(journal.say_left_out(&*self.device, epoch))?;
        step.end();
        Ok(())
    }
}

/// The shape with rings as a new volume has them, where they are longer.
fn shortest(old: &Geometry) -> Geometry {
    Geometry {
        log_blocks: old.log_blocks.min(FIRST_LOG_BLOCKS),
        journal_blocks: old.journal_blocks.min(FIRST_JOURNAL_BLOCKS),
        ..*old
    }
}

/// What a ring has more than a shorter one.
fn behind(shorter: BlockRange, longer: BlockRange) -> BlockRange {
    BlockRange::new(BlockNo(longer.start.0 + shorter.count), longer.count - shorter.count)
}

/// What both rings have more in the second shape, in all their places.
fn beyond(shorter: &Geometry, longer: &Geometry) -> impl Iterator<Item = BlockRange> + use<> {
    let rings = shorter.rings().zip(longer.rings());
    rings.map(|(shorter, longer)| behind(shorter, longer)).filter(|part| part.count > 0)
}
