//! `umount.fuse.holdfast`: the call that umount(8) makes, which so returns when everything is written.

use std::path::PathBuf;
use std::time::Duration;

use crate::cmd::umount::{TIMEOUT, UnmountMode, take_away};
use crate::outcome::Outcome;

/// Unmount a volume and wait until everything is written, called by umount(8).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mounted directory, or the volume.
    dir: PathBuf,
    /// Take the mount away now, do not wait, and let programs that still have files open finish.
    #[arg(short)]
    lazy: bool,
    /// Write nothing first; programs that wait for the mount get errors. For a mount that does not answer.
    #[arg(short)]
    force: bool,
    /// Accepted for umount(8), and without effect: there is no mtab.
    #[arg(short)]
    no_mtab: bool,
    /// Accepted for umount(8), and without effect.
    #[arg(short)]
    verbose: bool,
    /// If it is busy, mount it read-only instead.
    #[arg(short)]
    read_only: bool,
    /// Namespace, as umount(8) passes it; the caller has entered it.
    #[arg(short = 'N')]
    namespace: Option<String>,
    /// Type of the filesystem, as umount(8) passes it.
    #[arg(short = 't')]
    kind: Option<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let how = match (args.lazy, args.force) {
        (true, _) => UnmountMode::Lazily,
        (_, true) => UnmountMode::ByForce,
        _ => UnmountMode::Orderly,
    };
    let taken = take_away(&args.dir, how, Duration::from_secs(TIMEOUT));
    match taken {
        Err(busy) if args.read_only => match super::remount::read_only(&args.dir) {
            Ok(()) => Ok(0),
            Err(_) => Err(busy),
        },
        other => other,
    }
}
