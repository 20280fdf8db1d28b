//! `holdfast-dev bench recovery`: what a recovery was promised to take and what it took.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bench::recovery::{self, Plan};
use holdfast_device::{Device, FileDevice, OpenMode};

use crate::cmd::bench::output::{json, line, node_size, progress, table, time};
use crate::outcome::{Context, Failure, Outcome};
use crate::size;

/// Fill the journal, crash, open again: time promised and time taken, for volumes of several sizes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of the volumes, one after the other; their files are sparse.
    #[arg(long, value_parser = size::parse, value_delimiter = ',', default_value = "1G,64G")]
    sizes: Vec<u64>,
    /// What a recovery may take, in seconds; several are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    recover: Vec<f64>,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, default_value = "16k")]
    node: usize,
    /// Directories that are filled before, and created in.
    #[arg(long, default_value_t = 1000)]
    dirs: u64,
    /// Files that each of them has before.
    #[arg(long, default_value_t = 50)]
    dir_files: u64,
    /// Bytes of the file that is overwritten at random.
    #[arg(long, value_parser = size::parse, default_value = "128M")]
    file_size: u64,
    /// Percent of each volume that a file without content takes beside.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=60))]
    taken: u64,
    /// Creates, and as many overwrites, between two commits.
    #[arg(long, default_value_t = 20)]
    per_commit: u64,
    /// Most commits before the journal counts as full, whatever it says.
    #[arg(long, default_value_t = 20_000)]
    commits: u64,
    /// Decides places and names.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per volume.
    #[arg(long)]
    json: bool,
    /// Where the volumes are made; they are removed afterwards.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut rows = Vec::new();
    for &seconds in &args.recover {
        let budget = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::plain(format!("{seconds} is no time")))?;
        for &bytes in &args.sizes {
            progress(format_args!("{} with {seconds} s", size::show(bytes)));
            rows.push(one(args, bytes, budget)?);
        }
    }
    if args.json {
        json(&rows)?;
        return Ok(0);
    }
    let mut runs = table(
        &[
            "volume",
            "full",
            "journal",
            "most",
            "commits",
            "nodes",
            "read",
            "written",
            "budget",
            "promised",
            "actual",
            "open",
            "clean open",
        ],
        0,
    );
    for row in &rows {
        let yes = if row.filled { "yes" } else { "no" };
        runs.add_row([
            size::show(row.volume_bytes),
            yes.to_owned(),
            size::show(row.journal_bytes),
            size::show(row.journal_bytes_max),
            row.recovered_commits.to_string(),
            row.recovered_nodes.to_string(),
            size::show(row.read_bytes),
            size::show(row.written_bytes),
            time(row.budget_ns as f64),
            time(row.promised_ns_max as f64),
            time(row.promised_ns as f64),
            time(row.recovery_ns as f64),
            time(row.open_ns as f64),
            time(row.clean_open_ns as f64),
        ]);
    }
    line(runs)?;
    Ok(0)
}

/// One volume in a file of its own, which is gone afterwards whatever happens.
fn one(args: &Args, bytes: u64, budget: Duration) -> Result<recovery::Row, Failure> {
    let path = args.dir.join(format!("holdfast-bench-{}.img", std::process::id()));
    if path.exists() {
        return Err(Failure::plain(format!("{} exists; remove it first", path.display())));
    }
    FileDevice::create(&path, bytes).map_err(|error| Failure::plain(error.to_string()))?;
    let plan = Plan {
        node_size: args.node,
        budget,
        dirs: args.dirs,
        dir_files: args.dir_files,
        file_bytes: args.file_size,
        taken_percent: args.taken,
        per_commit: args.per_commit,
        commits_max: args.commits,
        seed: args.seed,
    };
    let open = || -> io::Result<Arc<dyn Device>> {
        let device = FileDevice::open(&path, OpenMode::ReadWrite).map_err(io::Error::other)?;
        Ok(Arc::new(device))
    };
    let row = recovery::run(&plan, open).context("the benchmark");
    std::fs::remove_file(&path).context(path.display())?;
    row
}
