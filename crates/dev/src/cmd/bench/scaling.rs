//! `holdfast-dev bench scaling`: what an operation costs as everything around it grows.

use std::sync::Arc;

use clap::ValueEnum;
use holdfast_bench::mechanisms::Scale;
use holdfast_bench::scaling::{self, Dimension};
use holdfast_device::MemoryDevice;

use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Outcome};

/// What an operation costs as files, threads or the volume grow, in memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each row ends with the power that fits its growth best: 0 is flat, 1 is in proportion. `full` needs some
10 GiB of memory.")]
pub(crate) struct Args {
    /// How much to do: seconds, minutes, or most of an hour.
    #[arg(long, value_enum, default_value_t = Scale::Usual)]
    scale: Scale,
    /// Only these.
    #[arg(long, value_name = "WORD,...", value_delimiter = ',')]
    only: Vec<Dimension>,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = args.results.begin()?;
    let only = if args.only.is_empty() { Dimension::value_variants() } else { &args.only };
    for &dimension in only {
        let mut memory = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as _);
        let mut seen = |what: String| progress(format_args!("{dimension:?}: {what}"));
        let section = scaling::run(dimension, args.scale, &mut memory, &mut seen);
        report.sections.push(section.context(format_args!("{dimension:?}"))?);
    }
    args.results.end(&report, &[])
}
