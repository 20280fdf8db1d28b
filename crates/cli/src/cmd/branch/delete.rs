//! `holdfast branch delete`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Delete branches with their snapshots; their space comes back in the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A branch that is mounted, the one that the volume was made with, and one with a snapshot that is
held or that another branch grew out of are not deleted. With a branch that a refused transaction has
left (txn- and the time) goes the snapshot of the same name that it began with.")]
pub(super) struct Args {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: Place,
    /// The branches.
    #[arg(required = true, value_parser = arguments::name())]
    names: Vec<Name>,
}

pub(super) fn run(args: &Args) -> Outcome {
    for name in &args.names {
        lineage::done(&args.place, &Ask::DeleteBranch { name: name.into(), number: None })?;
    }
    Ok(0)
}
