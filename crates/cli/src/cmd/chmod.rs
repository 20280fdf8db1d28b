//! `holdfast chmod`: permission bits in a volume, without a mount.

use std::ffi::OsString;

use super::within::{all_inside, changed_all};
use crate::outcome::Outcome;
use crate::owner;
use crate::work::names::{Change, To};

/// Set permission bits in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A symbolic link is followed, but not with -R. A volume in use is changed by its
daemon. All is durable when this returns.

  holdfast chmod 600 data.holdfast:/etc/shadow

Exit code: 1 if those of one could not be set; those of the others are.")]
pub(crate) struct Args {
    /// Those of directories and all that is in them.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The bits, octal.
    #[arg(value_parser = owner::mode)]
    mode: u32,
    /// Whose.
    #[arg(required = true, value_name = "PLACE")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let to = To { mode: Some(args.mode), user: None, group: None };
    let recursive = args.recursive;
    changed_all(all_inside(&args.paths)?, |paths| Change::Set { paths, to, recursive })
}
