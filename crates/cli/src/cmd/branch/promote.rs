//! `holdfast branch promote`.

use holdfast_service::branches::by_time::Purpose;
use holdfast_service::branches::not_forgotten;

use crate::branches::new_head::Keep;
use crate::branches::{Ask, Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::Outcome;

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
    #[command(flatten)]
    keep: Keep,
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
    let keep = args.keep.name(Purpose::BeforePromote);
    let (branch, fork) = (args.place.which(), (&args.fork).into());
    let question = Ask::Promote { branch, fork, keep: keep.clone(), unchanged: !args.force };
    let (branch, forgotten) = lineage::rolled_back(&args.place, &question)?;
    show::promoted(args.json, &branch, &args.fork, keep.as_ref(), forgotten)?;
    match forgotten {
        true => Ok(0),
        false => Err(not_forgotten(&format!("{branch} is what {} was", args.fork))),
    }
}
