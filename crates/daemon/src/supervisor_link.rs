//! The side of a daemon of its supervisor: what it is told when it starts, and what it has kept.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::Lsn;
use holdfast_control::Name;
use holdfast_fuse::{DuplicateRequests, Handed, Mounted, Session};
use holdfast_service::outcome::plain_words;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::control_socket::message::{receive_handed, send};
use crate::supervisor::message::{Begin, Kept, MESSAGE_MAX, Message, PROTOCOL};

/// How long the supervisor may take: it only waits for this.
const PATIENCE: Duration = Duration::from_secs(20);

/// The supervisor of this process.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// `None`: it is gone, and the mounts go on without it.
    socket: Mutex<Option<UnixStream>>,
    next: AtomicU64,
    deaths: u64,
    falls_back: Option<String>,
    changing: Mutex<usize>,
}

/// What a supervisor has kept for this process.
pub(super) struct Begun {
    pub(super) supervisor: Arc<Supervisor>,
    /// The file of the volume, which is locked, and what else holds a lock.
    pub(super) device: (OwnedFd, Vec<OwnedFd>),
    pub(super) deaths: u64,
    pub(super) linger: bool,
    pub(super) mounts: Vec<Left>,
}

/// A mount whose daemon has died.
pub(super) struct Left {
    pub(super) kept: Kept,
    fuse: OwnedFd,
    duplicate_requests: OwnedFd,
    ends: Option<OwnedFd>,
}

/// What is known of the requests of all mounts that are left, as soon as the volume is recovered. Changes that are made from then on
/// have the numbers of those that were lost, and must not be taken for them, should this process die as well.
#[derive(Clone, Default)]
pub(super) struct TakenOver(Arc<Mutex<VecDeque<io::Result<DuplicateRequests>>>>);

impl TakenOver {
    /// What takes over, when it is told where history ends.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub(super) fn when_recovered(
        &self,
        left: &[Left],
    ) -> io::Result<impl Fn(u64) + Send + Sync + 'static> {
        let files = left.iter().map(|left| left.duplicate_requests.try_clone());
        let files = Mutex::new(files.collect::<io::Result<Vec<_>>>()?);
        let all = Arc::clone(&self.0);
        Ok(move |lsn| {
            let files = std::mem::take(&mut *files.lock());
            let taken = files.into_iter().map(|file| DuplicateRequests::take_over(file, Lsn(lsn)));
            all.lock().extend(taken);
        })
    }

    /// That of the next mount.
    pub(super) fn next(&self) -> io::Result<DuplicateRequests> {
        let next = self.0.lock().pop_front();
        next.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }
}

impl Left {
    pub(super) fn dir(&self) -> PathBuf {
        OsString::from_vec(self.kept.dir.0.clone()).into()
    }

    /// What is said of the mount, its connection, and itself.
    pub(super) fn into_parts(self) -> (Kept, (OwnedFd, Mounted)) {
        let handed = Handed { dir: self.dir(), device: self.kept.device.clone() };
        let mounted = Mounted::adopt(&handed, self.ends, self.kept.user);
        (self.kept, (self.fuse, mounted))
    }
}

impl Supervisor {
    /// What the standard input says, which is closed afterwards.
    ///
    /// # Errors
    /// It leads to no supervisor, or to one of another version.
    pub(super) fn from_stdin() -> io::Result<Begun> {
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(null)?;
        let missing = || io::Error::from(io::ErrorKind::InvalidData);
        let (begin, descriptors): (Begin, _) = receive_handed(&socket, MESSAGE_MAX, PATIENCE)?;
        if begin.protocol != PROTOCOL {
            return Err(io::Error::other("the supervisor is of another version of this program"));
        }
        let device = descriptors.into_iter().next().ok_or_else(missing)?;
        let mut locks = Vec::new();
        for _ in 0..begin.locks {
            let ((), descriptors) = receive_handed(&socket, MESSAGE_MAX, PATIENCE)?;
            locks.extend(descriptors);
        }
        let mut mounts = Vec::new();
        for _ in 0..begin.mounts {
            let (kept, descriptors): (Kept, _) = receive_handed(&socket, MESSAGE_MAX, PATIENCE)?;
            let mut descriptors = descriptors.into_iter();
            let mut next = || descriptors.next();
            let (fuse, duplicate_requests) = next().zip(next()).ok_or_else(missing)?;
            mounts.push(Left { kept, fuse, duplicate_requests, ends: next() });
        }
        let last = mounts.iter().map(|it| it.kept.number).max();
        let supervisor = Arc::new(Supervisor {
            socket: Mutex::new(Some(socket)),
            next: AtomicU64::new(last.map_or(0, |last| last + 1)),
            deaths: begin.deaths,
            falls_back: begin.falls_back,
            changing: Mutex::default(),
        });
        let (device, deaths, linger) = ((device, locks), begin.deaths, begin.linger);
        Ok(Begun { supervisor, device, deaths, linger, mounts })
    }

    fn tell(&self, told: &Message, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
        let mut socket = self.socket.lock();
        let Some(to) = &*socket else { return };
        if let Err(error) = send(to, told, descriptors, PATIENCE) {
            let why = plain_words(&error);
            tracing::error!(
                "the supervisor does not listen ({why}): if this process dies, so do its mounts"
            );
            *socket = None;
        }
    }

    /// Requests are answered.
    pub(super) fn ready(&self) {
        self.tell(&Message::Ready, &[]);
    }

    pub(super) fn lingers(&self, linger: bool) {
        self.tell(&Message::Linger { linger }, &[]);
    }

    /// A mount outlives this process from now on. `kept`: what is said of it; number and place are those that it has.
    pub(super) fn keep(
        self: &Arc<Self>,
        session: &Session,
        duplicate_requests: &DuplicateRequests,
        kept: Kept,
    ) -> Keeping {
        let (handed, ends) = session.to_hand();
        let agreed = session.agreed();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = Name(handed.dir.as_os_str().as_bytes().into());
        let kept = Kept { number, dir, agreed: (agreed.offered, agreed.taken), ..kept };
        let (fuse, ends) = (session.connection(), ends.as_ref().map(AsFd::as_fd));
        let descriptors = [Some(fuse), Some(duplicate_requests.as_fd()), ends];
        self.tell(&Message::Keep(kept), &descriptors.into_iter().flatten().collect::<Vec<_>>());
        self.keeps(number)
    }

    /// A mount that it keeps already.
    pub(super) fn keeps(self: &Arc<Self>, number: u64) -> Keeping {
        Keeping { supervisor: Arc::clone(self), number }
    }

    /// How many daemons have died.
    pub(super) fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Why this process is the program that was started first, and not the one that is installed.
    pub(super) fn falls_back(&self) -> Option<&str> {
        self.falls_back.as_deref()
    }

    /// Whether it is there still.
    fn is_there(&self) -> bool {
        let socket = self.socket.lock();
        let Some(socket) = &*socket else { return false };
        let mut looks = [PollFd::new(socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut looks, Some(&at_once));
        polled.is_ok() && !looks[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Says that this process is about to die. Until what is returned is dropped nothing begins after which the mounts would not go on.
    ///
    /// # Errors
    /// They would not, and why.
    pub(super) fn restarting(&self) -> Result<MutexGuard<'_, usize>, &'static str> {
        let changing = self.changing.lock();
        if !self.is_there() {
            return Err("its supervisor is gone, so that its mounts would end with it");
        }
        if *changing > 0 {
            return Err(
                "a rollback, a merge or a copy by a command has changed what the next process would not know all of: try again when \
                 the command has ended; behind a rollback or a merge unmount it and mount it again",
            );
        }
        self.tell(&Message::Restarting, &[]);
        Ok(changing)
    }

    /// Until this is dropped something changes of which the kernel is still to hear.
    pub(super) fn changing(self: &Arc<Self>) -> Changing {
        let mut changing = self.changing.lock();
        *changing += 1;
        if *changing == 1 {
            self.tell(&Message::Changing { is_so: true }, &[]);
        }
        Changing(Arc::clone(self))
    }
}

/// A mount that outlives this process until this is dropped.
#[derive(Debug)]
pub(super) struct Keeping {
    supervisor: Arc<Supervisor>,
    number: u64,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.supervisor.tell(&Message::Drop { number: self.number }, &[]);
    }
}

/// Something changes of which the kernel is still to hear.
#[derive(Debug)]
pub(super) struct Changing(Arc<Supervisor>);

impl Drop for Changing {
    fn drop(&mut self) {
        let mut changing = self.0.changing.lock();
        *changing -= 1;
        if *changing == 0 {
            self.0.tell(&Message::Changing { is_so: false }, &[]);
        }
    }
}
