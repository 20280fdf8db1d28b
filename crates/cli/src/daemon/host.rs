//! The side of the daemon of its control socket: who joins, and what is answered.

mod work;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

use holdfast::device::Device;
use holdfast::{FileSystem, KeptVolume, Volume};
use holdfast_device::HostFile;
use holdfast_fuse::connection::Watchdog;
use holdfast_fuse::{
    FuseOptions, Handed, Mounted, Report, Requests, Session, SharedThreads, Transport,
};
use rustix::net::sockopt::socket_peercred;
use uuid::Uuid;

use self::work::Works;
use super::table::{Entry, Event, New, Table, Taken};
use super::{commands, control, fuse_options, start_watchdog};
use crate::branches::Name;
use crate::control_socket::ControlSocket;
use crate::control_socket::message::{
    self, Answer, Join, PROTOCOL, QUESTION_MAX, Question, Served, ServedMount,
};
use crate::mount_options::MountOptions;
use crate::outcome::{plain_words, printable};

/// How long a caller gets to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it gets to mount: the helper may have to wait for the directory.
const MOUNTING: Duration = Duration::from_secs(60);
/// How long a branch may take to be closed before it is mounted again, and a mount to end.
const CLOSING: Duration = Duration::from_secs(110);
/// Callers that are answered at once; and those of one user that is neither root nor that of the daemon.
const CALLERS: usize = 64;
const CALLERS_OF_ONE: usize = 4;
/// The numbers of /dev/fuse.
const FUSE: (u32, u32) = (10, 229);

/// A volume that is served.
pub(super) struct Host {
    pub(super) table: Arc<Table>,
    pub(super) path: PathBuf,
    pub(super) id: HostFile,
    pub(super) device: std::sync::Weak<dyn Device>,
    /// The options of the first mount: what they say of the volume holds for all.
    pub(super) options: MountOptions,
    /// What keeps the volume open; `None` when it is closed.
    pub(super) kept: RwLock<Option<KeptVolume>>,
    pub(super) shared: SharedThreads,
    pub(super) uuid: String,
    pub(super) label: String,
    pub(super) works: Arc<Works>,
    callers: Mutex<HashMap<u32, usize>>,
    /// A caller has been answered.
    answered: Condvar,
}

/// Why a caller does not get what it asks for.
#[derive(Debug)]
enum No {
    Refused(String),
    Ending,
}

impl From<String> for No {
    fn from(why: String) -> No {
        No::Refused(why)
    }
}

fn words(error: &io::Error) -> No {
    No::Refused(plain_words(error))
}

/// How a mount is shown to the kernel, and what answers for it.
pub(super) fn mount_options(
    host: &Arc<Host>,
    options: &MountOptions,
    engine: &Arc<FileSystem>,
    user: u32,
) -> FuseOptions {
    let requests = Arc::new(Requests::default());
    let (ends, counts) = (Arc::downgrade(engine), host.device.clone());
    let answers = control::Answers::new(&host.path, options, ends, counts, Arc::clone(&requests));
    FuseOptions {
        requests,
        owner: Some(user),
        shared: host.shared.clone(),
        report: Some(Report::new(move || answers.report())),
        control: Some(commands::control(&host.table, !options.read_only)),
        watchdog: Some(Watchdog::new(start_watchdog)),
        ..fuse_options(&host.path, options)
    }
}

impl Host {
    pub(super) fn new(
        (path, id, device): (&Path, HostFile, std::sync::Weak<dyn Device>),
        options: &MountOptions,
        table: Arc<Table>,
        volume: &Volume,
    ) -> io::Result<Arc<Host>> {
        let info = volume.info()?;
        Ok(Arc::new(Host {
            table,
            path: path.into(),
            id,
            device,
            options: options.clone(),
            kept: RwLock::new(Some(volume.keep()?)),
            shared: SharedThreads::default(),
            uuid: Uuid::from_bytes(info.uuid).to_string(),
            label: info.label,
            works: Works::new()?,
            callers: Mutex::default(),
            answered: Condvar::new(),
        }))
    }

    /// Answers callers until the socket is shut down, each on a thread of its own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn listen(self: &Arc<Self>, socket: &ControlSocket) -> io::Result<()> {
        let (host, listener) = (Arc::clone(self), socket.listener().try_clone()?);
        holdfast_sync::start("control", move || host.accept(&listener)).map(drop)
    }

    fn accept(self: Arc<Self>, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.receive(stream),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is shut down.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::warn!("the control socket: {error}");
                    // There are no descriptors, most likely: some come back.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn receive(self: &Arc<Self>, stream: UnixStream) {
        let Ok(peer) = socket_peercred(&stream) else { return };
        let user = peer.uid.as_raw();
        let Some(caller) = Caller::count(self, user) else {
            // It hears that nobody listens.
            return;
        };
        let host = Arc::clone(self);
        let started = holdfast_sync::start("caller", move || {
            let caller = caller;
            host.answer(&stream, caller.1);
        });
        if let Err(error) = started {
            tracing::warn!("the system gives no thread for a caller ({error})");
        }
    }

    fn answer(self: &Arc<Self>, stream: &UnixStream, user: u32) {
        let hello = Answer::Hello { protocol: PROTOCOL };
        let asked = message::send(stream, &hello, &[], PATIENCE)
            .and_then(|()| message::receive(stream, QUESTION_MAX, PATIENCE));
        let Ok((question, descriptors)) = asked else { return };
        let answer = match question {
            Question::Join(join) => self.join(stream, user, &join, descriptors),
            Question::Work(job) => match work::start(self, stream, user, *job, descriptors) {
                // It has the connection.
                Ok(()) => return,
                Err(no) => Err(no),
            },
            Question::Mounted { .. } | Question::Go => {
                Err(No::Refused("nothing is prepared".into()))
            }
            Question::List => Ok(Answer::Served(self.served())),
            Question::Closed { dir, device } => Ok(self.closed(&dir, &device)),
            Question::End => self.end(user),
        };
        let answer = answer.unwrap_or_else(|no| match no {
            No::Refused(why) => Answer::Refused { why },
            No::Ending => Answer::Ending,
        });
        // Who is gone needs no answer.
        let _ = message::send(stream, &answer, &[], PATIENCE);
    }

    fn join(
        self: &Arc<Self>,
        stream: &UnixStream,
        user: u32,
        join: &Join,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, No> {
        if !self.table.is_serving(CLOSING) {
            return Err(No::Ending);
        }
        let mut options = self.options_of(join)?;
        let may_write = descriptors.first().and_then(|proof| self.id.proven_by(proof));
        drop(descriptors);
        self.expect_allowed(&options, may_write)?;
        let dir = PathBuf::from(OsString::from_vec(join.dir.0.clone()));
        let (number, branch, engine_options) = {
            let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
            let kept = kept.as_ref().ok_or(No::Ending)?;
            let engine_options = options.volume();
            let (branch, snapshot) = kept.find(&engine_options).map_err(|error| words(&error))?;
            (snapshot.unwrap_or(branch), snapshot.is_none().then_some(branch), engine_options)
        };
        let place = self.table.place(branch, stream.try_clone().ok(), CLOSING);
        let mut place = place.map_err(|taken| match taken {
            Taken::Ending => No::Ending,
            Taken::Busy => No::Refused("the branch is still being closed; try again".into()),
            Taken::At(at) => No::Refused(format!(
                "this branch is mounted at {} already; to see it at {} as well: mount --bind",
                at.display(),
                dir.display()
            )),
        })?;
        let volume = {
            let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
            let kept = kept.as_ref().ok_or(No::Ending)?;
            kept.open(number, &engine_options).map_err(|error| words(&error))?
        };
        let session = self.serve(stream, user, &mut options, &volume);
        let (session, device) = match session {
            Ok(session) => session,
            Err(no) => {
                close(volume);
                return Err(no);
            }
        };
        if join.linger {
            self.table.lock().lingers = true;
        }
        let read_only = options.read_only;
        let text = options.text.clone();
        let new = New { session, volume, dir, device, options: text, read_only, user };
        if let Err(back) = place.fill(new) {
            let New { mut session, volume, .. } = *back;
            session.tear_away();
            let _ = session.finish();
            close(volume);
            return Err(No::Ending);
        }
        tracing::info!(
            "{} is mounted at {} as well",
            self.path.display(),
            printable(&join.dir.text())
        );
        Ok(Answer::Done)
    }

    /// What a mount that joins asks for.
    fn options_of(&self, join: &Join) -> Result<MountOptions, String> {
        let lists = join.options.iter().map(String::as_str);
        let mut options = MountOptions::parse(lists, false)?;
        let differs = self.options.of_volume_differing(join.options.iter().map(String::as_str))?;
        if !differs.is_empty() {
            let differs = differs.join(",");
            return Err(format!(
                "{differs}: this holds for the whole volume, which is mounted otherwise already; leave it out, or unmount all first"
            ));
        }
        options.branch = join.branch.clone();
        options.snapshot = join.snapshot.clone();
        options.read_only |= options.snapshot.is_some();
        if options.transport == Transport::Auto {
            // Rings take threads and memory for each processor.
            options.transport = Transport::Device;
        }
        // That was decided when it was mounted, by the user who has mounted.
        options.allow_other =
            Some(options.default_permissions && options.allow_other == Some(true));
        Ok(options)
    }

    fn expect_allowed(&self, options: &MountOptions, may_write: Option<bool>) -> Result<(), No> {
        let may_write = may_write
            .ok_or_else(|| No::Refused("nothing proves that you may open the volume".into()))?;
        if !options.read_only && !may_write {
            return Err(No::Refused("nothing proves that you may write the volume".into()));
        }
        if !options.read_only && self.options.read_only {
            let pid = std::process::id();
            return Err(No::Refused(format!(
                "it is open read-only by process {pid}; mount it read-only (-o ro), or unmount that first"
            )));
        }
        Ok(())
    }

    /// Lets the caller mount, and serves that.
    fn serve(
        self: &Arc<Self>,
        stream: &UnixStream,
        user: u32,
        options: &mut MountOptions,
        volume: &Volume,
    ) -> Result<(Session, Option<String>), No> {
        let engine = volume.engine().map_err(|error| words(&error))?;
        engine.set_atime(options.atime.unwrap_or(holdfast::Atime::Relative), !options.nodiratime);
        message::send(stream, &Answer::Mount, &[], PATIENCE).map_err(|error| words(&error))?;
        let (question, descriptors) = message::receive(stream, QUESTION_MAX, MOUNTING)
            .map_err(|_| No::Refused("nothing was mounted in time".into()))?;
        let Question::Mounted { dir, device } = question else {
            return Err(No::Refused("nothing was mounted".into()));
        };
        let mut descriptors = descriptors.into_iter();
        let fuse = descriptors.next().filter(is_fuse);
        let fuse = fuse.ok_or_else(|| No::Refused("this is no mount".into()))?;
        let handed = Handed { dir: OsString::from_vec(dir.0).into(), device: device.clone() };
        let mounted = Mounted::adopt(&handed, descriptors.next(), user);
        let fuse_options = mount_options(self, options, &engine, user);
        let session = Session::start(engine, (fuse, mounted), &fuse_options);
        Ok((session.map_err(|error| words(&error))?, device))
    }

    fn served(&self) -> Served {
        let name = |path: &Path| Name(path.as_os_str().as_bytes().into());
        let state = self.table.lock();
        let mount = |entry: &Entry| {
            // One that is being closed has no names any more.
            let engine = entry.volume.as_ref()?.engine().ok()?;
            Some(ServedMount {
                dir: name(&entry.dir),
                branch: Name(engine.branch_name().ok()?),
                snapshot: engine.snapshot_name().ok()?.map(Name),
                options: entry.options.clone(),
                read_only: entry.read_only,
                user: entry.user,
            })
        };
        Served {
            volume: name(&self.path),
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            read_only: self.options.read_only,
            linger: state.lingers,
            mounts: state.mounts.values().filter_map(mount).collect(),
        }
    }

    /// Waits until a mount is closed, and says whether the daemon goes on.
    fn closed(&self, dir: &Name, device: &str) -> Answer {
        let is_it = |entry: &Entry| {
            entry.dir.as_os_str().as_bytes() == dir.0 && entry.device.as_deref() == Some(device)
        };
        let state = self.table.wait_while(CLOSING, |state| state.mounts.values().any(is_it));
        Answer::Closed { goes_on: !state.mounts.is_empty() || state.lingers }
    }

    fn end(&self, user: u32) -> Result<Answer, No> {
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return Err(No::Refused("only root and the user of the daemon may end it".into()));
        }
        self.table.lock().lingers = false;
        self.table.tell(Event::Look);
        Ok(Answer::Done)
    }
}

/// A mount that did not come to be.
fn close(volume: Volume) {
    if let Err(error) = volume.close() {
        tracing::error!("a branch could not be closed: {}", plain_words(&error));
    }
}

/// Whether it is an opened /dev/fuse: nothing else asks as the kernel does.
fn is_fuse(descriptor: &OwnedFd) -> bool {
    let Ok(file) = descriptor.try_clone().map(File::from) else { return false };
    let numbers = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
    file.metadata().is_ok_and(|it| it.file_type().is_char_device() && numbers(it.rdev()) == FUSE)
}

/// A caller that is being answered.
struct Caller(Arc<Host>, u32);

impl Caller {
    /// Waits while there are too many. `None`: there are too many of this user.
    fn count(host: &Arc<Host>, user: u32) -> Option<Caller> {
        let mut callers = host.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_trusted = user == 0 || user == rustix::process::geteuid().as_raw();
        if !is_trusted && callers.get(&user).is_some_and(|own| *own >= CALLERS_OF_ONE) {
            return None;
        }
        while callers.values().sum::<usize>() >= CALLERS {
            callers = host.answered.wait(callers).unwrap_or_else(PoisonError::into_inner);
        }
        *callers.entry(user).or_default() += 1;
        drop(callers);
        Some(Caller(Arc::clone(host), user))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut callers = self.0.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = callers.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                callers.remove(&self.1);
            }
        }
        drop(callers);
        self.0.answered.notify_one();
    }
}
