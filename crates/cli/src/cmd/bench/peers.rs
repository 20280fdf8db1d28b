//! `holdfast bench peers`: Holdfast beside ext4, XFS and btrfs on one loop device, in turn.

use std::path::PathBuf;

use holdfast_bench::peers::Plan;
use holdfast_bench::result::Report;
use holdfast_bench::systems::{self, Bed, Ours, System};

use crate::cmd::bench::dir::{Work, show};
use crate::cmd::bench::ops::{say_what_is_missing, system};
use crate::cmd::bench::output::{line, progress};
use crate::cmd::bench::results::{self, Results};
use crate::outcome::{Context, Failure, Outcome};
use crate::size;

/// Holdfast beside the filesystems of the kernel on one loop device, in turn; needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One loop device with direct I/O over a file that is written before; a fresh filesystem for each
workload; interleaved rounds. Everything is undone at the end, also after a failure and at SIGINT
and SIGTERM. `rings` is Holdfast with requests through rings, which are allowed meanwhile; `raw` is
the bare device, the floor.")]
pub(crate) struct Args {
    /// What is measured.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = system(),
        default_value = "holdfast,ext4,ext4-fc,xfs,btrfs,raw"
    )]
    systems: Vec<System>,
    #[command(flatten)]
    work: Work,
    /// Bytes of the loop device.
    #[arg(long, value_parser = size::parse, default_value = "8G")]
    size: u64,
    /// Bytes of one of its sectors: 512 or 4096.
    #[arg(long, default_value_t = 512)]
    sector: u32,
    /// Options of Holdfast's mounts, as of `holdfast mount -o`.
    #[arg(short = 'o', long, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// Where its file and the mount point are made meanwhile.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    systems::can_mount().map_err(Failure::plain)?;
    args.results.check()?;
    systems::watch().context("signals")?;
    say_what_is_missing(&args.systems);
    let program = std::env::current_exe().context("this program")?;
    let ours = Ours { program, options: args.options.clone() };
    let mut report = Report::begin(results::command());
    line(report.machine.line())?;
    line("")?;
    let (scale, material) = args.work.prepare(&args.dir)?;
    let plan = Plan {
        systems: args.systems.clone(),
        workloads: args.work.workloads(),
        rounds: args.work.rounds.max(1),
        scale,
        ceiling: !args.work.no_ceiling,
    };
    let bed = Bed::new(&args.dir, args.size, args.sector).context("a loop device")?;
    let about = format!("On {}. {}", bed.about(), args.work.about(&material));
    let (runs, failures) = plan
        .run(&bed, &ours, |round, workload, system| {
            let (name, title) = (workload.name, system.title());
            progress(format_args!("round {}, {name}: {title}", round + 1));
        })
        .context("the comparison")?;
    report.sections = runs.sections(&about);
    show(&report)?;
    args.results.store(&report)?;
    match failures.is_empty() {
        true => Ok(0),
        false => Err(Failure::plain(failures.join("; ").replace('\n', " "))),
    }
}
