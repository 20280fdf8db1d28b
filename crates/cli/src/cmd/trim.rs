//! `holdfast trim`: all free space back to the device, or to the host of an image.

use holdfast_daemon::dispatch::Pipes;
use holdfast_daemon::interrupt::Interrupt;
use holdfast_service::size;
use holdfast_service::work::Work;

use crate::branches::{TreeLocation, arguments};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::{answer, progress};

/// Give the free space of a volume back to its device, or to the host of its image.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
VOLUME is a file or a block device, mounted or not, or a directory in which it is mounted. What is
free becomes a hole in the file (du shows it), or is discarded on the block device. Programs go on
beside it.

A mount of a sparse file does this by itself, some seconds after space has become free (see
-o discard in `holdfast mount --help`); trim finds what was left: by nodiscard, by a daemon that was
killed, or in ranges too short for the background. Some free space stays with a file for removals
and commits, which work on a full host as well. Ctrl-C stops it behind the 128 MiB that it is at.

  holdfast trim volume.img
  holdfast trim --minimum 1M /mnt/data")]
pub(crate) struct Args {
    /// Leave shorter ranges of free space, like 64k. Default: all that can be given back.
    #[arg(long, short, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    minimum: u64,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A volume, or a directory in which it is mounted.
    #[arg(value_name = "VOLUME", value_parser = arguments::place())]
    place: TreeLocation,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let place = &args.place;
    if place.branch.is_some() || place.snapshot.is_some() {
        return Err(Failure::new(2, "all branches share the free space: name the volume alone"));
    }
    let work = Work::Trim { least: args.minimum };
    let interrupt = Some(Interrupt::catch().context("signals")?);
    let pipes = Pipes { progress: progress("parts"), interrupt, ..answer(args.json) };
    place.located()?.run(work, pipes)
}
