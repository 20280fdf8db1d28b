//! `holdfast import`: an archive into a branch, and layers of an image, one snapshot each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use holdfast_archive::oci;
use holdfast_daemon::dispatch::{Input, Pipes};
use holdfast_service::outcome::without_number;
use holdfast_service::work::Work;

use crate::branches::{TreeLocation, arguments};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::answer;

/// Put the members of a tar archive, or of layers of an OCI image, into a branch.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume, mounted or not, with the branch `main`, or IMAGE:BRANCH; or a directory in which
a branch is mounted. The archive comes from standard input, or from files, one behind the other; not
compressed, in any form of tar: pax, GNU, ustar and the oldest. `-` is standard input. Owners are
taken by number. A member replaces what has its name.

All of it is imported, or nothing: it is put into a fork, `importing-` and the time, which the
branch becomes in one step. A damaged archive, a full volume or a power cut leaves the branch as it
was; after a power cut the fork may be there, and `holdfast branch delete` removes it. What was
imported is durable when this returns. If the branch is changed by others meanwhile, it is refused
at the end; what programs have stored into mapped files is a change as well. Where the branch is
mounted, programs see it change as by a rollback.

Layers may be given as files, the lowest first: `layer-1`, `layer-2` and so on are snapshots behind
each. --oci takes them from an image layout, compressed with gzip, zstd or not, and compares each
with its digest. A name with `..`, and a type of member that is not known, are errors; symbolic
links on the way to a member lead no further than the volume. Extended attributes of other systems
are left out: of each such member they are named, and the exit code is 1.

  xzcat linux.tar.xz | holdfast import volume.img --tar
  holdfast import --tar volume.img tree.tar more.tar
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
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tar", "oci_layer"])]
    image: Option<String>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A volume, and `:BRANCH` if another one than `main` is meant.
    #[arg(value_name = "PLACE", value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// Files of archives, or of layers, the lowest first; `-` is standard input, which it is without any.
    #[arg(value_name = "FILE", conflicts_with = "oci")]
    files: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let from_stdin =
        args.oci.is_none() && (args.files.is_empty() || args.files.iter().any(|it| it == "-"));
    if from_stdin && io::stdin().is_terminal() {
        return Err(Failure::new(2, "the archive comes from standard input; write: < FILE"));
    }
    let located = args.place.located()?;
    // None is imported if one cannot be opened.
    let (mut inputs, mut files) = (Vec::new(), Vec::new());
    if args.files.iter().filter(|it| *it == "-").count() > 1 {
        return Err(Failure::new(2, "standard input can be read only once"));
    }
    for file in &args.files {
        let (input, shown) = match file == "-" {
            true => (Input::standard()?, "standard input".to_owned()),
            false => {
                let shown = Path::new(file).display().to_string();
                (Input::File(File::open(file).context(&shown)?), shown)
            }
        };
        inputs.push(input);
        files.push(shown);
    }
    if let Some(layout) = &args.oci {
        (inputs, files) = layers(layout, args.image.as_deref())?;
    }
    if inputs.is_empty() {
        inputs.push(Input::standard()?);
    }
    let pipes = Pipes { inputs, ..answer(args.json) };
    let tree = located.tree();
    located.run(Work::Import { tree, layer: !args.tar, files }, pipes)
}

/// The layers of an image layout, the lowest first, and what errors call them.
fn layers(path: &Path, image: Option<&str>) -> Result<(Vec<Input>, Vec<String>), Failure> {
    let said = |error: holdfast_archive::Error| Failure::plain(without_number(&error.to_string()));
    let layout = oci::Layout::open(path).map_err(said)?;
    let image = layout.image(image).map_err(said)?;
    if image.is_empty() {
        return Err(Failure::plain(format!("{}: the image has no layers", path.display())));
    }
    let name = |at| format!("{}: layer {}", path.display(), at + 1);
    let names = (0..image.len()).map(name).collect();
    Ok((image.layers().map(Input::Made).collect(), names))
}
