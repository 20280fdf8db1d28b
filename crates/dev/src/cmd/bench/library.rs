//! `holdfast-dev bench` without a subcommand: what the library costs on this machine, as it was measured.

use std::path::PathBuf;

use holdfast_bench::DeviceSource;
use holdfast_bench::library::{self, Devices, Scale};

use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Outcome};

/// What the library itself can do.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    scale: Scale,
    /// A file that does not exist yet, for the appends; it is removed afterwards, as is one beside it
    /// whose name ends in `.bare`. Without it: memory.
    #[arg(long)]
    file: Option<PathBuf>,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = args.results.begin()?;
    let bytes = args.scale.append_bytes();
    let mut place = DeviceSource::new(args.file.clone()).context("--file")?;
    let beside = args.file.as_ref().map(|file| file.with_added_extension("bare"));
    let mut bare = DeviceSource::new(beside).context("--file")?;
    let mut devices = || Ok(Devices { volume: place.device(bytes)?, bare: bare.device(bytes)? });
    let slow = args.file.is_some();
    let sections = library::run(&args.scale, slow, &mut devices, &mut |what| progress(what));
    report.sections = sections.context("the benchmark")?;
    args.results.end(&report, &[])
}
