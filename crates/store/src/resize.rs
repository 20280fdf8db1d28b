//! A volume becomes larger while it is used.
//!
//! ```text
//!  device longer -> host gives what the new size needs at once -> superblock into one slot, then the other -> new blocks are free
//!  ------------------------------------- Longer ------------------------------------- Said -------------------------------
//! ```
//!
//! - A superblock that says more than the device has could not be opened: so the device comes first, and its new length is durable by
//!   the flush in front of the superblock.
//! - The new far copy lies behind all blocks of before, and the old one stays what it is until both slots say the new size: whichever
//!   slot counts, its far copy is whole. Then its place is free space like any other, and so is what lay behind it.
//! - No block of the new part has an owner before that: no state that a crash may come back to, and that says the old size, reaches
//!   behind its end.
//! - The reserve of commits and removals grows with the volume. On a sparse image the host gives it before anything is written, or
//!   the volume stays as it is (P8).

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::show;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_device::DeviceError;
use holdfast_format::Geometry;

use crate::{Inner, Result, StoreError};

/// How large a volume is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// So many bytes, rounded down to whole blocks.
    Bytes(u64),
    /// So many bytes more than now.
    More(u64),
    /// As large as the device.
    Device,
}

/// The device has the bytes of this shape, and the host gives what it needs at once.
#[derive(Debug)]
struct Longer {
    geometry: Geometry,
    /// What the host has given ahead of need.
    given: Vec<BlockRange>,
}

/// Both superblocks say this shape, durably.
#[derive(Debug)]
struct Said(Longer);

/// Bytes of what the host has to give at once, with the far copy.
fn taken(parts: &[BlockRange]) -> u64 {
    (parts.iter().map(|part| part.count).sum::<u64>() + 1) * BLOCK_BYTES
}

fn no_room(new: &Geometry, needed: u64) -> StoreError {
    StoreError::Refused(format!(
        "the host has no room for what a volume of {} keeps for removals and commits, {} more than now",
        show::bytes(size(new)),
        show::bytes(needed)
    ))
}

impl Inner {
    /// See [`crate::Store::resize`].
    pub(crate) fn resize(&self, to: NewSize) -> Result<u64> {
        self.check_running()?;
        self.expect_rings()?;
        // What the host gives for the piece at the end must not be discarded before the volume has it.
        let _no_discard = self.discarder.no_discard();
        // One at a time.
        let _one = self.lock_checkpoints()?;
        let Some(longer) = self.lengthen(to)? else {
            return Ok(size(&self.geometry()));
        };
        let said = match mutants::is(Mutant::GrownEarly) {
            true => Said(longer),
            false => self.say(longer)?,
        };
        Ok(self.open_up(said))
    }

    /// Makes the device as long as is wanted; `None`: all that is long enough is there already.
    fn lengthen(&self, to: NewSize) -> Result<Option<Longer>> {
        let old = self.geometry();
        // What is below may be longer than when it was opened.
        self.device.grow(0)?;
        let bytes = match to {
            NewSize::Bytes(bytes) => bytes,
            NewSize::More(bytes) => size(&old).saturating_add(bytes),
            NewSize::Device => self.device.len(),
        };
        let blocks = bytes / BLOCK_BYTES;
        if blocks < old.volume_blocks {
            let why = format!(
                "it has {}, and is made smaller at rest only: unmount it first",
                show::bytes(size(&old))
            );
            return Err(StoreError::Refused(why));
        }
        let geometry = Geometry { volume_blocks: blocks, ..old };
        geometry.check().map_err(|malformed| StoreError::Refused(malformed.why))?;
        if blocks == old.volume_blocks {
            return Ok(None);
        }
        let was = self.device.len();
        if size(&geometry) > was {
            self.expect_room(&old, &geometry)?;
        }
        self.device.grow(size(&geometry)).map_err(|error| match error {
            error @ (DeviceError::BeyondEnd { .. } | DeviceError::Io { .. }) => {
                StoreError::Refused(format!(
                    "what holds the volume has {}, and cannot have {}: {}",
                    show::bytes(was),
                    show::bytes(size(&geometry)),
                    reason(error)
                ))
            }
            error => error.into(),
        })?;
        let given = self.take_reserve(&old, &geometry)?;
        Ok(Some(Longer { geometry, given }))
    }

    /// Before the device becomes longer, which stays: a host that has no room is known by then, unless others take it meanwhile.
    fn expect_room(&self, old: &Geometry, new: &Geometry) -> Result<()> {
        let needed = taken(&self.space.lock().reserve_for(old, new));
        match self.device.room_to_grow() {
            Some(room) if room < needed => Err(no_room(new, needed)),
            _ => Ok(()),
        }
    }

    /// Takes from the host what the volume must have as soon as it is larger: the block of the far copy, and the reserve that it keeps
    /// more of than before.
    fn take_reserve(&self, old: &Geometry, new: &Geometry) -> Result<Vec<BlockRange>> {
        let given = self.space.lock().reserve_for(old, new);
        let no_room = |error: DeviceError| match error.is_no_space() {
            true => no_room(new, taken(&given)),
            false => error.into(),
        };
        let far_copy = BlockRange::new(new.far_copy(), 1);
        for part in [&[far_copy], &given[..]].concat() {
            let (at, len) = (part.start.0 * BLOCK_BYTES, part.count * BLOCK_BYTES);
            self.device.take_room(at, len).map_err(no_room)?;
        }
        Ok(given)
    }

    /// Writes superblocks that say the new size into both slots.
    fn say(&self, longer: Longer) -> Result<Said> {
        let was = self.geometry().volume_blocks;
        for _slot in 0..2 {
            let mut journal = self.journal.lock();
            self.superblock.lock().geometry.volume_blocks = longer.geometry.volume_blocks;
            self.checkpoint_at_once(&mut journal).inspect_err(|_| {
                // Nothing was written, or the volume has stopped. A size that was refused is not to be said by a later checkpoint.
                self.superblock.lock().geometry.volume_blocks = was;
            })?;
            let epoch = self.superblock.lock().epoch;
            let step = self.step("a checkpoint");
            step.check(journal.say_left_out(&*self.device, epoch))?;
            step.end();
        }
        Ok(Said(longer))
    }

    /// The blocks of the new part are free from now on. Returns the bytes of the volume.
    fn open_up(&self, Said(longer): Said) -> u64 {
        let Longer { geometry, given } = longer;
        // An image that was given as a whole has a part now that was not.
        let is_sparse = self.device.room().is_some();
        // The last group gets more blocks.
        let last = BlockRange::new(BlockNo(self.geometry().far_copy().0 - 1), 1);
        self.with_bitmaps(last, |space| {
            self.shape.is_of(geometry.volume_blocks);
            space.extend(geometry, is_sparse, &given);
        });
        size(&geometry)
    }
}

/// Bytes of a volume; no more than the format allows, or than an opening has judged.
fn size(geometry: &Geometry) -> u64 {
    geometry.volume_blocks * BLOCK_BYTES
}

/// What the host said.
fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Io { source, .. } => source.to_string(),
        _ => "make it larger first".into(),
    }
}

/// The blocks between the far copies of two shapes.
pub(crate) fn between(old: &Geometry, new: &Geometry) -> BlockRange {
    let (start, end) = (old.far_copy().0, new.far_copy().0);
    BlockRange::new(BlockNo(start), end - start)
}
