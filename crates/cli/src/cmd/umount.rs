//! `holdfast umount`: the mount is gone, everything is written, and the volume is free when this returns.
//!
//! A plain FUSE unmount returns before its daemon is done. Here the volume is
//! synced first, so that a failure to write is heard, then unmounted, and
//! then its lock is waited for.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::cmd::sync::sync_mount;
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, Outcome};

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
    /// Seconds to wait for the daemon.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// The mounted directory, or the volume.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mount = mounts::find(&args.dir).context("/proc/self/mountinfo")?.ok_or_else(|| {
        Failure::new(FAILED, format!("{} is not a mounted Holdfast volume", args.dir.display()))
    })?;
    let synced = match args.lazy {
        true => Ok(()),
        false => sync(&mount),
    };
    unmount(&mount, args.lazy)?;
    if args.lazy {
        return Ok(0);
    }
    let limit = Duration::from_secs(args.timeout);
    if !holdfast_device::wait_until_free(&mount.source, limit) {
        let sentence = format!(
            "{} is unmounted, but its daemon still writes to {} after {} seconds; wait for it to end",
            mount.dir.display(),
            mount.source.display(),
            args.timeout
        );
        return Err(Failure::new(FAILED, sentence));
    }
    if let Err(error) = synced {
        let sentence = format!(
            "{} is unmounted, but not everything could be written: {}",
            mount.dir.display(),
            crate::outcome::plain_words(&error)
        );
        return Err(Failure::new(FAILED, sentence));
    }
    Ok(0)
}

/// Makes everything durable while a failure can still be told.
fn sync(mount: &Mount) -> io::Result<()> {
    match sync_mount(&mount.dir) {
        // A dead daemon cannot sync: what it had made durable is in the volume, and unmounting is what is left.
        Err(error) if mounts::is_dead(&error) => Ok(()),
        // A volume mounted read-only has nothing to sync.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        other => other,
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
