//! `holdfast branch limit`.

use holdfast_service::work::tune::Limit;

use crate::branches::{Ask, Name, Place, arguments};
use crate::cmd::tune;
use crate::lineage;
use crate::outcome::Outcome;

/// Limit how much a branch may refer to.
///
/// That is its tree and the blocks of its files, those included that it shares with other branches and snapshots. What would make it more is refused
/// (EDQUOT): new files and data, but not what removes, shrinks, renames, or takes the place of old data. A limit
/// below what the branch has lets nothing grow until it has shrunk. `df` shows it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: Place,
    /// The branch.
    #[arg(value_parser = arguments::name())]
    name: Name,
    /// A size such as 512M or 8G, rounded up to whole blocks of 4 KiB, or `none`.
    #[arg(value_parser = tune::limit)]
    limit: Limit,
}

pub(super) fn run(args: &Args) -> Outcome {
    let question = Ask::LimitBranch { name: (&args.name).into(), blocks: args.limit.0 };
    lineage::done(&args.place, &question)?;
    Ok(0)
}
