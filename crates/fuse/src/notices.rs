//! Tells the kernel of inodes that changed without a request of the kernel.
//!
//! That is rare: written data was lost, and the file is again what it was before. The kernel waits for pages that are
//! being read before it drops them, and those readers wait for us. So a thread tells it that serves no request and
//! holds no lock.
//!
//! The thread that answers a failed call waits a moment for that, so that a read after it shows what is there. It waits
//! no longer, because requests that wait for the kernel while the kernel waits for requests would be a deadlock.
//!
//! If this process were killed at that moment it could not end: see [`connection`](crate::connection), whose watchdog
//! runs meanwhile.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

use crate::threads;

/// How long an answer waits for what the kernel is being told.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// Still to be sent.
    inodes: Vec<u64>,
    /// How many were noted, and how many of these were sent, so far.
    noted: u64,
    told: u64,
    ended: bool,
}

/// What is to be sent to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    state: Mutex<State>,
    changed: Condvar,
}

impl Notices {
    /// Starts the thread; it ends with [`Notices::end`].
    pub(crate) fn start(
        self: &Arc<Notices>,
        tell: impl Fn(&[u64]) + Send + 'static,
    ) -> io::Result<()> {
        let notices = Arc::clone(self);
        let run = move || {
            while let Some(inodes) = notices.wait_for_some() {
                tell(&inodes);
                notices.state.lock().told += inodes.len() as u64;
                notices.changed.notify_all();
            }
        };
        threads::start("holdfast-notices", "notices", run).map(drop)
    }

    fn wait_for_some(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.inodes.is_empty() && !state.ended);
        let inodes = std::mem::take(&mut state.inodes);
        (!inodes.is_empty()).then_some(inodes)
    }

    /// The kernel must forget what it knows of `inode`. Never waits.
    pub(crate) fn note(&self, inode: u64) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.noted += 1;
        state.inodes.push(inode);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the kernel has got all that was noted so far, but not long.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        let noted = state.noted;
        if state.told >= noted {
            return;
        }
        // Pages that are being read want another thread.
        wait::will_wait();
        let until = Deadline::after(PATIENCE);
        while state.told < noted && !state.ended && !until.is_over() {
            let _ = self.changed.wait_for(&mut state, until.left());
        }
    }

    /// Nothing is sent any more: the kernel is leaving.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn every_notice_is_sent_and_a_waiter_does_not_wait_for_ever() {
        let notices = Arc::new(Notices::default());
        let (sender, received) = channel();
        notices
            .start(move |inodes| inodes.iter().for_each(|it| sender.send(*it).unwrap()))
            .unwrap();
        notices.drain();
        notices.note(5);
        notices.note(7);
        notices.drain();
        assert_eq!([received.recv(), received.recv()], [Ok(5), Ok(7)]);
        notices.end();
        assert!(received.recv().is_err(), "the thread ends");
        notices.note(9);
        notices.drain();
        // A kernel that never comes to an end.
        let stuck = Notices::default();
        stuck.note(1);
        stuck.drain();
        assert_eq!(stuck.state.lock().told, 0);
    }
}
