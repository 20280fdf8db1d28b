//! `holdfast completions`: a shell's completion script, made from the declaration of the arguments.

use clap::CommandFactory;

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
    clap_complete::generate(args.shell, &mut Cli::command(), "holdfast", &mut script);
    printed(std::io::Write::write_all(&mut std::io::stdout(), &script))?;
    Ok(0)
}
