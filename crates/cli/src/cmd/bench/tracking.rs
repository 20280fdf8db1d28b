//! `holdfast bench tracking`: creates and commits and little else, to be run under an instruction counter.

use holdfast::Dirty;
use holdfast_bench::tracking::{self, Plan};

use crate::cmd::bench::output::{dirty, json, line, node_size, table};
use crate::outcome::{Context, Outcome};
use crate::size;

/// Creates and commits in memory, for an instruction counter: see scripts/prove/callgrind.sh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "64k")]
    node: usize,
    /// What a commit logs of a changed node; one run each.
    #[arg(long, value_parser = dirty(), value_delimiter = ',', default_value = "ranges")]
    dirty: Vec<Dirty>,
    /// Directories.
    #[arg(long, default_value_t = 256)]
    dirs: u64,
    /// Files to create, each in a directory that chance picks.
    #[arg(long, default_value_t = 20_000)]
    creates: u64,
    /// Creates between two commits.
    #[arg(long, default_value_t = 100)]
    per_commit: u64,
    /// Decides the order of directories.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per run.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut rows = Vec::new();
    for &dirty in &args.dirty {
        let plan = Plan {
            node_size: args.node,
            dirty,
            dirs: args.dirs,
            creates: args.creates,
            per_commit: args.per_commit,
            seed: args.seed,
        };
        rows.push(tracking::run(&plan).context("the benchmark")?);
    }
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &["dirty", "node", "per second", "commits", "nodes", "ranges", "bytes", "checkpoints"],
        1,
    );
    for row in &rows {
        runs.add_row([
            row.dirty.to_owned(),
            size::show(row.node_size as u64),
            format!("{:.0} files", row.creates as f64 / row.seconds.max(1e-9)),
            row.counts.commits.to_string(),
            row.counts.commit_nodes.to_string(),
            row.counts.commit_ranges.to_string(),
            size::show(row.counts.commit_range_bytes),
            row.counts.checkpoints.to_string(),
        ]);
    }
    line(runs)?;
    Ok(0)
}
