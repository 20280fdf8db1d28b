//! `holdfast watchdog`: ends a mount whose daemon was killed in a moment in which it cannot end.

use crate::outcome::{Context, Outcome};

/// Abort the connection of a mount if the daemon that started this is killed and cannot end, for daemons.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The daemon.
    pid: u32,
    /// `major:minor` of the mount.
    device: String,
}

pub(crate) fn run(args: &Args) -> Outcome {
    holdfast_fuse::connection::watch(args.pid, &args.device).context(&args.device)?;
    Ok(0)
}
