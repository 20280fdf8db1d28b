//! The thread that makes history durable every few seconds (P11).
//!
//! What fsyncs have made durable already may stay in the log for a while: data that is written
//! again or deleted meanwhile never has to be brought to its place.
//!
//! Owned by the mounted volume; ends when dropped, without a last commit.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_store::page;
use parking_lot::{Condvar, Mutex};

use crate::atime;
use crate::core::Core;
use crate::{FsError, Result};

/// So often the commit is left out while only the log needs it: it comes with the sixth tick.
const LEFT_OUT_MAX: u32 = 5;

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
    pub(crate) fn start(core: Arc<Core>, every: Duration) -> Result<Committer> {
        let signal = Arc::new(Signal::default());
        let seen = signal.clone();
        let thread = holdfast_sync::thread::Builder::new()
            .name("holdfast-commit".into())
            .spawn(move || run(&core, &seen, every))
            .map_err(|error| FsError::Io(format!("the commit thread did not start: {error}")))?;
        Ok(Committer { signal, thread: Some(thread) })
    }
}

fn run(core: &Core, signal: &Signal, every: Duration) {
    let mut patience = Patience::default();
    loop {
        let until = Deadline::after(every);
        let mut end = signal.end.lock();
        while !*end && !signal.changed.wait_for(&mut end, until.left()).timed_out() {}
        if *end {
            return;
        }
        drop(end);
        page::give_back_half();
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
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread panicked");
        }
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
}
