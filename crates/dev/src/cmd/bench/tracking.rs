//! `holdfast-dev bench tracking`: one run of what M3 is about, to be run under an instruction counter.

use holdfast::Dirty;
use holdfast_bench::mechanisms::m3::Plan;

use crate::cmd::bench::output::json;
use crate::outcome::{Context, Outcome};

/// Commits of sparse changes, for an instruction counter: see scripts/prove/callgrind.sh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    plan: Plan,
    /// What a commit logs of a changed node: ranges, bitmap or whole.
    #[arg(long, default_value = "ranges")]
    dirty: Dirty,
    /// Items between two commits.
    #[arg(long, default_value_t = 1000)]
    per_commit: u64,
}

/// Prints what was counted, as one line of JSON.
pub(crate) fn run(args: &Args) -> Outcome {
    let base = args.plan.prepare().context("the volume")?;
    let run = args.plan.run(&base, args.dirty, args.per_commit).context("the benchmark")?;
    json(&[run])?;
    Ok(0)
}
