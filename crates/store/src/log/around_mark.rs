//! What lies around a mark of the log: the batch whose sum the mark has, of which a byte may have rotted, or one behind the mark
//! (R12), as in the journal.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark, UNIT};
use holdfast_format::rot::LOOKS;

use super::replay::Reader;
use super::ring::RingCopy;
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
        BeforeMark::in_any(self.ring.places().map(|place| self.before_in(mark, most, place)))
    }

    /// The same in one place, in so many bytes.
    fn before_in(&self, mark: LogMark, most: u64, place: RingCopy) -> BeforeMark {
        let mut looks = LOOKS;
        for back in (0..most).step_by(STEP as usize) {
            let to = back.saturating_add(STEP).min(most);
            let (from, len) = (self.ring.before(mark.next, to), to.saturating_sub(back) as usize);
            let Ok(bytes) = self.read(place, from, len) else { return BeforeMark::Unread };
            // Counted from the mark backwards.
            let units = (1..).zip(bytes.rchunks_exact(UNIT as usize));
            for (index, head) in units {
                let bytes = UNIT.saturating_mul(index).saturating_add(back);
                let at = self.ring.before(mark.next, bytes);
                let was = LogHeader::was(at, self.ring.volume, mark.sum);
                if looks == 0 || !was.may_be(head, bytes) {
                    continue;
                }
                looks = looks.saturating_sub(1);
                let Ok(held) = self.read(place, at, bytes as usize) else {
                    return BeforeMark::Unread;
                };
                let is_whole = |it: LogHeader| {
                    let is_it = it.sum == mark.sum && u64::from(it.bytes) == bytes;
                    is_it && it.open(&held, at, &self.ring.volume).is_ok()
                };
                if LogHeader::decode(&held).is_ok_and(is_whole) {
                    return BeforeMark::Whole(bytes);
                }
                if was.is_but_for_one_byte(&held) {
                    return BeforeMark::Rotten;
                }
            }
        }
        BeforeMark::Gone
    }

    /// Whether something lies behind `mark` that follows, or confirms what is before it. Its number says nothing: the mark may have left
    /// some out since.
    fn has_behind(&self, mark: LogMark) -> bool {
        self.ring.places().any(|place| match self.batch(place, mark.next) {
            Ok(Some(batch)) => batch.header.is_behind(mark.sum),
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
