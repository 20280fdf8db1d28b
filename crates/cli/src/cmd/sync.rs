//! `holdfast sync`: everything done in a mount so far is durable when this returns.
//!
//! The kernel does not forward sync(2) to FUSE servers, and an fsync is for
//! one file or directory. So the server takes a write of the attribute
//! `holdfast.sync`, which is never stored, for all of the volume.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

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
pub(crate) fn sync_mount(dir: &Path) -> io::Result<()> {
    let root = File::open(dir)?;
    // First what the kernel holds back, then what the server does.
    rustix::fs::syncfs(&root)?;
    rustix::fs::fsetxattr(&root, "holdfast.sync", &[], rustix::fs::XattrFlags::empty())?;
    Ok(())
}
