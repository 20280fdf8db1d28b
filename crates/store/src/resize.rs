//! A volume becomes larger while it is used.
//!
//! ```text
//!  device longer -> host gives what the new size needs at once -> superblock into one slot, then the other -> new blocks are free
//!  ------------------------------------- Longer ----------------------------- SizePublished --------------------------
//! ```
//!
//! - A superblock that says more than the device has could not be opened: so the device comes first, and its new length is durable by
//!   the flush in front of the superblock.
//! - The new far copy lies behind all blocks of before, and the old one stays what it is until both slots say the new size: whichever
//!   slot counts, its far copy is whole. Then its place is free space like any other, and so is what lay behind it.
//! - No block of the new part has an owner before that: no state that a crash may come back to, and that says the old size, reaches
//!   behind its end.
//! - The reserve of commits and removals follows what the host has given of a sparse image, not the size (P8): only the place of the far copy
//!   is taken at once, or the volume stays as it is.

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
struct Longer(Geometry);

/// Both superblocks say this shape, durably.
#[derive(Debug)]
struct SizePublished(Longer);

fn no_room(new: &Geometry) -> StoreError {
    StoreError::Refused(format!(
        "the host has no room for the superblock at the end of a volume of {}",
        show::bytes(size(new))
    ))
}

impl Inner {
    /// Makes the volume larger, and what holds it before, where that is too short. Returns the bytes that it has when this returns: then they are there after any crash, and can be used. Power that fails
    /// meanwhile leaves the old size or the new one. Others go on meanwhile, but for the time of two checkpoints.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the size is less than now, or more than the format or the device allows, or the host has no room
    /// for what a larger volume keeps free; then the volume is as it was, and an image file may be longer. Those of a checkpoint.
    pub fn resize(&self, to: NewSize) -> Result<u64> {
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
            true => SizePublished(longer),
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
        geometry.check_own().map_err(|malformed| StoreError::Refused(malformed.why))?;
        if blocks == old.volume_blocks {
            return Ok(None);
        }
        let was = self.device.len();
        // Before the device becomes longer, which stays: a host that has no room is known by then, unless others take it meanwhile.
        if size(&geometry) > was
            && self.device.room_to_grow().is_some_and(|room| room < BLOCK_BYTES)
        {
            return Err(no_room(&geometry));
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
        let far_copy = geometry.far_copy().0 * BLOCK_BYTES;
        self.device.take_room(far_copy, BLOCK_BYTES).map_err(|error| {
            match error.is_no_space() {
                true => no_room(&geometry),
                false => error.into(),
            }
        })?;
        Ok(Some(Longer(geometry)))
    }

    /// Writes superblocks that say the new size into both slots.
    fn say(&self, longer: Longer) -> Result<SizePublished> {
        let was = self.geometry().volume_blocks;
        for _slot in 0..2 {
            let mut journal = self.journal.lock();
            self.superblock.lock().geometry.volume_blocks = longer.0.volume_blocks;
            self.checkpoint_at_once(&mut journal).inspect_err(|_| {
                // Nothing was written, or the volume has stopped. A size that was refused is not to be said by a later checkpoint.
                self.superblock.lock().geometry.volume_blocks = was;
            })?;
            let epoch = self.superblock.lock().epoch;
            let step = self.step("a checkpoint");
            step.check(journal.say_left_out(&*self.device, epoch))?;
            step.end();
        }
        Ok(SizePublished(longer))
    }

    /// The blocks of the new part are free from now on. Returns the bytes of the volume.
    fn open_up(&self, SizePublished(longer): SizePublished) -> u64 {
        let Longer(geometry) = longer;
        // An image that was given as a whole has a part now that was not.
        let is_sparse = self.device.room().is_some();
        // The last group gets more blocks.
        let last = BlockRange::new(BlockNo(self.geometry().far_copy().0 - 1), 1);
        self.with_bitmaps(last, |space| {
            self.shape.is_of(geometry.volume_blocks);
            space.extend(geometry, is_sparse);
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
