//! `holdfast man`: manual pages, made from the declaration of the arguments. For packagers.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::cmd::Cli;
use crate::outcome::{Context, Outcome};

/// Write the manual pages into a directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An existing directory.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    clap_mangen::generate_to(Cli::command(), &args.dir).context(args.dir.display())?;
    Ok(0)
}
