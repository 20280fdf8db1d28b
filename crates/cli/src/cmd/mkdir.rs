//! `holdfast mkdir`: directories in a volume, without a mount.

use std::ffi::OsString;

use holdfast_service::mode;
use holdfast_service::work::names::Change;

use super::within::{all_inside, changed_all, umask};
use crate::outcome::Outcome;

/// Make directories in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A directory belongs to the user who makes it. A volume in use is changed by its
daemon. All is durable when this returns.

  holdfast mkdir -p data.holdfast:/var/log

Exit code: 1 if one could not be made; the others are.")]
pub(crate) struct Args {
    /// Make those above as well. One that is there is no failure.
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, octal. Default: 777 without those that the umask takes.
    #[arg(short, long, value_parser = mode::octal)]
    mode: Option<u32>,
    /// What to make.
    #[arg(required = true, value_name = "PLACE")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mode = args.mode.unwrap_or_else(|| 0o777 & !umask());
    let parents = args.parents;
    changed_all(all_inside(&args.paths)?, |paths| Change::Directories { paths, mode, parents })
}
