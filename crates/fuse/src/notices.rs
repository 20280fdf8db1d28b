//! Tells the kernel of inodes and names that changed without a request of the kernel.
//!
//! That is rare: written data was lost, and the file is again what it was before; or a branch was rolled back. The kernel waits for pages that are
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

/// What is not true any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Attributes and pages of an inode.
    Inode(u64),
    /// The same, by the rollback of this number. Of an open file with its size before: if it is longer now, the kernel hears
    /// where it ends first, as it does not ask when a mapping is read.
    Turned { inode: u64, turn: u64, size: Option<u64> },
    /// The pages that hold so many bytes of an inode, from an offset on.
    Bytes(u64, u64, u64),
    /// What a name in a directory leads to.
    Name(u64, Box<[u8]>),
}

#[derive(Debug, Default)]
struct State {
    /// Still to be sent.
    notices: Vec<Notice>,
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
        tell: impl Fn(&[Notice]) + Send + 'static,
    ) -> io::Result<()> {
        let notices = Arc::clone(self);
        let run = move || {
            while let Some(some) = notices.wait_for_some() {
                tell(&some);
                notices.state.lock().told += some.len() as u64;
                notices.changed.notify_all();
            }
        };
        threads::start("holdfast-notices", "notices", run).map(drop)
    }

    fn wait_for_some(&self) -> Option<Vec<Notice>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.notices.is_empty() && !state.ended);
        let some = std::mem::take(&mut state.notices);
        (!some.is_empty()).then_some(some)
    }

    /// The kernel must forget what it knows of it. Never waits.
    pub(crate) fn note(&self, notice: Notice) {
        self.note_all([notice]);
    }

    /// The same of many.
    pub(crate) fn note_all(&self, notices: impl IntoIterator<Item = Notice>) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        let before = state.notices.len();
        state.notices.extend(notices);
        state.noted += (state.notices.len() - before) as u64;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the kernel has got all that was noted so far, but not long.
    pub(crate) fn drain(&self) {
        self.drain_within(PATIENCE);
    }

    /// Waits until the kernel has got all that was noted so far, but not longer than that. Says whether it has.
    pub(crate) fn drain_within(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        let noted = state.noted;
        if state.told >= noted {
            return true;
        }
        // Pages that are being read want another thread.
        wait::will_wait();
        let until = Deadline::after(patience);
        while state.told < noted && !state.ended && !until.is_over() {
            let _ = self.changed.wait_for(&mut state, until.left());
        }
        state.told >= noted
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
            .start(move |some| some.iter().for_each(|it| sender.send(it.clone()).unwrap()))
            .unwrap();
        notices.drain();
        let both = [Notice::Inode(5), Notice::Name(1, b"name"[..].into())];
        both.iter().for_each(|it| notices.note(it.clone()));
        assert!(notices.drain_within(PATIENCE));
        assert_eq!([received.recv(), received.recv()], both.map(Ok));
        notices.end();
        assert!(received.recv().is_err(), "the thread ends");
        notices.note(Notice::Inode(9));
        notices.drain();
        // A kernel that never comes to an end.
        let stuck = Notices::default();
        stuck.note(Notice::Inode(1));
        stuck.drain();
        assert!(!stuck.drain_within(Duration::ZERO));
        assert_eq!(stuck.state.lock().told, 0);
    }
}
