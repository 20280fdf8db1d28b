//! What lies around a mark of a log that holds no batch: where neither the batch before it nor one behind it is there, the log was
//! wiped.

use holdfast_device::DeviceError;
use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark, UNIT};

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
        let judged = |place, at, unit: &[u8]| -> Result<Option<LogHeader>, DeviceError> {
            let Ok(header) = self.header(unit, at) else { return Ok(None) };
            let records = self.records(place, &header, unit.to_vec())?;
            Ok(records.ok().map(|_| header))
        };
        for place in self.places() {
            let mut unit = vec![0; UNIT as usize];
            self.read(place, mark.next, &mut unit)?;
            if let Some(header) = judged(place, mark.next, &unit)? {
                let is_next = header.number == mark.batch.next().0;
                if is_next && (header.prior == mark.sum || header.prior == !mark.sum) {
                    return Ok(false);
                }
            }
        }
        let len = self.len();
        let most = len.min(BATCH_BYTES_MAX as u64);
        for (place, back) in self
            .places()
            .flat_map(|place| (0..most).step_by(STEP as usize).map(move |at| (place, at)))
        {
            let to = (back + STEP).min(most);
            let mut part = vec![0; (to - back) as usize];
            self.read(place, (mark.next + len - to) % len, &mut part)?;
            for (index, unit) in (0..).zip(part.chunks(UNIT as usize)) {
                let bytes = to - index * UNIT;
                let at = (mark.next + len - bytes) % len;
                let Ok(header) = self.header(unit, at) else { continue };
                let is_it = header.sum == mark.sum && u64::from(header.bytes) == bytes;
                if is_it && judged(place, at, unit)?.is_some() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
