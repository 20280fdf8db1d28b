//! One file for each command, and the list of them.

mod ask;
mod branch;
mod cat;
mod chmod;
mod chown;
mod completions;
mod cp;
mod diff;
mod door;
mod developer;
mod explain;
mod export;
mod fork;
pub(crate) mod fsck;
mod image;
mod import;
mod info;
mod list;
mod ln;
mod ls;
mod man;
mod metrics;
mod mkdir;
mod mkfs;
mod mount;
mod mount_helper;
mod mv;
mod private;
mod receive;
mod prune;
mod remount;
mod resize;
mod restart;
mod rm;
mod run;
mod salvage;
mod scrub;
mod send;
mod snapshot;
pub(crate) mod stats;
mod sync;
mod trim;
mod tune;
mod txn;
mod umount;
mod umount_helper;
mod watchdog;
mod within;

#[cfg(test)]
pub(crate) use man::pages_of;

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use clap::{ArgMatches, FromArgMatches, Parser, Subcommand};

use crate::outcome::Outcome;

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
    /// Only through its link.
    #[command(skip)]
    MountHelper(mount_helper::Args),
    Umount(umount::Args),
    /// Only through its link.
    #[command(skip)]
    UmountHelper(umount_helper::Args),
    Fsck(fsck::Args),
    Salvage(salvage::Args),
    Image(image::Args),
    Info(info::Args),
    List(list::Args),
    Restart(restart::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Cp(cp::Args),
    Rm(rm::Args),
    Mkdir(mkdir::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Chmod(chmod::Args),
    Chown(chown::Args),
    Sync(sync::Args),
    Stats(stats::Args),
    Metrics(metrics::Args),
    Trim(trim::Args),
    Scrub(scrub::Args),
    Resize(resize::Args),
    Tune(tune::Args),
    Snapshot(snapshot::Args),
    Fork(fork::Args),
    Branch(branch::Args),
    Txn(txn::Args),
    Run(run::Args),
    Diff(diff::Args),
    Send(send::Args),
    Receive(receive::Args),
    Export(export::Args),
    Import(import::Args),
    Prune(prune::Args),
    Explain(explain::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Ask(ask::Args),
    #[command(hide = true)]
    Private(private::Args),
    #[command(hide = true)]
    Door(door::Args),
    #[command(hide = true)]
    Watchdog(watchdog::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true)]
    Bench(developer::Args),
    #[command(hide = true)]
    Crashtest(developer::Args),
    #[command(hide = true)]
    Dump(developer::Args),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Mkfs(args) => mkfs::run(&args),
            Command::Mount(args) => mount::run(&args),
            Command::MountHelper(args) => mount_helper::run(args),
            Command::Umount(args) => umount::run(&args),
            Command::UmountHelper(args) => umount_helper::run(&args),
            Command::Fsck(args) => fsck::run(&args),
            Command::Salvage(args) => salvage::run(&args),
            Command::Image(args) => image::run(&args),
            Command::Info(args) => info::run(&args),
            Command::List(args) => list::run(&args),
            Command::Restart(args) => restart::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Cp(args) => cp::run(&args),
            Command::Rm(args) => rm::run(&args),
            Command::Mkdir(args) => mkdir::run(&args),
            Command::Mv(args) => mv::run(&args),
            Command::Ln(args) => ln::run(&args),
            Command::Chmod(args) => chmod::run(&args),
            Command::Chown(args) => chown::run(&args),
            Command::Sync(args) => sync::run(&args),
            Command::Stats(args) => stats::run(&args),
            Command::Metrics(args) => metrics::run(&args),
            Command::Trim(args) => trim::run(&args),
            Command::Scrub(args) => scrub::run(&args),
            Command::Resize(args) => resize::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Snapshot(args) => snapshot::run(&args),
            Command::Fork(args) => fork::run(&args),
            Command::Branch(args) => branch::run(&args),
            Command::Txn(args) => txn::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Diff(args) => diff::run(&args),
            Command::Send(args) => send::run(&args),
            Command::Receive(args) => receive::run(&args),
            Command::Export(args) => export::run(&args),
            Command::Import(args) => import::run(&args),
            Command::Prune(args) => prune::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Ask(args) => ask::run(&args),
            Command::Private(args) => private::run(&args),
            Command::Door(args) => door::run(&args),
            Command::Watchdog(args) => watchdog::run(&args),
            Command::Man(args) => man::run(&args),
            Command::Bench(_) => developer::run("bench"),
            Command::Crashtest(_) => developer::run("crashtest"),
            Command::Dump(_) => developer::run("dump"),
        }
    }
}

/// A name under which system programs look for one of the commands, made as a link to this program.
pub(crate) struct Link {
    /// The link's name.
    pub(crate) name: &'static str,
    /// What the command's arguments are.
    pub(crate) declare: fn(clap::Command) -> clap::Command,
    /// Makes the command of what was read.
    read: fn(&ArgMatches) -> Result<Command, clap::Error>,
    /// The exit code for wrong usage.
    pub(crate) usage_code: u8,
}

/// All of them; mount(8) and umount(8) use the longer names for the type that a FUSE mount shows.
pub(crate) const LINKS: [Link; 6] = [
    link::<mkfs::Args>("mkfs.holdfast", 1, |m| Ok(Command::Mkfs(read(m)?))),
    link::<fsck::Args>("fsck.holdfast", 16, |m| Ok(Command::Fsck(read(m)?))),
    link::<mount_helper::Args>("mount.holdfast", 1, |m| Ok(Command::MountHelper(read(m)?))),
    link::<mount_helper::Args>("mount.fuse.holdfast", 1, |m| Ok(Command::MountHelper(read(m)?))),
    link::<umount_helper::Args>("umount.holdfast", 1, |m| Ok(Command::UmountHelper(read(m)?))),
    link::<umount_helper::Args>("umount.fuse.holdfast", 1, |m| Ok(Command::UmountHelper(read(m)?))),
];

const fn link<A: clap::Args>(
    name: &'static str,
    usage_code: u8,
    read: fn(&ArgMatches) -> Result<Command, clap::Error>,
) -> Link {
    Link { name, declare: A::augment_args, read, usage_code }
}

fn read<A: FromArgMatches>(matches: &ArgMatches) -> Result<A, clap::Error> {
    A::from_arg_matches(matches)
}

impl Link {
    /// The link through which the program was called, if it was.
    pub(crate) fn of(program: Option<&OsString>) -> Option<&'static Link> {
        let name = Path::new(program?).file_name()?.to_str()?;
        LINKS.iter().find(|link| link.name == name)
    }

    /// The arguments under this name, for help and manual pages.
    pub(crate) fn command(&self) -> clap::Command {
        let command = clap::Command::new(self.name).version(version()).max_term_width(100);
        (self.declare)(command)
    }

    /// Reads the arguments of a call by this name.
    pub(crate) fn parse(&self, args: &[OsString]) -> Result<Command, clap::Error> {
        (self.read)(&self.command().try_get_matches_from(args)?)
    }
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declaration_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_stands_behind_the_arguments_is_not_broken_into_lines_anew() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn links_mean_commands() {
        let of = |name: &str| Link::of(Some(&name.into())).map(|link| link.name);
        assert_eq!(of("/sbin/mkfs.holdfast"), Some("mkfs.holdfast"));
        assert_eq!(of("holdfast"), None);
        for link in &LINKS {
            link.command().debug_assert();
        }
        let args = ["fsck.holdfast", "-n", "img"].map(OsString::from);
        let link = Link::of(args.first()).unwrap();
        assert!(matches!(link.parse(&args), Ok(Command::Fsck(_))));
    }
}
