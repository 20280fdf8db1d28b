//! The superblock that counts, and its far copy.

use holdfast_base::BLOCK_SIZE;
use holdfast_format::Superblock;

use crate::{Inner, Result};

impl Inner {
    /// What is wrong with the superblock that counts, or the far copy. The other slot may be torn after a power cut, and is
    /// written next.
    pub(super) fn scrub_superblocks(&self) -> Result<Option<String>> {
        // Both are written under this lock only.
        let _one = self.one_checkpoint.lock();
        let now = self.superblock.lock().clone();
        for (place, name) in
            [(now.slot(), "the superblock"), (now.geometry.far_copy(), "its far copy")]
        {
            let mut block = [0; BLOCK_SIZE];
            let at = place.byte_offset().expect("the superblock was judged");
            let judged = match self.device.read(at, &mut block) {
                Ok(()) => Superblock::decode(&block, place).map_err(|why| why.to_string()),
                Err(error @ holdfast_device::DeviceError::Io { .. }) => Err(error.to_string()),
                Err(error) => return Err(error.into()),
            };
            let wrong = match judged {
                Ok(found) if found.epoch == now.epoch => continue,
                Ok(found) => format!("it is of epoch {}, not {}", found.epoch, now.epoch),
                Err(why) => why,
            };
            return Ok(Some(format!("{name} at byte {at} is damaged: {wrong}")));
        }
        Ok(None)
    }
}
