//! `holdfast receive`: a snapshot out of a stream, from standard input.

use std::io::{self, BufReader, IsTerminal, Write};

use holdfast::VolumeOptions;
use holdfast_stream::Receiving;

use super::send::{failure, progress, refuse_mounted};
use crate::branches::{Name, Place, arguments};
use crate::outcome::{Context, Failure, Outcome, complain, printed};
use crate::target;

/// Make a snapshot of what `holdfast send` wrote, from standard input.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE is a volume that is not mounted. The snapshot and its branch get the names that they have at
the sender. What continues a snapshot goes to the branch that has a copy of that; if the branch has
changed meanwhile, what it was is kept as a snapshot. A whole one goes to a branch that is new, or
has neither files nor snapshots.

All is made in a fork, `.receiving-...`, and nothing else changes before the stream has come whole:
then its snapshot becomes one of the branch, in one step. Of a stream that was cut the fork is left;
go on with --resume-token, send it anew, or delete the fork with `holdfast branch delete`.

  holdfast send volume.img@monday | holdfast receive backup.img
  ssh host holdfast send volume.img@tuesday -i @monday | holdfast receive backup.img
  holdfast receive backup.img --branch from-host < done.stream
  ssh host holdfast send volume.img --resume \"$(holdfast receive --resume-token backup.img)\" |
    holdfast receive backup.img")]
pub(crate) struct Args {
    /// Receive into this branch; a new one is made.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    branch: Option<Name>,
    /// Print where a stream was cut that came here, for `holdfast send --resume`. With --branch: that came into this fork.
    #[arg(long)]
    resume_token: bool,
    /// A volume.
    #[arg(value_name = "IMAGE", value_parser = arguments::volume_place())]
    place: Place,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let path = &args.place.path;
    refuse_mounted(path)?;
    if args.resume_token {
        return token(args);
    }
    let input = io::stdin();
    if input.is_terminal() {
        return Err(Failure::plain(
            "a stream comes from a file or a pipe; say `< FILE` or `... |`",
        ));
    }
    let volume = target::open_volume(path, &VolumeOptions::new(), false)?;
    let branch = args.branch.as_ref().map(Name::utf8).transpose()?;
    let (bar, mut shown) = progress();
    let input = BufReader::with_capacity(1 << 20, input.lock());
    let done = Receiving::begin(&volume, input, branch).and_then(|stream| stream.run(&mut shown));
    drop(shown);
    bar.finish_and_clear();
    let closed = volume.close();
    let received = done.map_err(|error| failure(path, &error))?;
    closed.context(path.display())?;
    if received.was_here {
        complain(&format!("{} is here already; nothing was done", received.snapshot));
    }
    if let Some(kept) = &received.kept {
        complain(&format!("the branch had changed; what it was is kept as its snapshot {kept}"));
    }
    printed(writeln!(io::stdout().lock(), "{}", received.snapshot))?;
    Ok(0)
}

fn token(args: &Args) -> Outcome {
    let path = &args.place.path;
    let volume = target::open_volume(path, &VolumeOptions::new(), true)?;
    let found = holdfast_stream::tokens(&volume).map_err(|error| failure(path, &error));
    volume.close().context(path.display())?;
    let mut found = found?;
    if let Some(branch) = &args.branch {
        let branch = branch.text();
        found.retain(|(name, ..)| *name == branch);
    }
    let path = path.display();
    match &found[..] {
        [(_, _, token)] => printed(writeln!(io::stdout().lock(), "{token}")).map(|()| 0),
        [] => Err(Failure::plain(format!("{path}: no stream was cut that can go on"))),
        several => {
            let list =
                several.iter().map(|(name, begin, _)| format!("{name} ({})", begin.snapshot()));
            let list = list.collect::<Vec<_>>().join(", ");
            Err(Failure::plain(format!(
                "{path}: several streams were cut: {list}; say which with --branch"
            )))
        }
    }
}
