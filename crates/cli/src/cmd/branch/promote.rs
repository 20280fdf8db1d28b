//! `holdfast branch promote`.

use crate::branches::{Ask, Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::{Failure, Outcome};

/// The exit code where the fork is promoted, and the kernel still remembers some of what was.
const NOT_FORGOTTEN: u8 = 3;

/// Promote a fork: the branch becomes what the fork is, in one step.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fork is no branch of its own any more, and its snapshots are those of the branch. If the branch
has changed since the fork was made, nothing happens, unless --force is given. What the branch was
is kept as a snapshot, `before-promote-` and the time; --keep gives it another name; with --discard
it is deleted. The fork must not be mounted.

A mounted branch changes under the programs that use it, as with `holdfast snapshot rollback`; so
does the exit code 3.

  holdfast fork mnt try
  holdfast cp -r new volume.img:try:/
  holdfast branch promote mnt try")]
pub(super) struct Args {
    /// Also if the branch has changed meanwhile.
    #[arg(long)]
    force: bool,
    /// Delete what the branch was.
    #[arg(long, conflicts_with = "keep")]
    discard: bool,
    /// Keep what the branch was as a snapshot of this name.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    keep: Option<Name>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The fork that it becomes.
    #[arg(value_parser = arguments::name())]
    fork: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let keep = match (args.discard, &args.keep) {
        (true, _) => None,
        (false, Some(keep)) => Some(keep.clone()),
        (false, None) => Some(show::name_by_time("before-promote-")),
    };
    let (branch, fork) = (args.place.branch.clone(), args.fork.clone());
    let question = Ask::Promote { branch, fork, keep: keep.clone(), unchanged: !args.force };
    let (branch, forgotten) = lineage::rolled_back(&args.place, &question)?;
    show::promoted(args.json, &branch, &args.fork, keep.as_ref(), forgotten)?;
    match forgotten {
        true => Ok(0),
        false => {
            let sentence = format!(
                "{branch} is what {} was, but the kernel has not yet forgotten everything that was before, and programs may \
                 still see some of it; it goes on to be told",
                args.fork
            );
            Err(Failure::new(NOT_FORGOTTEN, sentence))
        }
    }
}
