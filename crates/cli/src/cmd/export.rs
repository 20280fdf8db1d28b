//! `holdfast export`: a tree, or what changed in it, as an archive on standard output.

use std::io::{self, BufWriter, IsTerminal};

use holdfast::{FileSystem, Moment, Volume, VolumeOptions};
use holdfast_archive::{Exported, Form};

use crate::branches::place::Origin;
use crate::branches::{Name, Place, arguments, place};
use crate::outcome::{Context, Failure, Outcome, complain};
use crate::target;

/// Write a tree as a tar archive, or as a layer of an OCI image, to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE is a volume in a file or block device that is not mounted, IMAGE:BRANCH a branch in it,
IMAGE@SNAPSHOT or IMAGE:BRANCH@SNAPSHOT a snapshot.

The archive has the pax format, which GNU tar, bsdtar and most others read: owners by number,
times in nanoseconds, extended attributes and access control lists, hard links, devices, and holes
(as GNU tar's sparse files). Access times, the time of creation and reserved space are not in it;
sockets are left out, and the last line says so. The same tree gives the same bytes. bsdtar restores
all of it with -p, GNU tar extended attributes with: tar --xattrs --xattrs-include='*' -x

A layer with -i A has what is new or changed since A as whole files, and whiteouts for what is gone;
without -i it has the whole tree.

  holdfast export volume.img --tar > tree.tar
  holdfast export volume.img@monday --tar | zstd > monday.tar.zst
  holdfast export volume.img@tuesday --oci-layer -i @monday > layer.tar")]
#[command(group(clap::ArgGroup::new("form").required(true)))]
pub(crate) struct Args {
    /// Write a tar archive.
    #[arg(long, group = "form")]
    tar: bool,
    /// Write a layer of an OCI image.
    #[arg(long, group = "form")]
    oci_layer: bool,
    /// Write what changed since then: @SNAPSHOT, BRANCH@SNAPSHOT or BRANCH.
    #[arg(short, long, value_name = "A", value_parser = place::origin, conflicts_with = "tar")]
    incremental: Option<Origin>,
    /// A volume, and a branch or snapshot in it.
    #[arg(value_name = "IMAGE", value_parser = arguments::place())]
    place: Place,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Failure::new(2, "an archive is not for a terminal; write: > FILE"));
    }
    target::refuse_mounted(&args.place.path)?;
    let to = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let volume = target::open_place(&args.place, true)?;
    let done = match &args.incremental {
        Some(from) => difference(&volume, args, from, to),
        None => {
            let form = if args.tar { Form::Tar } else { Form::Layer };
            holdfast_archive::export(&volume, form, to).map_err(said)
        }
    };
    volume.close().context(args.place.path.display())?;
    if let Exported { sockets: sockets @ 1.., .. } = done? {
        let are = if sockets == 1 { "socket was" } else { "sockets were" };
        complain(&format!("{sockets} {are} left out: no archive has a place for them"));
    }
    Ok(0)
}

/// A reader that has gone (`| head`) is told nothing, but it is no success: the archive is not whole.
pub(super) fn said(error: holdfast_archive::Error) -> Failure {
    match error.io() {
        Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Failure::new(1, ""),
        _ => Failure::plain(crate::outcome::without_number(&error.to_string())),
    }
}

fn difference(
    volume: &Volume,
    args: &Args,
    from: &Origin,
    to: impl io::Write,
) -> Result<Exported, Failure> {
    let path = args.place.path.display();
    let usual = {
        let fs = volume.engine().context(&path)?;
        Name(FileSystem::branch_name(&fs).map_err(|error| Failure::plain(error.to_string()))?)
    };
    let (snapshot, before) = (&args.place.snapshot, from.branch.as_ref().unwrap_or(&usual));
    let old = Moment {
        branch: before.bytes(),
        snapshot: from.snapshot.as_ref().map(|name| name.bytes()),
    };
    let new =
        Moment { branch: usual.bytes(), snapshot: snapshot.as_ref().map(|name| name.bytes()) };
    if old == new {
        return Err(Failure::plain("there is no difference between a tree and itself"));
    }
    let branch = volume.branch(before.utf8()?).context(&path)?;
    let was = match &from.snapshot {
        Some(name) => branch.snapshot_named(name.utf8()?).context(&path)?.open(),
        None => branch.open_with(&VolumeOptions::new().read_only(true)),
    };
    let was = was.context(&path)?;
    let changes = volume.diff(old, new, false).context(&path)?;
    let done = holdfast_archive::export_difference(&was, volume, changes, to).map_err(said);
    was.close().context(&path)?;
    done
}
