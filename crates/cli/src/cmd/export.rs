//! `holdfast export`: a tree, or what changed in it, as an archive on standard output; and snapshots as an image layout.

use std::fmt;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use holdfast_archive::oci::NewLayout;
use holdfast_daemon::dispatch::Pipes;
use holdfast_service::json;
use holdfast_service::outcome::without_number;
use holdfast_service::work::{Tree, Work};
use serde::Serialize;

use crate::branches::{Origin, TreeLocation, arguments, place};
use crate::outcome::{Failure, Outcome, plain_words, printed};
use crate::pipes::out;

/// Write a tree as a tar archive, as a layer of an OCI image, or as an image.
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

--oci-layout makes an image layout of OCI at TO, which must not be there yet: a directory, or one
file if its name ends in .tar. Without --layer the image has one layer, all of PLACE; with --layer
one for each of these snapshots of the branch, in this order: the first as a whole, and what has
changed from each to the next. It is there whole or not at all, and the same trees give the same
bytes. The digest of its manifest is printed. The layers are not compressed; skopeo copy does that.

  holdfast export volume.img --tar > tree.tar
  holdfast export mnt --tar | zstd > now.tar.zst
  holdfast export volume.img@monday --tar | zstd > monday.tar.zst
  holdfast export volume.img@tuesday --oci-layer -i @monday > layer.tar
  holdfast export volume.img --oci-layout image --layer base --layer app --name app:1
  skopeo copy oci:image docker://registry.example/app:1")]
#[command(group(clap::ArgGroup::new("form").required(true)))]
pub(crate) struct Args {
    /// Write a tar archive.
    #[arg(long, group = "form")]
    tar: bool,
    /// Write a layer of an OCI image.
    #[arg(long, group = "form")]
    oci_layer: bool,
    /// Make an image layout: a directory, or an archive of one if the name ends in .tar.
    #[arg(long, group = "form", value_name = "TO")]
    oci_layout: Option<PathBuf>,
    /// A snapshot that becomes a layer: SNAPSHOT, or BRANCH@SNAPSHOT. Several make several layers, the lowest first.
    #[arg(long, value_name = "SNAPSHOT", value_parser = layer, conflicts_with_all = ["tar", "oci_layer"])]
    layer: Vec<Origin>,
    /// What the image is called in the layout.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["tar", "oci_layer"])]
    name: Option<String>,
    /// For which machine the image is, in the words of OCI (amd64, arm64); without it, for this one.
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["tar", "oci_layer"])]
    arch: Option<String>,
    /// Write what changed since then: @SNAPSHOT, BRANCH@SNAPSHOT or BRANCH.
    #[arg(short, long, value_name = "A", value_parser = place::origin, conflicts_with_all = ["tar", "oci_layout"])]
    incremental: Option<Origin>,
    /// Print one JSON object, for programs.
    #[arg(long, conflicts_with_all = ["tar", "oci_layer"])]
    json: bool,
    /// A volume, and a branch or snapshot in it.
    #[arg(value_name = "PLACE", value_parser = arguments::place())]
    place: TreeLocation,
}

/// `SNAPSHOT`, `@SNAPSHOT` or `BRANCH@SNAPSHOT`.
fn layer(text: &str) -> Result<Origin, String> {
    match text.contains('@') {
        true => place::origin(text),
        false => place::origin(&format!("@{text}")),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(to) = &args.oci_layout {
        return layout(args, to);
    }
    if io::stdout().is_terminal() {
        return Err(Failure::new(2, "an archive is not for a terminal; write: > FILE"));
    }
    let located = args.place.located()?;
    let tree = located.tree();
    let since = args.incremental.as_ref().map(|since| since.beside(&tree));
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
    located.run(work, Pipes { not_written, ..out() })
}

/// What was made.
#[derive(Serialize)]
struct ImageMade {
    digest: String,
    layers: usize,
}

impl fmt::Display for ImageMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digest)
    }
}

/// Makes an image layout of what becomes layers.
fn layout(args: &Args, to: &Path) -> Outcome {
    let located = args.place.located()?;
    let tree = located.tree();
    let trees: Vec<(Tree, String)> = match &args.layer[..] {
        [] => vec![(tree, args.place.to_string())],
        several => several.iter().map(|of| (of.beside(&tree), called(of))).collect(),
    };
    let said = |error: holdfast_archive::Error| Failure::plain(without_number(&error.to_string()));
    let mut made = NewLayout::begin(to).map_err(said)?;
    let mut since: Option<Tree> = None;
    let mut code = 0;
    let layers = trees.len();
    for (tree, name) in trees {
        let mut blob = made.layer().map_err(said)?;
        let output = Box::new(&mut blob);
        let work = Work::Export { tree: tree.clone(), since: since.replace(tree), layer: true };
        let not_written = |error: io::Error| {
            Failure::plain(format!("the layer cannot be written: {}", plain_words(&error)))
        };
        code = code.max(located.run(work, Pipes { output, not_written, ..out() })?);
        made.add(blob, &format!("holdfast export {name}")).map_err(said)?;
    }
    let digest = made.end(args.arch.as_deref(), args.name.as_deref()).map_err(said)?;
    use std::io::Write;
    printed(writeln!(io::stdout(), "{}", json::answer(&ImageMade { digest, layers }, args.json)))?;
    Ok(code)
}

fn called(of: &Origin) -> String {
    let [branch, snapshot] = [&of.branch, &of.snapshot]
        .map(|name| name.as_ref().map(ToString::to_string).unwrap_or_default());
    format!("{branch}@{snapshot}")
}
