//! `holdfast-dev bench fsync`: writes with fsyncs by many threads, and what small ones put into the log.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_bench::fsync::{self, Plan};
use holdfast_bench::log_data;

use crate::cmd::bench::output::{bytes, json, line, node_size, progress, seconds, table, time};
use crate::cmd::bench::place::Place;
use crate::outcome::{Context, Outcome};
use crate::size;

/// Writes with fsyncs by many threads: throughput, and what each fsync cost.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sequential writes of 64 KiB with an fsync after each, and random writes of 4 KiB with an fsync after 16, by
threads with a file each. With --log-data instead: small writes by one thread, over the data that goes into
the log.")]
pub(crate) struct Args {
    /// Threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    jobs: Vec<u64>,
    /// Seconds of each run.
    #[arg(long, value_parser = seconds, default_value = "2")]
    seconds: Duration,
    /// Runs of each kind, one round after the other; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Bytes of a thread's file.
    #[arg(long, value_parser = size::parse, default_value = "16M")]
    file_size: u64,
    /// Measure small writes with these limits of data in the log.
    #[arg(long, value_name = "SIZE", value_parser = bytes, value_delimiter = ',')]
    log_data: Vec<usize>,
    /// Seconds between background commits; 0 for none by time.
    #[arg(long, default_value_t = 5)]
    commit: u32,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "16k")]
    node: usize,
    /// Bytes of a sector, in memory.
    #[arg(long, default_value_t = 512, value_parser = sector)]
    sector: u32,
    /// Decides places.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the file sparse; otherwise it is written from end to end before.
    #[arg(long)]
    sparse: bool,
    /// One JSON object per kind.
    #[arg(long)]
    json: bool,
    /// A file that does not exist yet, for the volume; it is removed afterwards. Without it: memory.
    file: Option<PathBuf>,
}

fn sector(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ (512 | 4096)) => Ok(bytes),
        _ => Err(format!("{text} is no sector size; 512 and 4096 are")),
    }
}

impl Args {
    fn place(&self, bytes: u64) -> Result<Place, crate::outcome::Failure> {
        let place = Place::new(self.file.as_ref(), bytes)?.sector(self.sector);
        Ok(if self.sparse { place } else { place.written() })
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.log_data.is_empty() { jobs(args) } else { limits(args) }
}

fn jobs(args: &Args) -> Outcome {
    let plan = Plan {
        node_size: args.node,
        jobs: args.jobs.clone(),
        file_bytes: args.file_size,
        time: args.seconds,
        rounds: args.rounds,
        commit_secs: args.commit,
        log_data_bytes: None,
        seed: args.seed,
    };
    let place = args.place(plan.device_bytes())?;
    let rows = fsync::run(
        &plan,
        || place.device(),
        |workload, jobs, wait, run| {
            let rate = run.fsyncs_per_second;
            progress(format_args!("{workload}, {jobs} jobs, {wait}: {rate:.0} fsyncs/s"));
        },
    )
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "workload",
            "jobs",
            "fsync_wait",
            "MiB/s",
            "fsyncs/s",
            "p50",
            "p99",
            "flushes/fsync",
            "writes/fsync",
            "B/fsync",
            "fsyncs/batch",
            "records/batch",
            "B/batch",
            "commits",
            "escapes",
        ],
        1,
    );
    for row in &rows {
        let counts = row.rounds.last().map(|run| run.counts).unwrap_or_default();
        runs.add_row([
            row.workload.to_owned(),
            row.jobs.to_string(),
            row.fsync_wait.to_owned(),
            format!("{:.1}", row.mib_per_second),
            format!("{:.0}", row.fsyncs_per_second),
            time(row.fsync_p50_ns),
            time(row.fsync_p99_ns),
            format!("{:.2}", row.flushes_per_fsync),
            format!("{:.2}", row.writes_per_fsync),
            format!("{:.0}", row.bytes_per_fsync),
            format!("{:.2}", row.fsyncs_per_batch),
            format!("{:.1}", row.records_per_batch),
            format!("{:.0}", row.bytes_per_batch),
            counts.commits.to_string(),
            counts.escapes().to_string(),
        ]);
    }
    line(runs)?;
    Ok(0)
}

fn limits(args: &Args) -> Outcome {
    let plan = log_data::Plan {
        node_size: args.node,
        limits: args.log_data.clone(),
        time: args.seconds,
        rounds: args.rounds,
        commit_secs: args.commit,
    };
    let place = args.place(plan.device_bytes())?;
    let rows = log_data::run(
        &plan,
        || place.device(),
        |workload, limit, run| {
            let rate = run.per_second;
            progress(format_args!("{workload}, up to {limit} bytes: {rate:.0}/s"));
        },
    )
    .context("the benchmark")?;
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "workload",
            "data in the log",
            "per second",
            "p50",
            "p99",
            "flushes each",
            "writes each",
            "B each",
            "log B each",
            "B each, settled",
        ],
        1,
    );
    for row in &rows {
        runs.add_row([
            row.workload.to_owned(),
            row.log_data_bytes.to_string(),
            format!("{:.0}", row.per_second),
            time(row.p50_ns),
            time(row.p99_ns),
            format!("{:.2}", row.flushes_per_operation),
            format!("{:.2}", row.writes_per_operation),
            format!("{:.0}", row.bytes_per_operation),
            format!("{:.0}", row.log_bytes_per_operation),
            format!("{:.0}", row.settled_bytes_per_operation),
        ]);
    }
    line(runs)?;
    Ok(0)
}
