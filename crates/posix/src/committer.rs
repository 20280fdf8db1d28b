//! The thread that makes history durable every few seconds (P11).
//!
//! What fsyncs have made durable already may stay in the log for a while: data that is written
//! again or deleted meanwhile never has to be brought to its place.
//!
//! When nothing changes any more it gives back the memory that is kept for more to come.
//!
//! Owned by the mounted volume; ends when dropped, without a last commit.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Lsn;
use holdfast_base::clock::Deadline;
use holdfast_store::page;
use parking_lot::{Condvar, Mutex};

use crate::atime;
use crate::core::Core;
use crate::{FsError, Result, threads};

/// What the thread is for.
const WORK: &str = "commits every few seconds";

/// So often the commit is left out while only the log needs it: it comes with the sixth tick.
const LEFT_OUT_MAX: u32 = 5;

/// A volume is at rest when so many ticks have found nothing that changed.
const REST_TICKS: u32 = 2;

/// When a commit that only the log needs may wait.
#[derive(Debug, Default)]
struct Patience {
    left_out: u32,
}

impl Patience {
    /// Whether this tick goes by without a commit.
    fn waits(&mut self, is_logged: bool) -> bool {
        let waits = is_logged && self.left_out < LEFT_OUT_MAX;
        self.left_out = if waits { self.left_out + 1 } else { 0 };
        waits
    }
}

/// When a volume has come to rest.
#[derive(Debug, Default)]
struct Rest {
    seen: Lsn,
    ticks: u32,
}

impl Rest {
    /// Whether this tick is the second at which history ends with `latest`, and nothing waits.
    fn has_come(&mut self, latest: Lsn, is_clean: bool) -> bool {
        let is_same = is_clean && latest == self.seen;
        self.seen = latest;
        self.ticks = if is_same { self.ticks.saturating_add(1) } else { 0 };
        self.ticks == REST_TICKS
    }
}

/// The thread of the background commit.
#[derive(Debug)]
pub(crate) struct Committer {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Signal {
    end: Mutex<bool>,
    changed: Condvar,
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(core: &Arc<Core>, every: Duration) -> Result<Committer> {
        let signal = Arc::new(Signal::default());
        let seen = signal.clone();
        let body = move |core: &Core| run(core, &seen, every);
        let thread = threads::start(core, "holdfast-commit", WORK, body)?;
        Ok(Committer { signal, thread: Some(thread) })
    }
}

fn run(core: &Core, signal: &Signal, every: Duration) {
    let (mut patience, mut rest) = (Patience::default(), Rest::default());
    loop {
        let until = Deadline::after(every);
        let mut end = signal.end.lock();
        while !*end && !signal.changed.wait_for(&mut end, until.left()).timed_out() {}
        if *end {
            return;
        }
        drop(end);
        page::give_back_half();
        if rest.has_come(core.store.latest(), core.data.bytes() == 0) {
            page::give_back();
            core.store.give_back_memory();
            core.options.at_rest.into_iter().for_each(|at_rest| at_rest());
        }
        // Once stopped a volume stays stopped (P7): nothing to try, and said already.
        if core.store.stop_reason().is_some() {
            continue;
        }
        // Whatever fails, what can be made durable is.
        let settled = atime::write_all(core).and(core.write_back());
        if settled.is_ok() && patience.waits(core.is_logged()) {
            continue;
        }
        if let Err(error) = settled.and(core.store.commit().map_err(FsError::from)) {
            tracing::warn!("the background commit failed: {error}");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        *self.signal.end.lock() = true;
        self.signal.changed.notify_all();
        threads::join(self.thread.take(), WORK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixth_tick_commits_what_only_the_log_holds() {
        let mut patience = Patience::default();
        let waits: Vec<bool> = (0..7).map(|_| patience.waits(true)).collect();
        assert_eq!(waits, [true, true, true, true, true, false, true]);
        assert!(!patience.waits(false), "something is not durable (P11)");
        assert!((0..5).all(|_| patience.waits(true)), "it is counted anew");
    }

    #[test]
    fn rest_comes_once_when_nothing_changes_and_nothing_waits() {
        let mut rest = Rest::default();
        let ticks = [
            (5, true),
            (5, true),
            (6, true),
            (6, false),
            (6, true),
            (6, true),
            (6, true),
            (7, true),
        ];
        let came: Vec<bool> = ticks.map(|(lsn, clean)| rest.has_come(Lsn(lsn), clean)).to_vec();
        assert_eq!(came, [false, false, false, false, false, true, false, false]);
        assert!(!rest.has_come(Lsn(7), true) && rest.has_come(Lsn(7), true), "it comes again");
    }
}
