//! Tells the kernel of inodes and names that changed without a request of the kernel.
//!
//! That is rare: written data was lost, and the file is again what it was before; or a branch got another head. The kernel waits for pages that are
//! being read before it drops them, and those readers wait for us. So a thread tells it that serves no request and
//! holds no lock: one of those that all mounts of a process share.
//!
//! The thread that answers a failed call waits a moment for that, so that a read after it shows what is there. It waits
//! no longer, because requests that wait for the kernel while the kernel waits for requests would be a deadlock.
//!
//! If this process were killed at that moment it could not end: see [`connection`](crate::connection), whose watchdog
//! runs meanwhile.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::threads;

/// How long an answer waits for what the kernel is being told.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread that is not the only one waits for something to tell before it ends.
const IDLE: Duration = Duration::from_secs(10);

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
    /// Attributes of an inode.
    Attributes(u64),
    /// What a name in a directory leads to.
    Name(u64, Box<[u8]>),
    /// That these inodes may be wanted again: what was said of them is true still.
    Unwanted(Vec<u64>),
}

/// Tells the kernel of a mount.
type Tell = dyn Fn(&[Notice]) + Send + Sync;

#[derive(Default)]
struct NoticeQueue {
    /// Still to be sent.
    notices: Vec<Notice>,
    /// How many were noted, and how many of these were sent, so far.
    noted: u64,
    told: u64,
    /// A teller has it in hand, or will have.
    is_called: bool,
    ended: bool,
    tell: Option<Arc<Tell>>,
    tellers: Option<Arc<Tellers>>,
}

/// What is to be sent to the kernel of one mount.
#[derive(Default)]
pub(crate) struct Notices {
    state: Mutex<NoticeQueue>,
    changed: Condvar,
}

holdfast_base::opaque!(Notices);

impl Notices {
    /// From now on `tell` is called with what is noted, on a thread of `tellers`, until [`Notices::end`].
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        &self,
        tellers: &Arc<Tellers>,
        tell: impl Fn(&[Notice]) + Send + Sync + 'static,
    ) -> io::Result<()> {
        tellers.start()?;
        let mut state = self.state.lock();
        state.tell = Some(Arc::new(tell));
        state.tellers = Some(Arc::clone(tellers));
        Ok(())
    }

    /// Sends all there is. On a thread of tellers, one at a time.
    fn tell(&self) {
        let mut state = self.state.lock();
        while let Some(tell) = state.tell.clone().filter(|_| !state.notices.is_empty()) {
            let some = std::mem::take(&mut state.notices);
            MutexGuard::unlocked(&mut state, || tell(&some));
            state.told += some.len() as u64;
            self.changed.notify_all();
        }
        state.is_called = false;
    }

    /// The kernel must forget what it knows of it. Never waits.
    pub(crate) fn note(self: &Arc<Self>, notice: Notice) {
        self.note_all([notice]);
    }

    /// The same of many.
    pub(crate) fn note_all(self: &Arc<Self>, notices: impl IntoIterator<Item = Notice>) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        let before = state.notices.len();
        state.notices.extend(notices);
        state.noted += (state.notices.len() - before) as u64;
        let tellers = state.tellers.clone().filter(|_| !state.is_called);
        state.is_called |= tellers.is_some();
        drop(state);
        if let Some(tellers) = tellers {
            tellers.call(self);
        }
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

    /// Whether the kernel has got all that was noted so far.
    pub(crate) fn are_told(&self) -> bool {
        let state = self.state.lock();
        state.told >= state.noted
    }

    /// Nothing is sent any more: the kernel is leaving.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let _later = (state.tell.take(), state.tellers.take());
        drop(state);
        self.changed.notify_all();
    }
}

/// The threads that tell kernels, for all mounts of a process. One always waits for work: before a thread begins to tell one
/// kernel, which may take long, it makes sure that another one waits. Where the system gives none, the others take their turn.
#[derive(Default)]
pub(crate) struct Tellers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<Waiting>,
    called: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Mounts whose kernel is to be told something.
    mounts: VecDeque<Arc<Notices>>,
    /// Threads, and those of them that wait for work.
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Tellers {
    /// Starts the first thread unless that was done.
    fn start(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.threads == 0 { self.0.spawn(&mut state) } else { Ok(()) }
    }

    fn call(&self, mount: &Arc<Notices>) {
        self.0.state.lock().mounts.push_back(Arc::clone(mount));
        self.0.called.notify_one();
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, state: &mut Waiting) -> io::Result<()> {
        let shared = Arc::clone(self);
        threads::start("holdfast-notices", "notices", move || shared.work())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    /// The life of a thread.
    fn work(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_over {
            if let Some(mount) = state.mounts.pop_front() {
                state.idle -= 1;
                if state.idle == 0
                    && let Err(error) = self.spawn(&mut state)
                {
                    tracing::debug!("{error}; kernels are told one after the other");
                }
                MutexGuard::unlocked(&mut state, || {
                    let told = catch_unwind(AssertUnwindSafe(|| mount.tell()));
                    drop(mount);
                    if told.is_err() {
                        tracing::error!(
                            "telling the kernel has panicked; it is told of no change any more"
                        );
                    }
                });
                state.idle += 1;
                continue;
            }
            if state.idle <= 1 {
                self.called.wait(&mut state);
                continue;
            }
            let slept = self.called.wait_for(&mut state, IDLE);
            if slept.timed_out() && state.idle > 1 && state.mounts.is_empty() {
                break;
            }
        }
        state.idle -= 1;
        state.threads -= 1;
    }
}

/// Ends the threads.
impl Drop for Tellers {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn every_notice_is_sent_and_a_waiter_does_not_wait_for_ever() {
        let (notices, tellers) = (Arc::new(Notices::default()), Arc::default());
        let (sender, received) = channel();
        let tell =
            move |some: &[Notice]| some.iter().for_each(|it| sender.send(it.clone()).unwrap());
        notices.start(&tellers, tell).unwrap();
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
        let stuck = Arc::new(Notices::default());
        stuck.note(Notice::Inode(1));
        stuck.drain();
        assert!(!stuck.drain_within(Duration::ZERO));
        assert_eq!(stuck.state.lock().told, 0);
    }

    #[test]
    fn a_kernel_that_takes_long_keeps_no_other_from_being_told() {
        let tellers: Arc<Tellers> = Arc::default();
        let mount = |tell: Box<Tell>| {
            let notices = Arc::new(Notices::default());
            notices.start(&tellers, move |some| tell(some)).unwrap();
            notices
        };
        let (go_on, may_go_on) = channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let slow = mount(Box::new(move |_| may_go_on.lock().recv().unwrap()));
        let (sender, received) = channel();
        let other = mount(Box::new(move |some| sender.send(some.len()).unwrap()));
        slow.note(Notice::Inode(1));
        assert!(!slow.drain_within(Duration::from_millis(1)));
        other.note(Notice::Inode(2));
        assert_eq!(received.recv_timeout(Duration::from_secs(60)), Ok(1));
        go_on.send(()).unwrap();
        assert!(slow.drain_within(Duration::from_secs(60)));
        assert!(tellers.0.state.lock().threads <= 3);
    }
}
