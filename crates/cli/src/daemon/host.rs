//! The side of the daemon of its control socket: which mounts join, and what is answered.

mod asked;
mod work;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use holdfast::device::Device;
use holdfast::{FileSystem, KeptVolume, Volume};
use holdfast_base::InodeNo;
use holdfast_base::user_namespace::{knows_group, knows_user};
use holdfast_device::HostFile;
use holdfast_fuse::connection::Watchdog;
use holdfast_fuse::{
    CarriedOut, FuseOptions, Handed, Mounted, Owners, Report, Requests, Session, SharedThreads,
};
use rustix::process::{Signal, getpid, kill_process};
use uuid::Uuid;

use self::work::Works;
use super::bounds::bound;
use super::callers::{Callers, Then, is_trusted};
use super::supervised::{Keeping, Left};
use super::table::{Asks, Event, Mounting, New, Place, Table, Taken};
use super::{commands, control, fuse_options, served, start_watchdog};
use crate::control_socket::ControlSocket;
use crate::control_socket::message::{
    self, Answer, Join, PROTOCOL, QUESTION_MAX, Question, Served,
};
use crate::mount_options::MountOptions;
use crate::mounts;
use crate::outcome::{plain_words, printable};
use crate::stopped::Stopped;
use crate::supervisor::message::Kept;

/// How long a caller gets to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it gets to mount: the helper may have to wait for the directory.
const MOUNTING: Duration = Duration::from_secs(60);
/// A stranger keeps the branch from others meanwhile.
const MOUNTING_OF_STRANGERS: Duration = Duration::from_secs(20);
/// How long a branch may take to be closed before it is mounted again.
const CLOSING: Duration = Duration::from_secs(110);
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
    pub(super) works: Arc<Works>,
    /// Memory for written data that the first mount has.
    dirty_bytes: u64,
}

/// What a mount that is left goes on with.
pub(super) struct Held {
    // Before its place, which is free when it is closed.
    volume: Volume,
    place: Place,
    options: MountOptions,
    carried_out: Arc<CarriedOut>,
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

impl From<No> for Answer {
    fn from(no: No) -> Answer {
        match no {
            No::Refused(why) => Answer::Refused { why },
            No::Ending => Answer::Ending,
        }
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
    let is_supervised = host.table.supervisor().is_some();
    let answers = control::Answers::new(&host.path, options, ends, counts, Arc::clone(&requests));
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
        ..fuse_options(&host.path, options)
    }
}

/// Where is noted which requests of a new mount were carried out, if a supervisor keeps it.
pub(super) fn carried_out(host: &Host) -> io::Result<Option<Arc<CarriedOut>>> {
    host.table.supervisor().map(|_| CarriedOut::new().map(Arc::new)).transpose()
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
    Some(host.table.supervisor()?.keep(session, options.carried_out.as_deref()?, kept))
}

/// In a user namespace that has no number for the volume's owner no user could write, so everything is shown as the user's who
/// mounts, if nothing else is asked for.
fn known_owners(options: &MountOptions, engine: &FileSystem, user: u32) -> Owners {
    let asked = options.owners;
    let root = match engine.getattr(InodeNo::ROOT) {
        Ok(root) if options.default_permissions => root,
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
            works: Works::new()?,
            dirty_bytes: volume.engine()?.options().dirty_bytes as u64,
        }))
    }

    /// What the open volume gives, unless it is closed.
    fn open_volume<T>(&self, give: impl FnOnce(&KeptVolume) -> io::Result<T>) -> Result<T, No> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
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
        let hello = Answer::Hello { protocol: PROTOCOL };
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
            Question::Mounted { .. } | Question::Go => Err("nothing is prepared".into()),
            Question::List => Ok(Answer::Served(self.served(user))),
            Question::Closed { dir, device } => {
                // One that goes on for another does not have all mounts yet.
                let _ = self.table.is_serving(CLOSING);
                Ok(served::closed(&self.table, user, &dir, &device))
            }
            Question::End => self.end(user),
            Question::Restart => Err(self.restart(stream, user)),
        };
        // A caller that is gone needs no answer.
        let _ = message::send(stream, &answer.unwrap_or_else(Answer::from), &[], PATIENCE);
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
                let _ = message::send(stream, &Answer::Restarts, &[], PATIENCE);
                // As any other death: what is not answered yet comes to the next process.
                let _ = kill_process(getpid(), Signal::KILL);
                No::Ending
            }
        }
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
        self.expect_modest(join, &mut options, user)?;
        let may_write = descriptors.first().and_then(|proof| self.id.proven_by(proof));
        drop(descriptors);
        self.expect_allowed(&options, may_write)?;
        let dir = PathBuf::from(OsString::from_vec(join.dir.0.clone()));
        let (number, branch, engine_options) = {
            let engine_options = options.volume();
            let (branch, snapshot) = self.open_volume(|kept| kept.find(&engine_options))?;
            (snapshot.unwrap_or(branch), snapshot.is_none().then_some(branch), engine_options)
        };
        let asks = asks(user, may_write == Some(true));
        let place = self.table.place(branch, stream.try_clone().ok(), asks, CLOSING);
        let mut place = place.map_err(|taken| match taken {
            Taken::Ending => No::Ending,
            Taken::Busy => No::Refused("the branch is still being closed; try again".into()),
            // Where others have mounted is no matter of a stranger.
            Taken::At(_, of) if !served::may_hear(user, of) => No::Refused(
                "another user has mounted this branch already; mount a snapshot of it: any number of users may have that".into(),
            ),
            Taken::At(at, _) => No::Refused(format!(
                "this branch is mounted at {} already (or was unmounted lazily, and programs have files open there); to see it at {} as well: mount --bind",
                at.display(),
                dir.display()
            )),
        })?;
        let volume = self.open_volume(|kept| kept.open(number, &engine_options))?;
        let session = self.serve(stream, user, &mut options, &volume);
        let (session, device, fuse_options) = match session {
            Ok(session) => session,
            Err(no) => {
                close(volume);
                return Err(no);
            }
        };
        if join.linger {
            self.linger();
        }
        let (read_only, options) = (options.read_only, options.text);
        let mounting = Mounting { dir, device, options, read_only, user };
        let keeping = keep(self, &session, &fuse_options, (number, branch.is_some()), &mounting);
        if let Err(back) = place.fill(New { session, volume, mounting, keeping, is_resumed: false })
        {
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

    /// The daemon goes on when nothing is mounted any more.
    fn linger(&self) {
        self.table.lock().lingers = true;
        if let Some(supervisor) = self.table.supervisor() {
            supervisor.lingers(true);
        }
    }

    /// Takes the place of a mount that is left, and opens its branch or snapshot if that is not `opened`: from then on nothing deletes
    /// it or gives it another head as if it were not mounted. `carried_out`: which of its requests were.
    ///
    /// # Errors
    /// It cannot go on.
    pub(super) fn hold(
        &self,
        left: &Left,
        carried_out: io::Result<CarriedOut>,
        opened: Option<Volume>,
    ) -> io::Result<Held> {
        let kept = &left.kept;
        let options = MountOptions::parse([kept.options.as_str()], true);
        let mut options = options.map_err(io::Error::other)?;
        if let Some(words) = shown(&left.dir(), kept.device.as_deref()) {
            options.take_shown(|word| words.iter().any(|it| it == word));
        }
        options.read_only = kept.read_only;
        options.allow_other =
            Some(options.default_permissions && options.allow_other == Some(true));
        if !is_trusted(kept.user) {
            bound(&mut options, &self.options, self.dirty_bytes).map_err(io::Error::other)?;
        }
        let branch = kept.is_branch.then_some(kept.tree);
        let asks = asks(kept.user, !kept.read_only);
        let place = self.table.place(branch, None, asks, Duration::ZERO);
        let place = place.map_err(|why| io::Error::other(format!("{why:?}")))?;
        let deaths = self.table.supervisor().map_or(1, |it| it.deaths());
        let volume = match opened {
            Some(volume) => volume,
            None => {
                let all = self.kept.read().unwrap_or_else(PoisonError::into_inner);
                let all = all.as_ref().ok_or(io::ErrorKind::NotConnected)?;
                all.open(kept.tree, &options.volume().resumed(deaths))?
            }
        };
        let carried_out = Arc::new(carried_out?);
        Ok(Held { volume, place, options, carried_out })
    }

    /// Goes on with a mount of a daemon that has died. Those that its directory may lie in must have gone on.
    ///
    /// # Errors
    /// It cannot go on, or was not held; then it ends.
    pub(super) fn resume(self: &Arc<Self>, left: Left, held: io::Result<Held>) -> io::Result<()> {
        let dir = left.dir();
        let (kept, mounted) = left.into_parts();
        // The place goes last.
        let Held { mut place, volume, options, carried_out } = held?;
        let engine = volume.engine()?;
        engine.set_atime(options.atime.unwrap_or(holdfast::Atime::Relative), !options.nodiratime);
        let fuse_options = FuseOptions {
            carried_out: Some(carried_out),
            ..mount_options(self, &options, &engine, kept.user)
        };
        let session = Session::resume(engine, mounted, &fuse_options, kept.agreed())?;
        let keeping = self.table.supervisor().map(|it| it.keeps(kept.number));
        let Kept { device, options, read_only, user, .. } = kept;
        let mounting = Mounting { dir, device, options, read_only, user };
        if let Err(back) = place.fill(New { session, volume, mounting, keeping, is_resumed: true })
        {
            let New { mut session, volume, .. } = *back;
            session.tear_away();
            let _ = session.finish();
            close(volume);
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
    ) -> Result<(Session, Option<String>, FuseOptions), No> {
        let engine = volume.engine().map_err(|error| words(&error))?;
        engine.set_atime(options.atime.unwrap_or(holdfast::Atime::Relative), !options.nodiratime);
        message::send(stream, &Answer::Mount, &[], PATIENCE).map_err(|error| words(&error))?;
        let patience = if is_trusted(user) { MOUNTING } else { MOUNTING_OF_STRANGERS };
        let (question, descriptors) = message::receive_handed(stream, QUESTION_MAX, patience)
            .map_err(|_| "nothing was mounted in time")?;
        let Question::Mounted { dir, device } = question else {
            return Err("nothing was mounted".into());
        };
        let mut descriptors = descriptors.into_iter();
        let fuse = descriptors.next().filter(is_fuse);
        let fuse = fuse.ok_or("this is no mount")?;
        let handed = Handed { dir: OsString::from_vec(dir.0).into(), device: device.clone() };
        let mounted = Mounted::adopt(&handed, descriptors.next(), user);
        // What a stranger says of a mount that is not to be seen may be true of another one.
        let device = device.filter(|it| is_trusted(user) || mounted.device() == Some(it));
        let fuse_options = FuseOptions {
            carried_out: carried_out(self).map_err(|error| words(&error))?,
            ..mount_options(self, options, &engine, user)
        };
        let session = Session::start(engine, (fuse, mounted), &fuse_options);
        Ok((session.map_err(|error| words(&error))?, device, fuse_options))
    }

    fn served(&self, user: u32) -> Served {
        let state = self.table.lock();
        let mounts = served::mounts(&state, user);
        // A user without a mount of it hears no more than that it is in use.
        let is_theirs = is_trusted(user) || !mounts.is_empty();
        let text = |text: &str| if is_theirs { text.to_owned() } else { String::new() };
        let (label, stopped) = {
            let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
            let label = kept.as_ref().map_or_else(String::new, |kept| kept.info().label);
            (label, kept.as_ref().and_then(KeptVolume::stopped).map(Stopped::new))
        };
        let path = if is_theirs { self.path.as_path() } else { Path::new("") };
        let supervisor = self.table.supervisor().filter(|_| is_theirs);
        let falls_back = supervisor.as_ref().and_then(|it| it.falls_back());
        Served {
            volume: served::name(path),
            uuid: text(&self.uuid),
            label: text(&label),
            read_only: self.options.read_only,
            linger: state.lingers,
            stopped: stopped.filter(|_| is_theirs),
            falls_back: falls_back.map(String::from),
            mounts,
        }
    }

    fn end(&self, user: u32) -> Result<Answer, No> {
        if !is_trusted(user) {
            return Err(No::Refused("only root and the user of the daemon may end it".into()));
        }
        if let Some(supervisor) = self.table.supervisor() {
            supervisor.lingers(false);
        }
        let mut state = self.table.lock();
        state.lingers = false;
        let keeps = served::keeps_it(&state);
        drop(state);
        self.table.tell(Event::Look);
        keeps.map_or(Ok(Answer::Done), |why| Err(No::Refused(why)))
    }
}

/// What a user asks for a mount with that may, or may not, write the volume.
fn asks(user: u32, may_write: bool) -> Asks {
    if may_write || is_trusted(user) { Asks::Writer } else { Asks::Reader }
}

/// The words that the kernel shows of a mount, if it is to be seen from here.
fn shown(dir: &Path, device: Option<&str>) -> Option<Vec<String>> {
    let mounts = mounts::list().ok()?;
    let is_it = |it: &&mounts::Mount| it.dir == dir && Some(it.device.as_str()) == device;
    mounts::words(mounts.iter().rfind(is_it)?).ok()
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
