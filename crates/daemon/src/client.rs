//! The side of a command that asks a daemon through its control socket: a mount that joins, and others.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_control::Name;
use holdfast_device::HostFile;
use holdfast_service::outcome::{Failure, plain_words, printable};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::MOUNT_FAILED;
use crate::control_socket::connect::Peer;
use crate::control_socket::message::{DaemonAnswer, Join, Question};
pub use crate::control_socket::message::{Served, ServedMount};
use crate::control_socket::{self, Daemon, HELLO, daemon_of, daemon_of_users};
use crate::mount_options::DaemonOptions;
use crate::mounts::{self, Mount};

/// How long a daemon gets to open its volume, or to close a branch that is mounted next.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks for a daemon.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one of many daemons gets to answer.
const SOON: Duration = Duration::from_secs(2);

fn failed(dir: &Path, why: &str) -> Failure {
    Failure::new(MOUNT_FAILED, format!("{}: {}", dir.display(), printable(why)))
}

/// Whether a daemon listens for the volume at `path`.
pub fn is_there(path: &Path) -> bool {
    daemon_of(path, HELLO).is_some()
}

/// Has the daemon that serves the volume at `volume`, if one does, serve one more mount of it. `enter` is called between the question to
/// the daemon and the mount: it may go to other namespaces. False: no daemon serves the volume, or it is about to end.
///
/// # Errors
/// The daemon refuses or does not answer, or nothing is mounted.
pub fn join(
    volume: &Path,
    dir: &Path,
    options: &DaemonOptions,
    lists: &[String],
    linger: bool,
    enter: impl FnOnce() -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // A user who may not open it is told why by an own daemon.
    let Ok(file) = holdfast_device::open_bytes(volume, access) else { return Ok(false) };
    let Ok(found) = HostFile::of(&file) else { return Ok(false) };
    let daemon = match Daemon::of(&found, HELLO) {
        Ok(daemon) => daemon,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return Err(failed(volume, &plain_words(&error)));
        }
        Err(_) => return Ok(false),
    };
    let question = Question::Join(Join {
        dir: Name(dir.as_os_str().as_bytes().into()),
        options: lists.to_vec(),
        branch: options.branch.clone(),
        snapshot: options.snapshot.clone(),
        linger,
    });
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => {
            Err(failed(volume, &format!("its daemon (process {}) does not answer", daemon.pid)))
        }
        // It has ended meanwhile.
        _ => Ok(false),
    };
    match daemon.ask(&question, &[file.as_fd()], PATIENCE) {
        Ok(DaemonAnswer::Mount) => {}
        Ok(DaemonAnswer::Refused { why }) => return Err(failed(volume, &why)),
        Ok(DaemonAnswer::Ending) => return Ok(false),
        Ok(_) => return Err(failed(volume, "its daemon answers nonsense")),
        Err(error) => return gone(error),
    }
    enter()?;
    let (fuse, mounted) = holdfast_fuse::mount(dir, &options.fuse(volume))
        .map_err(|error| failed(dir, &plain_words(&error)))?;
    let (handed, ends) = mounted.to_hand();
    let question = Question::Mounted {
        dir: Name(handed.dir.as_os_str().as_bytes().into()),
        device: handed.device,
    };
    let descriptors = [Some(fuse.as_fd()), ends.as_ref().map(AsFd::as_fd)];
    let descriptors: Vec<_> = descriptors.into_iter().flatten().collect();
    match daemon.ask(&question, &descriptors, PATIENCE) {
        Ok(DaemonAnswer::Done) => {
            mounted.handed_over();
            Ok(true)
        }
        // In all other cases the mount is taken away again when it is dropped.
        Ok(DaemonAnswer::Refused { why }) => Err(failed(dir, &why)),
        Ok(DaemonAnswer::Ending) => Ok(false),
        Ok(_) => Err(failed(volume, "its daemon answers nonsense")),
        Err(error) => gone(error),
    }
}

/// A daemon with what it serves: the process, its user, and what it says.
#[derive(Debug)]
pub struct ListedDaemon {
    /// The process; 0: it is in another pid namespace.
    pub pid: i32,
    /// Its user.
    pub user: u32,
    /// What it says.
    pub served: Served,
    /// It says more than the kernel does.
    pub is_doubted: bool,
}

/// The daemons of this user and those of root that serve a mount of this user, and for root all. One that does not answer soon is left
/// out. What a daemon of another user says is believed of mounts that the kernel says are that user's.
pub fn list() -> Vec<ListedDaemon> {
    let me = geteuid().as_raw();
    let mounts = mounts::list().unwrap_or_default();
    let mounts: HashSet<_> = mounts.iter().map(|it| (it.owner, name(it))).collect();
    let listed = control_socket::all_served(SOON).into_iter().filter_map(|(peer, mut served)| {
        let Peer { pid, user } = peer;
        let said = served.mounts.len();
        if ![0, me].contains(&user) {
            let Served { volume, mounts: told, .. } = &mut served;
            told.retain_mut(|it| {
                it.user = user;
                mounts.contains(&(user, [volume.bytes(), it.dir.bytes()]))
            });
        }
        let is_doubted = served.mounts.len() < said;
        let is_own = me == 0 || me == user;
        (is_own || said > 0).then_some(ListedDaemon { pid, user, served, is_doubted })
    });
    listed.collect()
}

/// The volume and the directory of a mount.
pub fn name(mount: &Mount) -> [&[u8]; 2] {
    [&mount.source, &mount.dir].map(|it| it.as_os_str().as_bytes())
}

/// What became of a mount that was unmounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// The daemon goes on, for others. Otherwise it ends, or there is none that can be asked.
    pub goes_on: bool,
    /// Not everything could be written, and why.
    pub failed: Option<String>,
}

/// Waits until a mount that was unmounted is closed in its daemon, and calls `meanwhile` now and then. A daemon that dies meanwhile may
/// have a supervisor, which keeps the volume and starts the next one: that is asked then.
pub fn parted(mount: &Mount, until: Deadline, meanwhile: &mut dyn FnMut()) -> Parted {
    let dir: &OsStr = mount.dir.as_os_str();
    let (dir, device) = (Name(dir.as_bytes().into()), mount.device.clone());
    let question = Question::Closed { dir, device };
    loop {
        let found = daemon_of_users(&mount.source, &[mount.owner], HELLO.min(until.left()));
        match found.map(|daemon| daemon.ask_meanwhile(&question, until.left(), meanwhile)) {
            Some(Ok(DaemonAnswer::Closed { goes_on, failed })) => {
                return Parted { goes_on, failed: failed.map(|why| printable(&why).into_owned()) };
            }
            Some(Ok(_)) => return Parted::default(),
            Some(Err(_)) | None => {}
        }
        let is_free = holdfast_device::wait_until_free(&mount.source, PAUSE.min(until.left()));
        if is_free || until.is_over() {
            return Parted::default();
        }
        meanwhile();
    }
}

/// Has the process that serves the volume at `path` started anew, and returns when the next one answers: its number, and why it is the
/// program that was started first, if it is not the one that is installed.
///
/// # Errors
/// None serves it, it has no supervisor, or the next one does not come.
pub fn restart(path: &Path) -> Result<(i32, Option<String>), Failure> {
    let users = users_of(path);
    let find = || daemon_of_users(path, &users, HELLO);
    let until = Deadline::after(PATIENCE);
    let daemon = loop {
        let daemon = find().ok_or_else(|| failed(path, &no_process(path)))?;
        match daemon.ask(&Question::Restart, &[], PATIENCE) {
            Ok(DaemonAnswer::Restarts) => break daemon,
            // It has just been started and does not serve yet, or ends.
            Ok(DaemonAnswer::Ending) if !until.is_over() => std::thread::sleep(PAUSE),
            Ok(DaemonAnswer::Ending) => return Err(failed(path, "its daemon ends")),
            Ok(DaemonAnswer::Refused { why }) => return Err(failed(path, &why)),
            Ok(_) => return Err(failed(path, "its daemon answers nonsense")),
            Err(error) => return Err(failed(path, &plain_words(&error))),
        }
    };
    let until = Deadline::after(PATIENCE);
    loop {
        // One that ends again before it has said what it serves is none.
        let next = find().filter(|next| next.pid != daemon.pid);
        if let Some(next) = next
            && let Some(served) = control_socket::served(&next)
        {
            return Ok((next.pid, served.falls_back));
        }
        if until.is_over() {
            return Err(failed(path, "no other process serves it yet; its log says why"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why no daemon answers for a volume.
fn no_process(path: &Path) -> String {
    match holdfast_device::holding_process(path) {
        Some(pid) if geteuid().is_root() => format!(
            "the process {pid} has it, and its daemon does not answer: a supervisor starts another one when that is killed"
        ),
        Some(pid) => format!(
            "the process {pid} has it, and does not answer, or is another user's, which its user and root alone may ask"
        ),
        None => "no process serves it".into(),
    }
}

/// Root asks also a daemon of another user: of the one whose image it is, or who has it open.
fn users_of(path: &Path) -> Vec<u32> {
    let owner = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
    let holder = holdfast_device::holding_process(path);
    let holder = holder.and_then(|pid| owner(Path::new(&format!("/proc/{pid}"))));
    [owner(path), holder].into_iter().flatten().collect()
}

/// Has the daemon of the volume at `path` end when nothing is mounted. False if there is none.
///
/// # Errors
/// It refuses, or something is mounted still.
pub fn end(path: &Path) -> Result<bool, Failure> {
    let Some(daemon) = daemon_of_users(path, &users_of(path), HELLO) else { return Ok(false) };
    match daemon.ask(&Question::End, &[], HELLO) {
        Ok(DaemonAnswer::Refused { why }) => Err(failed(path, &why)),
        _ => Ok(true),
    }
}
