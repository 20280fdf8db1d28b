//! `holdfast snapshot create`.

use holdfast_service::branches::by_time::Purpose;

use crate::branches::{Ask, Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::Outcome;

/// Take a snapshot of a branch; programs that write there go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It holds every write that had returned when this was called. When this returns, it survives any
crash. Without NAME it is called by the time, such as 2026-11-24T141003.123Z.

  holdfast snapshot create mnt before-upgrade
  holdfast snapshot create volume.img:work")]
pub(super) struct Args {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// Its name.
    #[arg(value_parser = arguments::name())]
    name: Option<Name>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let name = args.name.clone().unwrap_or_else(|| Purpose::Snapshot.new_name());
    let question = Ask::Take { branch: args.place.which(), name: name.clone() };
    let (branch, number) = lineage::done(&args.place, &question)?;
    show::made(args.json, &branch, Some(&name), number)
}
