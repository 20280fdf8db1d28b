//! Which losses of data a sync of the whole volume has reported.
//!
//! An fsync reports losses of its file. A sync reports those of all files: it fails if accepted data of any file was
//! given up and no sync has reported that before, even if that happened in the background, long ago, and the file is
//! closed since. `syncfs` of Linux (5.8 and later) does the same for an open file that has not seen the error. One call
//! has no open file here, so the next sync reports it, from any caller, and so does each sync that had begun when the
//! data was lost.

use holdfast_sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::{FsError, Result};

/// The losses of one volume.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    reported: AtomicU64,
    last: Mutex<String>,
}

/// How many losses were reported when a sync began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedLosses(u64);

impl Losses {
    /// Accepted data is lost.
    pub(crate) fn add(&self, why: &str) {
        *self.last.lock() = why.to_owned();
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// What was lost is not there any more: no sync that begins now reports it.
    pub(crate) fn forget(&self) {
        self.reported.fetch_max(self.count.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// A sync begins.
    pub(crate) fn begin(&self) -> ReportedLosses {
        ReportedLosses(self.reported.load(Ordering::Acquire))
    }

    /// Ends a sync: fails if there is a loss that no sync had reported when it began. Now it is reported.
    pub(crate) fn end(&self, begun: ReportedLosses) -> Result<()> {
        let count = self.count.load(Ordering::Acquire);
        if count <= begun.0 {
            return Ok(());
        }
        self.reported.fetch_max(count, Ordering::AcqRel);
        Err(FsError::Io(self.last.lock().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_by_the_next_sync_and_by_each_that_had_begun() {
        let losses = Losses::default();
        let first = losses.begin();
        losses.end(first).expect("nothing is lost");
        let (one, other) = (losses.begin(), losses.begin());
        losses.add("a");
        assert!(losses.end(one).is_err());
        assert!(losses.end(other).is_err(), "what it was to make durable is lost as well");
        losses.end(losses.begin()).expect("it was reported");
        losses.add("b");
        losses.add("c");
        let error = losses.end(losses.begin()).expect_err("it was not reported");
        assert!(error.to_string().contains('c'));
        losses.end(losses.begin()).expect("both were reported");
        losses.add("d");
        losses.forget();
        losses.end(losses.begin()).expect("it was of a head that is gone");
        losses.add("e");
        assert!(losses.end(losses.begin()).is_err());
    }
}
