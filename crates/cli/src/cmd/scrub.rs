//! `holdfast scrub`: everything in use is read and judged, also while the volume is used.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use holdfast_daemon::dispatch::Pipes;
use holdfast_daemon::interrupt::Interrupt;
use holdfast_service::size;
use holdfast_service::work::{Work, scrub};

use crate::branches::{TreeLocation, arguments};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::{out, progress};

/// fsck(8): wrong usage.
const USAGE: u8 = 16;
/// fsck(8): it could not be made.
const OPERATIONAL: u8 = 8;

/// Read everything that is in use from the device, and name what is damaged.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
VOLUME is a file or a block device, mounted or not, or a directory in which it is mounted. Nodes and
data of all branches and snapshots are read, each once, past all caches, and held against their
checksums, and so is what a recovery would need of journal and log. Of a mounted volume its daemon
reads, and programs go on beside it. One at rest is first recovered, as by a mount, so nothing of
journal and log is needed any more, and it cannot be mounted meanwhile; with -n it is recovered in
memory alone, and journal and log are judged as they lie. What is damaged is printed by path:

  volume.img: main@monday:/a/b, bytes 4096 to 8191: it fails its checksum (block 1234)

Reading such a file fails there; the rest is whole. Bring the file back from a snapshot that is not
printed, or from a backup. Of a damaged node the files that are in it follow. Superblocks are
written anew, and so is a node that is stored twice and bad in one place: then nothing is lost. What
is bad in journal or log of a mounted volume is in memory as well, and is written where it belongs;
with -n it stays: what one of two places holds is still recovered, what none holds is lost. Of the
rest `info` and the next mount say that something was found, until `fsck -y -d` has.

Without --rate it takes half of the device's time, and a ninth while programs call fsync. What is
written after it has begun is left to the next one. It needs 32 KiB of memory for each GiB in use.

Ctrl-C stops it, and the same command goes on where it was, for 35 days after it began; of a block
device until the next boot. Begin with --anew behind `resize` to a smaller size and `fsck -y`, which
move what was verified. How far it is lies in $XDG_STATE_HOME/holdfast of the process that reads (of
a mounted volume its daemon), for root in /var/lib/holdfast. With systemd,
`holdfast-scrub@data.timer` scrubs the mount of `holdfast@data` each month.

Exit codes are those of fsck(8): 0 nothing is damaged, 1 all that was is mended, 4 some of it is
left, 8 it could not be done (12: and something was damaged), 16 usage, 32 it was stopped (36: and
something was damaged). A device that reads nothing any more is no damage, but 8: what was verified
is kept, and the same command goes on there.

  holdfast scrub /mnt/data
  holdfast scrub --rate 50M --json volume.img")]
pub(crate) struct Args {
    /// Read so many bytes in a second at most, like 50M. Default: rest as long as each read took.
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    rate: Option<u64>,
    /// Begin anew, and not where the last one was stopped.
    #[arg(long)]
    anew: bool,
    /// Write nothing: superblocks stay as they are, and no superblock says what was found. For a volume at rest, or mounted read-only.
    #[arg(short = 'n', long)]
    no_changes: bool,
    /// Print JSON, for programs: one object for each thing that is damaged, and one at the end.
    #[arg(long)]
    json: bool,
    /// A volume, or a directory in which it is mounted.
    #[arg(value_name = "VOLUME", value_parser = arguments::place())]
    place: TreeLocation,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let place = &args.place;
    if place.branch.is_some() || place.snapshot.is_some() {
        let why = "branches and snapshots share what they have: name the volume alone";
        return Err(Failure::new(USAGE, why));
    }
    if args.rate == Some(0) {
        return Err(Failure::new(USAGE, "nothing is read at a rate of 0"));
    }
    let operational = |failure: Failure| match failure.code {
        1 => failure.with_code(OPERATIONAL),
        _ => failure,
    };
    let interrupt = Interrupt::catch().context("signals").map_err(operational)?;
    let located = place.located().map_err(operational)?;
    let work = Work::Scrub(scrub::ScrubOptions {
        of: identity(located.image()).context(located.name()).map_err(operational)?,
        rate: args.rate,
        anew: args.anew,
        changes_nothing: args.no_changes,
        json: args.json,
    });
    let pipes = Pipes { progress: progress("MiB"), interrupt: Some(interrupt), ..out() };
    located.run(work, pipes).map_err(operational)
}

/// Which file or device of the host it is. A device may be another one behind the next boot.
fn identity(image: &Path) -> io::Result<String> {
    let found = fs::metadata(image)?;
    if found.file_type().is_block_device() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        return Ok(format!("device {} {}", found.rdev(), boot.trim()));
    }
    let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or(0, |made| made.as_nanos());
    Ok(format!("file {} {} {made}", found.dev(), found.ino()))
}
