//! `holdfast mv`: what is in a volume gets another place in it, without a mount.

use std::ffi::OsString;

use holdfast_service::work::names::{Change, Means};

use super::within::{all_inside, changed_all};
use crate::branches::Name;
use crate::outcome::{Failure, Outcome};

/// Move files and directories in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. All are in one branch: between branches, volumes and the host, use cp and rm.
Each is moved in one step: after a crash it is at one of the two places. A volume in use is changed
by its daemon. All is durable when this returns.

  holdfast mv data.holdfast:/new data.holdfast:/current

Exit code: 1 if one could not be moved; the others are.")]
pub(crate) struct Args {
    /// Replace nothing.
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// The last place is the new name, also where a directory is.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// What is moved, and where to: into the last one if that is a directory.
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut all = all_inside(&args.paths)?;
    let Some((place, to)) = all.pop() else { return Ok(0) };
    if args.no_target_directory && all.len() > 1 {
        return Err(
            Failure::plain("with -T one thing is moved: name it and its new place").with_code(2)
        );
    }
    if all.iter().any(|(from, _)| *from != place) {
        return Err(Failure::plain(
            "all must be in one branch, written the same way; use holdfast cp, then holdfast rm",
        ));
    }
    let to = Name::of(to.into());
    let means = match all.len() {
        _ if args.no_target_directory => Means::Itself,
        1 => Means::Either,
        _ => Means::Directory,
    };
    let keep = args.no_clobber;
    changed_all(all, |from| Change::Move { from, to: to.clone(), means, keep })
}
