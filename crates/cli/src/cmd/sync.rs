//! `holdfast sync`: everything done in a mount so far is durable when this returns.
//!
//! The kernel does not forward sync(2) to FUSE servers, and an fsync is for one file or directory. So for the server a
//! read of the attribute `system.holdfast.sync` asks for a sync of the whole volume. As with sync(2), every user may.

use std::io;
use std::path::{Path, PathBuf};

use crate::daemon::ask::{self, SYNC, write_pages};
use crate::mounts;
use crate::outcome::{Context, Failure, Outcome};

/// Make everything done in a mounted volume durable.
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
    sync_mount(&mount.dir).context(args.dir.display())?;
    Ok(0)
}

/// Syncs the volume mounted at `dir`.
fn sync_mount(dir: &Path) -> io::Result<()> {
    // First what the kernel holds back, then what the server does.
    if !write_pages(dir)? {
        // This call takes no directory, and so no permission either.
        rustix::fs::sync();
        ask::settle(dir);
    }
    ask::read(dir, SYNC).map(drop)
}
