//! `holdfast-dev bench scaling`: what an operation costs as everything around it grows.

use std::sync::Arc;

use holdfast_bench::result::Report;
use holdfast_bench::scaling::{self, Dimension};
use holdfast_device::{Device, MemoryDevice};

use crate::cmd::bench::mechanisms::Scale;
use crate::cmd::bench::output::{line, progress};
use crate::cmd::bench::results::{Results, command, section};
use crate::outcome::{Context, Outcome};

/// What an operation costs as files, threads, nodes or the volume grow, in memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each row ends with the power that fits its growth best: 0 is flat, 1 is in proportion. `full` needs some
10 GiB of memory.")]
pub(crate) struct Args {
    /// How much to do: seconds, minutes, or most of an hour.
    #[arg(long, value_enum, default_value_t = Scale::Usual)]
    scale: Scale,
    /// Only these: directory, files, pending, threads, nodes, volume, branched, snapshots, changes.
    #[arg(long, value_name = "WORD,...", value_delimiter = ',')]
    only: Vec<Dimension>,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.results.check()?;
    let only = if args.only.is_empty() { Dimension::ALL } else { &args.only };
    let mut report = Report::begin(command());
    line(report.machine.line())?;
    line("")?;
    for &dimension in only {
        let mut memory = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>);
        let mut seen = |what: String| progress(what);
        let of = scaling::run(dimension, args.scale.of(), &mut memory, &mut seen);
        let of = of.context(dimension.word())?;
        section(&of)?;
        report.sections.push(of);
    }
    args.results.store(&report)?;
    Ok(0)
}
