//! `holdfast-dev bench nodes`: creates per second over node size and switch.

use holdfast::Dirty;
use holdfast_bench::nodes::{self, Plan};

use crate::cmd::bench::output::{dirty, json, line, node_size, progress, ratio, table};
use crate::outcome::{Context, Outcome};
use crate::size;

/// Creates per second over node size and switch, in memory, with commits by a timer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a tree node; the first is what the others are compared with.
    #[arg(long, value_parser = node_size, value_delimiter = ',', default_value = "4k,16k,64k")]
    nodes: Vec<usize>,
    /// What a commit logs of a changed node.
    #[arg(long, value_parser = dirty(), value_delimiter = ',', default_value = "ranges,bitmap,whole")]
    dirty: Vec<Dirty>,
    /// Files to create in each run.
    #[arg(long, default_value_t = 500_000)]
    files: u64,
    /// Directories that they are spread over.
    #[arg(long, default_value_t = 100)]
    dirs: u64,
    /// Runs of each kind, interleaved; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds between commits.
    #[arg(long, default_value_t = 1)]
    commit: u32,
    /// One JSON object per kind.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let plan = Plan {
        node_sizes: args.nodes.clone(),
        switches: args.dirty.clone(),
        files: args.files,
        dirs: args.dirs,
        rounds: args.rounds,
        commit_secs: args.commit,
    };
    let rows = nodes::run(&plan, |node_size, dirty, per_second| {
        progress(format_args!("{dirty} {}: {per_second:.0}/s", size::show(node_size as u64)));
    })
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let first = plan.node_sizes.first().map_or(0, |size| *size as u64);
    let to_first = format!("to {}", size::show(first));
    let mut runs = table(
        &[
            "dirty",
            "node",
            "creates/s",
            "lowest",
            "highest",
            &to_first,
            "commits",
            "checkpoints",
            "throttled",
            "journal",
        ],
        1,
    );
    for row in &rows {
        let lowest = row.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = row.rounds.iter().copied().fold(0.0, f64::max);
        runs.add_row([
            row.dirty.to_owned(),
            size::show(row.node_size as u64),
            format!("{:.0}", row.per_second),
            format!("{lowest:.0}"),
            format!("{highest:.0}"),
            ratio(row.to_first),
            row.counts.commits.to_string(),
            row.counts.checkpoints.to_string(),
            row.counts.throttled.to_string(),
            size::show(row.counts.journal_bytes),
        ]);
    }
    line(runs)?;
    Ok(0)
}
