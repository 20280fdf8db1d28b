//! `holdfast branch rename`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Give a branch another name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: Place,
    /// The branch.
    #[arg(value_parser = arguments::name())]
    name: Name,
    /// Its new name.
    #[arg(value_parser = arguments::name())]
    new_name: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (name, new_name) = ((&args.name).into(), args.new_name.clone());
    lineage::done(&args.place, &Ask::RenameBranch { name, new_name })?;
    Ok(0)
}
