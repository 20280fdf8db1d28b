//! `holdfast receive`: a snapshot out of a stream, from standard input or a file.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use holdfast_daemon::dispatch::{Input, Pipes};
use holdfast_service::work::Work;

use crate::branches::{Name, TreeLocation, arguments};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::{answer, progress};

/// Make a snapshot of what `holdfast send` wrote, from standard input or a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume, mounted or not, or a directory in which one is mounted: it is the volume that is
meant, whatever of it is mounted there. The snapshot and its branch get the names that they have at
the sender. What continues a snapshot goes to the branch that has a copy of that; if the branch has
changed meanwhile, what it was is kept as a snapshot. A whole one goes to a branch that is new, or
has neither files nor snapshots. A snapshot that is here already is not received again, which is no
error unless --branch names another branch than it is in.

All is made in a fork, `.receiving-...`, and nothing else changes before the stream has come whole:
then its snapshot becomes one of the branch, in one step. Of a stream that was cut the fork is left;
go on with --resume-token, send it anew, or delete the fork with `holdfast branch delete`. Where the
branch is mounted, programs see it change as by `holdfast snapshot rollback`; if the volume is
unmounted meanwhile, that is as if the stream was cut. The volume is opened when the first bytes
have come.

  holdfast send volume.img@monday | holdfast receive backup.img
  ssh host holdfast send volume.img@tuesday -i @monday | holdfast receive backup.img
  holdfast receive backup.img --branch from-host done.stream
  ssh host holdfast send volume.img --resume \"$(holdfast receive --resume-token backup.img)\" |
    holdfast receive backup.img")]
pub(crate) struct Args {
    /// Receive into this branch; a new one is made.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    branch: Option<Name>,
    /// Print where a stream was cut that came here, for `holdfast send --resume`. With --branch: that came into this fork.
    #[arg(long)]
    resume_token: bool,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A volume.
    #[arg(value_name = "PLACE", value_parser = arguments::volume_place())]
    place: TreeLocation,
    /// A file with the stream; `-` is standard input, which it is without one.
    #[arg(value_name = "FILE", conflicts_with = "resume_token")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let located = args.place.located()?;
    let branch = args.branch.clone();
    if args.resume_token {
        return located.run(Work::Token { branch }, answer(args.json));
    }
    let input = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => Input::File(File::open(file).context(file.display())?),
        None if io::stdin().is_terminal() => {
            return Err(Failure::plain(
                "a stream comes from a file or a pipe; name the file, or say `... |`",
            ));
        }
        None => Input::standard()?,
    };
    // What is missing is said at once.
    std::fs::metadata(located.image()).context(located.name())?;
    // The sender may ask this volume for a token first, so it is taken when something comes.
    let input = input.begun().context("the stream")?;
    if input.is_empty() {
        return Err(Failure::plain("the stream is empty: who was to send it has sent nothing"));
    }
    let located = args.place.located()?;
    let pipes = Pipes { inputs: vec![input], progress: progress("files"), ..answer(args.json) };
    located.run(Work::Receive { branch }, pipes)
}
