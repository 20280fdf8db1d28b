//! The side of the daemon of its control socket: which mounts join, and what is answered.

mod mount_request;
mod join;
mod resume;
mod work;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast::device::Device;
use holdfast::{FileSystem, KeptVolume, Volume};
use holdfast_base::InodeNo;
use holdfast_base::user_namespace::{knows_group, knows_user};
use holdfast_device::HostFile;
use holdfast_fuse::connection::Watchdog;
use holdfast_fuse::{
    DuplicateRequests, FuseOptions, Owners, Report, Requests, Session, SharedThreads,
};
use holdfast_service::outcome::plain_words;
use parking_lot::RwLock;
use rustix::process::{Signal, getpid, kill_process};
use uuid::Uuid;

use self::work::Works;
use crate::callers::{Callers, Then, is_trusted};
use crate::control_socket::ControlSocket;
use crate::control_socket::message::{
    self, DaemonAnswer, PROTOCOL, QUESTION_MAX, Question, Served,
};
use crate::mount_options::DaemonOptions;
use crate::stop_reason::Stopped;
use crate::supervisor::message::Kept;
use crate::supervisor_link::Keeping;
use crate::table::{Asks, Event, Mounting, Table};
use crate::{commands, mount_list, report};

/// How long a caller gets to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a branch may take to be closed before it is mounted again.
const CLOSING: Duration = Duration::from_secs(110);

/// A volume that is served.
pub(super) struct Host {
    pub(super) table: Arc<Table>,
    pub(super) path: PathBuf,
    pub(super) id: HostFile,
    pub(super) device: std::sync::Weak<dyn Device>,
    /// The options of the first mount: what they say of the volume holds for all.
    pub(super) options: DaemonOptions,
    /// What keeps the volume open; `None` when it is closed.
    pub(super) kept: RwLock<Option<KeptVolume>>,
    pub(super) shared: SharedThreads,
    pub(super) uuid: String,
    pub(super) works: Arc<Works>,
    /// Memory for written data that the first mount has.
    dirty_bytes: u64,
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

impl From<&str> for No {
    fn from(why: &str) -> No {
        No::Refused(why.into())
    }
}

impl From<No> for DaemonAnswer {
    fn from(no: No) -> DaemonAnswer {
        match no {
            No::Refused(why) => DaemonAnswer::Refused { why },
            No::Ending => DaemonAnswer::Ending,
        }
    }
}

fn words(error: &io::Error) -> No {
    No::Refused(plain_words(error))
}

/// How a mount is shown to the kernel, and what answers for it.
pub(super) fn mount_options(
    host: &Arc<Host>,
    options: &DaemonOptions,
    engine: &Arc<FileSystem>,
    user: u32,
) -> FuseOptions {
    let requests = Arc::new(Requests::default());
    let (ends, counts) = (Arc::downgrade(engine), host.device.clone());
    let is_supervised = host.table.supervisor().is_some();
    let answers = report::Answers::new(&host.path, options, ends, counts, Arc::clone(&requests));
    FuseOptions {
        owners: known_owners(options, engine, user),
        requests,
        host_file: Some((host.id.is_block_device, host.id.device, host.id.inode)),
        owner: Some(user),
        shared: host.shared.clone(),
        report: Some(Report::new(move || answers.report())),
        control: Some(commands::control(&host.table, !options.read_only)),
        watchdog: Some(Watchdog::new(start_watchdog)),
        handover: options.handover || is_supervised,
        ..options.fuse(&host.path)
    }
}

/// Where is noted which requests of a new mount were carried out, if a supervisor keeps it.
pub(super) fn duplicate_requests(host: &Host) -> io::Result<Option<Arc<DuplicateRequests>>> {
    host.table.supervisor().map(|_| DuplicateRequests::new().map(Arc::new)).transpose()
}

/// Has the supervisor keep a mount, if there is one.
pub(super) fn keep(
    host: &Host,
    session: &Session,
    options: &FuseOptions,
    (tree, is_branch): (u64, bool),
    mounting: &Mounting,
) -> Option<Keeping> {
    let Mounting { device, options: text, read_only, user, .. } = mounting;
    let kept = Kept {
        device: device.clone(),
        options: text.clone(),
        tree,
        is_branch,
        read_only: *read_only,
        user: *user,
        ..Kept::default()
    };
    Some(host.table.supervisor()?.keep(session, options.duplicate_requests.as_deref()?, kept))
}

/// In a user namespace that has no number for the volume's owner no user could write, so everything is shown as the user's who
/// mounts, if nothing else is asked for.
fn known_owners(options: &DaemonOptions, engine: &FileSystem, user: u32) -> Owners {
    let asked = options.owners;
    let root = match engine.getattr(InodeNo::ROOT) {
        Ok(root) if !options.nodefault_permissions => root,
        _ => return asked,
    };
    let group = rustix::process::getegid().as_raw();
    let known = Owners {
        uid: asked.uid.or_else(|| (!knows_user(root.uid)).then_some(user)),
        gid: asked.gid.or_else(|| (!knows_group(root.gid)).then_some(group)),
        ..asked
    };
    if known != asked {
        tracing::info!(
            "the owner of the volume ({}:{}) has no number in this user namespace; everything is shown as {user}:{group}",
            root.uid,
            root.gid
        );
    }
    known
}

impl Host {
    pub(super) fn new(
        (path, id, device): (&Path, HostFile, std::sync::Weak<dyn Device>),
        options: &DaemonOptions,
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
            works: Works::new()?,
            dirty_bytes: volume.engine()?.options().dirty_bytes as u64,
        }))
    }

    /// What the open volume gives, unless it is closed.
    fn open_volume<T>(&self, give: impl FnOnce(&KeptVolume) -> io::Result<T>) -> Result<T, No> {
        let kept = self.kept.read();
        give(kept.as_ref().ok_or(No::Ending)?).map_err(|error| words(&error))
    }

    /// Answers callers until the socket is shut down.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn listen(self: &Arc<Self>, socket: &ControlSocket) -> io::Result<()> {
        let host = Arc::clone(self);
        let callers = Callers::new(self.id);
        callers.listen(socket, move |stream, user| host.answer(stream, user))
    }

    /// Returns what gets the connection, if that is not over.
    fn answer(self: &Arc<Self>, stream: &UnixStream, user: u32) -> Option<Then> {
        let hello = DaemonAnswer::Hello { protocol: PROTOCOL };
        let asked = message::send(stream, &hello, &[], PATIENCE)
            .and_then(|()| message::receive_handed(stream, QUESTION_MAX, PATIENCE));
        let (question, descriptors) = asked.ok()?;
        // Until the answer is on its way.
        let _hearing = matches!(question, Question::Closed { .. }).then(|| self.table.hear());
        let answer = match question {
            Question::Join(join) => self.join(stream, user, &join, descriptors),
            Question::Work(job) => match work::prepare(self, user, *job, descriptors) {
                // It gets the connection.
                Ok(then) => return Some(then),
                Err(no) => Err(no),
            },
            Question::Mounted { .. } => Err("nothing is prepared".into()),
            Question::List => Ok(DaemonAnswer::Served(self.served(user))),
            Question::Closed { dir, device } => {
                // One that goes on for another does not have all mounts yet.
                let _ = self.table.is_serving(CLOSING);
                Ok(mount_list::closed(&self.table, user, &dir, &device))
            }
            Question::End => self.end(user),
            Question::Restart => Err(self.restart(stream, user)),
        };
        // A caller that is gone needs no answer.
        let _ = message::send(stream, &answer.unwrap_or_else(DaemonAnswer::from), &[], PATIENCE);
        None
    }

    /// Dies, if another process goes on with the mounts. Returns why not.
    fn restart(&self, stream: &UnixStream, user: u32) -> No {
        if !is_trusted(user) {
            return "only root and the user of the daemon may restart it".into();
        }
        let Some(supervisor) = self.table.supervisor() else {
            return "it has no supervisor, which would keep its mounts: mount with -o supervised"
                .into();
        };
        // One that has just come has all mounts a moment later, and only then its supervisor knows that it works.
        if !self.table.is_serving(PATIENCE) {
            return No::Ending;
        }
        if self.table.lock().mounts.is_empty() {
            return "nothing of it is mounted: end it, and mount it".into();
        }
        match supervisor.restarting() {
            Err(why) => No::Refused(why.into()),
            Ok(_nothing_begins) => {
                tracing::info!("this process ends, to be started anew");
                let _ = message::send(stream, &DaemonAnswer::Restarts, &[], PATIENCE);
                // As any other death: what is not answered yet comes to the next process.
                let _ = kill_process(getpid(), Signal::KILL);
                No::Ending
            }
        }
    }

    /// The daemon goes on when nothing is mounted any more.
    fn linger(&self) {
        self.table.lock().lingers = true;
        if let Some(supervisor) = self.table.supervisor() {
            supervisor.lingers(true);
        }
    }

    fn served(&self, user: u32) -> Served {
        let state = self.table.lock();
        let mounts = mount_list::mounts(&state, user);
        // A user without a mount of it hears no more than that it is in use.
        let is_theirs = is_trusted(user) || !mounts.is_empty();
        let text = |text: &str| if is_theirs { text.to_owned() } else { String::new() };
        let (label, stopped) = {
            let kept = self.kept.read();
            let label = kept.as_ref().map_or_else(String::new, |kept| kept.info().label);
            (label, kept.as_ref().and_then(KeptVolume::stopped).map(Stopped::new))
        };
        let path = if is_theirs { self.path.as_path() } else { Path::new("") };
        let supervisor = self.table.supervisor().filter(|_| is_theirs);
        let falls_back = supervisor.as_ref().and_then(|it| it.falls_back());
        Served {
            volume: mount_list::name(path),
            uuid: text(&self.uuid),
            label: text(&label),
            read_only: self.options.read_only,
            linger: state.lingers,
            stopped: stopped.filter(|_| is_theirs),
            falls_back: falls_back.map(String::from),
            mounts,
        }
    }

    fn end(&self, user: u32) -> Result<DaemonAnswer, No> {
        if !is_trusted(user) {
            return Err(No::Refused("only root and the user of the daemon may end it".into()));
        }
        if let Some(supervisor) = self.table.supervisor() {
            supervisor.lingers(false);
        }
        let mut state = self.table.lock();
        state.lingers = false;
        let keeps = mount_list::keeps_it(&state);
        drop(state);
        self.table.tell(Event::Look);
        keeps.map_or(Ok(DaemonAnswer::Done), |why| Err(No::Refused(why)))
    }
}

/// What a user asks for a mount with that may, or may not, write the volume.
fn asks(user: u32, may_write: bool) -> Asks {
    if may_write || is_trusted(user) { Asks::Writer } else { Asks::Reader }
}

/// A mount that did not come to be.
fn close(volume: Volume) {
    if let Err(error) = volume.close() {
        tracing::error!("a branch could not be closed: {}", plain_words(&error));
    }
}

/// Starts the process that ends `connection` if this one is killed and cannot end.
fn start_watchdog(connection: OwnedFd) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("holdfast")
        .args(["watchdog", &std::process::id().to_string()])
        .current_dir("/")
        .stdin(connection)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals that a terminal sends to the daemon must not reach the watchdog.
        .process_group(0)
        .spawn()
}
