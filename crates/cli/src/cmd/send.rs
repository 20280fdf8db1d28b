//! `holdfast send`: a snapshot as a stream, on standard output.

use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;

use holdfast::{Snapshot, Volume, VolumeOptions};
use holdfast_stream::{StreamError, Token, What};
use indicatif::{ProgressBar, ProgressStyle};

use crate::branches::place::Origin;
use crate::branches::{Name, Place, arguments, place};
use crate::mounts;
use crate::outcome::{Context, Failure, Outcome};
use crate::target;

/// Write a snapshot to standard output, whole or as what changed since another one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE is a volume that is not mounted; IMAGE@SNAPSHOT means a snapshot of `main`. What is written is
for `holdfast receive`: every part has a checksum, and a stream that was cut, damaged or put
together wrongly is refused as a whole. It goes through any pipe: ssh, zstd, age.

With -i only what became of files between two snapshots is sent, and the receiver has to have a copy
of the first. The two may stand in any order, and in different branches.

Access times of files that were only read are not sent, nor are times of the last change of inodes.
Reserved blocks arrive as holes.

  holdfast send volume.img@monday | holdfast receive backup.img
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
    /// A volume and a snapshot: IMAGE@SNAPSHOT or IMAGE:BRANCH@SNAPSHOT. With --resume a volume alone.
    #[arg(value_name = "IMAGE", value_parser = arguments::place())]
    place: Place,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let out = io::stdout();
    if out.is_terminal() {
        return Err(Failure::plain(
            "a stream is nothing for a terminal; write it to a file or a pipe",
        ));
    }
    let path = &args.place.path;
    refuse_mounted(path)?;
    let volume = target::open_volume(path, &VolumeOptions::new(), true)?;
    let what = what(args, &volume)?;
    let (bar, mut shown) = progress();
    let done = holdfast_stream::send(
        &volume,
        what,
        BufWriter::with_capacity(1 << 20, out.lock()),
        &mut shown,
    );
    drop(shown);
    bar.finish_and_clear();
    let closed = volume.close();
    done.map_err(|error| failure(path, &error))?;
    closed.context(path.display())?;
    Ok(0)
}

fn what(args: &Args, volume: &Volume) -> Result<What, Failure> {
    let place = &args.place;
    if let Some(token) = &args.resume {
        if place.branch.is_some() || place.snapshot.is_some() {
            return Err(Failure::new(2, "the token says which snapshot; name the volume alone"));
        }
        return Ok(What::Rest(token.clone()));
    }
    let Some(snapshot) = &place.snapshot else {
        let path = place.path.display();
        return Err(Failure::new(2, format!("say which snapshot is sent: {path}@SNAPSHOT")));
    };
    let usual = place.branch.clone().unwrap_or(Name(b"main".to_vec()));
    let find = |branch: &Name, name: &Name| -> Result<Snapshot, Failure> {
        let branch = volume.branch(branch.utf8()?).context(place.path.display())?;
        branch.snapshot_named(name.utf8()?).context(place.path.display())
    };
    let new = find(&usual, snapshot)?;
    let Some(since) = &args.i else { return Ok(What::Whole(new)) };
    let Some(name) = &since.snapshot else {
        return Err(Failure::new(2, "-i wants a snapshot: @SNAPSHOT or BRANCH@SNAPSHOT"));
    };
    Ok(What::Changes(find(since.branch.as_ref().unwrap_or(&usual), name)?, new))
}

/// Fails if a volume is in use.
pub(super) fn refuse_mounted(path: &Path) -> Result<(), Failure> {
    match mounts::find(path).context("/proc/self/mountinfo")? {
        Some(mount) => {
            let dir = mount.dir.display();
            Err(Failure::plain(format!(
                "{} is mounted at {dir}; streams need a volume at rest: run `holdfast umount {dir}` first",
                path.display()
            )))
        }
        None if path.is_dir() => {
            Err(Failure::plain(format!("{} is a directory; name the volume", path.display())))
        }
        None => Ok(()),
    }
}

/// The sentence for a stream that failed. A reader that has gone is told as well: what it has is not whole.
pub(super) fn failure(path: &Path, error: &StreamError) -> Failure {
    match error {
        StreamError::Volume { .. } => Failure::plain(format!("{}: {error}", path.display())),
        error => Failure::plain(error.to_string()),
    }
}

/// A bar on a terminal, and what moves it.
pub(super) fn progress() -> (ProgressBar, impl FnMut(holdfast_stream::Progress)) {
    let bar = match io::stderr().is_terminal() {
        true => ProgressBar::new(0),
        false => ProgressBar::hidden(),
    };
    let template = "{wide_bar} {human_pos}/{human_len} files, {msg}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut last = 0;
    let moved = bar.clone();
    (bar, move |at: holdfast_stream::Progress| {
        // A message for each file would cost more than the file.
        if at.bytes.saturating_sub(last) >= 1 << 20 || at.files.is_multiple_of(256) {
            last = at.bytes;
            moved.set_length(at.files_in_all.max(at.files));
            moved.set_position(at.files);
            moved.set_message(crate::size::show(at.bytes));
        }
    })
}
