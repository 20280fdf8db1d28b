//! `holdfast ask`: asks a mount in the place of a command that must not get stuck.

use std::path::PathBuf;

use holdfast_daemon::ask;

use crate::outcome::Outcome;

/// Print the value of an attribute of a mounted directory, or its answer to a question, for other commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The attribute, or the question.
    name: String,
    /// The mounted directory.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    ask::run(&args.dir, &args.name)
}
