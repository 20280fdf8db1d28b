//! The mounts that a daemon serves, and which branches they have.
//!
//! A branch is mounted once, as two mounts of it would not hear of each other's changes; a snapshot any number of times. The
//! number of a branch is *taken* from before it is opened until it is closed, and while it is rolled back unmounted: so a
//! rollback of a branch finds the mount whose kernel must hear of it, or none will come meanwhile.

mod place;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use holdfast::{Dir, NewHead, Told, Volume};
use holdfast_base::wait;
use holdfast_fuse::{Remote, Session, end_all};
use holdfast_service::branches::answer::Refusal;
use parking_lot::{Condvar, Mutex, MutexGuard};
use place::Joining;
use rustix::io::Errno;

use super::supervisor_link::{Changing, Keeping, Supervisor};
pub(super) use place::{Asks, MountSlot};

/// What the thread that owns the mounts is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A mount has ended, by this number.
    Ended(u64),
    /// A mount gives way to another one of its branch.
    GivesWay(u64),
    /// A caller that was about to mount did not, or one asks the daemon to end: it may be time.
    Look,
    /// Unmount everything.
    Stop,
}

/// A mount that is served.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None` while it is let go.
    pub(super) session: Option<Session>,
    pub(super) volume: Option<Volume>,
    pub(super) dir: PathBuf,
    /// `major:minor`, as the process that mounted says.
    pub(super) device: Option<String>,
    pub(super) options: String,
    pub(super) read_only: bool,
    pub(super) user: u32,
    remote: Remote,
    /// The branch, if it is one and no snapshot.
    pub(super) branch: Option<u64>,
    asks: Asks,
    gives_way: bool,
    /// The supervisor has it as well, if there is one.
    _keeping: Option<Keeping>,
    is_resumed: bool,
}

impl Entry {
    /// Whether its kernel is there still: it is not on its way out.
    pub(super) fn is_connected(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_connected)
    }
}

/// A mount of which not everything could be written when it was closed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) number: u64,
    pub(super) dir: PathBuf,
    pub(super) device: Option<String>,
    pub(super) user: u32,
    pub(super) why: String,
}

/// Failures that are kept until a caller asks for them.
const FAILED_MAX: usize = 64;

/// All that a new mount brings along.
pub(super) struct New {
    pub(super) session: Session,
    pub(super) volume: Volume,
    pub(super) mounting: Mounting,
    pub(super) keeping: Option<Keeping>,
    /// A daemon that has died served it before.
    pub(super) is_resumed: bool,
}

/// What is said of a mount.
pub(super) struct Mounting {
    pub(super) dir: PathBuf,
    /// `major:minor`, as the process that mounted says.
    pub(super) device: Option<String>,
    /// The options, as they came.
    pub(super) options: String,
    pub(super) read_only: bool,
    pub(super) user: u32,
}

#[derive(Debug, Default)]
pub(super) struct ActiveMounts {
    /// The first mount can be used: others may join.
    is_serving: bool,
    is_ending: bool,
    pub(super) lingers: bool,
    pub(super) mounts: BTreeMap<u64, Entry>,
    /// Branches that are open, are being opened or closed, or roll back unmounted.
    taken: HashSet<u64>,
    /// The callers about to mount.
    joining: HashMap<u64, Joining>,
    /// Branches that callers wait for who may write.
    wanted: Vec<u64>,
    next: u64,
    /// Mounts that were closed with an error, latest last, for questions what became of them.
    pub(super) failed: VecDeque<Failed>,
    /// The volume is closed, and with which error.
    pub(super) is_closed: Option<Result<(), String>>,
    /// Waiters for a mount to be closed.
    hearing: usize,
    /// Branches were given other heads: no other process goes on with the mounts.
    turned: Vec<Changing>,
}

impl ActiveMounts {
    /// Whether the daemon has something to do, or will have.
    pub(super) fn goes_on(&self) -> bool {
        let has_mounts = || self.mounts.values().any(Entry::is_connected);
        !self.is_ending && (self.lingers || self.is_joined() || has_mounts())
    }

    /// Whether the daemon goes on for a caller about to mount.
    pub(super) fn is_joined(&self) -> bool {
        self.joining.values().any(|it| it.asks == Asks::Writer)
    }
}

/// The mounts of a daemon.
#[derive(Debug)]
pub(super) struct Table {
    state: Mutex<ActiveMounts>,
    changed: Condvar,
    events: Mutex<Sender<Event>>,
    supervisor: Option<Arc<Supervisor>>,
}

/// Why a mount cannot come to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The branch is mounted there, by this user.
    At(PathBuf, u32),
    /// The branch is being opened, closed or rolled back for long.
    Busy,
    /// The daemon is about to end.
    Ending,
}

impl Table {
    pub(super) fn new(events: Sender<Event>, supervisor: Option<Arc<Supervisor>>) -> Arc<Table> {
        Arc::new(Table {
            state: Mutex::default(),
            changed: Condvar::new(),
            events: Mutex::new(events),
            supervisor,
        })
    }

    /// What keeps the mounts if this process dies.
    pub(super) fn supervisor(&self) -> Option<&Arc<Supervisor>> {
        self.supervisor.as_ref()
    }

    /// Until what is returned is dropped, a kernel is to hear of something that has changed beside it: if this process dies
    /// meanwhile, no other one can go on with its mounts.
    pub(super) fn changing(&self) -> Option<Changing> {
        self.supervisor.as_ref().map(Supervisor::changing)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ActiveMounts> {
        self.state.lock()
    }

    pub(super) fn tell(&self, event: Event) {
        // It has no hearer once the daemon ends.
        let _ = self.events.lock().send(event);
    }

    /// Waits while `is_so`, but no longer than `patience`.
    pub(super) fn wait_while(
        &self,
        patience: Duration,
        is_so: impl FnMut(&mut ActiveMounts) -> bool,
    ) -> MutexGuard<'_, ActiveMounts> {
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, is_so, patience);
        state
    }

    /// The first mount can be used.
    pub(super) fn serve(&self) {
        self.lock().is_serving = true;
        self.changed.notify_all();
    }

    /// Waits until others may join; false if none may any more, or not within `patience`.
    pub(super) fn is_serving(&self, patience: Duration) -> bool {
        let state = self.wait_while(patience, |state| !state.is_serving && !state.is_ending);
        state.is_serving && !state.is_ending
    }

    /// Waits while a branch is being mounted, closed or given another head, but no longer than `patience`.
    pub(super) fn wait_until_settled(&self, branch: u64, patience: Duration) {
        let is_served = |entry: &Entry| entry.branch == Some(branch) && entry.session.is_some();
        drop(self.wait_while(patience, |state| {
            state.taken.contains(&branch) && !state.mounts.values().any(is_served)
        }));
    }

    /// Gives a branch another head: by the mount that has it, or by `unmounted` if there is none.
    pub(super) fn give_head(
        &self,
        branch: u64,
        head: NewHead<'_>,
        unmounted: impl FnOnce() -> Result<Told, Refusal>,
    ) -> Result<Told, Refusal> {
        let remote = {
            // What is just being mounted or unmounted is there, or gone, in a moment.
            let is_between = |state: &mut ActiveMounts| {
                let is_mounted = state.mounts.values().any(|it| it.branch == Some(branch));
                state.taken.contains(&branch) && !is_mounted
            };
            let mut state = self.lock();
            if is_between(&mut state) {
                drop(state);
                // It may be a thread that serves requests.
                wait::will_wait();
                state = self.wait_while(BETWEEN, is_between);
            }
            let mut mounts = state.mounts.values();
            let found = mounts.find(|it| it.branch == Some(branch));
            if found.is_some_and(|it| it.is_resumed) {
                return Err(Refusal::new(Errno::BUSY, OUTLIVED));
            }
            let found = found.map(|it| it.remote.clone());
            if found.is_none() && !state.taken.insert(branch) {
                return Err(Refusal::new(
                    Errno::BUSY,
                    "the branch is just being mounted, unmounted or given another head; try again",
                ));
            }
            found
        };
        if let Some(remote) = remote {
            let changing = self.changing();
            let done = remote.give_head(head);
            if matches!(done, Some(Ok(_))) {
                // What is known here of files that have changed under the kernel (appends that go to another place, capabilities
                // that it has not seen) the next process would not know.
                self.lock().turned.extend(changing);
            }
            let gone =
                || Err(Refusal::new(Errno::BUSY, "the branch is just being unmounted; try again"));
            return done.map_or_else(gone, |done| done.map_err(Refusal::from));
        }
        let _free = Free(self, branch);
        unmounted()
    }

    /// The session and the volume of a mount that has ended.
    pub(super) fn take(&self, number: u64) -> Option<(Session, Volume)> {
        let mut state = self.lock();
        let entry = state.mounts.get_mut(&number)?;
        entry.session.take().zip(entry.volume.take())
    }

    /// The mount of a branch, if it is not being closed, and whether the kernel is there still.
    pub(super) fn mount_of(&self, branch: u64) -> Option<(u64, bool)> {
        let state = self.lock();
        let mut mounts = state.mounts.iter().filter(|(_, entry)| entry.branch == Some(branch));
        let (number, entry) = mounts.next()?;
        Some((*number, entry.session.as_ref()?.is_connected()))
    }

    /// The root directory of a branch that is mounted, its mount, and whether that is read-only.
    pub(super) fn open_at(&self, branch: u64) -> Option<(Dir, Remote, bool)> {
        let state = self.lock();
        let entry = state.mounts.values().find(|entry| entry.branch == Some(branch))?;
        let root = (**entry.volume.as_ref()?).clone();
        Some((root, entry.remote.clone(), entry.read_only))
    }

    /// The device of the mount of a branch, if it is known.
    pub(super) fn device_of(&self, branch: u64) -> Option<String> {
        let state = self.lock();
        let mut mounts = state.mounts.values();
        mounts.find(|entry| entry.branch == Some(branch))?.device.clone()
    }

    /// Waits until a branch is closed, but no longer than `patience`. Says whether it is.
    pub(super) fn is_closed(&self, branch: u64, patience: Duration) -> bool {
        let is_taken = |state: &ActiveMounts| state.taken.contains(&branch);
        !is_taken(&self.wait_while(patience, |state| is_taken(state)))
    }

    /// A mount is closed, with this error if there was one.
    pub(super) fn remove(&self, number: u64, failed: Option<String>) {
        let mut state = self.lock();
        if let Some(Entry { dir, device, user, branch, .. }) = state.mounts.remove(&number) {
            if let Some(branch) = branch {
                state.taken.remove(&branch);
            }
            let failed = failed.map(|why| Failed { number, dir, device, user, why });
            state.failed.extend(failed);
            if state.failed.len() > FAILED_MAX {
                state.failed.pop_front();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The volume is closed, with this error if there was one. Waits for its hearers, but no longer than `patience`.
    pub(super) fn closed(&self, done: Result<(), String>, patience: Duration) {
        self.lock().is_closed = Some(done);
        self.changed.notify_all();
        drop(self.wait_while(patience, |state| state.hearing > 0));
    }

    /// The daemon does not end before this is dropped, or not long before.
    pub(super) fn hear(self: &Arc<Self>) -> Hearing {
        self.lock().hearing += 1;
        Hearing(Arc::clone(self))
    }

    /// Whether nothing is mounted, no caller is about to mount, and the daemon does not linger. Then it ends: none can join
    /// any more.
    pub(super) fn is_over(&self) -> bool {
        let mut state = self.lock();
        // Readers that never mount do not keep the volume open.
        state.is_ending |= state.mounts.is_empty() && !state.is_joined() && !state.lingers;
        if state.is_ending {
            state.joining.values().for_each(Joining::end);
        }
        let is_ending = state.is_ending && state.mounts.is_empty() && state.joining.is_empty();
        drop(state);
        self.changed.notify_all();
        is_ending
    }

    /// Ends all mounts, and waits for callers about to mount. Gives what is to be closed.
    pub(super) fn end(&self) -> Vec<(u64, Session, Volume)> {
        let mut state = self.lock();
        state.is_ending = true;
        state.joining.values().for_each(Joining::end);
        drop(state);
        self.changed.notify_all();
        let mut state = self.wait_while(JOINING, |state| !state.joining.is_empty());
        if !state.joining.is_empty() {
            // It holds nothing that was promised.
            tracing::warn!("a mount that was about to be is given up");
            state.joining.clear();
        }
        let numbers: Vec<u64> = state.mounts.keys().copied().collect();
        let mut all = Vec::new();
        for number in numbers {
            let entry = state.mounts.get_mut(&number).expect("it was there");
            all.extend(entry.session.take().zip(entry.volume.take()).map(|(s, v)| (number, s, v)));
        }
        drop(state);
        let mut sessions: Vec<&mut Session> = all.iter_mut().map(|(_, it, _)| it).collect();
        end_all(&mut sessions);
        all
    }
}

/// Why a branch whose mount has outlived a daemon gets no other head.
const OUTLIVED: &str = "this mount has outlived its process, so it cannot show another tree: unmount it, run this again, and mount it";

/// How long a command waits for a branch that is just being mounted or unmounted.
const BETWEEN: Duration = Duration::from_secs(2);

/// How long callers about to mount get to notice that the daemon ends: the opening of a branch.
const JOINING: Duration = Duration::from_secs(60);

/// A caller that waits for a mount to be closed.
pub(super) struct Hearing(Arc<Table>);

impl Drop for Hearing {
    fn drop(&mut self) {
        self.0.lock().hearing -= 1;
        self.0.changed.notify_all();
    }
}

/// A branch that is not taken any more when this is dropped.
struct Free<'a>(&'a Table, u64);

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.lock().taken.remove(&self.1);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
