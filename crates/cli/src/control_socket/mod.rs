//! The control socket of a daemon: where it is, who may make it, and how it is found.
//!
//! Its name is made of the device and the number of the volume's file, so it is the same by whichever path the volume is
//! named. It lies in a directory in which only its owner can make names: `/run/holdfast` of root, or one of the user's. A
//! daemon makes it while it holds the lock of the volume, and removes it before it gives that back; what lies there else
//! is of a daemon that was killed.

pub(crate) mod connect;
mod lock;
pub(crate) mod message;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::user_namespace::maker;
use holdfast_device::HostFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use self::connect::{Peer, connect, peer};
use self::message::{ANSWER_MAX, Answer, PROTOCOL, Question, Served};
use crate::waiting::PAUSE;

/// Root's.
const OF_ROOT: &str = "/run/holdfast";
/// How long a daemon may take to say that it listens.
pub(crate) const HELLO: Duration = Duration::from_secs(5);
/// How long a process that makes or removes a socket may keep others from it.
const LOCKED: Duration = Duration::from_secs(5);
/// How long all daemons of one other user may take to answer root, each time those of all users are looked at.
const OF_ONE_USER: Duration = Duration::from_secs(5);
/// Directories of users that root looks at, and sockets in one of them.
const USERS_MAX: usize = 10_000;
const SOCKETS_MAX: usize = 10_000;

/// The name of the socket of a volume.
fn name(volume: &HostFile) -> String {
    let kind = if volume.is_block_device { "block" } else { "file" };
    format!("{kind}-{:x}-{:x}.sock", volume.device, volume.inode)
}

/// Whether this is root, and not a user who is called so in a namespace of its own: whose daemons are where they are outside.
fn is_root_everywhere() -> bool {
    geteuid().is_root() && maker().0 == 0
}

/// Where sockets of this user's daemons may be, best first.
fn own_directories() -> Vec<PathBuf> {
    if is_root_everywhere() {
        return vec![OF_ROOT.into()];
    }
    let (user, outside) = (geteuid().as_raw(), maker().0);
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.filter(|dir| dir.is_absolute());
    let runtime = [session, Some(format!("/run/user/{outside}").into())].into_iter().flatten();
    let mut all: Vec<PathBuf> =
        runtime.filter(|dir| is_safe(dir, user)).map(|dir| dir.join("holdfast")).collect();
    all.push(std::env::temp_dir().join(format!("holdfast-{outside}")));
    all.push(format!("/tmp/holdfast-{outside}").into());
    // Anybody can take the names before. Nobody else makes any here; but it may be a network's, where there are no sockets.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|dir| dir.is_absolute() && is_safe(dir, user));
    all.extend(home.map(|dir| dir.join(".holdfast")));
    all.dedup();
    all
}

/// Where root finds sockets of the daemons of another user, unless that user has chosen other directories.
fn directories_of(user: u32) -> [PathBuf; 2] {
    [format!("/run/user/{user}/holdfast").into(), format!("/tmp/holdfast-{user}").into()]
}

/// Whether it is a directory in which only `owner` makes names.
fn is_safe(dir: &Path, owner: u32) -> bool {
    let found = fs::symlink_metadata(dir);
    found.is_ok_and(|it| it.is_dir() && it.uid() == owner && it.mode() & 0o022 == 0)
}

/// The directory for a new socket of this user.
fn own_directory() -> io::Result<PathBuf> {
    let mode = Mode::from_raw_mode(if is_root_everywhere() { 0o755 } else { 0o700 });
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for dir in own_directories() {
        if let Err(error) = rustix::fs::mkdir(&dir, mode)
            && error != rustix::io::Errno::EXIST
        {
            why = error.into();
            continue;
        }
        if is_safe(&dir, geteuid().as_raw()) {
            return Ok(dir);
        }
        let said = format!("{} belongs to others", dir.display());
        why = io::Error::new(io::ErrorKind::PermissionDenied, said);
    }
    Err(why)
}

/// A control socket that listens. Removed when it is dropped, which must be before the lock of the volume is given back.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlSocket {
    /// Makes that of a volume whose lock this process holds. `is_alone`: no other process has it open, so what is there is
    /// of a daemon that was killed.
    ///
    /// # Errors
    /// There is no safe place; or another daemon that only reads the volume listens already.
    pub(crate) fn bind(volume: &HostFile, is_alone: bool) -> io::Result<ControlSocket> {
        let dir = own_directory()?;
        // One at a time: two that only read may look at the same moment.
        let _lock = lock::take(&dir, LOCKED)?;
        let path = dir.join(name(volume));
        if !is_alone && connect(&path, HELLO).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // Others prove with a descriptor that they may; a directory of a user lets none in anyway.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        Ok(ControlSocket { path, listener })
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // A caller that waits for a connection gets an error.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A daemon that listens.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) stream: UnixStream,
    /// The process and its user, as the kernel says; 0 for a process in another pid namespace.
    pub(crate) pid: i32,
    pub(crate) user: u32,
}

impl Daemon {
    /// Connects to a socket in a directory of `owner`, and hears that it listens.
    fn at(path: &Path, owner: u32, patience: Duration) -> io::Result<Daemon> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        if !is_safe(dir, owner) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let until = Deadline::after(patience);
        let stream = connect(path, patience)?;
        let Peer { pid, user } = peer(&stream)?;
        if user != owner && user != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let daemon = Daemon { stream, pid, user };
        match daemon.answer(until.left())? {
            Answer::Hello { protocol } if protocol == PROTOCOL => Ok(daemon),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it is served by another version of this program",
            )),
        }
    }

    /// The daemon of a volume: of this user, or of root.
    ///
    /// # Errors
    /// `NotFound`: there is none. Others: it does not answer, or makes no sense.
    pub(crate) fn of(volume: &HostFile, patience: Duration) -> io::Result<Daemon> {
        Daemon::of_users(volume, &[], patience)
    }

    /// The same; if this user is root also of one of `users`. What such a daemon says is to be believed of volumes and mounts of
    /// that user only, and it is to be given no descriptor.
    fn of_users(volume: &HostFile, users: &[u32], patience: Duration) -> io::Result<Daemon> {
        let me = geteuid().as_raw();
        let own = own_directories().into_iter().map(|dir| (dir, me));
        let users = if me == 0 { users } else { &[] };
        let of_users = users.iter().flat_map(|user| directories_of(*user).map(|dir| (dir, *user)));
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        for (dir, owner) in own.chain([(OF_ROOT.into(), 0)]).chain(of_users) {
            let at = dir.join(name(volume));
            match Daemon::at(&at, owner, patience) {
                Err(error) if is_none(&error) => {}
                Err(error) => why = error,
                found => return found,
            }
        }
        Err(why)
    }

    /// Asks, with descriptors.
    pub(crate) fn ask(
        &self,
        question: &Question,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
        patience: Duration,
    ) -> io::Result<Answer> {
        message::send(&self.stream, question, descriptors, patience)?;
        self.answer(patience)
    }

    /// Asks, and calls `meanwhile` now and then while there is no answer.
    pub(crate) fn ask_meanwhile(
        &self,
        question: &Question,
        patience: Duration,
        meanwhile: &mut dyn FnMut(),
    ) -> io::Result<Answer> {
        let until = Deadline::after(patience);
        message::send(&self.stream, question, &[], patience)?;
        while !until.is_over() {
            let mut wanted = [PollFd::new(&self.stream, PollFlags::IN)];
            let pause = Timespec::try_from(until.left().min(PAUSE)).unwrap_or_default();
            match poll(&mut wanted, Some(&pause)) {
                Ok(0) => meanwhile(),
                Err(Errno::INTR) => {}
                ready => {
                    ready?;
                    break;
                }
            }
        }
        self.answer(until.left())
    }

    /// Says something that is not answered.
    pub(crate) fn tell(&self, question: &Question, patience: Duration) -> io::Result<()> {
        message::send(&self.stream, question, &[], patience)
    }

    fn answer(&self, patience: Duration) -> io::Result<Answer> {
        message::receive(&self.stream, ANSWER_MAX, patience).map(|(answer, _)| answer)
    }
}

/// Whether nobody listens there.
fn is_none(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, UnexpectedEof};
    matches!(error.kind(), NotFound | ConnectionRefused | PermissionDenied | UnexpectedEof)
}

/// Visits the daemons of this user and of root; for root those of all users. Each is visited at once, as it waits to be asked. What
/// this user's daemons have left that were killed is removed.
pub(crate) fn each(patience: Duration, mut visit: impl FnMut(Daemon)) {
    let me = geteuid().as_raw();
    let mut dirs: Vec<(PathBuf, u32)> =
        own_directories().into_iter().map(|dir| (dir, me)).collect();
    if me == 0 {
        let users = entries(Path::new("/run/user"), USERS_MAX).into_iter();
        let runtime = users.map(|dir| dir.join("holdfast"));
        let is_ours = |dir: &PathBuf| {
            dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"holdfast-"))
        };
        let temporary = entries(Path::new("/tmp"), USERS_MAX).into_iter().filter(is_ours);
        for dir in runtime.chain(temporary) {
            if let Ok(found) = fs::symlink_metadata(&dir) {
                dirs.push((dir, found.uid()));
            }
        }
    } else {
        dirs.push((OF_ROOT.into(), 0));
    }
    // Root of a user namespace finds its own among those of all users, too.
    let mut seen = HashSet::new();
    dirs.retain(|(dir, _)| seen.insert(dir.clone()));
    for (dir, owner) in dirs.into_iter().filter(|(dir, owner)| is_safe(dir, *owner)) {
        // A user can have sockets that nobody answers at, and many of them.
        let until = [me, 0].iter().all(|it| *it != owner).then(|| Deadline::after(OF_ONE_USER));
        for path in entries(&dir, SOCKETS_MAX) {
            let left = until.as_ref().map_or(patience, |until| patience.min(until.left()));
            if left.is_zero() {
                break;
            }
            let is_socket =
                fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
            if !is_socket {
                continue;
            }
            match Daemon::at(&path, owner, left) {
                Ok(daemon) => visit(daemon),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && owner == me => {
                    sweep(&dir, &path);
                }
                Err(_) => {}
            }
        }
    }
}

/// Removes a socket on which no daemon listens, unless one does by now.
fn sweep(dir: &Path, path: &Path) {
    let Ok(_lock) = lock::take(dir, LOCKED) else { return };
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if connect(path, LOCKED).is_err_and(refused) {
        let _ = fs::remove_file(path);
    }
}

fn entries(dir: &Path, most: usize) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    found.take(most).map(|entry| entry.path()).collect()
}

/// The volume at `path`, without opening what is no file, and without any right to it.
fn id(path: &Path) -> Option<HostFile> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    HostFile::of(file).ok()
}

/// The daemon that serves the volume at `path`, if one does that can be asked.
pub(crate) fn daemon_of(path: &Path, patience: Duration) -> Option<Daemon> {
    Daemon::of(&id(path)?, patience).ok()
}

/// The same; for root also if it is a daemon of one of `users`, of whose volumes and mounts alone it is to be believed.
pub(crate) fn daemon_of_users(path: &Path, users: &[u32], patience: Duration) -> Option<Daemon> {
    Daemon::of_users(&id(path)?, users, patience).ok()
}

/// What the daemon of a volume serves.
pub(crate) fn served(daemon: &Daemon) -> Option<Served> {
    match daemon.ask(&Question::List, &[], HELLO) {
        Ok(Answer::Served(served)) => Some(served),
        _ => None,
    }
}

/// Whether a daemon keeps the volume at `path` open although nothing of it is mounted.
pub(crate) fn lingers(path: &Path) -> bool {
    daemon_of(path, HELLO).and_then(|daemon| served(&daemon)).is_some_and(|it| it.linger)
}
