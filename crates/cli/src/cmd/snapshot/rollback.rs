//! `holdfast snapshot rollback`.

use holdfast_service::branches::by_time::Purpose;
use holdfast_service::branches::not_forgotten;

use crate::branches::new_head::Keep;
use crate::branches::{Ask, Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::Outcome;

/// Take a branch back to one of its snapshots.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the branch was is kept as a snapshot, `before-rollback-` and the time, so nothing is lost by a
slip. --keep gives it another name; with --discard it is deleted.

A mounted branch goes back under the programs that use it: they see the files of the snapshot at
once. Files that they have open go on with what the snapshot has of them; those that it does not
have answer ESTALE. The exit code is 3 if the branch is rolled back, but the kernel has not forgotten
all that was within 30 seconds: programs may see some of it until it has.

  holdfast snapshot rollback mnt before-upgrade
  holdfast snapshot rollback --discard volume.img:work start")]
pub(super) struct Args {
    #[command(flatten)]
    keep: Keep,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshot to go back to.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let keep = args.keep.name(Purpose::BeforeRollback);
    let branch = args.place.which();
    let question = Ask::RollBack { branch, to: (&args.name).into(), keep: keep.clone() };
    let (branch, forgotten) = lineage::rolled_back(&args.place, &question)?;
    show::rolled_back(args.json, &branch, &args.name, keep.as_ref(), forgotten)?;
    match forgotten {
        true => Ok(0),
        false => Err(not_forgotten(&format!("{branch} is rolled back to {branch}@{}", args.name))),
    }
}
