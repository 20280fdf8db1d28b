//! The control socket of a daemon: where it is, which users may make it, and how it is found.
//!
//! Its name is made of the device and the number of the volume's file, so it is the same by whichever path the volume is
//! named. It lies in a directory in which only its owner can make names: `/run/holdfast` of root, or one of the user's. A
//! daemon makes it while it holds the lock of the volume, and removes it before it gives that back; what lies there else
//! is of a daemon that was killed.

mod all;
pub(crate) mod connect;
mod directory;
pub(crate) mod frames;
mod lock;
pub(crate) mod message;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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

pub(crate) use self::all::all_served;
use self::connect::{Peer, connect, peer};
use self::directory::Directory;
use self::message::{ANSWER_MAX, DaemonAnswer, PROTOCOL, Question, Served};

/// Root's.
const OF_ROOT: &str = "/run/holdfast";
/// A user's, in the home directory.
const IN_HOME: &str = ".holdfast";
/// What is said of a daemon that speaks otherwise.
pub(crate) const OTHER_VERSION: &str = "it is served by another version of this program";
/// How long a daemon may take to say that it listens.
pub(crate) const HELLO: Duration = Duration::from_secs(5);
/// Between two looks for an answer.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);
/// How long a process that makes or removes a socket may keep others from it.
const LOCKED: Duration = Duration::from_secs(5);

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
    // Any user can take the names before. No other makes any here; but it may be a network's, where there are no sockets.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|dir| dir.is_absolute() && is_safe(dir, user));
    all.extend(home.map(|dir| dir.join(IN_HOME)));
    all.dedup();
    all
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

    /// What callers connect to.
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
    /// The connection, on which it has said that it listens.
    pub(crate) stream: UnixStream,
    /// The process, as the kernel says; 0 for one in another pid namespace.
    pub(crate) pid: i32,
    /// Its user.
    pub(crate) user: u32,
}

impl Daemon {
    /// Connects to a socket, and hears that it listens. What it says is taken off `left`.
    fn at(
        dir: &Directory,
        name: &OsStr,
        left: &mut usize,
        patience: Duration,
    ) -> io::Result<Daemon> {
        let until = Deadline::after(patience);
        let stream = connect(&dir.socket(name)?.path, patience)?;
        let Peer { pid, user } = peer(&stream)?;
        // A link there may lead to the socket of another user's daemon, which would be told what is meant for this user's.
        if user != dir.owner {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let daemon = Daemon { stream, pid, user };
        match message::receive_of(&daemon.stream, left, until.left())? {
            DaemonAnswer::Hello { protocol } if protocol == PROTOCOL => Ok(daemon),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, OTHER_VERSION)),
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
        let own = own_directories().into_iter().map(|dir| (dir, me)).chain([(OF_ROOT.into(), 0)]);
        let own = own.filter_map(|(dir, owner)| Directory::trusted(dir, owner));
        let users = if me == 0 { users } else { &[] };
        let of_users = users.iter().flat_map(|user| Directory::of_stranger(*user));
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        let name = OsString::from(name(volume));
        for dir in own.chain(of_users) {
            match Daemon::at(&dir, &name, &mut ANSWER_MAX.clone(), patience) {
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
    ) -> io::Result<DaemonAnswer> {
        message::send(&self.stream, question, descriptors, patience)?;
        self.answer(patience)
    }

    /// Asks, and calls `meanwhile` now and then while there is no answer.
    pub(crate) fn ask_meanwhile(
        &self,
        question: &Question,
        patience: Duration,
        meanwhile: &mut dyn FnMut(),
    ) -> io::Result<DaemonAnswer> {
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

    fn answer(&self, patience: Duration) -> io::Result<DaemonAnswer> {
        message::receive(&self.stream, ANSWER_MAX, patience)
    }
}

/// Whether no daemon listens there.
fn is_none(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, UnexpectedEof};
    matches!(error.kind(), NotFound | ConnectionRefused | PermissionDenied | UnexpectedEof)
}

/// The volume at `path`, without opening what is no file, and without any right to it.
pub(crate) fn id(path: &Path) -> Option<HostFile> {
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
        Ok(DaemonAnswer::Served(served)) => Some(served),
        _ => None,
    }
}

/// Whether a daemon keeps the volume at `path` open although nothing of it is mounted.
pub(crate) fn lingers(path: &Path) -> bool {
    daemon_of(path, HELLO).and_then(|daemon| served(&daemon)).is_some_and(|it| it.linger)
}
