//! What lies around a mark of a log that holds no batch: where neither the batch before it nor one behind it is there, the log was
//! wiped. A batch of which one byte has rotted is there.

use holdfast_device::DeviceError;
use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark, UNIT};
use holdfast_format::rot::LOOKS;

use super::ring::Ring;

/// Bytes read at once.
const STEP: u64 = 64 << 10;

impl Ring<'_> {
    /// Whether a ring that was used holds nothing where it goes on: neither by the mark of the last commit, nor by that of the one
    /// before, which alone was durable for certain when the last was written. What does not read may be anything.
    pub(super) fn is_wiped(&self, earlier: &LogMark) -> bool {
        let is_gone = |mark: &LogMark| mark.sum != 0 && self.is_empty_around(mark).unwrap_or(false);
        is_gone(&self.start().mark) && is_gone(earlier)
    }

    fn is_empty_around(&self, mark: &LogMark) -> Result<bool, DeviceError> {
        for place in self.places() {
            let mut unit = vec![0; UNIT as usize];
            self.read(place, mark.next, &mut unit)?;
            let Ok(header) = self.header(&unit, mark.next) else { continue };
            if header.is_behind(mark.sum) && self.records(place, &header, unit)?.is_ok() {
                return Ok(false);
            }
        }
        let len = self.len();
        let most = len.min(BATCH_BYTES_MAX as u64);
        for place in self.places() {
            let mut looks = LOOKS;
            for back in (0..most).step_by(STEP as usize) {
                let to = (back + STEP).min(most);
                let mut part = vec![0; (to - back) as usize];
                self.read(place, (mark.next + len - to) % len, &mut part)?;
                for (index, unit) in (1..).zip(part.rchunks_exact(UNIT as usize)) {
                    let bytes = back + index * UNIT;
                    let at = (mark.next + len - bytes) % len;
                    let was = LogHeader::was(at, self.volume, mark.sum);
                    if looks == 0 || !was.may_be(unit, bytes) {
                        continue;
                    }
                    looks -= 1;
                    let mut held = vec![0; bytes as usize];
                    self.read(place, at, &mut held)?;
                    if was.is_but_for_one_byte(&held) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}
