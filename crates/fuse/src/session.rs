//! From mount to unmount.
//!
//! ```text
//! mount --> handshake --> served --+-- unmounted by another process -------> let go
//!                                  +-- end_all --> unmount --+-- worked -------^
//!                                                            +-- busy --> let go, abort
//! ```
//! Let go: all requests under way are over, and no thread holds the filesystem any more, so that
//! the caller can unmount it, even if the kernel still has open files. What was promised to
//! callers is durable by their own fsyncs, not by what happens here.
//!
//! A mount and its service are two things: a process may mount and hand the connection to another one, which serves it beside
//! others ([`Session`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_base::Changed;
use holdfast_base::clock::Deadline;
use holdfast_base::switch::{Opens, Transport};
use holdfast_posix::{FileSystem, NewHead, Told};
use holdfast_wire::init::Agreed;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::mount::{Handed, Mounted};
use crate::options::FuseOptions;
use crate::server::Server;
use crate::transport::ending::Ending;
use crate::transport::readers::Readers;
use crate::transport::{self, Ways};

/// Most threads that wait for the device at once: each may hold the megabyte of a write. So there is one for each of
/// these bytes that written data may have in memory, and no more than the second of these numbers.
const BYTES_OF_A_WAITING_THREAD: usize = 4 << 20;
const WAITING: std::ops::RangeInclusive<usize> = 8..=64;
/// How long files that are just being closed may keep a mount busy before it is torn away.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// How long reader threads get to notice that the connection has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why other users cannot come in where the kernel does not check permissions.
const STRANGERS_UNCHECKED: &str = "other users may come in only if the kernel checks permissions: leave out \
     allow_other, or leave out nodefault_permissions";

/// A mount that is served. Dropping it without [`Session::finish`] leaves its threads to the kernel.
pub struct Session {
    server: Arc<Server>,
    readers: Arc<Readers>,
    fuse: Arc<OwnedFd>,
    mounted: Mounted,
    agreed: Agreed,
    end: Arc<End>,
}

/// How a session has ended, and what is told.
#[derive(Default)]
struct End {
    state: Mutex<EndState>,
    changed: Condvar,
}

#[derive(Default)]
struct EndState {
    outcome: Option<io::Result<()>>,
    has_ended: bool,
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl End {
    fn set(&self, outcome: io::Result<()>) {
        let mut state = self.state.lock();
        (state.outcome, state.has_ended) = (Some(outcome), true);
        let tell = state.tell.take();
        drop(state);
        self.changed.notify_all();
        if let Some(tell) = tell {
            tell();
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mounted", &self.mounted).finish_non_exhaustive()
    }
}

impl Session {
    /// Serves `fs` to the kernel at the other end of a connection that [`mount`](crate::mount()) has made, in this process or in
    /// another one. When it returns the mount can be used.
    ///
    /// # Errors
    /// The handshake has failed, the system gives no thread, or other users were to come in unchecked. The mount is gone.
    pub fn start(
        fs: Arc<FileSystem>,
        mounted: (OwnedFd, Mounted),
        options: &FuseOptions,
    ) -> io::Result<Session> {
        Session::start_on(usual_ways(options), fs, mounted, options)
    }

    /// As [`Session::start`], of a connection that a process which has died had [agreed](Session::agreed) on with the kernel. Requests
    /// that it has not answered come again.
    ///
    /// # Errors
    /// As of [`Session::start`].
    pub fn resume(
        fs: Arc<FileSystem>,
        mounted: (OwnedFd, Mounted),
        options: &FuseOptions,
        agreed: Agreed,
    ) -> io::Result<Session> {
        Session::begin(fs, mounted, options, |fuse, server, readers, ending| {
            transport::resume(fuse, server, readers, agreed, ending)
        })
    }

    fn start_on(
        ways: Ways,
        fs: Arc<FileSystem>,
        mounted: (OwnedFd, Mounted),
        options: &FuseOptions,
    ) -> io::Result<Session> {
        Session::begin(fs, mounted, options, |fuse, server, readers, ending| {
            transport::connect(fuse, server, readers, ways, ending)
        })
    }

    fn begin(
        fs: Arc<FileSystem>,
        (fuse, mounted): (OwnedFd, Mounted),
        options: &FuseOptions,
        connect: impl FnOnce(&Arc<OwnedFd>, &Arc<Server>, &Arc<Readers>, Ending) -> io::Result<Agreed>,
    ) -> io::Result<Session> {
        expect_checked(options)?;
        let waiting = fs.options().dirty_bytes / BYTES_OF_A_WAITING_THREAD;
        let waiting = waiting.clamp(*WAITING.start(), *WAITING.end());
        let mut server = Server::new(Arc::clone(&fs), options.clone());
        server.watchdog = options.watchdog.clone().zip(mounted.connection());
        server.device = mounted.device().map(Into::into);
        let server = Arc::new(server);
        if server.snapdir().is_some() {
            let weak = Arc::downgrade(&server);
            fs.shown_by(weak);
        }
        let watch = Arc::clone(&options.shared.watch);
        let readers = Readers::new(watch, options.readers(), waiting, options.spin);
        let (fuse, end) = (Arc::new(fuse), Arc::<End>::default());
        let ending = Ending::new({
            let end = Arc::clone(&end);
            move |outcome| end.set(outcome)
        });
        match connect(&fuse, &server, &readers, ending) {
            Ok(agreed) => {
                mounted.raise_read_ahead();
                Ok(Session { server, readers, fuse, mounted, agreed, end })
            }
            Err(error) => {
                // Whatever has happened, the filesystem is dropped.
                let_go(&server, &readers);
                Err(error)
            }
        }
    }

    /// The connection to the kernel.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }

    /// What was agreed on with the kernel.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// What another process needs to adopt the mount, and what ends it, if this user may end it.
    pub fn to_hand(&self) -> (Handed, Option<OwnedFd>) {
        self.mounted.to_hand()
    }

    /// `tell` is called once when the session has ended by itself: on a thread of the session, which it must not wait for, or
    /// at once if it has.
    pub fn when_ended(&self, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.end.state.lock();
        if state.has_ended {
            drop(state);
            return tell();
        }
        state.tell = Some(Box::new(tell));
    }

    /// Whether the kernel is there still: not once it is unmounted, even if no thread has heard of it.
    pub fn is_connected(&self) -> bool {
        let mut looks = [PollFd::new(&*self.fuse, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut looks, Some(&at_once)) {
            Ok(_) => !looks[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL),
            Err(_) => true,
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.mounted.dir()
    }

    /// `major:minor` of the mount, as /proc/self/mountinfo shows it; `None` if it is not to be seen from here.
    pub fn device(&self) -> Option<&str> {
        self.mounted.device()
    }

    /// The mount, for commands that come by another one of the volume.
    pub fn remote(&self) -> Remote {
        Remote(Arc::downgrade(&self.server))
    }

    /// Waits until it has ended, but not longer than `time`. Says whether it has.
    pub fn wait_ended(&self, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut state = self.end.state.lock();
        while !state.has_ended && !until.is_over() {
            let _ = self.end.changed.wait_for(&mut state, until.left());
        }
        state.has_ended
    }

    /// Unmounts; then it ends, unless another mount namespace has a copy of the mount.
    ///
    /// # Errors
    /// EBUSY: files are open there, or a program stands in it. ENOENT: the mount cannot be seen from here.
    pub fn unmount(&mut self) -> Result<(), Errno> {
        self.mounted.unmount()
    }

    /// Ends it, whatever is open: first every answer to what has begun, then the end of the connection, so callers hear of
    /// what was done.
    pub fn tear_away(&mut self) {
        self.server.close();
        self.readers.drain(FAREWELL);
        if let Err(error) = self.mounted.abort() {
            tracing::warn!("the mount could not be torn away: {error}");
        }
    }

    /// Lets go of the filesystem: when this returns all requests are over and only the caller holds it.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn finish(self) -> io::Result<()> {
        let_go(&self.server, &self.readers);
        let mut state = self.end.state.lock();
        match state.has_ended {
            true => state.outcome.take().unwrap_or(Ok(())),
            false => {
                tracing::warn!("the kernel keeps the connection open; its threads are left behind");
                Ok(())
            }
        }
    }
}

fn let_go(server: &Server, readers: &Readers) {
    server.close();
    readers.drain(FAREWELL);
}

/// A mount, as other mounts of the volume reach it. It keeps nothing alive.
#[derive(Clone, Debug)]
pub struct Remote(Weak<Server>);

impl Remote {
    /// Gives the branch that is mounted there another head, and says what the kernel knows of it. `None`: the mount is over.
    ///
    /// # Errors
    /// As of [`NewHead::give`]: the branch is what it was.
    pub fn give_head(&self, head: NewHead<'_>) -> Option<holdfast_posix::Result<Told>> {
        self.0.upgrade()?.give_head(head)
    }

    /// The kernel of this mount forgets what it knows of what was changed beside it. Never waits.
    pub fn forget(&self, changed: impl IntoIterator<Item = Changed>) {
        if let Some(server) = self.0.upgrade() {
            server.changed_beside(changed);
        }
    }

    /// Waits until the kernel has forgotten all that, but no longer than `patience`. Says whether it has.
    pub fn has_forgotten(&self, patience: Duration) -> bool {
        self.0.upgrade().is_none_or(|server| server.has_forgotten(patience))
    }
}

fn expect_checked(options: &FuseOptions) -> io::Result<()> {
    match options.allow_other && !options.default_permissions {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, STRANGERS_UNCHECKED)),
        false => Ok(()),
    }
}

fn usual_ways(options: &FuseOptions) -> Ways {
    let ring_bytes = transport::MAX_WRITE as usize;
    // A ring belongs to the process that has made it, and so do handles of files.
    let (transport, opens) = match options.duplicate_requests {
        Some(_) => (Transport::Device, Opens::Kernel),
        None => (options.transport, options.opens),
    };
    Ways { transport, opens, ring_bytes }
}

/// Unmounts sessions, and tears away what is still in use a moment later. Returns when all have ended, or will not.
pub fn end_all(sessions: &mut [&mut Session]) {
    let until = Deadline::after(PATIENCE);
    let mut left: Vec<&mut Session> = sessions.iter_mut().map(|session| &mut **session).collect();
    let mut busy = Vec::new();
    let mut torn_away = Vec::new();
    while !left.is_empty() {
        for session in left.drain(..) {
            match session.unmount() {
                Ok(()) if session.wait_ended(PATIENCE) => {}
                Err(Errno::BUSY) if !until.is_over() => busy.push(session),
                // In use, out of sight, or another mount namespace has a copy of the mount.
                other => {
                    if let Err(error) = other {
                        tracing::info!("{:?} is in use ({error}); tearing it away", session.dir());
                    }
                    session.tear_away();
                    torn_away.push(session);
                }
            }
        }
        left = std::mem::take(&mut busy);
        if !left.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    // One time for all: many that do not end must not keep the others from being closed.
    let until = Deadline::after(FAREWELL);
    for session in torn_away {
        session.wait_ended(until.left());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::mount;
    use crate::server::fresh;

    /// The kernel offers rings and refuses them only when they are registered, after the handshake.
    #[test]
    fn rings_that_are_refused_late_are_done_without_or_missed() {
        let offered = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
        let is_offered = offered.is_ok_and(|word| word.trim() == "Y");
        if !is_offered || !rustix::process::geteuid().is_root() {
            holdfast_base::skip::skipped("needs root, and a kernel that offers rings");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let options = FuseOptions::default();
        let mount = |transport, ready: &dyn Fn()| {
            // With less room than for the longest request.
            let ways = Ways { transport, opens: Opens::Server, ring_bytes: 4096 };
            let fs = fresh::mount(&fresh::volume());
            let mounted = mount::mount(dir.path(), &options).unwrap();
            let done = Session::start_on(ways, Arc::clone(&fs), mounted, &options);
            let done = done.and_then(|mut session| {
                ready();
                end_all(&mut [&mut session]);
                session.finish()
            });
            assert_eq!(Arc::strong_count(&fs), 1, "it was let go");
            done
        };
        let file = dir.path().join("f");
        let ready = || {
            std::fs::write(&file, b"through the device").unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"through the device");
        };
        mount(Transport::Auto, &ready).unwrap();
        let refused = mount(Transport::Rings, &|| panic!("ready although there are no rings"));
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("refuses rings"), "{why}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left mounted");
    }
}
