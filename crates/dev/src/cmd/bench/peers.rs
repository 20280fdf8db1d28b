//! `holdfast-dev bench peers`: Holdfast beside other filesystems on one loop device, in turn.

use holdfast_bench::peers::Plan;
use holdfast_bench::systems::{self, System};

use crate::cmd::bench::bed::{BedOptions, say_what_is_missing};
use crate::cmd::bench::dir::Work;
use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Failure, Outcome};
use crate::size;

/// Holdfast beside other filesystems, of the kernel and of userspace, on one loop device; needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One loop device with direct I/O over a file that is written before; a fresh filesystem for each
workload; interleaved rounds. Everything is undone at the end, also after a failure and at SIGINT
and SIGTERM. fuse2fs, fuse-overlayfs and bindfs are what people use who may not mount: the first has\nthe device for itself, the others pass\nwhat they are asked on to an ext4 of the kernel. They are no peers: with some of them an fsync of a\ndirectory does nothing. `rings` is Holdfast with requests through rings, which are allowed meanwhile; `raw` is
the bare device, the floor.")]
pub(crate) struct Args {
    /// What is measured.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "holdfast,ext4,ext4-fc,xfs,btrfs,fuse2fs,fuse-overlayfs,bindfs,raw"
    )]
    systems: Vec<System>,
    #[command(flatten)]
    work: Work,
    /// Bytes of the loop device.
    #[arg(long, value_parser = size::parse, default_value = "8G")]
    size: u64,
    #[command(flatten)]
    bed: BedOptions,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    systems::can_mount().map_err(Failure::plain)?;
    let mut report = args.results.begin()?;
    say_what_is_missing(&args.systems);
    let (scale, material) = args.work.prepare(&args.bed.dir)?;
    let plan = Plan {
        systems: args.systems.clone(),
        workloads: args.work.workloads(),
        rounds: args.work.rounds.max(1),
        scale,
        ceiling: !args.work.no_ceiling,
    };
    let (bed, ours) = args.bed.make(args.size)?;
    let about = format!("On {}. {}", bed.about(), args.work.about(&material));
    let (runs, failures) = plan
        .run(&bed, &ours, |round, workload, system| {
            let (name, title) = (workload.name, system.title());
            progress(format_args!("round {}, {name}: {title}", round + 1));
        })
        .context("the comparison")?;
    report.sections = runs.sections(&about);
    let done = args.results.end(&report, &[])?;
    match failures.is_empty() {
        true => Ok(done),
        false => Err(Failure::plain(failures.join("; ").replace('\n', " "))),
    }
}
