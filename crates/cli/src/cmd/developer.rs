//! Commands that are in `holdfast-dev` and not in this program: it says so, and how to get it.

use std::ffi::OsString;

use crate::outcome::{Failure, Outcome};

/// Is in holdfast-dev.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Whatever it is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

pub(crate) fn run(command: &str) -> Outcome {
    Err(Failure::new(
        2,
        format!(
            "{command} is in the program holdfast-dev; `make dev` in Holdfast's source builds it"
        ),
    ))
}
