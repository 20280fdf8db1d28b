//! `holdfast snapshot delete`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Delete snapshots; their space comes back in the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One that is held or mounted is not deleted. If branches grew out of it, only its name goes, until
one of them is left.")]
pub(super) struct Args {
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshots.
    #[arg(required = true, value_parser = arguments::name())]
    names: Vec<Name>,
}

pub(super) fn run(args: &Args) -> Outcome {
    for name in &args.names {
        let (branch, name) = (args.place.which(), name.into());
        lineage::done(&args.place, &Ask::DeleteSnapshot { branch, name, number: None })?;
    }
    Ok(0)
}
