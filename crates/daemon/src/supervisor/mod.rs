//! A process that stands behind the daemon of a volume and keeps what must outlive it: the lock of the volume, the
//! connections to the kernel, and which requests were carried out. It opens no volume and serves no request, so it has little
//! to die of.
//!
//! ```text
//! mount ──▶ supervisor ──starts──▶ daemon: opens, mounts, serves ──Keep──▶ supervisor
//!               │                     │ is killed
//!               └──starts──▶ next daemon: opens (recovery), goes on with each mount; the kernel sends once more what was not answered
//! ```
//!
//! Programs see a pause. With `handover` no change that was answered is lost with the daemon, and those that were not come
//! again ([`holdfast_fuse::duplicate_requests`]). A daemon that ends by itself has unmounted, or says why it cannot serve: then its
//! supervisor ends as well.

pub(crate) mod message;
mod restarts;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_device::FileDevice;
use holdfast_service::outcome::{Context, Failure, Outcome, plain_words};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::message::{Begin, Kept, MESSAGE_MAX, Message, PROTOCOL};
use self::restarts::Restarts;
use crate::control_socket::message::{receive_handed, send};
use crate::{MOUNT_FAILED, opening};

/// How long a message may take that has begun.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a daemon is started with.
pub(crate) struct Orders<'a> {
    pub(crate) volume: &'a Path,
    /// The arguments of `holdfast mount` that make the daemon.
    pub(crate) arguments: Vec<std::ffi::OsString>,
    pub(crate) read_only: bool,
    pub(crate) linger: bool,
}

/// A mount, with what belongs to it.
type Mount = (Kept, Vec<OwnedFd>);

struct Supervisor<'a> {
    orders: Orders<'a>,
    device: Arc<FileDevice>,
    /// The program, by the path that it had: a newer one may be there when the next daemon is started.
    program: PathBuf,
    /// Why what is there does not come to serve: daemons are this very program.
    falls_back: Option<String>,
    deaths: u64,
    mounts: BTreeMap<u64, Mount>,
    /// The kernel is still to hear of something.
    is_changing: bool,
    /// It was asked to end.
    shall_end: bool,
    signals: Signals,
}

/// Signals, as something to wait for.
struct Signals {
    term: UnixStream,
    _hangup: UnixStream,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let (term, to) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, to.try_clone()?)?;
        }
        // A hangup means nothing to a daemon.
        let (hangup, to) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGHUP, to)?;
        for stream in [&term, &hangup] {
            stream.set_nonblocking(true)?;
        }
        Ok(Signals { term, _hangup: hangup })
    }

    /// Whether the process was asked to end.
    fn came(&self) -> bool {
        use io::Read;
        let mut bytes = [0; 16];
        (&self.term).read(&mut bytes).is_ok_and(|count| count > 0)
    }
}

/// A daemon that runs.
struct Daemon {
    child: Child,
    /// Stays its own when the process has ended.
    handle: OwnedFd,
    /// `None`: it says nothing more.
    socket: Option<UnixStream>,
    /// Since when it answers requests.
    ready: Option<Stopwatch>,
    /// It dies because it was asked to.
    restarts: bool,
}

impl Daemon {
    /// Has it unmount and end. One that is not ready may not know how to.
    fn end(&self) {
        if self.ready.is_some() {
            // It may have ended.
            let _ = pidfd_send_signal(&self.handle, Signal::TERM);
        }
    }
}

/// Serves a volume by daemons, one after the other. `stdout` of the first is that of this process, which must not write there.
/// `started` is called when that runs.
pub(crate) fn run(orders: Orders<'_>, started: impl FnOnce()) -> Outcome {
    let device = opening::open_file(orders.volume, orders.read_only).map_err(|failure| {
        match failure.code {
            // The command that has started this supervisor joins the daemon that has the volume.
            opening::IN_USE => failure,
            _ => failure.with_code(MOUNT_FAILED),
        }
    })?;
    let program = std::env::current_exe().context("this program's own path")?;
    let signals = Signals::new().context("signal handlers")?;
    let mut supervisor = Supervisor {
        orders,
        device,
        program,
        falls_back: None,
        deaths: 0,
        mounts: BTreeMap::new(),
        is_changing: false,
        shall_end: false,
        signals,
    };
    let first = supervisor.start(Stdio::inherit(), false);
    let mut daemon =
        first.context("the daemon could not be started").map_err(|it| it.with_code(2))?;
    started();
    let mut restarts = Restarts::default();
    let mut since_death = None;
    loop {
        let status = supervisor.watch(&mut daemon, &mut since_death).context("the daemon")?;
        let Some(pause) = supervisor.after(&daemon, status, &mut restarts)? else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.unwrap_or(MOUNT_FAILED));
        };
        since_death.get_or_insert_with(Stopwatch::start);
        std::thread::sleep(pause);
        supervisor.deaths += 1;
        daemon = supervisor.start_again()?;
    }
}

impl Supervisor<'_> {
    fn name(&self) -> impl std::fmt::Display {
        self.orders.volume.display()
    }

    /// How long to wait for the next daemon when one has ended; `None`: it has done so in good order, or has said why.
    fn after(
        &mut self,
        daemon: &Daemon,
        status: ExitStatus,
        restarts: &mut Restarts,
    ) -> Result<Option<Duration>, Failure> {
        let (pid, name) = (daemon.child.id(), self.orders.volume.display());
        // One that was asked to make room for the next has served, whatever it has said so far.
        let never_served = self.deaths > 0 && daemon.ready.is_none() && !daemon.restarts;
        if status.signal().is_none() && (!never_served || self.falls_back.is_some()) {
            return Ok(None);
        }
        if let Some(why) = self.cannot_go_on() {
            return Err(self.gives_up(&format!("process {pid} has died ({status}), {why}")));
        }
        if never_served && self.falls_back.is_none() {
            let program = self.program.display();
            tracing::error!(
                "process {pid} did not come to serve {name} ({status}): not {program} serves it from now on, but the program that was started first"
            );
            self.falls_back = Some(format!("{program} did not come to serve ({status})"));
            return Ok(Some(Duration::ZERO));
        }
        if daemon.restarts {
            return Ok(Some(Duration::ZERO));
        }
        let worked = daemon.ready.map(|since| since.elapsed());
        let Some(pause) = restarts.died(worked) else {
            let times = restarts.in_a_row();
            let why = format!("process {pid} has died ({status}), as {times} in a row did soon");
            return Err(self.gives_up(&why));
        };
        tracing::warn!(
            "process {pid}, which served {name}, has died ({status}); another one goes on"
        );
        Ok(Some(pause))
    }

    /// Starts the next daemon.
    fn start_again(&mut self) -> Result<Daemon, Failure> {
        let mut started = self.start(Stdio::null(), true);
        if let (Err(error), None) = (&started, &self.falls_back) {
            let (program, why) = (self.program.display(), plain_words(error));
            let falls_back = format!("{program} cannot be started: {why}");
            tracing::error!("{falls_back}; the program that was started first goes on");
            self.falls_back = Some(falls_back);
            started = self.start(Stdio::null(), true);
        }
        started.map_err(|error| {
            let why = plain_words(&error);
            self.gives_up(&format!("no other process can be started: {why}"))
        })
    }

    /// Why the mounts cannot go on by another daemon.
    fn cannot_go_on(&self) -> Option<&'static str> {
        if self.mounts.is_empty() {
            return Some("and nothing was mounted");
        }
        self.is_changing.then_some(
            "while it changed what the kernel had still to hear of (a rollback, a merge, or files copied by a command)",
        )
    }

    /// What is said in the log when the mounts end.
    fn gives_up(&self, why: &str) -> Failure {
        Failure::new(MOUNT_FAILED, format!("{}: {why}; its mounts are given up", self.name()))
    }

    /// Starts a daemon, which is told of all mounts. `again`: another one has died.
    fn start(&mut self, stdout: Stdio, again: bool) -> io::Result<Daemon> {
        let (ours, theirs) = UnixStream::pair()?;
        // A program that was removed is no longer there by its own path.
        let is_gone = || format!("{} is not there", self.program.display());
        let falls_back = self.falls_back.clone().or_else(|| (!self.program.exists()).then(is_gone));
        let program = match falls_back {
            None => self.program.clone(),
            Some(_) => "/proc/self/exe".into(),
        };
        let child = Command::new(program)
            .arg0("holdfast")
            .args(&self.orders.arguments)
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout)
            .stderr(Stdio::null())
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let briefed = self.brief(&ours, falls_back);
        let daemon = Daemon { child, handle, socket: Some(ours), ready: None, restarts: false };
        match briefed {
            // What it was about to say is heard below.
            Err(error) if !again && error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(daemon),
        }
    }

    fn brief(&self, socket: &UnixStream, falls_back: Option<String>) -> io::Result<()> {
        let locks: Vec<_> = self.device.locks_behind().collect();
        let begin = Begin {
            protocol: PROTOCOL,
            linger: self.orders.linger,
            deaths: self.deaths,
            locks: locks.len(),
            mounts: self.mounts.len(),
            falls_back,
        };
        send(socket, &begin, &[self.device.as_fd()], PATIENCE)?;
        for lock in locks {
            send(socket, &(), &[lock], PATIENCE)?;
        }
        for (kept, descriptors) in self.mounts.values() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            send(socket, kept, &descriptors, PATIENCE)?;
        }
        Ok(())
    }

    /// Hears what a daemon has to say until it has ended. A request to end goes on to it.
    fn watch(
        &mut self,
        daemon: &mut Daemon,
        since_death: &mut Option<Stopwatch>,
    ) -> io::Result<ExitStatus> {
        loop {
            let mut looks = vec![
                PollFd::new(&daemon.handle, PollFlags::IN),
                PollFd::new(&self.signals.term, PollFlags::IN),
            ];
            looks.extend(daemon.socket.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
            match poll(&mut looks, None) {
                Err(Errno::INTR) => continue,
                polled => drop(polled?),
            }
            let came = |at: usize| looks.get(at).is_some_and(|look| !look.revents().is_empty());
            let [has_ended, asked, said] = [0, 1, 2].map(came);
            drop(looks);
            if asked && self.signals.came() {
                self.shall_end = true;
                daemon.end();
            }
            if said && let Some(socket) = &daemon.socket {
                match receive_handed(socket, MESSAGE_MAX, PATIENCE) {
                    Ok((told, descriptors)) => self.hear(daemon, told, descriptors, since_death),
                    Err(error) => {
                        let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
                        if !ended.contains(&error.kind()) {
                            let (pid, why) = (daemon.child.id(), plain_words(&error));
                            tracing::error!(
                                "process {pid} says nonsense, and is heard no more: {why}"
                            );
                        }
                        daemon.socket = None;
                    }
                }
                // What it has said before its end counts.
                continue;
            }
            if has_ended {
                return daemon.child.wait();
            }
        }
    }

    fn hear(
        &mut self,
        daemon: &mut Daemon,
        told: Message,
        descriptors: Vec<OwnedFd>,
        since_death: &mut Option<Stopwatch>,
    ) {
        match told {
            Message::Ready => {
                daemon.ready = Some(Stopwatch::start());
                if self.shall_end {
                    daemon.end();
                }
                if let Some(pause) = since_death.take() {
                    let (pid, millis) = (daemon.child.id(), pause.elapsed().as_millis());
                    tracing::info!("process {pid} serves {} again after {millis} ms", self.name());
                }
            }
            Message::Keep(kept) => drop(self.mounts.insert(kept.number, (kept, descriptors))),
            Message::Drop { number } => drop(self.mounts.remove(&number)),
            Message::Linger { linger } => self.orders.linger = linger,
            Message::Restarting => {
                daemon.restarts = true;
                // Another one may be there by now.
                self.falls_back = None;
            }
            Message::Changing { is_so } => self.is_changing = is_so,
        }
    }
}
