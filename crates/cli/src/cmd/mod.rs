//! One file for each command, and the list of them.

mod bench;
mod cat;
mod completions;
mod cp;
mod dump;
mod fsck;
mod info;
mod ls;
mod man;
mod mkfs;
mod mount;
mod mount_helper;
mod stats;
mod sync;
mod umount;

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};

use crate::outcome::Outcome;

/// mount(8)'s exit code for a mount that failed.
pub(crate) const MOUNT_FAILED: u8 = 32;

/// A crash-safe, checksummed, copy-on-write filesystem in one file or block device.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version = version(), max_term_width = 100)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mkfs(mkfs::Args),
    Mount(mount::Args),
    #[command(hide = true)]
    MountHelper(mount_helper::Args),
    Umount(umount::Args),
    Fsck(fsck::Args),
    Info(info::Args),
    Dump(dump::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Cp(cp::Args),
    Sync(sync::Args),
    Stats(stats::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Mkfs(args) => mkfs::run(&args),
            Command::Mount(args) => mount::run(&args),
            Command::MountHelper(args) => mount_helper::run(args),
            Command::Umount(args) => umount::run(&args),
            Command::Fsck(args) => fsck::run(&args),
            Command::Info(args) => info::run(&args),
            Command::Dump(args) => dump::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Cp(args) => cp::run(&args),
            Command::Sync(args) => sync::run(&args),
            Command::Stats(args) => stats::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}

/// The command that the program's own name means, if it was called through a link.
pub(crate) fn link_command(program: Option<&OsString>) -> Option<&'static str> {
    let name = Path::new(program?).file_name()?.to_str()?;
    Some(match name {
        "mkfs.holdfast" => "mkfs",
        "fsck.holdfast" => "fsck",
        "mount.holdfast" | "mount.fuse.holdfast" => "mount-helper",
        "umount.holdfast" => "umount",
        _ => return None,
    })
}

/// Version of the program and of the format that it writes.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let format = holdfast::FORMAT_VERSION;
        format!("{} (on-disk format {format})", env!("CARGO_PKG_VERSION"))
    });
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn links_mean_commands() {
        let of = |name: &str| link_command(Some(&name.into()));
        assert_eq!(of("/sbin/mkfs.holdfast"), Some("mkfs"));
        assert_eq!(of("mount.holdfast"), Some("mount-helper"));
        assert_eq!(of("holdfast"), None);
    }
}
