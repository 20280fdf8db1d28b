//! `holdfast-dev bench tracking`: one run of what M3 is about, to be run under an instruction counter.

use clap::ValueEnum;
use holdfast::Dirty;
use holdfast_bench::mechanisms::workloads::logged::{Plan, Work};

use crate::cmd::bench::output::{json, node_size, position};
use crate::outcome::{Context, Outcome};
use crate::size;

/// Commits of sparse changes, for an instruction counter: see scripts/prove/callgrind.sh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What is done between commits.
    #[arg(long, value_enum, default_value_t = Workload::Creates)]
    workload: Workload,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "64k")]
    node: usize,
    /// What a commit logs of a changed node.
    #[arg(long, value_parser = position(Dirty::ALL, Dirty::word), default_value = "ranges")]
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
    /// Decides offsets and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What is done between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Empty files, each in a directory of its own.
    Creates,
    /// 4 KiB at random offsets of a large file.
    Overwrites,
}

/// Prints what was counted, as one line of JSON.
pub(crate) fn run(args: &Args) -> Outcome {
    let plan = Plan {
        work: match args.workload {
            Workload::Creates => Work::Creates,
            Workload::Overwrites => Work::Overwrites,
        },
        node_size: args.node,
        items: args.items,
        file_bytes: args.file_size,
        dir_files: args.dir_files,
        seed: args.seed,
    };
    let base = plan.prepare().context("the volume")?;
    let run = plan.run(&base, args.dirty, args.per_commit).context("the benchmark")?;
    json(&[run.counts])?;
    Ok(0)
}
