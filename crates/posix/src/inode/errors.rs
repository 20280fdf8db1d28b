//! Which handle has seen which write errors (P7).
//!
//! The word of an inode counts its errors; its lowest bit says that the last one was seen. A handle remembers the word
//! as it was when opened, and reports an error whenever the word differs. A handle opened while the last error is
//! unseen remembers less, so it reports that error too; one opened after the report does not.
//!
//! The upper half of a word counts how often all errors were forgotten: what a handle remembers of before is void.

use holdfast_sync::atomic::{AtomicU64, Ordering};

use holdfast_base::mutants::{self, Mutant};
use parking_lot::Mutex;

use crate::FsError;

const SEEN: u64 = 1;
const ONE_ERROR: u64 = 2;
/// The upper half: how often all were forgotten.
const ONE_FORGOTTEN: u64 = 1 << 32;

/// How often all had been forgotten.
fn forgotten(word: u64) -> u64 {
    word / ONE_FORGOTTEN
}

/// The word without any error since that.
fn without_errors(word: u64) -> u64 {
    match forgotten(word) {
        0 => 0,
        often => (often * ONE_FORGOTTEN) | SEEN,
    }
}

/// The write errors of one inode.
#[derive(Debug, Default)]
pub(crate) struct ErrorSequence {
    word: AtomicU64,
    last: Mutex<String>,
}

/// How far one handle has seen the errors of its inode.
#[derive(Debug, Default)]
pub(crate) struct ErrorCursor(AtomicU64);

impl ErrorSequence {
    /// Says that data which was accepted could not be written, and why.
    pub(crate) fn record_error(&self, why: &str) {
        *self.last.lock() = why.to_owned();
        // An unseen error stands for this one as well.
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let unseen = word & !SEEN;
            if word == 0 || word & SEEN != 0 { Some(unseen + ONE_ERROR) } else { None }
        });
    }

    /// The cursor of a handle that is opened now.
    pub(crate) fn sample(&self) -> ErrorCursor {
        let word = self.word.load(Ordering::Acquire);
        ErrorCursor(AtomicU64::new(if word & SEEN != 0 { word } else { without_errors(word) }))
    }

    /// The error that the handle with this cursor has not reported yet. It is reported by this call.
    pub(crate) fn check(&self, cursor: &ErrorCursor) -> Option<FsError> {
        loop {
            let seen = cursor.0.load(Ordering::Acquire);
            let word = self.word.load(Ordering::Acquire);
            let is_void = forgotten(seen) != forgotten(word);
            if word == if is_void { without_errors(word) } else { seen } {
                return None;
            }
            let marked = self.word.fetch_or(SEEN, Ordering::AcqRel);
            if forgotten(marked) != forgotten(word) {
                continue;
            }
            if mutants::is(Mutant::ErrorToldOnce) && marked & SEEN != 0 {
                return None;
            }
            let now = marked | SEEN;
            // Of two threads that check one handle at once, one reports.
            cursor.0.compare_exchange(seen, now, Ordering::AcqRel, Ordering::Acquire).ok()?;
            return Some(FsError::Io(self.last.lock().clone()));
        }
    }

    /// Forgets all errors, for all handles: what could not be written is gone with the head that it was written to.
    pub(crate) fn forget_all(&self) {
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            let again = word.wrapping_add(ONE_FORGOTTEN);
            (word != without_errors(word)).then(|| without_errors(again) | SEEN)
        });
    }

    /// The last error, if no handle has reported it. It stays unreported.
    pub(crate) fn unseen(&self) -> Option<FsError> {
        let word = self.word.load(Ordering::Acquire);
        (word != 0 && word & SEEN == 0).then(|| FsError::Io(self.last.lock().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_reports_an_error_once_and_none_that_was_forgotten() {
        let errors = ErrorSequence::default();
        let (first, second) = (errors.sample(), errors.sample());
        errors.record_error("one");
        assert!(errors.check(&first).is_some() && errors.check(&first).is_none());
        for _ in 0..3 {
            // One that has been reported by a handle, one by none, and none at all.
            errors.forget_all();
            let later = errors.sample();
            for cursor in [&first, &second, &later] {
                assert!(errors.check(cursor).is_none());
            }
            assert!(errors.unseen().is_none());
            errors.record_error("two");
            let unseen = errors.sample();
            assert!(errors.unseen().is_some());
            for cursor in [&second, &later, &unseen] {
                assert!(errors.check(cursor).is_some() && errors.check(cursor).is_none());
            }
            assert!(errors.check(&errors.sample()).is_none());
            errors.record_error("three");
        }
    }

    #[test]
    fn forgetting_without_errors_changes_nothing() {
        let errors = ErrorSequence::default();
        let cursor = errors.sample();
        errors.forget_all();
        assert_eq!(errors.word.load(Ordering::Acquire), 0);
        errors.record_error("one");
        assert!(errors.check(&cursor).is_some());
    }
}
