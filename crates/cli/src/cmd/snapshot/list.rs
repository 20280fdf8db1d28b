//! `holdfast snapshot list`.

use holdfast_control::Snapshot;

use crate::branches::{Place, arguments, show};
use crate::lineage;
use crate::outcome::Outcome;

/// List the snapshots of a branch, in the order in which they were taken.
///
/// Deletions of its snapshots that have failed follow, with the reason: they keep their space.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object, for programs: whole numbers, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    /// Those without a name, too: they are kept for what grew out of them.
    #[arg(long)]
    all: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (branch, mut snapshots, failed) = lineage::snapshots(&args.place)?;
    snapshots.retain(|it| args.all || !it.name.0.is_empty());
    if args.json {
        let list: Vec<_> = snapshots.iter().map(show::snapshot).collect();
        let mut object = show::named(&branch);
        object.insert("snapshots".into(), list.into());
        object.insert("failed_deletions".into(), show::failed_json(&failed));
        return show::json(object);
    }
    let head = ["NAME", "TAKEN (UTC)", "FILES", "HELD", "FORKS", ""];
    show::table(&head, snapshots.iter().map(row))?;
    show::failed(&failed)
}

fn row(of: &Snapshot) -> [String; 6] {
    let name = match of.name.0.is_empty() {
        true => format!("(no name, number {})", of.number),
        false => of.name.to_string(),
    };
    let held = show::holds(of);
    let mounted = if of.mounted { "mounted" } else { "" };
    [name, show::time(of.created_ns), of.inodes.to_string(), held, show::forks(of), mounted.into()]
}
