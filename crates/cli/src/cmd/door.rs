//! `holdfast door`: receives what a stranger hands to a daemon, and hands on what does no harm.

use holdfast_daemon::door;
use holdfast_device::HostFile;

use crate::outcome::Outcome;

/// Stand between a daemon, which is the standard output, and a caller, which is the standard input; for daemons.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What holds the volume.
    #[arg(value_parser = ["file", "block"])]
    kind: String,
    /// The number of its device.
    device: u64,
    /// The number of its inode.
    inode: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let is_block_device = args.kind == "block";
    door::run(&HostFile { device: args.device, inode: args.inode, is_block_device })
}
