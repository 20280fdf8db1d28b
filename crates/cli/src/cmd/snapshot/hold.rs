//! `holdfast snapshot hold` and `unhold`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Keep a snapshot from being deleted; holds are counted.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshot.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(super) fn run(args: &Args, held: bool) -> Outcome {
    let branch = args.place.which();
    lineage::done(&args.place, &Ask::Hold { branch, name: (&args.name).into(), held })?;
    Ok(0)
}
