//! `holdfast snapshot hold` and `unhold`.

use crate::branches::{Ask, Name, Place, arguments};
use crate::lineage;
use crate::outcome::Outcome;

/// Keep a snapshot from being deleted.
///
/// A hold has a tag, which says whose it is; a snapshot can be deleted when the hold of each tag has ended.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Whose hold it is.
    #[arg(long, value_parser = arguments::name(), default_value = "hold")]
    tag: Name,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshot.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(super) fn run(args: &Args, held: bool) -> Outcome {
    let branch = args.place.which();
    lineage::done(
        &args.place,
        &Ask::Hold { branch, name: (&args.name).into(), tag: args.tag.clone(), held },
    )?;
    Ok(0)
}
