//! `holdfast umount`: the mount is gone, everything is written, and the volume is free when this returns.
//!
//! A plain FUSE unmount returns before its daemon is done. Here the volume is
//! synced first, so that a failure to write is heard, then unmounted, and
//! then its lock is waited for. A mount whose daemon is dead is taken away also
//! from under programs that still have files open there: nobody answers them.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::cmd::sync::write_pages;
use crate::daemon::ask::{self, SYNC};
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, Outcome};
use crate::target::holds_bytes;

const FAILED: u8 = 32;
/// How long a busy mount is tried again.
const PATIENCE_MS: u64 = 500;
/// Between two attempts.
const PAUSE_MS: u64 = 20;

/// Unmount a volume and wait until everything is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Unmount now and let programs that still use it finish; does not wait.
    #[arg(long, short)]
    lazy: bool,
    /// Unmount only if the daemon has ended, whoever still has files open; a living mount stays.
    #[arg(long, conflicts_with = "lazy")]
    dead: bool,
    /// Seconds to wait for the daemon.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// The mounted directory, or the volume.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let found = mounts::find(&args.dir).context("/proc/self/mountinfo")?;
    let Some(mount) = found else {
        return match args.dead {
            true => Ok(0),
            false => Err(Failure::new(
                FAILED,
                format!("{} is not a mounted Holdfast volume", args.dir.display()),
            )),
        };
    };
    let limit = Duration::from_secs(args.timeout);
    if args.lazy {
        return unmount(&mount, true).map(|()| 0);
    }
    let synced = sync(&mount, limit);
    let dead = synced == Synced::Dead;
    if args.dead && !dead {
        return Ok(0);
    }
    unmount(&mount, dead)?;
    wait(&mount, limit)?;
    match synced {
        Synced::Failed(why) => {
            let dir = mount.dir.display();
            let what = "is unmounted, but not everything could be written";
            Err(Failure::new(FAILED, format!("{dir} {what}: {why}")))
        }
        _ => Ok(0),
    }
}

/// Returns when the daemon has let go of the volume.
fn wait(mount: &Mount, limit: Duration) -> Result<(), Failure> {
    // The user who has mounted says what the volume is. To open what is none may have effects.
    if !holds_bytes(&mount.source) || holdfast_device::wait_until_free(&mount.source, limit) {
        return Ok(());
    }
    let sentence = format!(
        "{} is unmounted, but its daemon still writes to {} after {} seconds; wait for it to end",
        mount.dir.display(),
        mount.source.display(),
        limit.as_secs()
    );
    Err(Failure::new(FAILED, sentence))
}

/// What is known of everything that was done in the mount.
#[derive(Debug, PartialEq)]
enum Synced {
    /// It is durable, or will be when the volume is free: nobody has said otherwise.
    Done,
    /// Nobody serves the mount any more: what had been made durable is in the volume.
    Dead,
    /// The daemon could not write, and said why.
    Failed(String),
}

/// Makes everything durable while a failure can still be told.
fn sync(mount: &Mount, limit: Duration) -> Synced {
    // What this user may not have written now the kernel writes when it unmounts.
    let answer = write_pages(&mount.dir).and_then(|_| ask::attribute(&mount.dir, SYNC, limit));
    match answer {
        Ok(_) => Synced::Done,
        Err(error) if mounts::is_dead(&error) => Synced::Dead,
        Err(error) => match Errno::from_io_error(&error) {
            // These are about the question, not about what was written.
            Some(Errno::ACCESS | Errno::PERM | Errno::NODATA | Errno::OPNOTSUPP) => Synced::Done,
            _ => Synced::Failed(crate::outcome::plain_words(&error)),
        },
    }
}

fn unmount(mount: &Mount, lazy: bool) -> Result<(), Failure> {
    let flags = match lazy {
        true => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
        false => UnmountFlags::NOFOLLOW,
    };
    match patiently(|| rustix::mount::unmount(&mount.dir, flags)) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_as_user(mount, lazy),
        Err(error) => Err(Failure::new(FAILED, refused(mount, &error.into()))),
    }
}

/// Tries a busy mount again for a moment: a program that is just being started holds a copy of its
/// parent's open files until it runs its own code, and nobody can see that coming.
fn patiently(attempt: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
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
                "{dir} is busy: a program has files open there or stands in it; find it with `fuser -vm {dir}`"
            )
        }
        _ => format!("{dir}: {}", crate::outcome::plain_words(error)),
    }
}

/// Users without privilege go through the setuid helper of the fuse3 package.
fn unmount_as_user(mount: &Mount, lazy: bool) -> Result<(), Failure> {
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
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(FAILED, said.trim().replace('\n', "; ")))
}
