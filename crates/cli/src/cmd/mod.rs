//! One file for each command, and the list of them.

mod branch;
mod cat;
mod chmod;
mod chown;
mod completions;
mod cp;
mod diff;
mod explain;
mod export;
mod fork;
pub(crate) mod fsck;
mod image;
mod import;
mod info;
mod inner;
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

/// What can be asked for, and the function that does it.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($args:ty) => $run:expr,)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name($args),)*
        }

        impl Command {
            pub(crate) fn run(&self) -> Outcome {
                match self {
                    $(Command::$name(args) => $run(args),)*
                }
            }
        }
    };
}

commands! {
    Mkfs(mkfs::Args) => mkfs::run,
    Mount(mount::Args) => mount::run,
    /// Only through its link.
    #[command(skip)]
    MountHelper(mount_helper::Args) => mount_helper::run,
    Umount(umount::Args) => umount::run,
    /// Only through its link.
    #[command(skip)]
    UmountHelper(umount_helper::Args) => umount_helper::run,
    Fsck(fsck::Args) => fsck::run,
    Salvage(salvage::Args) => salvage::run,
    Image(image::Args) => image::run,
    Info(info::Args) => info::run,
    List(list::Args) => list::run,
    Restart(restart::Args) => restart::run,
    Ls(ls::Args) => ls::run,
    Cat(cat::Args) => cat::run,
    Cp(cp::Args) => cp::run,
    Rm(rm::Args) => rm::run,
    Mkdir(mkdir::Args) => mkdir::run,
    Mv(mv::Args) => mv::run,
    Ln(ln::Args) => ln::run,
    Chmod(chmod::Args) => chmod::run,
    Chown(chown::Args) => chown::run,
    Sync(sync::Args) => sync::run,
    Stats(stats::Args) => stats::run,
    Metrics(metrics::Args) => metrics::run,
    Trim(trim::Args) => trim::run,
    Scrub(scrub::Args) => scrub::run,
    Resize(resize::Args) => resize::run,
    Tune(tune::Args) => tune::run,
    Snapshot(snapshot::Args) => snapshot::run,
    Fork(fork::Args) => fork::run,
    Branch(branch::Args) => branch::run,
    Txn(txn::Args) => txn::run,
    Run(run::Args) => run::run,
    Diff(diff::Args) => diff::run,
    Send(send::Args) => send::run,
    Receive(receive::Args) => receive::run,
    Export(export::Args) => export::run,
    Import(import::Args) => import::run,
    Prune(prune::Args) => prune::run,
    Explain(explain::Args) => explain::run,
    Completions(completions::Args) => completions::run,
    #[command(hide = true)]
    Ask(inner::Ask) => inner::ask,
    #[command(hide = true)]
    Private(inner::Private) => inner::private,
    #[command(hide = true)]
    Door(inner::Door) => inner::door,
    #[command(hide = true)]
    Watchdog(inner::Watchdog) => inner::watchdog,
    #[command(hide = true)]
    Man(man::Args) => man::run,
    #[command(hide = true)]
    Bench(inner::Developer) => |_| inner::developer("bench"),
    #[command(hide = true)]
    Crashtest(inner::Developer) => |_| inner::developer("crashtest"),
    #[command(hide = true)]
    Dump(inner::Developer) => |_| inner::developer("dump"),
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
