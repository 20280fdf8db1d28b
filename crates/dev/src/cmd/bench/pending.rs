//! `holdfast-dev bench pending`: what a batch of the log costs that holds many new files.

use std::path::PathBuf;

use holdfast::Batching;
use holdfast_bench::pending::{self, Plan};

use crate::cmd::bench::output::{json, line, node_size, position, progress, ratio, table, time};
use crate::cmd::bench::place::Place;
use crate::outcome::{Context, Outcome};
use crate::size;

/// Creates with many pending files and one fsync behind them (batch=indexed against scan).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Time per file should not depend on how many files are pending. What commits have taken by the time of the
fsync is not pending any more: `records/batch` tells what the batches held. Work is processor time of the
creating thread: others who keep the machine busy do not count in it.")]
pub(crate) struct Args {
    /// Directories.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    dirs: Vec<u64>,
    /// Files in each directory.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256,1024,4096,16384")]
    files: Vec<u64>,
    /// How a batch finds the inode of a name.
    #[arg(
        long,
        value_parser = position(Batching::ALL, Batching::word),
        value_delimiter = ',',
        default_value = "indexed,scan"
    )]
    batch: Vec<Batching>,
    /// Fsync every file at the end, not only the last.
    #[arg(long)]
    each: bool,
    /// Runs of each kind, interleaved; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds between background commits; 0 for none by time.
    #[arg(long, default_value_t = 0)]
    commit: u32,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "16k")]
    node: usize,
    /// One JSON object per kind.
    #[arg(long)]
    json: bool,
    /// A file that does not exist yet, for the volume; it is removed afterwards. Without it: memory.
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let plan = Plan {
        node_size: args.node,
        switches: args.batch.clone(),
        dirs: args.dirs.clone(),
        files: args.files.clone(),
        each: args.each,
        rounds: args.rounds,
        commit_secs: args.commit,
    };
    let place = Place::new(args.file.as_ref(), plan.device_bytes())?;
    let rows = pending::run(
        &plan,
        || place.device(),
        |dirs, files, switch, run| {
            let each = time(run.total_ns);
            progress(format_args!("{dirs} x {files} files, {switch}: {each} per file"));
        },
    )
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "dirs",
            "files",
            "batch",
            "files/s",
            "create",
            "create+fsync",
            "its work",
            "format/record",
            "records/batch",
            "batches",
            "logged",
            "commits",
            "escapes",
        ],
        0,
    );
    for row in &rows {
        let counts = row.rounds.last().map(|run| run.counts).unwrap_or_default();
        runs.add_row([
            row.dirs.to_string(),
            row.files.to_string(),
            row.batch.to_owned(),
            format!("{:.0}", row.per_second),
            time(row.create_ns),
            time(row.total_ns),
            time(row.thread_ns),
            time(row.format_ns),
            format!("{:.0}", row.records_per_batch),
            counts.log_batches.to_string(),
            size::show(counts.log_bytes),
            counts.commits.to_string(),
            counts.escapes().to_string(),
        ]);
    }
    line(runs)?;
    let mut ratios =
        table(&["dirs", "files", "files/s indexed/scan", "format/record scan/indexed"], 0);
    for of in pending::ratios(&rows) {
        ratios.add_row([
            of.dirs.to_string(),
            of.files.to_string(),
            ratio(of.per_second),
            ratio(of.format),
        ]);
    }
    line("")?;
    line(ratios)?;
    let mut growth = table(
        &[
            "batch",
            "files",
            "to",
            "per file grew",
            "its work",
            "records",
            "to",
            "format/record grew",
        ],
        1,
    );
    for of in pending::growth(&rows) {
        growth.add_row([
            of.batch.to_owned(),
            of.files.0.to_string(),
            of.files.1.to_string(),
            format!("{}x", ratio(of.ratio)),
            format!("{}x", ratio(of.thread_ratio)),
            format!("{:.0}", of.records.0),
            format!("{:.0}", of.records.1),
            format!("{}x", ratio(of.format_ratio)),
        ]);
    }
    line("")?;
    line(growth)?;
    Ok(0)
}
