//! One file for each command, and the list of them.

mod bench;
mod crashtest;
mod dump;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::NAME;

/// Holdfast for its development: all commands of `holdfast`, and these.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
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
    Bench(Box<bench::Args>),
    Crashtest(crashtest::Args),
    Dump(dump::Args),
    /// Any command of `holdfast`, with its arguments.
    #[command(external_subcommand)]
    Holdfast(Vec<OsString>),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self {
            Command::Bench(args) => bench::run(&args),
            Command::Crashtest(args) => crashtest::run(&args),
            Command::Dump(args) => dump::run(&args),
            Command::Holdfast(words) => {
                return holdfast_cli::main(std::iter::once("holdfast".into()).chain(words));
            }
        };
        holdfast_cli::end(NAME, outcome)
    }
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
    fn other_commands_are_those_of_holdfast() {
        let cli = Cli::try_parse_from([NAME, "mount", "-o", "ro", "a", "b"]).unwrap();
        let Command::Holdfast(words) = cli.command else { panic!("{cli:?}") };
        assert_eq!(words, ["mount", "-o", "ro", "a", "b"]);
    }
}
