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

/// So often the commit is left out while nothing but the log needs it: with the default, half a minute.
const LEFT_OUT_MAX: u32 = 5;

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
    let mut left_out = 0;
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
        let may_wait = left_out < LEFT_OUT_MAX;
        let times = atime::write_all(core);
        let commits = core.commit_unless_logged(may_wait);
        left_out = if matches!(commits, Ok(false)) { left_out + 1 } else { 0 };
        if let Err(error) = times.and(commits) {
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
