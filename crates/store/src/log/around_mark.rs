//! What lies around a mark of the log: the batch whose sum the mark has, or one behind the mark (R12), as in the journal.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark, UNIT};

use super::replay::Reader;
use crate::before_mark::BeforeMark;

/// Bytes that are read at once: mostly the batch is among the first.
const STEP: u64 = 64 << 10;

impl Reader<'_> {
    /// The batch before `mark`, in bytes.
    pub(super) fn before(&self, mark: LogMark) -> BeforeMark {
        if mark.sum == 0 {
            return BeforeMark::Nothing;
        }
        let most = self.ring.len.min(BATCH_BYTES_MAX as u64);
        let mut is_read = true;
        for back in (0..most).step_by(STEP as usize) {
            let to = back.saturating_add(STEP).min(most);
            let (from, len) = (self.ring.before(mark.next, to), to.saturating_sub(back) as usize);
            for place in self.ring.places() {
                let Ok(bytes) = self.read(place, from, len) else {
                    is_read = false;
                    continue;
                };
                // Counted from the mark backwards.
                let units = bytes.chunks(UNIT as usize).zip((0..=to).rev().step_by(UNIT as usize));
                for (unit, bytes) in units {
                    let Ok(header) = LogHeader::decode(unit) else { continue };
                    let is_it = header.sum == mark.sum && u64::from(header.bytes) == bytes;
                    let at = self.ring.before(mark.next, bytes);
                    if is_it && let Ok(Some(_)) = self.batch(place, at) {
                        return BeforeMark::Whole(bytes);
                    }
                }
            }
        }
        if is_read { BeforeMark::Gone } else { BeforeMark::Unread }
    }

    /// Whether something lies behind `mark` that follows, or confirms what is before it.
    fn has_behind(&self, mark: LogMark) -> bool {
        self.ring.places().any(|place| match self.batch(place, mark.next) {
            Ok(Some(batch)) => {
                let LogHeader { number, prior, .. } = batch.header;
                number == mark.batch.next().0 && (prior == mark.sum || prior == !mark.sum)
            }
            Ok(None) => false,
            // It is not known.
            Err(_) => true,
        })
    }

    /// Why the log, of which nothing follows the mark of the last commit, was wiped. `earlier`: the mark of the commit before. Only
    /// that one was durable for certain, with all before its mark, when this one was written.
    pub(super) fn wiped(&self, mark: LogMark, earlier: LogMark) -> Option<String> {
        let is_gone = |mark| self.before(mark) == BeforeMark::Gone && !self.has_behind(mark);
        (is_gone(mark) && is_gone(earlier)).then(|| {
            format!("the log was wiped: nothing is left of it at its byte {} (`holdfast fsck -y --accept-loss` goes back to the last commit)", mark.next)
        })
    }
}
