//! `holdfast import`: an archive into a branch, and layers of an image, one snapshot each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

use crate::branches::{Place, arguments};
use crate::dispatch::{Located, Pipes};
use crate::outcome::{Context, Failure, Outcome};
use crate::work::Work;

/// Put the members of a tar archive, or of layers of an OCI image, into a branch.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume, mounted or not, with the branch `main`, or IMAGE:BRANCH; or a directory in which
a branch is mounted. The archive comes from standard input, not compressed, in any form of tar: pax,
GNU, ustar and the oldest. Owners are taken by number. A member replaces what has its name.

All of it is imported, or nothing: it is put into a fork, `importing-` and the time, which the
branch becomes in one step. A damaged archive, a full volume or a power cut leaves the branch as it
was; after a power cut the fork may be there, and `holdfast branch delete` removes it. What was
imported is durable when this returns. If the branch is changed by others meanwhile, it is refused
at the end; what programs have stored into mapped files is a change as well. Where the branch is
mounted, programs see it change as by a rollback.

Layers may be given as files, the lowest first: `layer-1`, `layer-2` and so on are snapshots behind
each. A name with `..`, and a type of member that is not known, are errors; symbolic links on the
way to a member lead no further than the volume.

  xzcat linux.tar.xz | holdfast import volume.img --tar
  holdfast import volume.img:work --oci-layer < layer.tar
  holdfast import volume.img --oci-layer base.tar app.tar")]
#[command(group(clap::ArgGroup::new("form").required(true)))]
pub(crate) struct Args {
    /// Read a tar archive.
    #[arg(long, group = "form")]
    tar: bool,
    /// Read a layer of an OCI image: whiteouts remove what was there.
    #[arg(long, group = "form")]
    oci_layer: bool,
    /// A volume, and `:BRANCH` if another one than `main` is meant.
    #[arg(value_name = "PLACE", value_parser = arguments::branch_place())]
    place: Place,
    /// Files of layers instead of standard input, the lowest first.
    #[arg(value_name = "LAYER", conflicts_with = "tar")]
    layers: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.layers.is_empty() && io::stdin().is_terminal() {
        return Err(Failure::new(2, "the archive comes from standard input; write: < FILE"));
    }
    let located = Located::of(&args.place)?;
    // None is imported if one cannot be opened.
    let (mut inputs, mut files) = (Vec::new(), Vec::new());
    for layer in &args.layers {
        let shown = Path::new(layer).display().to_string();
        inputs.push(File::open(layer).context(&shown)?);
        files.push(shown);
    }
    let pipes = match files.is_empty() {
        true => Pipes::out().input()?,
        false => Pipes { inputs, ..Pipes::out() },
    };
    let tree = located.tree(&args.place);
    located.run(Work::Import { tree, layer: args.oci_layer, files }, pipes)
}
