//! `holdfast watchdog`: ends a mount whose daemon was killed in a moment in which it cannot end.

use std::os::fd::AsFd;

use holdfast_fuse::connection::{self, Connection};

use crate::outcome::{Context, Outcome};

/// Abort the connection of a mount, which is the standard input, if the daemon that started this is killed and cannot end;
/// for daemons.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The daemon.
    pid: u32,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let held = std::io::stdin().as_fd().try_clone_to_owned().context("the connection")?;
    connection::watch(args.pid, &Connection::held(held)).context("the connection")?;
    Ok(0)
}
