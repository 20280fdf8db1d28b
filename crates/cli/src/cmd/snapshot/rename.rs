//! `holdfast snapshot rename`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Give a snapshot another name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshot.
    #[arg(value_parser = arguments::name())]
    name: Name,
    /// Its new name.
    #[arg(value_parser = arguments::name())]
    new_name: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (name, new_name) = ((&args.name).into(), args.new_name.clone());
    let branch = args.place.which();
    lineage::done(&args.place, &Ask::RenameSnapshot { branch, name, new_name })?;
    Ok(0)
}
