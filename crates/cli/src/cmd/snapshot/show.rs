//! `holdfast snapshot show`.

use std::io::Write;

use crate::branches::{Name, Place, arguments, show};
use crate::lineage;
use crate::outcome::{Outcome, printed};

/// Show what is known of a snapshot.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object, for programs: whole numbers, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
    /// The snapshot.
    #[arg(value_parser = arguments::name())]
    name: Name,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (branch, snapshot) = lineage::snapshot(&args.place, &args.name)?;
    if args.json {
        let mut object = show::named(&branch);
        object.insert("snapshot".into(), show::snapshot(&snapshot).into());
        return show::json(object);
    }
    let held = match snapshot.holds.is_empty() {
        true => "no".into(),
        false => format!("by {}", show::holds(&snapshot)),
    };
    let lines = [
        ("name", snapshot.name.to_string()),
        ("branch", branch.to_string()),
        ("number", snapshot.number.to_string()),
        ("taken", format!("{} UTC", show::time(snapshot.created_ns))),
        ("operations", format!("{} before it", snapshot.lsn)),
        ("files", snapshot.inodes.to_string()),
        ("held", held),
        ("copy of", show::copy_of(&snapshot)),
        (
            "forks",
            Some(show::forks(&snapshot)).filter(|it| !it.is_empty()).unwrap_or("none".into()),
        ),
        ("mounted", if snapshot.mounted { "yes" } else { "no" }.into()),
    ];
    let mut out = std::io::stdout().lock();
    for (name, value) in lines {
        printed(writeln!(out, "{name:<11} {value}"))?;
    }
    Ok(0)
}
