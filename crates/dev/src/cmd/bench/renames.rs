//! `holdfast-dev bench renames`: what a rename costs in a directory that was just fsynced.

use std::path::PathBuf;
use std::time::Duration;

use holdfast::RenameLog;
use holdfast_bench::renames::{self, Plan};

use crate::cmd::bench::output::{
    json, line, node_size, position, progress, ratio, seconds, table, time,
};
use crate::cmd::bench::place::Place;
use crate::outcome::{Context, Outcome};
use crate::size;

/// Renames of all files of a directory after an fsync of it (rename_log=names against directory).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files are made and committed, one more is made, the directory is fsynced; then every file gets another
name, and one fsync of the directory ends it. Time per rename should not depend on the directory. Work is
processor time, of the renaming thread and of all: others who keep the machine busy do not count in it.
More files also take more memory than a processor's caches hold: as many files in small directories, renamed
in turn, show how much that is.
Rows of `directory` that would take too long are left out; their line says how long.")]
pub(crate) struct Args {
    /// Files in the directory.
    #[arg(long, value_delimiter = ',', default_value = "1000,2000,5000,10000,20000,50000,100000")]
    files: Vec<u64>,
    /// What a rename logs.
    #[arg(
        long,
        value_parser = position(RenameLog::ALL, RenameLog::word),
        value_delimiter = ',',
        default_value = "names,directory"
    )]
    rename_log: Vec<RenameLog>,
    /// As many files once more with `names`, in directories of so many; 0 leaves that out.
    #[arg(long, default_value_t = 1000)]
    spread: u64,
    /// Renames between two fsyncs of the directory; 0 for one fsync at the end.
    #[arg(long, default_value_t = 0)]
    per_fsync: u64,
    /// Runs of each kind, interleaved; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Renames of each kind at least: small directories get more runs.
    #[arg(long, default_value_t = 20_000)]
    at_least: u64,
    /// Longest that one run with `directory` may take, in seconds.
    #[arg(long, value_parser = seconds, default_value = "60")]
    longest: Duration,
    /// Seconds between background commits; 0 for none by time.
    #[arg(long, default_value_t = 0)]
    commit: u32,
    /// Inodes kept in memory. 0: all of the directory, as a kernel keeps them.
    #[arg(long, default_value_t = 0)]
    inodes: usize,
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
    let most = args.files.iter().max().copied().unwrap_or(0) as usize;
    let mut files = args.files.clone();
    files.sort_unstable();
    let plan = Plan {
        node_size: args.node,
        switches: args.rename_log.clone(),
        files,
        spread: args.spread,
        per_fsync: args.per_fsync,
        rounds: args.rounds,
        renames_min: args.at_least,
        longest: args.longest,
        commit_secs: args.commit,
        inode_cache: if args.inodes == 0 { 2 * most + 1024 } else { args.inodes },
    };
    let place = Place::new(args.file.as_ref(), plan.device_bytes())?;
    let rows = renames::run(
        &plan,
        || place.device(),
        |files, dir_files, switch, run| {
            let each = time(run.rename_ns);
            progress(format_args!("{files} files by {dir_files}, {switch}: {each} per rename"));
        },
    )
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "files",
            "in one directory",
            "rename_log",
            "per rename",
            "its work",
            "all work",
            "last fsync",
            "log B/rename",
            "batches",
            "records",
            "logged",
            "whole directories",
            "commits",
            "escapes",
        ],
        0,
    );
    for row in &rows {
        let counts = row.counts();
        let head = [row.files.to_string(), row.dir_files.to_string(), row.rename_log.to_owned()];
        if let Some(seconds) = row.expected_seconds {
            let why = format!("left out: about {seconds:.0} s a run");
            runs.add_row(head.into_iter().chain([why]));
            continue;
        }
        let shown = |nanos: Option<f64>| nanos.map_or_else(|| "-".into(), time);
        runs.add_row(head.into_iter().chain([
            shown(row.rename_ns),
            shown(row.thread_ns),
            shown(row.process_ns),
            shown(row.fsync_ns),
            format!("{:.0}", row.log_bytes_per_rename),
            counts.log_batches.to_string(),
            counts.log_records.to_string(),
            size::show(counts.log_bytes),
            counts.log_directories.to_string(),
            counts.commits.to_string(),
            counts.escapes().to_string(),
        ]));
    }
    line(runs)?;
    let mut growth = table(&["rename_log", "from", "to", "time per rename grew", "its work"], 1);
    for of in renames::growth(&rows) {
        growth.add_row([
            of.rename_log.to_owned(),
            of.from.to_string(),
            of.to.to_string(),
            format!("{}x", ratio(of.ratio)),
            format!("{}x", ratio(of.thread_ratio)),
        ]);
    }
    line("")?;
    line(growth)?;
    let mut spreads =
        table(&["files", "in one directory, not by", "time per rename", "its work"], 0);
    for of in renames::spreads(&rows) {
        spreads.add_row([
            of.files.to_string(),
            of.dir_files.to_string(),
            format!("{}x", ratio(of.ratio)),
            format!("{}x", ratio(of.thread_ratio)),
        ]);
    }
    line("")?;
    line(spreads)?;
    Ok(0)
}
