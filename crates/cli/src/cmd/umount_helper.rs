//! `umount.fuse.holdfast`: the call that umount(8) makes, which so returns when everything is written.

use std::path::PathBuf;
use std::time::Duration;

use crate::cmd::umount::{How, TIMEOUT, take_away};
use crate::outcome::Outcome;

/// Unmount a volume and wait until everything is written, called by umount(8).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mounted directory, or the volume.
    dir: PathBuf,
    /// Unmount now and let programs that still use it finish; does not wait.
    #[arg(short)]
    lazy: bool,
    /// Do not ask the daemon for anything; programs that wait for it get errors.
    #[arg(short)]
    force: bool,
    /// No mtab; there is none anyway.
    #[arg(short)]
    no_mtab: bool,
    /// Say more; there is nothing more to say.
    #[arg(short)]
    verbose: bool,
    /// If it is busy, mount it read-only instead.
    #[arg(short)]
    read_only: bool,
    /// Namespace; the caller has entered it.
    #[arg(short = 'N')]
    namespace: Option<String>,
    /// Type; it is what brought us here.
    #[arg(short = 't')]
    kind: Option<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let how = match (args.lazy, args.force) {
        (true, _) => How::Lazily,
        (_, true) => How::ByForce,
        _ => How::Orderly,
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
