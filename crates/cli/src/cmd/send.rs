//! `holdfast send`: a snapshot as a stream, on standard output.

use std::io::{self, IsTerminal};

use holdfast_daemon::dispatch::Pipes;
use holdfast_service::outcome::without_number;
use holdfast_service::work::Work;
use holdfast_service::work::send::SendSource;
use holdfast_stream::{StreamError, Token};

use crate::branches::{Origin, TreeLocation, arguments, place};
use crate::outcome::{Failure, Outcome};
use crate::pipes::{out, progress};

/// Write a snapshot to standard output, whole or as what changed since another one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume, mounted or not, or a directory in which one is mounted. IMAGE@SNAPSHOT means a
snapshot of `main`, DIRECTORY@SNAPSHOT one of what is mounted there. Without a snapshot the branch
is sent as it is now: a snapshot `sent-` and the time is taken, which goes when it was sent, so
nothing can be sent that continues it.

What is written is for `holdfast receive`: every part has a checksum, and a stream that was cut,
damaged or put together wrongly is refused as a whole. It goes through any pipe: ssh, zstd, age. If
the volume is unmounted meanwhile, the stream is cut.

With -i only what became of files between two snapshots is sent, and the receiver has to have a copy
of the first. The two may stand in any order, and in different branches.

Access times of files that were only read are not sent, nor are times of the last change of inodes.
Reserved blocks arrive as holes.

  holdfast send volume.img@monday | holdfast receive backup.img
  holdfast send mnt | ssh host holdfast receive backup.img
  holdfast send v.img@tuesday -i @monday | zstd | ssh host 'zstd -d | holdfast receive copy.img'
  holdfast send volume.img:work@done > done.stream
  holdfast send volume.img --resume \"$(ssh host holdfast receive --resume-token backup.img)\" | ...")]
pub(crate) struct Args {
    /// Send what changed since this snapshot: BRANCH@SNAPSHOT, or @SNAPSHOT of the same branch.
    #[arg(short, long = "since", value_name = "SNAPSHOT", value_parser = place::origin, conflicts_with = "resume")]
    i: Option<Origin>,
    /// Go on with a stream that was cut; `holdfast receive --resume-token` says the token.
    #[arg(long, value_name = "TOKEN")]
    resume: Option<Token>,
    /// A volume and a snapshot: IMAGE@SNAPSHOT, IMAGE:BRANCH@SNAPSHOT or DIRECTORY@SNAPSHOT. With --resume a volume alone.
    #[arg(value_name = "PLACE", value_parser = arguments::place())]
    place: TreeLocation,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Failure::plain(
            "a stream is nothing for a terminal; write it to a file or a pipe",
        ));
    }
    let place = &args.place;
    let located = place.located()?;
    let what = match &args.resume {
        Some(_) if place.branch.is_some() || place.snapshot.is_some() => {
            return Err(Failure::new(2, "the token says which snapshot; name the volume alone"));
        }
        Some(token) => SendSource::Rest(token.to_string()),
        None => {
            let tree = located.tree();
            let since = args.i.as_ref().map(|since| since.beside(&tree));
            SendSource::Tree { tree, since }
        }
    };
    // A reader that has gone is told as well: what it has is not whole.
    let not_written = |error| Failure::plain(without_number(&StreamError::Io(error).to_string()));
    located.run(Work::Send(what), Pipes { progress: progress("files"), not_written, ..out() })
}
