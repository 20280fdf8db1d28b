//! `holdfast bench` without a subcommand: what the library costs on this machine, as it was measured.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_bench::Row;
use holdfast_bench::library::{self, Scale};
use holdfast_device::Device;
use holdfast_device::memory::MemoryDevice;

use crate::outcome::{Context, Failure, Outcome, printed};
use crate::size;

/// What the library itself can do.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Empty files to create, stat, list and remove.
    #[arg(long, default_value_t = 500_000)]
    files: u64,
    /// MiB to write and read.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// Appends of 4 KiB, each with an fsync.
    #[arg(long, default_value_t = 500)]
    appends: u64,
    /// One JSON object per row.
    #[arg(long)]
    json: bool,
    /// A file that does not exist yet, for the volume; it is removed afterwards. Without it: memory.
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let scale = Scale { files: args.files, mebibytes: args.mebibytes, appends: args.appends };
    // Room for everything twice: nothing is overwritten in place.
    let bytes = (1 << 30) + args.files * 2048 + 3 * (args.mebibytes << 20);
    let mut rows = Vec::new();
    for node_size in [4096, 16384, 65536] {
        let measured = match &args.file {
            None => {
                let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
                library::run(&device, node_size, &scale)
            }
            Some(path) => {
                if path.exists() {
                    let why = format!("{} exists; name a file that does not", path.display());
                    return Err(Failure::plain(why));
                }
                let device = holdfast_device::FileDevice::create(path, bytes)
                    .map_err(|error| Failure::plain(error.to_string()))?;
                let device: Arc<dyn Device> = Arc::new(device);
                let measured = library::run(&device, node_size, &scale);
                drop(device);
                std::fs::remove_file(path).context(path.display())?;
                measured
            }
        };
        rows.extend(measured.context("the benchmark")?);
    }
    printed(print(&rows, args.json))?;
    Ok(0)
}

fn print(rows: &[Row], json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for row in rows {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["workload", "node", "per second", "written", "writes", "flushes"]);
    for row in rows {
        table.add_row([
            row.workload.to_owned(),
            size::show(row.node_size as u64),
            format!("{:.0} {}", row.per_second, row.unit),
            size::show(row.written_bytes),
            row.writes.to_string(),
            row.flushes.to_string(),
        ]);
    }
    writeln!(out, "{table}")
}
