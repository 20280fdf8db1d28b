//! `holdfast rm`: files and directories of a volume, without a mount.

use std::ffi::OsString;

use holdfast_service::work::{Work, remove};

use super::within::{all_inside, portions};
use crate::outcome::Outcome;
use crate::pipes::out;

/// Remove files of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A volume in use is changed by its daemon, one name after the other, and others
work in it meanwhile; a directory that others keep filling is reported. Symbolic links are removed,
not followed. All is durable when this returns. It works on a full volume. Users who may write the
image may remove any file in it.

  holdfast rm -r data.holdfast:/old mnt/old
  holdfast rm -rf data.holdfast:work:/build

Exit code: 1 if something could not be removed; the rest is.")]
pub(crate) struct Args {
    /// Remove directories and what is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is no failure.
    #[arg(short, long)]
    force: bool,
    /// What to remove.
    #[arg(required = true, value_name = "PLACE")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut code = 0;
    for (place, paths) in portions(all_inside(&args.paths)?) {
        let located = place.located()?;
        let (recursive, force) = (args.recursive, args.force);
        let what = remove::Removal { tree: located.tree(), paths, recursive, force };
        code = code.max(located.run(Work::Remove(what), out())?);
    }
    Ok(code)
}
