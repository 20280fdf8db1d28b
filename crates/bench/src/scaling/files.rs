//! Operations on names while the directory, the volume or the nodes grow.
//!
//! One volume grows from size to size. At each it is quiesced, and then every
//! operation is done so many times; afterwards there are as many files as
//! before. Stats choose files at random, so that no cache helps them.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Dir, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::Device;

use super::curves::Curves;
use crate::mechanisms::{Devices, Progress, Scale};
use crate::result::{Section, Unit};
use crate::work::quiesce;

/// Files of a directory, where the directory is not what grows.
const DIR_FILES: u64 = 1000;
const NODE: usize = 16384;

pub(super) fn directory(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let sizes = powers(2, scale.pick(3, 6, 6));
    let mut curves = Curves::new(
        "scaling-directory",
        "Files in a directory",
        "files in the directory",
        Unit::Count,
    );
    let most = sizes.last().copied().unwrap_or(0);
    let device = devices((1 << 30) + most * 4096)?;
    let mut ground = Ground::new(device, NODE, u64::MAX)?;
    for files in sizes {
        ground.grow(files)?;
        for round in 0..scale.rounds() {
            ground.measure(scale, round, &mut curves, files as f64)?;
        }
        seen(format!("directory: {files} files"));
    }
    ground.end();
    Ok(curves.section(&about(scale, "All files are in one directory.")))
}

pub(super) fn volume(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let sizes = powers(3, scale.pick(4, 6, 7));
    let mut curves =
        Curves::new("scaling-files", "Files in the volume", "files in the volume", Unit::Count);
    let most = sizes.last().copied().unwrap_or(0);
    let device = devices((1 << 30) + most * 4096)?;
    let mut ground = Ground::new(device, NODE, DIR_FILES)?;
    for files in sizes {
        ground.grow(files)?;
        for round in 0..scale.rounds() {
            ground.measure(scale, round, &mut curves, files as f64)?;
        }
        seen(format!("volume: {files} files"));
    }
    ground.end();
    let place =
        format!("The files are in directories of {DIR_FILES}, one of which is chosen each time.");
    Ok(curves.section(&about(scale, &place)))
}

pub(super) fn nodes(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let files = scale.pick(2_000, 100_000, 1_000_000);
    let mut curves =
        Curves::new("scaling-nodes", "Bytes of a tree node", "bytes of a node", Unit::Bytes);
    for node_size in [4096, 16384, 65536] {
        let device = devices((2 << 30) + files * 4096)?;
        let mut ground = Ground::new(device, node_size, DIR_FILES)?;
        ground.grow(files)?;
        for round in 0..scale.rounds() {
            ground.measure(scale, round, &mut curves, node_size as f64)?;
        }
        ground.end();
        seen(format!("nodes of {node_size}"));
    }
    let place = format!(
        "The volume has {} files in directories of {DIR_FILES}.",
        Unit::Count.show(files as f64)
    );
    Ok(curves.section(&about(scale, &place)))
}

fn powers(first: u32, last: u32) -> Vec<u64> {
    (first..=last).map(|power| 10u64.pow(power)).collect()
}

fn about(scale: Scale, place: &str) -> String {
    format!(
        "{place} In memory; {} of each operation in a round, {} of those with an fsync; {}. Device bytes contain the \
         commit behind the operations.",
        times(scale),
        times(scale) / 10,
        scale.rounds_text()
    )
}

/// How often an operation is done in a round.
fn times(scale: Scale) -> u64 {
    scale.pick(50, 2_000, 5_000)
}

/// A volume that grows.
struct Ground {
    device: Arc<dyn Device>,
    volume: Volume,
    dirs: Vec<Dir>,
    /// Files of each directory, at most.
    dir_files: u64,
    /// Files that stay.
    files: u64,
}

impl Ground {
    fn new(device: Arc<dyn Device>, node_size: usize, dir_files: u64) -> io::Result<Ground> {
        CreateOptions::new().node_size(node_size).format(&device)?;
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone())?;
        Ok(Ground { device, volume, dirs: Vec::new(), dir_files, files: 0 })
    }

    /// Adds files until there are so many.
    fn grow(&mut self, files: u64) -> io::Result<()> {
        while self.files < files {
            let dir = (self.files / self.dir_files) as usize;
            if dir == self.dirs.len() {
                self.volume.create_dir(format!("/d{dir}"))?;
                self.dirs.push(self.volume.open_dir(format!("/d{dir}"))?);
            }
            drop(self.dirs[dir].create(format!("file-{}", self.files))?);
            self.files += 1;
        }
        quiesce(&self.volume)
    }

    /// Does every operation so often, and leaves as many files as there were.
    fn measure(&self, scale: Scale, round: u64, curves: &mut Curves, x: f64) -> io::Result<()> {
        let times = times(scale);
        let mut prng = Prng::seeded(round + 1);
        let places: Vec<(&Dir, u64)> = (0..times)
            .map(|_| {
                let file = prng.below(self.files.max(1));
                (&self.dirs[(file / self.dir_files) as usize], file)
            })
            .collect();
        let names: Vec<(String, String)> =
            (0..times).map(|number| (format!("new-{number}"), format!("other-{number}"))).collect();
        let all = || places.iter().zip(&names);
        self.one(curves, "stat", x, times, || {
            places.iter().try_for_each(|(dir, file)| dir.metadata(format!("file-{file}")).map(drop))
        })?;
        self.one(curves, "create", x, times, || {
            all().try_for_each(|((dir, _), (name, _))| dir.create(name).map(drop))
        })?;
        self.one(curves, "rename", x, times, || {
            all().try_for_each(|((dir, _), (old, new))| dir.rename(old, new))
        })?;
        self.one(curves, "unlink", x, times, || {
            all().try_for_each(|((dir, _), (_, name))| dir.remove_file(name))
        })?;
        let few = || all().take((times / 10) as usize);
        self.one(curves, "create + fsync", x, times / 10, || {
            few().try_for_each(|((dir, _), (name, _))| dir.create(name)?.sync_all())
        })?;
        few().try_for_each(|((dir, _), (name, _))| dir.remove_file(name))?;
        quiesce(&self.volume)
    }

    /// Times `work`, which does `times` operations, and counts what it and a commit behind it write.
    fn one(
        &self,
        curves: &mut Curves,
        operation: &'static str,
        x: f64,
        times: u64,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let before = self.device.stats().written_bytes;
        let time = Stopwatch::start();
        work()?;
        let nanos = time.nanos();
        self.volume.commit()?;
        let bytes = self.device.stats().written_bytes - before;
        let each = |value: u64| value as f64 / times.max(1) as f64;
        curves.add(operation, x, each(nanos), Some(each(bytes)));
        Ok(())
    }

    fn end(self) {
        drop(self.dirs);
        self.volume.abandon();
    }
}
