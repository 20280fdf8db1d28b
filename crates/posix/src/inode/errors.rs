//! Which handle has seen which write errors (P7).
//!
//! The word of an inode counts its errors; its lowest bit says that the last one was seen. A handle remembers the word
//! as it was when opened, and reports an error whenever the word differs. A handle opened while the last error is
//! unseen remembers 0, so it reports that error too; one opened after the report does not.

use holdfast_sync::atomic::{AtomicU64, Ordering};

use holdfast_base::mutants::{self, Mutant};
use parking_lot::Mutex;

use crate::FsError;

const SEEN: u64 = 1;
const ONE_ERROR: u64 = 2;

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
        ErrorCursor(AtomicU64::new(if word & SEEN != 0 { word } else { 0 }))
    }

    /// The error that the handle with this cursor has not reported yet. It is reported by this call.
    pub(crate) fn check(&self, cursor: &ErrorCursor) -> Option<FsError> {
        let seen = cursor.0.load(Ordering::Acquire);
        if self.word.load(Ordering::Acquire) == seen {
            return None;
        }
        let word = self.word.fetch_or(SEEN, Ordering::AcqRel);
        if mutants::is(Mutant::ErrorToldOnce) && word & SEEN != 0 {
            return None;
        }
        let now = word | SEEN;
        // Of two threads that check one handle at once, one reports.
        cursor.0.compare_exchange(seen, now, Ordering::AcqRel, Ordering::Acquire).ok()?;
        Some(FsError::Io(self.last.lock().clone()))
    }

    /// The last error, if no handle has reported it. It stays unreported.
    pub(crate) fn unseen(&self) -> Option<FsError> {
        let word = self.word.load(Ordering::Acquire);
        (word != 0 && word & SEEN == 0).then(|| FsError::Io(self.last.lock().clone()))
    }
}
