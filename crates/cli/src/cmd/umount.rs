//! `holdfast umount`: the mount is gone, everything is written, and the volume is free when this returns.
//!
//! A plain FUSE unmount returns before its daemon is done. Here the volume is synced first, so that a failure to write
//! is reported, then unmounted, and then its lock is waited for. A mount whose daemon is dead is taken away also from
//! under programs that still have files open there: no daemon answers them. So is one whose daemon was killed and
//! cannot end ([`hung::end_if_hung`]).

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_daemon::client::{self, Parted};
use holdfast_daemon::dispatch::not_mounted;
use holdfast_daemon::hung;
use holdfast_daemon::mounts::{self, Mount, namespaces, orphan, processes};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::branches::place::holds_bytes;
use crate::outcome::{Context, Failure, Outcome, complain};
use crate::waiting::Waiting;

const FAILED: u8 = 32;
/// Seconds that a daemon gets to write what it holds.
pub(crate) const TIMEOUT: u64 = 120;
/// Between two looks whether a volume is free.
const PAUSE: Duration = Duration::from_millis(500);
/// A daemon that has not answered for so long may not answer any more.
const LONG: Duration = Duration::from_secs(1);
/// A daemon that is waited for so long is named, whatever it does.
const VERY_LONG: Duration = Duration::from_secs(30);
/// How long a busy mount is tried again.
const PATIENCE_MS: u64 = 500;
/// How long another mount namespace is waited for before that is said.
const UNSAID: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE_MS: u64 = 20;

/// Unmount a volume and wait until everything is written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 it is unmounted, and all is durable; 1 usage; 32 it has failed."
)]
pub(crate) struct Args {
    /// Take the mount away now, do not wait, and let programs that still have files open finish.
    #[arg(long, short)]
    lazy: bool,
    /// Unmount only if the process that serves the mount has died, even if programs have files open. A mount that
    /// works stays.
    #[arg(long, conflicts_with = "lazy")]
    dead: bool,
    /// Seconds to wait until everything is written. More for a slow device with much memory for data.
    #[arg(long, default_value_t = TIMEOUT)]
    timeout: u64,
    /// The mounted directory; or the volume, which unmounts all mounts of it and ends its process.
    dir: PathBuf,
}

/// Which mounts go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmountMode {
    /// Everything is written first; a mount in use stays.
    Orderly,
    /// At once, without waiting.
    Lazily,
    /// As [`UnmountMode::Orderly`], but the daemon is not asked for anything: whatever waits for it gets an error.
    ByForce,
    /// Only if the daemon has ended.
    IfDead,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let how = match (args.lazy, args.dead) {
        (true, _) => UnmountMode::Lazily,
        (_, true) => UnmountMode::IfDead,
        _ => UnmountMode::Orderly,
    };
    take_away(&args.dir, how, Duration::from_secs(args.timeout))
}

/// Unmounts what is mounted at `dir`, or all mounts of the volume at `dir`. Waits for the daemon as long as `limit`, each time
/// it has to.
pub(crate) fn take_away(dir: &Path, how: UnmountMode, limit: Duration) -> Outcome {
    let found = mounts::find_all(dir).context("/proc/self/mountinfo")?;
    // What is mounted may have a daemon that answers no call: it is asked nothing.
    let real = mounts::real_path(dir);
    let is_volume = !found.iter().any(|mount| mount.dir == real) && holds_bytes(dir);
    let none = found.is_empty();
    let mut done = Ok(0);
    for mount in &found {
        // Others go all the same; what was wrong first is said.
        done = done.and(take_one_away(mount, how, limit));
    }
    let is_for_good = !matches!(how, UnmountMode::IfDead | UnmountMode::Lazily);
    if done.is_ok() && is_for_good && is_volume {
        // A daemon that lingers has nothing to do any more.
        let volume = mounts::real_path(dir);
        let ended = match client::end(&volume) {
            // Where no user could unmount it.
            Err(_) if none && orphan::end(&volume) => true,
            ended => ended?,
        };
        if ended {
            return match holdfast_device::wait_until_free(&volume, limit) {
                true => Ok(0),
                false => Err(still_held(&volume, limit)),
            };
        }
    }
    if none && how != UnmountMode::IfDead {
        if let Err(error) = std::fs::symlink_metadata(dir) {
            return Err(error).context(dir.display()).map_err(|failure| failure.with_code(FAILED));
        }
        if dir.is_dir() {
            return Err(not_mounted(dir).with_code(FAILED));
        }
        let sentence = format!("{} is not a mounted Holdfast volume", dir.display());
        return Err(Failure::new(FAILED, sentence));
    }
    done
}

fn still_held(volume: &Path, limit: Duration) -> Failure {
    let (volume, seconds) = (volume.display(), limit.as_secs());
    let what = "is unmounted, but its daemon still holds it after";
    Failure::new(FAILED, format!("{volume} {what} {seconds} seconds; wait for it to end"))
}

/// Unmounts one.
fn take_one_away(mount: &Mount, how: UnmountMode, limit: Duration) -> Outcome {
    // One that works stays, also where it is hidden.
    if how != UnmountMode::IfDead && !is_in_sight(mount)? {
        return Ok(0);
    }
    // What is to go at once waits for nothing, not even for a look at the volume.
    let ended = match how {
        UnmountMode::Orderly | UnmountMode::IfDead => hung::end_if_hung(mount),
        UnmountMode::Lazily | UnmountMode::ByForce => Ok(false),
    };
    // Root may abort it by force, below.
    if let Err(error) = &ended
        && !rustix::process::geteuid().is_root()
    {
        let dir = mount.dir.display();
        let why = crate::outcome::plain_words(error);
        let sentence = format!(
            "{dir}: its daemon was killed and cannot end before the connection is aborted ({why}); as root: umount -f {dir}"
        );
        return Err(Failure::new(FAILED, sentence));
    }
    let (detach, force) = (UnmountFlags::DETACH, UnmountFlags::FORCE);
    let mut waiting = match how {
        UnmountMode::IfDead => Waiting::new(true),
        _ => {
            let mount = mount.clone();
            Waiting::naming(move |waited| names_daemon(&mount, waited))
        }
    };
    let synced = match how {
        UnmountMode::Lazily => return unmount(mount, detach).map(|()| 0),
        UnmountMode::ByForce => Synced::Done,
        // Not asked again: the asker may have not ended yet, and is then taken for a daemon that answers no call.
        _ if matches!(ended, Ok(true)) => Synced::Dead,
        UnmountMode::Orderly | UnmountMode::IfDead => sync(mount, limit, &mut waiting),
    };
    let flags = match (how, &synced) {
        // By force, as it may be dying where connections cannot be aborted otherwise.
        (_, Synced::Dead) => detach | force,
        (UnmountMode::IfDead, _) => return Ok(0),
        (UnmountMode::ByForce, _) => force,
        _ => UnmountFlags::empty(),
    };
    if synced == Synced::Dead && matches!(mounts::is_there(mount), Ok(false)) {
        // Another process was faster, and may have mounted something else there.
        return Ok(0);
    }
    waiting.next();
    unmount(mount, flags)?;
    match (how, &synced) {
        // Nothing serves it any more, wherever it is mounted.
        (UnmountMode::ByForce, _) | (_, Synced::Dead) => wait(mount, limit, &synced, &mut waiting)?,
        _ => wait_for_all(mount, limit, &synced, &mut waiting)?,
    }
    drop(waiting);
    match synced {
        Synced::Unanswered => {
            let (dir, seconds) = (mount.dir.display(), limit.as_secs());
            let what = "is unmounted and its daemon has ended, but that had not answered for";
            let advice = "its log says whether everything could be written";
            Err(Failure::new(FAILED, format!("{dir} {what} {seconds} seconds; {advice}")))
        }
        Synced::Failed(why) => Err(not_written(mount, &why)),
        _ => Ok(0),
    }
}

fn not_written(mount: &Mount, why: &str) -> Failure {
    let dir = mount.dir.display();
    let what = "is unmounted, but not everything could be written";
    Failure::new(FAILED, format!("{dir} {what}: {why}"))
}

/// As [`wait`]; says for what process, if another mount namespace has the mount as well.
fn wait_for_all(
    mount: &Mount,
    limit: Duration,
    synced: &Synced,
    waiting: &mut Waiting,
) -> Result<(), Failure> {
    let dir = mount.dir.display();
    let soon = Deadline::after(limit.min(UNSAID));
    // What was to go with this mount is gone by now, in all namespaces that follow this one.
    loop {
        let Some(holder) = namespaces::holder(mount) else {
            return wait(mount, limit, synced, waiting);
        };
        if soon.is_over() {
            complain(&format!(
                "{dir} is unmounted here, and {holder} has it in a mount namespace of its own: waiting for that"
            ));
            break;
        }
        std::thread::sleep(Duration::from_millis(PAUSE_MS));
    }
    let waited = wait(mount, limit, synced, waiting);
    match namespaces::holder(mount) {
        None => waited,
        Some(holder) => Err(Failure::new(
            FAILED,
            format!(
                "{dir} is unmounted here, but {holder} has it in a mount namespace of its own, and the volume is in use until that ends"
            ),
        )),
    }
}

/// Returns when the daemon has released the volume; or has closed the branch, and goes on for other mounts.
fn wait(
    mount: &Mount,
    limit: Duration,
    synced: &Synced,
    waiting: &mut Waiting,
) -> Result<(), Failure> {
    // The user of the mount says which volume it is. Opening anything but a volume may have effects.
    if !holds_bytes(&mount.source) {
        return Ok(());
    }
    let until = Deadline::after(limit);
    // A daemon that has not answered would be waited for twice.
    let parted = match synced {
        Synced::Unanswered => Parted::default(),
        _ => client::parted(mount, until, &mut || waiting.says(CLOSING)),
    };
    if let Some(why) = parted.failed {
        return Err(not_written(mount, &why));
    }
    if parted.goes_on {
        return Ok(());
    }
    if released(&mount.source, until, waiting) {
        return Ok(());
    }
    waiting.next();
    let (dir, source) = (mount.dir.display(), mount.source.display());
    let seconds = limit.as_secs();
    let daemon = hung::daemon_of(mount);
    let process = daemon.map_or(String::new(), |pid| format!(" (process {pid})"));
    let kill = daemon.map_or("kill that process".into(), |pid| format!("kill -9 {pid}"));
    let sentence = match synced {
        // One that had a moment only may answer the next.
        Synced::Unanswered if limit >= LONG => format!(
            "{dir} is unmounted, but its daemon{process} does not answer and holds {source}; it may be waiting for its device. If \
             that does not come back: {kill}; what no fsync has made durable is lost then"
        ),
        _ => format!(
            "{dir} is unmounted, but its daemon{process} still writes to {source} after {seconds} seconds; wait for it to end"
        ),
    };
    Err(Failure::new(FAILED, sentence))
}

/// Files are written by now; what the daemon has still to do it does not count.
const CLOSING: &str = "the daemon closes the volume";

/// Which process is waited for: one that is stopped, or that takes very long.
fn names_daemon(mount: &Mount, waited: Duration) -> Option<String> {
    let (dir, daemon) = (mount.dir.display(), hung::daemon_of(mount));
    match daemon {
        Some(pid) if processes::is_stopped(pid) => Some(format!(
            "{dir}: waiting for its daemon, process {pid}, which is stopped; kill -CONT {pid} lets it go on"
        )),
        _ if waited < VERY_LONG => None,
        Some(pid) => Some(format!("{dir}: waiting for its daemon, process {pid}")),
        None => Some(format!("{dir}: waiting for its daemon")),
    }
}

/// Whether the daemon lets go of the volume until then.
fn released(volume: &Path, until: Deadline, waiting: &mut Waiting) -> bool {
    loop {
        if holdfast_device::wait_until_free(volume, until.left().min(PAUSE)) {
            return true;
        }
        if until.is_over() {
            return false;
        }
        waiting.says(CLOSING);
    }
}

/// What is known of everything that was done in the mount.
#[derive(Debug, PartialEq)]
enum Synced {
    /// It is durable, or will be when the volume is free: no error has come.
    Done,
    /// The mount has no daemon any more: what had been made durable is in the volume.
    Dead,
    /// The daemon runs, and has said nothing in time.
    Unanswered,
    /// The daemon could not write, and said why.
    Failed(String),
}

/// Makes everything durable while a failure can still be reported.
fn sync(mount: &Mount, limit: Duration, waiting: &mut Waiting) -> Synced {
    match waiting.sync(&mount.dir, limit) {
        Ok(()) => Synced::Done,
        Err(error) if mounts::is_dead(&error) => Synced::Dead,
        // Killed while it was asked.
        Err(error)
            if error.kind() == io::ErrorKind::TimedOut
                && !matches!(hung::end_if_hung(mount), Ok(false)) =>
        {
            Synced::Dead
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Synced::Unanswered,
        Err(error) => match Errno::from_io_error(&error) {
            // These are about the question, not about what was written.
            Some(Errno::ACCESS | Errno::PERM | Errno::NODATA | Errno::OPNOTSUPP) => Synced::Done,
            _ => Synced::Failed(crate::outcome::plain_words(&error)),
        },
    }
}

/// Whether a mount is where its directory leads. A path is all that umount(2) takes: what has come over the mount would go in its place.
/// False if the mount has gone.
fn is_in_sight(mount: &Mount) -> Result<bool, Failure> {
    match mounts::is_in_sight(mount) {
        // umount(2) says what is wrong with the path.
        Ok(true) | Err(_) => Ok(true),
        Ok(false) if matches!(mounts::is_there(mount), Ok(false)) => Ok(false),
        Ok(false) => {
            let dir = mount.dir.display();
            let sentence = format!("{dir}: something else is mounted over it; unmount that first");
            Err(Failure::new(FAILED, sentence))
        }
    }
}

fn unmount(mount: &Mount, flags: UnmountFlags) -> Result<(), Failure> {
    // Its daemon, or another umount, was faster.
    if !is_in_sight(mount)? {
        return Ok(());
    }
    let flags = flags | UnmountFlags::NOFOLLOW;
    match patiently(|| rustix::mount::unmount(&mount.dir, flags)) {
        Ok(()) => Ok(()),
        // Its daemon was faster.
        Err(Errno::INVAL) if matches!(mounts::is_there(mount), Ok(false)) => Ok(()),
        Err(Errno::PERM) => unmount_as_user(mount, flags.contains(UnmountFlags::DETACH)),
        Err(error) => Err(Failure::new(FAILED, refused(mount, &error.into()))),
    }
}

/// Tries a busy mount again for a moment: a program that is just being started holds a copy of its parent's open files
/// until it runs its own code, and that cannot be foreseen.
fn patiently(mut attempt: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    for _ in 0..PATIENCE_MS / PAUSE_MS {
        match attempt() {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(PAUSE_MS)),
            other => return other,
        }
    }
    attempt()
}

fn refused(mount: &Mount, error: &io::Error) -> String {
    let dir = mount.dir.display();
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            format!(
                "{dir} is busy: a program has files open there or stands in it; find it with `fuser -vm {dir}`, or leave it to them with -l"
            )
        }
        _ => format!("{dir}: {}", crate::outcome::plain_words(error)),
    }
}

/// Users without privilege go through the setuid helper of the fuse3 package, which does not say by a number that a mount is busy.
fn unmount_as_user(mount: &Mount, lazy: bool) -> Result<(), Failure> {
    let mut said = Ok(None);
    let done = patiently(|| {
        said = by_helper(mount, lazy);
        match &said {
            Ok(Some(why)) if why.contains("busy") => Err(Errno::BUSY),
            _ => Ok(()),
        }
    });
    match (done, said?) {
        (Err(busy), _) => Err(Failure::new(FAILED, refused(mount, &busy.into()))),
        // What the helper says of that is that there is no such mount.
        (Ok(()), Some(_)) if mount.owner != rustix::process::geteuid().as_raw() => {
            let (dir, owner) = (mount.dir.display(), mount.owner);
            let sentence =
                format!("{dir} was mounted by user {owner}: that user and root may unmount it");
            Err(Failure::new(FAILED, sentence))
        }
        (Ok(()), Some(why)) => Err(Failure::new(FAILED, why)),
        (Ok(()), None) => Ok(()),
    }
}

/// What the helper says that is wrong.
fn by_helper(mount: &Mount, lazy: bool) -> Result<Option<String>, Failure> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(&mount.dir)
        .stdin(Stdio::null())
        .output()
        .context("fusermount3 (package fuse3)")
        .map_err(|failure| failure.with_code(FAILED))?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| said.trim().replace('\n', "; ")))
}
