//! `holdfast fork`: a new branch out of a snapshot, or of a branch as it is.

use crate::branches::{Ask, Name, Origin, Place, Which, arguments, place, show};
use crate::outcome::{Failure, Outcome};

/// Make a branch out of another one, or of a snapshot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new branch begins with the same files; what is done in either does not show in the other. It
costs the same for an empty volume and for one of ten million files.

  holdfast fork volume.img try
  holdfast fork volume.img --from main@before-upgrade old
  holdfast mount volume.img:try mnt")]
pub(crate) struct Args {
    /// What it begins with (default: what is mounted in the directory, or the volume's first branch).
    #[arg(long, value_name = "BRANCH[@SNAPSHOT]", value_parser = place::origin)]
    from: Option<Origin>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume; `:BRANCH`, `@SNAPSHOT` behind it mean the same as --from.
    #[arg(value_parser = arguments::place())]
    place: Place,
    /// The name of the new branch.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let named = (args.place.branch.clone(), args.place.snapshot.clone());
    let (branch, snapshot) = match &args.from {
        None => named,
        Some(from) if named == (None, None) => (from.branch.clone(), from.snapshot.clone()),
        Some(_) => {
            return Err(Failure::new(2, "say what the fork begins with once, with --from"));
        }
    };
    let (branch, snapshot) = (branch.map(Which::from), snapshot.map(Which::from));
    let question = Ask::Fork { branch, snapshot, name: args.name.clone() };
    let (name, number) = args.place.done(&question)?;
    show::made(args.json, &name, None, number)
}
