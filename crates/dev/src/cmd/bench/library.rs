//! `holdfast-dev bench` without a subcommand: what the library costs on this machine, as it was measured.

use std::path::PathBuf;

use holdfast_bench::library::{self, Devices, Scale};
use holdfast_bench::result::Report;

use crate::cmd::bench::output::{line, node_size, progress};
use crate::cmd::bench::place::Place;
use crate::cmd::bench::results::{Results, command, section};
use crate::outcome::{Context, Outcome};

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
    /// Rounds, interleaved; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Bytes of a tree node.
    #[arg(long, value_parser = node_size, value_delimiter = ',', default_value = "4k,16k,64k")]
    node: Vec<usize>,
    /// A file that does not exist yet, for the appends; it is removed afterwards, as is one beside it
    /// whose name ends in `.bare`. Without it: memory.
    #[arg(long)]
    file: Option<PathBuf>,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.results.check()?;
    let scale = Scale {
        files: args.files,
        mebibytes: args.mebibytes,
        appends: args.appends,
        rounds: args.rounds,
        node_sizes: args.node.clone(),
        is_beside_bare: args.file.is_some(),
    };
    // Written before, so that the host has nothing to do but write.
    let place = Place::new(args.file.as_ref(), scale.append_bytes())?.written();
    let beside = args.file.as_ref().map(|file| file.with_added_extension("bare"));
    let bare = Place::new(beside.as_ref(), scale.append_bytes())?.written();
    let mut devices = || Ok(Devices { volume: place.device()?, bare: bare.device()? });
    let mut report = Report::begin(command());
    line(report.machine.line())?;
    line("")?;
    report.sections =
        library::run(&scale, &mut devices, &mut |what| progress(what)).context("the benchmark")?;
    report.sections.iter().try_for_each(section)?;
    args.results.store(&report)?;
    Ok(0)
}
