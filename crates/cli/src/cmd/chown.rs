//! `holdfast chown`: owners in a volume, without a mount.

use std::ffi::OsString;

use holdfast_service::owner::{self, Owner};
use holdfast_service::work::names::{Change, To};

use super::within::{all_inside, changed_all};
use crate::outcome::Outcome;

/// Set owners in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A symbolic link is followed, but not with -R. A volume in use is changed by its
daemon. All is durable when this returns. Who may write the image may give its files to anybody.

  holdfast chown -R 1000:1000 data.holdfast:/home/me

Exit code: 1 if one could not be set; the others are.")]
pub(crate) struct Args {
    /// Those of directories and all that is in them.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// By name or number: USER, USER:GROUP or :GROUP.
    #[arg(value_name = "USER:GROUP", value_parser = owner::parse)]
    owner: Owner,
    /// Files and directories.
    #[arg(required = true, value_name = "PLACE")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let to = To { mode: None, user: args.owner.user, group: args.owner.group };
    let recursive = args.recursive;
    changed_all(all_inside(&args.paths)?, |paths| Change::Set { paths, to: to.clone(), recursive })
}
