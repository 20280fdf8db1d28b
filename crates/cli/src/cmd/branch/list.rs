//! `holdfast branch list`.

use holdfast_control::Branch;
use holdfast_service::size;

use crate::branches::{Place, arguments, show};
use crate::lineage;
use crate::outcome::Outcome;

/// List the branches of a volume, in the order in which they were made.
///
/// A branch refers to its tree and the blocks of its files; what it shares with other branches and snapshots counts in full.
/// Deletions that have failed follow, with the reason: they keep their space.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object, for programs: whole numbers, sizes in bytes, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: Place,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (branches, failed) = lineage::branches(&args.place)?;
    if args.json {
        let list: Vec<_> = branches.iter().map(show::branch).collect();
        let failed = show::failed_json(&failed);
        let object = [("branches".into(), list.into()), ("failed_deletions".into(), failed)];
        return show::json(object.into_iter().collect());
    }
    let head = ["NAME", "MADE (UTC)", "OUT OF", "SNAPSHOTS", "REFERENCED", "LIMIT", ""];
    show::table(&head, branches.iter().map(row))?;
    show::failed(&failed)
}

fn row(of: &Branch) -> [String; 7] {
    let made = of.created_ns.map(show::time).unwrap_or_default();
    let origin = of.origin.as_ref().map(show::origin).unwrap_or_default();
    let referenced = size::show(of.referenced_bytes);
    let limit = of.limit_bytes.map(size::show).unwrap_or_default();
    let mounted = if of.mounted { "mounted" } else { "" };
    let (name, snapshots) = (of.name.to_string(), of.snapshots.to_string());
    [name, made, origin, snapshots, referenced, limit, mounted.into()]
}
