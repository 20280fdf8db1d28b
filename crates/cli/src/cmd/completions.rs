//! `holdfast completions`: a shell's completion script, made from the declaration of the arguments.

use clap::{Command, CommandFactory};

use crate::cmd::Cli;
use crate::outcome::{Outcome, printed};

/// Print the completion script for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    let mut shown = without_hidden(&Cli::command());
    clap_complete::generate(args.shell, &mut shown, "holdfast", &mut script);
    printed(std::io::Write::write_all(&mut std::io::stdout(), &script))?;
    Ok(0)
}

/// The command with what `--help` shows of it.
fn without_hidden(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    let subcommands = command.get_subcommands().filter(|it| !it.is_hide_set());
    shown
        .disable_help_subcommand(true)
        .args(command.get_arguments().filter(|it| !it.is_hide_set()).cloned())
        .subcommands(subcommands.map(without_hidden))
}
