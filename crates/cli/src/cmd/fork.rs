//! `holdfast fork`: a new branch out of a snapshot, or of a branch as it is.

use crate::branches::{Ask, Name, Origin, TreeLocation, arguments, place, show};
use crate::outcome::Outcome;

/// Make a branch out of another one, or of a snapshot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new branch begins with the same files; what is done in either does not show in the other. It
costs the same for an empty volume and for one of ten million files.

  holdfast fork volume.img try
  holdfast fork volume.img --from main@before-upgrade old
  holdfast mount volume.img:try mnt")]
pub(crate) struct Args {
    /// What it begins with (default: the branch that is mounted in the directory, not read-only; or the volume's first branch).
    #[arg(long, value_name = "BRANCH[@SNAPSHOT]", value_parser = place::origin)]
    from: Option<Origin>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume; `:BRANCH`, `@SNAPSHOT` behind it mean the same as --from.
    #[arg(value_parser = arguments::place())]
    place: TreeLocation,
    /// The name of the new branch.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (branch, snapshot) = args.place.forked(args.from.as_ref(), "--from")?;
    let question = Ask::Fork { branch, snapshot, name: args.name.clone() };
    let (name, number) = args.place.done(&question)?;
    show::made(args.json, &name, None, number)
}
