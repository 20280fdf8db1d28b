//! `holdfast sync`: everything done in a volume so far, in any of its mounts, is durable when this returns.
//!
//! The kernel does not forward sync(2) to FUSE servers, and an fsync is for one file or directory. So for the server a
//! read of the attribute `system.holdfast.sync` asks for a sync of the whole volume. As with sync(2), every user may.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::daemon::ask::{self, SYNC, write_pages};
use crate::daemon::control;
use crate::mounts;
use crate::outcome::{Context, Failure, Outcome};
use crate::waiting::Waiting;

/// A sync may take what it takes.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Make everything done in a mounted volume durable, in all of its branches.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A mounted directory, or anything in it.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let found = mounts::around(&args.dir).and_then(|mount| match mount {
        Some(mount) => Ok(Some(mount)),
        None => mounts::find(&args.dir),
    });
    let mount = found.context("/proc/self/mountinfo")?.ok_or_else(|| {
        Failure::plain(format!("{} is not in a mounted Holdfast volume", args.dir.display()))
    })?;
    for other in mounts::beside(&mount).context("/proc/self/mountinfo")? {
        match write_pages(&other.dir) {
            Ok(true) => {}
            Ok(false) => write_pages_of_all(&other.dir),
            // One that an earlier daemon has left.
            Err(error) if mounts::is_dead(&error) => {}
            Err(error) => return Err(error).context(other.dir.display()),
        }
    }
    sync_mount(&mount.dir).context(args.dir.display())?;
    Ok(0)
}

/// Syncs the volume mounted at `dir`.
fn sync_mount(dir: &Path) -> io::Result<()> {
    // First what the kernel holds back, then what the server does.
    let mut waiting = Waiting::new(false);
    if waiting.is_shown() {
        // Another process waits, so that this one can show what is left.
        if File::open(dir).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            write_pages_of_all(dir);
        }
        return control::sync(dir, FOR_EVER, &mut waiting);
    }
    if !write_pages(dir)? {
        write_pages_of_all(dir);
    }
    ask::read(dir, SYNC).map(drop)
}

/// Takes no directory, and so no permission either.
fn write_pages_of_all(dir: &Path) {
    rustix::fs::sync();
    ask::settle(dir);
}
