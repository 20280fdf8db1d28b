//! `holdfast-dev bench tracking`: one run of `bench journal`, to be run under an instruction counter.

use clap::ValueEnum;
use holdfast::Dirty;
use holdfast_bench::journal::{self, Plan};

use crate::cmd::bench::output::{dirty, json, line, node_size, table};
use crate::outcome::{Context, Outcome};
use crate::size;

/// One run of `bench journal`, for an instruction counter: see scripts/prove/callgrind.sh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What is done between commits.
    #[arg(long, value_enum, default_value_t = Workload::Creates)]
    workload: Workload,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "64k")]
    node: usize,
    /// What a commit logs of a changed node.
    #[arg(long, value_parser = dirty(), default_value = "ranges")]
    dirty: Dirty,
    /// Creates, each in a directory of its own, or overwrites.
    #[arg(long, default_value_t = 1000)]
    items: u64,
    /// Items between two commits.
    #[arg(long, default_value_t = 1000)]
    per_commit: u64,
    /// Files that each of the directories has before.
    #[arg(long, default_value_t = 100)]
    dir_files: u64,
    /// Bytes of the file that is overwritten at random.
    #[arg(long, value_parser = size::parse, default_value = "2G")]
    file_size: u64,
    /// Decides places and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// What is done between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Empty files, each in a directory of its own.
    Creates,
    /// 4 KiB at random places of a large file.
    Overwrites,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let items_of = |workload| if args.workload == workload { args.items } else { 0 };
    let plan = Plan {
        node_sizes: vec![args.node],
        switches: vec![args.dirty],
        file_bytes: args.file_size,
        overwrites: items_of(Workload::Overwrites),
        overwrites_per_commit: vec![args.per_commit],
        creates: items_of(Workload::Creates),
        dir_files: args.dir_files,
        creates_per_commit: vec![args.per_commit],
        seed: args.seed,
    };
    let rows = journal::run(&plan, |_| {}).context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs =
        table(&["workload", "dirty", "node", "seconds", "commits", "nodes", "ranges", "bytes"], 2);
    for row in &rows {
        runs.add_row([
            row.workload.to_owned(),
            row.dirty.to_owned(),
            size::show(row.node_size as u64),
            format!("{:.3}", row.seconds),
            row.counts.commits.to_string(),
            row.counts.commit_nodes.to_string(),
            row.counts.commit_ranges.to_string(),
            size::show(row.counts.commit_range_bytes),
        ]);
    }
    line(runs)?;
    Ok(0)
}
