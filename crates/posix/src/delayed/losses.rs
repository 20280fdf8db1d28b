//! Which losses of data a sync of the whole volume has reported.
//!
//! An fsync reports losses of its file. A sync reports those of all files of all branches: it fails if accepted data of any file was
//! given up and no sync of the same branch has reported that before, even if that happened in the background, long ago, and the file or its
//! branch is closed since. `syncfs` of Linux (5.8 and later) does the same for an open file that has not seen the error. One call
//! has no open file here, so the open branch stands for it: the next sync there reports it, from any caller, and so does each sync that
//! had begun when the data was lost. A sync of one branch takes the error from no other: a caller that lost data there hears of it as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::{FsError, Result};

/// The losses of one volume.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    count: u64,
    /// How many the branch had reported that has reported most.
    reported: u64,
    /// The last of each branch: its number among all, and why.
    last: BTreeMap<u64, (u64, String)>,
}

/// What an open branch adds to them, and has reported of them.
#[derive(Debug)]
pub(crate) struct LossesSeen {
    all: Arc<Losses>,
    branch: u64,
    reported: AtomicU64,
}

/// How many losses were reported when a sync began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedLosses(u64);

impl LossesSeen {
    /// The branch of this number is opened. What no sync has reported it reports, too.
    pub(crate) fn of(all: &Arc<Losses>, branch: u64) -> LossesSeen {
        let reported = AtomicU64::new(all.0.lock().reported);
        LossesSeen { all: Arc::clone(all), branch, reported }
    }

    /// Accepted data of the branch is lost.
    pub(crate) fn add(&self, why: &str) {
        let mut all = self.all.0.lock();
        all.count += 1;
        let last = (all.count, why.to_owned());
        all.last.insert(self.branch, last);
    }

    /// What was lost of the branch is not there any more: no sync that begins now reports it.
    pub(crate) fn forget(&self) {
        self.all.0.lock().last.remove(&self.branch);
    }

    /// A sync begins.
    pub(crate) fn begin(&self) -> ReportedLosses {
        ReportedLosses(self.reported.load(Ordering::Acquire))
    }

    /// Ends a sync: fails if there is a loss that no sync had reported when it began. Now it is reported.
    pub(crate) fn end(&self, begun: ReportedLosses) -> Result<()> {
        let mut all = self.all.0.lock();
        let Some((count, why)) = all.last.values().max_by_key(|(count, _)| count).cloned() else {
            return Ok(());
        };
        if count <= begun.0 {
            return Ok(());
        }
        all.reported = all.reported.max(count);
        self.reported.fetch_max(count, Ordering::AcqRel);
        Err(FsError::Io(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_by_the_next_sync_and_by_each_that_had_begun() {
        let losses = LossesSeen::of(&Arc::default(), 1);
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

    #[test]
    fn each_branch_reports_the_losses_of_all_once() {
        let all = Arc::default();
        let [main, fork] = [1, 7].map(|number| LossesSeen::of(&all, number));
        let sync = |of: &LossesSeen| of.end(of.begin()).map_err(|error| error.to_string());
        fork.add("a");
        assert!(sync(&main).unwrap_err().contains('a'), "of another branch");
        sync(&main).expect("it was reported");
        assert!(sync(&fork).unwrap_err().contains('a'), "nobody there has heard of it");
        sync(&fork).expect("it was reported");
        // One that is closed: what was not reported is, by those that are open and by the next one that is opened.
        fork.add("b");
        drop(fork);
        let next = LossesSeen::of(&all, 7);
        assert!(sync(&next).is_err() && sync(&main).is_err());
        sync(&LossesSeen::of(&all, 9)).expect("it was reported before this one was opened");
        main.add("c");
        next.forget();
        assert!(sync(&next).unwrap_err().contains('c'), "that is of another branch");
    }
}
