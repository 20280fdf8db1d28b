//! What lies around the mark of a journal that holds no commit: where neither the frame before it nor one behind it is there, the
//! journal was wiped. A frame of which one byte has rotted is there.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::DeviceError;
use holdfast_format::journal::JournalMark;
use holdfast_format::journal::frame::{FRAME_BYTES_MAX, FrameHeader};
use holdfast_format::rot::LOOKS;

use super::ring::Ring;

impl Ring<'_> {
    /// Whether a ring that was used holds nothing where it goes on. What does not read may be anything.
    pub(super) fn is_wiped(&self) -> bool {
        let mark = self.start().mark;
        mark.sum != 0 && self.is_empty_around(&mark).unwrap_or(false)
    }

    fn is_empty_around(&self, mark: &JournalMark) -> Result<bool, DeviceError> {
        for distance in self.geometry.ring_places() {
            let Ok((header, _)) = self.frame(mark.next, distance)? else { continue };
            if header.is_behind(mark.sum) {
                return Ok(false);
            }
        }
        let start = self.blocks.start.0;
        let end = if mark.next.0 == start { start + self.blocks.count } else { mark.next.0 };
        let most = (end - start).min(FRAME_BYTES_MAX as u64 / BLOCK_BYTES);
        for distance in self.geometry.ring_places() {
            let mut looks = LOOKS;
            for at in (end - most..end).rev() {
                let place = (at + distance) * BLOCK_BYTES;
                let mut block = vec![0; BLOCK_SIZE];
                self.device.read(place, &mut block)?;
                let was = FrameHeader::was(BlockNo(at), self.tag, mark.sum);
                let len = (end - at) * BLOCK_BYTES;
                if looks == 0 || !was.may_be(&block, len) {
                    continue;
                }
                looks -= 1;
                block.resize(len as usize, 0);
                self.device.read(place, &mut block)?;
                if was.is_but_for_one_byte(&block) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
