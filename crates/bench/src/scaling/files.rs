//! Operations on names while the directory or the volume grows.
//!
//! One volume grows from size to size. At each it is quiesced, and then every
//! operation is done so many times; afterwards there are as many files as
//! before. Stats choose files at random, so that no cache helps them.

use std::io;

use holdfast::Dir;
use holdfast_base::prng::Prng;

use super::curves::Curves;
use super::powers;
use super::tree::Tree;
use crate::mechanisms::{Devices, Progress, Scale, rounds_text};
use crate::result::{Section, Unit};
use crate::work::{names, quiesce};

/// Files in one directory.
pub(super) fn directory(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let (key, title) = ("scaling-directory", "Files in a directory");
    let curves = Curves::new(key, title, "files in the directory", Unit::Count);
    let sizes = powers(2, scale.pick(3, 6, 6));
    grow(scale, devices, seen, curves, sizes, u64::MAX, "All files are in one directory.")
}

/// Files in a volume.
pub(super) fn volume(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let (key, title) = ("scaling-files", "Files in the volume");
    let curves = Curves::new(key, title, "files in the volume", Unit::Count);
    let sizes = powers(3, scale.pick(4, 6, 7));
    let place = "The files are in directories of 1000, one of which is chosen each time.";
    grow(scale, devices, seen, curves, sizes, 1000, place)
}

fn grow(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
    mut curves: Curves,
    sizes: Vec<u64>,
    dir_files: u64,
    place: &str,
) -> io::Result<Section> {
    let most = sizes.last().copied().unwrap_or(0);
    let device = devices((1 << 30) + most * 4096)?;
    let mut tree = Tree::new(device, dir_files, b"")?;
    for files in sizes {
        tree.grow(files)?;
        for round in 0..scale.rounds() {
            measure(&tree, scale, round, &mut curves, files as f64)?;
        }
        seen(format!("{files} files"));
    }
    tree.end();
    Ok(curves.section(&about(scale, place)))
}

fn about(scale: Scale, place: &str) -> String {
    format!(
        "{place} In memory; {} of each operation in a round, {} of those with an fsync; {}. Device bytes contain the \
         commit behind the operations.",
        times(scale),
        times(scale) / 10,
        rounds_text(scale.rounds())
    )
}

/// How often an operation is done in a round.
fn times(scale: Scale) -> u64 {
    scale.pick(50, 2_000, 5_000)
}

/// Does every operation so often, and leaves as many files as there were.
fn measure(tree: &Tree, scale: Scale, round: u64, curves: &mut Curves, x: f64) -> io::Result<()> {
    let times = times(scale);
    let mut prng = Prng::seeded(round + 1);
    let files = (0..times).map(|_| prng.below(tree.files.max(1)));
    let places: Vec<(&Dir, u64)> = files.map(|file| (tree.dir(file), file)).collect();
    let names: Vec<_> = names("new-", times).into_iter().zip(names("other-", times)).collect();
    let all = || places.iter().zip(&names);
    let few = || all().take((times / 10) as usize);
    // What each and a commit behind it write is counted.
    let mut one = |operation, times, work: &dyn Fn() -> io::Result<()>| {
        let commit = || tree.volume.commit();
        curves.measure(operation, (x, times), &*tree.device, work, commit)
    };
    one("stat", times, &|| {
        places.iter().try_for_each(|(dir, file)| dir.metadata(format!("file-{file}")).map(drop))
    })?;
    one("create", times, &|| {
        all().try_for_each(|((dir, _), (name, _))| dir.create(name).map(drop))
    })?;
    one("rename", times, &|| all().try_for_each(|((dir, _), (old, new))| dir.rename(old, new)))?;
    one("unlink", times, &|| all().try_for_each(|((dir, _), (_, name))| dir.remove_file(name)))?;
    one("create + fsync", times / 10, &|| {
        few().try_for_each(|((dir, _), (name, _))| dir.create(name)?.sync_all())
    })?;
    few().try_for_each(|((dir, _), (name, _))| dir.remove_file(name))?;
    quiesce(&tree.volume)
}
