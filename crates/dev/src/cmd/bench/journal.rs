//! `holdfast-dev bench journal`: bytes in the journal for each item that changed.

use holdfast::Dirty;
use holdfast_bench::journal::{self, Plan};

use crate::cmd::bench::output::{dirty, json, line, node_size, progress, ratio, table};
use crate::outcome::{Context, Outcome};
use crate::size;

/// Bytes that commits write for each item that changed, over node size, switch and commit rhythm.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In memory: the file is held once, and as much again as is overwritten.
Counted is from the prepared volume to the last commit; checkpoints and a full journal disturb, and
are shown. The ring holds at most 128 MiB.")]
pub(crate) struct Args {
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, value_delimiter = ',', default_value = "4k,16k,64k")]
    nodes: Vec<usize>,
    /// What a commit logs of a changed node.
    #[arg(long, value_parser = dirty(), value_delimiter = ',', default_value = "ranges,bitmap,whole")]
    dirty: Vec<Dirty>,
    /// Bytes of the file that is overwritten at random.
    #[arg(long, value_parser = size::parse, default_value = "2G")]
    file_size: u64,
    /// Overwrites of 4 KiB; 0 leaves them out.
    #[arg(long, default_value_t = 10_000)]
    overwrites: u64,
    /// Overwrites between two commits.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
    overwrites_per_commit: Vec<u64>,
    /// Creates, each in a directory of its own; 0 leaves them out.
    #[arg(long, default_value_t = 1000)]
    creates: u64,
    /// Files that each of these directories has before.
    #[arg(long, default_value_t = 100)]
    dir_files: u64,
    /// Creates between two commits.
    #[arg(long, value_delimiter = ',', default_value = "1,10,1000")]
    creates_per_commit: Vec<u64>,
    /// Decides places and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per run.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let plan = Plan {
        node_sizes: args.nodes.clone(),
        switches: args.dirty.clone(),
        file_bytes: args.file_size,
        overwrites: args.overwrites,
        overwrites_per_commit: args.overwrites_per_commit.clone(),
        creates: args.creates,
        dir_files: args.dir_files,
        creates_per_commit: args.creates_per_commit.clone(),
        seed: args.seed,
    };
    let rows = journal::run(&plan, |row| {
        let node = size::show(row.node_size as u64);
        let (dirty, seconds) = (row.dirty, row.seconds);
        progress(format_args!(
            "{} {node} {dirty} /{}: {seconds:.1} s",
            row.workload, row.per_commit
        ));
    })
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "workload",
            "dirty",
            "node",
            "per commit",
            "journal B/item",
            "ranges B/item",
            "nodes/item",
            "ranges/node",
            "merges",
            "slack",
            "commits",
            "checkpoints",
            "full",
        ],
        2,
    );
    for row in &rows {
        runs.add_row([
            row.workload.to_owned(),
            row.dirty.to_owned(),
            size::show(row.node_size as u64),
            row.per_commit.to_string(),
            format!("{:.0}", row.journal_per_item),
            format!("{:.0}", row.payload_per_item),
            format!("{:.2}", row.nodes_per_item),
            format!("{:.2}", row.ranges_per_node),
            row.counts.merges_forced.to_string(),
            size::show(row.counts.slack_bytes),
            row.counts.commits.to_string(),
            row.counts.checkpoints.to_string(),
            row.counts.journal_full.to_string(),
        ]);
    }
    line(runs)?;
    let mut ratios = table(
        &[
            "workload",
            "node",
            "per commit",
            "ranges/bitmap journal",
            "ranges",
            "whole/ranges journal",
            "ranges",
        ],
        1,
    );
    for of in journal::ratios(&rows) {
        ratios.add_row([
            of.workload.to_owned(),
            size::show(of.node_size as u64),
            of.per_commit.to_string(),
            ratio(of.ranges_to_bitmap),
            ratio(of.ranges_to_bitmap_payload),
            ratio(of.whole_to_ranges),
            ratio(of.whole_to_ranges_payload),
        ]);
    }
    line("")?;
    line(ratios)?;
    Ok(0)
}
