//! `holdfast import`: an archive into a branch, and layers of an image, one snapshot each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use holdfast::{Volume, VolumeOptions};
use holdfast_archive::{Form, Imported};

use super::export::said;
use crate::branches::{Place, arguments, show};
use crate::outcome::{Context, Failure, Outcome, complain};
use crate::target;

/// Put the members of a tar archive, or of layers of an OCI image, into a branch.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE is a volume in a file or block device that is not mounted; the branch is `main`, or BRANCH in
IMAGE:BRANCH. The archive comes from standard input, not compressed, in any form of tar: pax, GNU,
ustar and the oldest. Owners are taken by number. A member replaces what has its name.

All of it is imported, or nothing: it is put into a fork, `importing-` and the time, which the
branch becomes in one step. A damaged archive, a full volume or a power cut leaves the branch as it
was; after a power cut the fork may be there, and `holdfast branch delete` removes it. What was
imported is durable when this returns.

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
    #[arg(value_name = "IMAGE", value_parser = arguments::branch_place())]
    place: Place,
    /// Files of layers instead of standard input, the lowest first.
    #[arg(value_name = "LAYER", conflicts_with = "tar")]
    layers: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.layers.is_empty() && io::stdin().is_terminal() {
        return Err(Failure::new(2, "the archive comes from standard input; write: < FILE"));
    }
    target::refuse_mounted(&args.place.path)?;
    let mut options = VolumeOptions::new();
    if let Some(branch) = &args.place.branch {
        options = options.branch(branch.utf8()?);
    }
    let volume = target::open_volume(&args.place.path, &options, false)?;
    let done = all(&volume, args);
    volume.close().context(args.place.path.display())?;
    let left_out = done?.xattrs_left_out;
    if left_out > 0 {
        complain(&format!(
            "{left_out} extended attributes were left out: a volume has no place for those of other systems"
        ));
    }
    Ok(0)
}

fn all(volume: &Volume, args: &Args) -> Result<Imported, Failure> {
    let form = if args.tar { Form::Tar } else { Form::Layer };
    let fork = show::name_by_time("importing-");
    let fork = fork.utf8()?;
    if args.layers.is_empty() {
        return holdfast_archive::import(volume, form, fork, io::stdin().lock()).map_err(said);
    }
    // None is imported if one cannot be opened or a name is taken.
    let path = args.place.path.display();
    let branch = volume.branch_here().context(&path)?;
    let mut files = Vec::new();
    for (at, layer) in args.layers.iter().enumerate() {
        let file = PathBuf::from(layer);
        let shown = file.display().to_string();
        let name = format!("layer-{}", at + 1);
        if branch.snapshot_named(&name).is_ok() {
            let why =
                format!("{path} has a snapshot {}@{name}; rename or delete it", branch.name());
            return Err(Failure::plain(why));
        }
        files.push((File::open(&file).context(&shown)?, shown, name));
    }
    let last = std::cell::RefCell::new(String::new());
    let archives = files.into_iter().map(|(file, shown, name)| {
        last.replace(shown);
        (file, Some(name))
    });
    let imported = holdfast_archive::import_all(&branch, form, fork, archives).map_err(said);
    imported.map_err(|failure| Failure::plain(format!("{}: {}", last.borrow(), failure.sentence)))
}
