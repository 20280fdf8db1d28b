//! `holdfast-dev bench accounting`: which group records commits skip, and what they save by that.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_bench::accounting::{self, Plan};

use crate::cmd::bench::output::{json, line, node_size, progress, ratio, table, time};
use crate::cmd::bench::place::Place;
use crate::outcome::{Context, Outcome};
use crate::size;

/// Group records that commits skip (accounting=changed against always), and what that saves.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each run.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seconds between commits.
    #[arg(long, default_value_t = 5)]
    commit: u32,
    /// Runs of each kind, interleaved; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Threads; each writes into a file of its own.
    #[arg(long, default_value_t = 4)]
    jobs: u64,
    /// Bytes of such a file.
    #[arg(long, value_parser = size::parse, default_value = "512M")]
    file_size: u64,
    /// Directories for creates and unlinks.
    #[arg(long, default_value_t = 1000)]
    dirs: u64,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "16k")]
    node: usize,
    /// Decides places and names.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per kind.
    #[arg(long)]
    json: bool,
    /// A file that does not exist yet, for the volume; it is removed afterwards. Without it: memory.
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let plan = Plan {
        node_size: args.node,
        jobs: args.jobs,
        file_bytes: args.file_size,
        dirs: args.dirs,
        time: Duration::from_secs(args.seconds),
        commit_secs: args.commit,
        rounds: args.rounds,
        seed: args.seed,
    };
    let place = Place::new(args.file.as_ref(), (1 << 30) + 2 * args.jobs * args.file_size)?;
    let measured = accounting::run(
        &plan,
        || place.device(),
        |workload, accounting, run| {
            progress(format_args!("{workload} {accounting}: {:.0}/s", run.per_second));
        },
    );
    let rows = measured.context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "workload",
            "accounting",
            "per second",
            "commits",
            "checkpoints",
            "written",
            "skipped",
            "share",
            "frozen/commit",
            "groups/commit",
            "longest",
        ],
        2,
    );
    for row in &rows {
        let longest = row.rounds.iter().map(|run| run.frozen_max_ns).max().unwrap_or(0);
        runs.add_row([
            row.workload.to_owned(),
            row.accounting.to_owned(),
            format!("{:.0}", row.per_second),
            row.counts.commits.to_string(),
            row.counts.checkpoints.to_string(),
            row.counts.groups_written.to_string(),
            row.counts.groups_skipped.to_string(),
            format!("{:.0} %", 100.0 * row.skipped_share),
            time(row.frozen_mean_ns),
            time(row.groups_mean_ns),
            time(longest as f64),
        ]);
    }
    line(runs)?;
    let mut ratios =
        table(&["changed over always", "per second", "frozen/commit", "groups/commit"], 1);
    for of in accounting::ratios(&rows) {
        ratios.add_row([
            of.workload.to_owned(),
            ratio(of.per_second),
            ratio(of.frozen),
            ratio(of.groups),
        ]);
    }
    line("")?;
    line(ratios)?;
    Ok(0)
}
