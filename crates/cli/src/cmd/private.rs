//! `holdfast private`: becomes a command in a mount that no other process sees.

use std::ffi::OsString;

use holdfast_daemon::private_mount;

use crate::outcome::Outcome;

/// Mount what comes through the standard input where nobody else sees it, and become a command; for `txn` and `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    private_mount::become_command(&args.command)
}
