//! `holdfast import`: an archive into a branch, and layers of an image, one snapshot each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use holdfast::{Branch, Volume, VolumeOptions};
use holdfast_archive::{Form, Imported, oci};

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
each. --oci takes them from an image layout, compressed with gzip or not, and compares each with its
digest. A name with `..`, and a type of member that is not known, are errors; symbolic links on the
way to a member lead no further than the volume.

  xzcat linux.tar.xz | holdfast import volume.img --tar
  holdfast import volume.img:work --oci-layer < layer.tar
  holdfast import volume.img --oci-layer base.tar app.tar
  skopeo copy docker://debian oci:debian && holdfast import volume.img --oci debian")]
#[command(group(clap::ArgGroup::new("form").required(true)))]
pub(crate) struct Args {
    /// Read a tar archive.
    #[arg(long, group = "form")]
    tar: bool,
    /// Read a layer of an OCI image: whiteouts remove what was there.
    #[arg(long, group = "form")]
    oci_layer: bool,
    /// Read the layers of an image layout of OCI, a directory or a tar archive of one.
    #[arg(long, group = "form", value_name = "LAYOUT")]
    oci: Option<PathBuf>,
    /// The image of this name, if the layout has several.
    #[arg(long, value_name = "NAME", requires = "oci")]
    image: Option<String>,
    /// A volume, and `:BRANCH` if another one than `main` is meant.
    #[arg(value_name = "IMAGE", value_parser = arguments::branch_place())]
    place: Place,
    /// Files of layers instead of standard input, the lowest first.
    #[arg(value_name = "LAYER", conflicts_with_all = ["tar", "oci"])]
    layers: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let from_stdin = args.layers.is_empty() && args.oci.is_none();
    if from_stdin && io::stdin().is_terminal() {
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
    if let Some(layout) = &args.oci {
        return of_layout(volume, args, layout, fork);
    }
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
        let name = free_name(&branch, at, &args.place)?;
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

/// What the snapshot behind a layer is called, if nothing is called so.
fn free_name(branch: &Branch, at: usize, place: &Place) -> Result<String, Failure> {
    let name = format!("layer-{}", at + 1);
    match branch.snapshot_named(&name) {
        Err(_) => Ok(name),
        Ok(_) => Err(Failure::plain(format!(
            "{} has a snapshot {}@{name}; rename or delete it",
            place.path.display(),
            branch.name()
        ))),
    }
}

/// The layers of an image layout.
fn of_layout(volume: &Volume, args: &Args, layout: &Path, fork: &str) -> Result<Imported, Failure> {
    let layout = oci::Layout::open(layout).map_err(said)?;
    let image = layout.image(args.image.as_deref()).map_err(said)?;
    let branch = volume.branch_here().context(args.place.path.display())?;
    let mut names = Vec::new();
    for at in 0..image.len() {
        names.push(Some(free_name(&branch, at, &args.place)?));
    }
    let layers = image.layers().zip(names);
    holdfast_archive::import_all(&branch, Form::Layer, fork, layers).map_err(said)
}
