//! Commands that this program runs itself by, and those of `holdfast-dev`, which it does not have.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;

use holdfast_daemon::{ask, descriptor_filter, private_mount};
use holdfast_device::HostFile;
use holdfast_fuse::connection::{self, Connection};

use crate::outcome::{Context, Failure, Outcome};

/// Print the value of an attribute of a mounted directory, or its answer to a question, for other commands that must not get stuck.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// The attribute, or the question.
    name: String,
    /// The mounted directory.
    dir: PathBuf,
}

/// Mount the volume that standard input names, in a mount namespace of its own, and become a command; for `txn` and `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Private {
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Stand between a daemon, which is the standard output, and a caller, which is the standard input; for daemons.
#[derive(Debug, clap::Args)]
pub(crate) struct Door {
    /// What holds the volume.
    #[arg(value_parser = ["file", "block"])]
    kind: String,
    /// The number of its device.
    device: u64,
    /// The number of its inode.
    inode: u64,
}

/// Abort the connection of a mount, which is the standard input, if the daemon that started this is killed and cannot end;
/// for daemons.
#[derive(Debug, clap::Args)]
pub(crate) struct Watchdog {
    /// The daemon.
    pid: u32,
}

/// Is in holdfast-dev.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Developer {
    /// Whatever it is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

pub(super) fn ask(args: &Ask) -> Outcome {
    ask::run(&args.dir, &args.name)
}

pub(super) fn private(args: &Private) -> Outcome {
    private_mount::become_command(&args.command)
}

pub(super) fn door(args: &Door) -> Outcome {
    let is_block_device = args.kind == "block";
    descriptor_filter::run(&HostFile { device: args.device, inode: args.inode, is_block_device })
}

pub(super) fn watchdog(args: &Watchdog) -> Outcome {
    let held = std::io::stdin().as_fd().try_clone_to_owned().context("the connection")?;
    connection::watch(args.pid, &Connection::held(held)).context("the connection")?;
    Ok(0)
}

pub(super) fn developer(command: &str) -> Outcome {
    let why = "is in the program holdfast-dev; `make dev` in Holdfast's source builds it";
    Err(Failure::new(2, format!("{command} {why}")))
}
