//! `holdfast snapshot rollback`.

use crate::branches::{Ask, Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::{Failure, Outcome};

/// The exit code where the branch went back, and the kernel still remembers some of what was.
const NOT_FORGOTTEN: u8 = 3;

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
    /// The snapshot to go back to.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let keep = match (args.discard, &args.keep) {
        (true, _) => None,
        (false, Some(keep)) => Some(keep.clone()),
        (false, None) => Some(show::name_by_time("before-rollback-")),
    };
    let branch = args.place.branch.clone();
    let question = Ask::RollBack { branch, to: args.name.clone(), keep: keep.clone() };
    let (branch, forgotten) = lineage::rolled_back(&args.place, &question)?;
    show::rolled_back(args.json, &branch, &args.name, keep.as_ref(), forgotten)?;
    match forgotten {
        true => Ok(0),
        false => Err(not_forgotten(&branch, &args.name)),
    }
}

/// The branch went back, and a program may not see it.
fn not_forgotten(branch: &Name, to: &Name) -> Failure {
    let sentence = format!(
        "{branch} is rolled back to {branch}@{to}, but the kernel has not yet forgotten everything that was, and programs \
         may still see some of it; it goes on to be told, and waits for a program that is reading or writing there"
    );
    Failure::new(NOT_FORGOTTEN, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_still_shows_is_no_success_and_no_failure() {
        let name = |text: &str| Name(text.into());
        let failure = not_forgotten(&name("main"), &name("s"));
        assert_eq!(failure.code, NOT_FORGOTTEN);
        assert!(failure.sentence.starts_with("main is rolled back to main@s, but "));
    }
}
