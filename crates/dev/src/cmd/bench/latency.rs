//! `holdfast-dev bench latency`: how long an fsync takes, alone and beside others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_bench::delay::{DelayDevice, Delays};
use holdfast_bench::latency::{self, BARE_BYTES, BOUNDS, Plan, Row};
use holdfast_device::{Device, DeviceError, FileDevice, MemoryDevice};
use serde::Serialize;

use crate::cmd::bench::output::{json, line, progress, ratio, table, time};
use crate::outcome::{Context, Failure, Outcome};
use crate::size;

/// What is written at once when a file is prepared.
const CHUNK: usize = 1 << 20;
/// Above this times the p99 of appends alone, a phase is named below the table.
const LIMIT: f64 = 2.0;

/// Where the volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// In memory, with the time that --block-us and --flush-us say.
    Delays,
    /// In a file that was written before.
    File,
}

/// Append 4 KiB and fsync, alone and beside commits, large fsyncs and large renames, in turns.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the volume is, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "delays,file")]
    on: Vec<On>,
    /// Turns of all phases.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a phase.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Bytes of a file that a stranger fsyncs.
    #[arg(long, value_parser = size::parse, default_value = "256M")]
    large: u64,
    /// Bytes of a file that a stranger renames over another.
    #[arg(long, value_parser = size::parse, default_value = "64M")]
    renamed: u64,
    /// What a recovery may take, in seconds: less means more checkpoints.
    #[arg(long, default_value_t = 0.05)]
    recover: f64,
    /// Microseconds that the device takes for 4 KiB.
    #[arg(long, default_value_t = 100)]
    block_us: u64,
    /// Microseconds that it takes for a flush.
    #[arg(long, default_value_t = 1000)]
    flush_us: u64,
    /// Writes that it takes side by side.
    #[arg(long, default_value_t = 32)]
    channels: usize,
    /// Where the file is made; it is removed afterwards.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// One JSON object per phase.
    #[arg(long)]
    json: bool,
}

/// A row and where it was measured.
#[derive(Serialize)]
struct Measured {
    on: &'static str,
    #[serde(flatten)]
    row: Row,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let seconds = |seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::plain(format!("{seconds} is no time")))
    };
    let plan = Plan {
        rounds: args.rounds.max(1),
        time: seconds(args.seconds)?,
        large_bytes: args.large,
        renamed_bytes: args.renamed,
        recover: seconds(args.recover)?,
    };
    let mut rows = Vec::new();
    for on in &args.on {
        let (on, measured) = match on {
            On::Delays => ("delays", in_memory(args, &plan)?),
            On::File => ("file", in_file(args, &plan)?),
        };
        rows.extend(measured.into_iter().map(|row| Measured { on, row }));
    }
    if args.json {
        json(&rows)?;
    } else {
        print(&rows)?;
    }
    Ok(0)
}

fn measure(
    plan: &Plan,
    on: &'static str,
    device: Arc<dyn Device>,
    bare: &dyn Device,
) -> Result<Vec<Row>, Failure> {
    latency::run(plan, device, bare, |round, stage, p99| {
        let p99 = time(p99 as f64);
        progress(format_args!("{on}, round {}, {}: p99 {p99}", round + 1, stage.name()));
    })
    .context("the benchmark")
}

fn in_memory(args: &Args, plan: &Plan) -> Result<Vec<Row>, Failure> {
    let delays = Delays {
        block: Duration::from_micros(args.block_us),
        flush: Duration::from_micros(args.flush_us),
        channels: args.channels,
    };
    let device = |bytes| DelayDevice::new(Arc::new(MemoryDevice::new(bytes)), delays);
    measure(plan, "delays", Arc::new(device(plan.volume_bytes())), &device(BARE_BYTES))
}

/// In files of its own, which are gone afterwards whatever happens.
fn in_file(args: &Args, plan: &Plan) -> Result<Vec<Row>, Failure> {
    let file = |name, bytes| Written::new(&args.dir, name, bytes);
    let volume = file("volume", plan.volume_bytes())?;
    let bare = file("bare", BARE_BYTES)?;
    measure(plan, "file", volume.device.clone(), &*bare.device)
}

/// A file whose every block was written, so that the host allocates nothing while it is measured.
struct Written {
    path: PathBuf,
    device: Arc<dyn Device>,
}

impl Written {
    fn new(dir: &Path, name: &str, bytes: u64) -> Result<Written, Failure> {
        let path = dir.join(format!("holdfast-bench-{}-{name}.img", std::process::id()));
        if path.exists() {
            return Err(Failure::plain(format!("{} exists; remove it first", path.display())));
        }
        let failed = |error: DeviceError| Failure::plain(error.to_string());
        let device = Arc::new(FileDevice::create(&path, bytes).map_err(failed)?);
        let written = Written { path, device: device.clone() };
        let chunk = vec![0; CHUNK];
        for at in (0..device.len()).step_by(CHUNK) {
            let len = (CHUNK as u64).min(device.len() - at);
            device.write(at, &chunk[..len as usize]).map_err(failed)?;
        }
        let _ = device.flush().map_err(failed)?;
        Ok(written)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            progress(format_args!("{}: {error}", self.path.display()));
        }
    }
}

fn print(rows: &[Measured]) -> Result<(), Failure> {
    let mut times = table(
        &[
            "on", "what", "fsyncs", "p50", "p90", "p99", "p99.9", "longest", "to alone",
            "they did", "",
        ],
        2,
    );
    for Measured { on, row } in rows {
        let nanos = |value: u64| time(value as f64);
        times.add_row([
            (*on).to_owned(),
            row.stage.to_owned(),
            row.fsyncs.to_string(),
            nanos(row.p50_ns),
            nanos(row.p90_ns),
            nanos(row.p99_ns),
            nanos(row.p999_ns),
            nanos(row.max_ns),
            ratio(row.p99_to_alone),
            row.done.to_string(),
            row.unit.to_owned(),
        ]);
    }
    line(times)?;

    line("\nshare of fsyncs by time, in medians of those alone")?;
    let mut bounds: Vec<String> = BOUNDS.iter().map(|bound| format!("to {bound}")).collect();
    bounds.push("more".into());
    let header: Vec<&str> =
        ["on", "what"].into_iter().chain(bounds.iter().map(String::as_str)).collect();
    let mut shares = table(&header, 2);
    for Measured { on, row } in rows {
        let shown = row.shares.iter().map(|share| format!("{:.1}%", 100.0 * share));
        shares.add_row([(*on).to_owned(), row.stage.to_owned()].into_iter().chain(shown));
    }
    line(shares)?;

    line("\nwhere the time went: means over all fsyncs, and over the slowest 1 in 100")?;
    let mut splits = table(
        &[
            "on", "what", "of", "total", "append", "data", "wait", "format", "write", "flush",
            "log", "flushes", "carried",
        ],
        3,
    );
    for Measured { on, row } in rows {
        for (of, split) in [("all", &row.all), ("slowest", &row.slowest)] {
            splits.add_row([
                (*on).to_owned(),
                row.stage.to_owned(),
                of.to_owned(),
                time(split.total_ns),
                time(split.append_ns),
                time(split.data_ns),
                time(split.wait_ns),
                time(split.format_ns),
                time(split.write_ns),
                time(split.flush_ns),
                size::show(split.log_bytes as u64),
                format!("{:.2}", split.flushes),
                format!("{:.1}", split.other_records),
            ]);
        }
    }
    line(splits)?;

    line("\nwhat was counted, the others' fsyncs included")?;
    let mut counted = table(
        &[
            "on",
            "what",
            "fsyncs",
            "batches",
            "followers",
            "full",
            "too large",
            "commits",
            "checkpoints",
            "throttled",
        ],
        2,
    );
    for Measured { on, row } in rows {
        let c = &row.counts;
        let counts = [
            c.fsyncs,
            c.log_batches,
            c.log_followers,
            c.log_full,
            c.log_too_large,
            c.commits,
            c.checkpoints,
            c.throttled,
        ];
        let counts = counts.iter().map(u64::to_string);
        counted.add_row([(*on).to_owned(), row.stage.to_owned()].into_iter().chain(counts));
    }
    line(counted)?;

    line("")?;
    let above: Vec<String> = rows
        .iter()
        .filter_map(|Measured { on, row }| {
            let by = row.p99_to_alone.filter(|&by| by > LIMIT)?;
            Some(format!("{on}, {}: {by:.2}", row.stage))
        })
        .collect();
    match above.is_empty() {
        true => {
            line(format_args!("p99 of every phase is within {LIMIT} times that of appends alone"))
        }
        false => line(format_args!(
            "p99 above {LIMIT} times that of appends alone: {}",
            above.join("; ")
        )),
    }
}
