//! `holdfast export`: a tree, or what changed in it, as an archive on standard output.

use std::io::{self, IsTerminal};

use crate::branches::place::Origin;
use crate::branches::{Place, arguments, place};
use crate::dispatch::{Located, Pipes};
use crate::outcome::{Failure, Outcome, plain_words};
use crate::work::Work;

/// Write a tree as a tar archive, or as a layer of an OCI image, to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume, mounted or not, IMAGE:BRANCH a branch in it, IMAGE@SNAPSHOT or
IMAGE:BRANCH@SNAPSHOT a snapshot; or a directory in which one is mounted, DIRECTORY@SNAPSHOT a
snapshot of that. What is mounted and written meanwhile is exported as it was at one moment, with
each write that had returned.

The archive has the pax format, which GNU tar, bsdtar and most others read: owners by number,
times in nanoseconds, extended attributes and access control lists, hard links, devices, and holes
(as GNU tar's sparse files). Access times, the time of creation and reserved space are not in it;
sockets are left out, and the last line says so. The same tree gives the same bytes. bsdtar restores
all of it with -p, GNU tar extended attributes with: tar --xattrs --xattrs-include='*' -x

A layer with -i A has what is new or changed since A as whole files, and whiteouts for what is gone;
without -i it has the whole tree.

  holdfast export volume.img --tar > tree.tar
  holdfast export mnt --tar | zstd > now.tar.zst
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
    #[arg(value_name = "PLACE", value_parser = arguments::place())]
    place: Place,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if io::stdout().is_terminal() {
        return Err(Failure::new(2, "an archive is not for a terminal; write: > FILE"));
    }
    let located = Located::of(&args.place)?;
    let tree = located.tree(&args.place);
    let since = args.incremental.as_ref().map(|since| tree.beside(since));
    let is_same = since.as_ref().is_some_and(|since| {
        (&since.branch, &since.snapshot) == (&tree.branch, &tree.snapshot) && since.at == tree.at
    });
    if is_same {
        return Err(Failure::plain("there is no difference between a tree and itself"));
    }
    // A reader that has gone (`| head`) is told nothing, but the archive is not whole.
    let not_written = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(1, ""),
        _ => Failure::plain(format!("the archive cannot be written: {}", plain_words(&error))),
    };
    let work = Work::Export { tree, since, layer: args.oci_layer };
    located.run(work, Pipes { not_written, ..Pipes::out() })
}
