//! The superblock that counts, its far copy, and the signpost to that.

use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::DeviceError;
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS};
use holdfast_format::{Signpost, Superblock};

use super::answers;
use crate::{Inner, Result, signpost, step, superblock};

impl Inner {
    /// Judges the superblock that counts, and the far copy of it; of a volume that is read only the one that it was opened from; of one that
    /// has stopped whether one of them is there. What is wrong, if anything is.
    pub fn scrub_superblocks(&self) -> Result<Option<String>> {
        if let Some(opened_from) = &self.opened_from {
            return self.scrub_superblock_of_reader(opened_from);
        }
        // Both are written under this lock only.
        let _one = self.one_checkpoint.lock();
        let now = self.superblock.lock().clone();
        if self.stop.is_stopped() {
            return self.scrub_superblocks_of_stopped(&now);
        }
        for (place, name) in
            [(now.slot(), "the superblock"), (now.geometry.far_copy(), "its far copy")]
        {
            if let Some(why) = self.wrong_with(place, &now)? {
                return Ok(Some(format!("{name} {why}")));
            }
        }
        let wrong = match signpost::read(&*self.device) {
            Ok(found) if found == Some(Signpost::of(&now)) => return Ok(None),
            Ok(_) => "does not lead to its far copy".into(),
            Err(error @ DeviceError::Io { .. }) => answers::probe(self, error.into())?.in_words(),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(format!("the signpost at block {SIGNPOST}: {wrong}")))
    }

    /// Writes the superblock that counts once more where it is damaged.
    ///
    /// # Errors
    /// The device refuses it: it stays as it is. A flush that fails stops the volume.
    pub fn mend_superblocks(&self) -> Result<()> {
        let _one = self.one_checkpoint.lock();
        let now = self.superblock.lock().clone();
        // What a flush did not make durable may be of any volume.
        let stop = |error: &DeviceError| step::stop(&self.stop, error.to_string());
        // The same bytes, the slot durable before the far copy is touched: a power cut in between leaves what was whole before.
        for place in [now.slot(), now.geometry.far_copy()] {
            if self.wrong_with(place, &now)?.is_some() {
                superblock::write_to(&*self.device, &now, place)?;
                let _durable = self.device.flush().inspect_err(stop)?;
            }
        }
        let signpost = Signpost::of(&now);
        if signpost::read(&*self.device).ok().flatten() != Some(signpost) {
            signpost::write(&*self.device, signpost)?;
            let _durable = self.device.flush().inspect_err(stop)?;
        }
        Ok(())
    }

    /// Whether the next opening finds the superblock that memory knows, or a later one: the device may have taken one whose flush failed.
    fn scrub_superblocks_of_stopped(&self, known: &Superblock) -> Result<Option<String>> {
        for place in SUPERBLOCK_SLOTS.into_iter().chain([known.geometry.far_copy()]) {
            let mut block = [0; BLOCK_SIZE];
            let at = place.byte_offset().expect("the superblock was judged");
            let is_there = self.device.read(at, &mut block).is_ok()
                && Superblock::decode(&block, place)
                    .is_ok_and(|found| found.tags() == known.tags() && found.epoch >= known.epoch);
            if is_there {
                return Ok(None);
            }
        }
        let epoch = known.epoch;
        Ok(Some(format!(
            "the superblock of epoch {epoch} is damaged in its slot and in its far copy"
        )))
    }

    /// Of a reader only the one that it was opened from: a crash may have left the far copy older, or torn.
    fn scrub_superblock_of_reader(&self, opened_from: &Superblock) -> Result<Option<String>> {
        let Some(why) = self.wrong_with(opened_from.slot(), opened_from)? else { return Ok(None) };
        let what_to_do = match self.wrong_with(opened_from.geometry.far_copy(), opened_from)? {
            None => "its far copy is whole: unmount, and `holdfast fsck -y` writes it back",
            Some(_) => {
                "nor does its far copy hold it: copy files out before you unmount, as this mount has it in memory; \
                 `holdfast fsck -n` says what can be done behind that"
            }
        };
        Ok(Some(format!("the superblock {why}; {what_to_do}")))
    }

    /// Why a place does not hold a superblock.
    fn wrong_with(&self, place: BlockNo, superblock: &Superblock) -> Result<Option<String>> {
        let mut block = [0; BLOCK_SIZE];
        let at = place.byte_offset().expect("the superblock was judged");
        let judged = match self.device.read(at, &mut block) {
            Ok(()) => Superblock::decode(&block, place).map_err(|why| why.to_string()),
            Err(error @ DeviceError::Io { .. }) => {
                Err(answers::probe(self, error.into())?.in_words())
            }
            Err(error) => return Err(error.into()),
        };
        let wrong = match judged {
            Ok(found) if found.epoch == superblock.epoch => return Ok(None),
            Ok(found) => format!("it is of epoch {}, not {}", found.epoch, superblock.epoch),
            Err(why) => why,
        };
        Ok(Some(format!("at byte {at} is damaged: {wrong}")))
    }
}
