//! Snapshots, forks, rollbacks and deletions while the tree, the number of snapshots, or what changed between them grows.

use std::io;
use std::sync::Arc;

use holdfast::{Branch, CreateOptions, Dir, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::Device;

use super::curves::Curves;
use crate::mechanisms::{Devices, Progress, Scale};
use crate::result::{Section, Unit};
use crate::work::quiesce;

const NODE: usize = 16384;
/// Files of a directory.
const DIR_FILES: u64 = 1000;
/// Bytes of a file that changes.
const FILE_BYTES: usize = 4096;
/// Commits after which a deletion must have come to its end.
const COMMITS_MAX: u64 = 1_000_000;

/// The tree grows.
pub(super) fn files(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let sizes = powers(2, scale.pick(3, 5, 6));
    let (key, title) = ("scaling-branched-files", "Branches of a tree that grows");
    let mut curves = Curves::new(key, title, "files of the tree", Unit::Count);
    let most = sizes.last().copied().unwrap_or(0);
    let mut ground = Ground::new(devices((1 << 30) + most * 8192)?)?;
    for files in sizes {
        ground.grow(files)?;
        for _ in 0..scale.rounds() {
            ground.measure(times(scale), 1, files as f64, &mut curves)?;
        }
        seen(format!("tree of {files} files"));
    }
    ground.end();
    Ok(curves.section(&about(scale, "One file changes before each operation.")))
}

/// The number of snapshots grows.
pub(super) fn snapshots(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let sizes = powers(0, scale.pick(2, 4, 4));
    let (key, title) = ("scaling-snapshots", "Snapshots of a volume");
    let mut curves = Curves::new(key, title, "snapshots of the volume", Unit::Count);
    let most = sizes.last().copied().unwrap_or(0);
    let mut ground = Ground::new(devices((1 << 30) + most * (1 << 18))?)?;
    ground.grow(DIR_FILES)?;
    for snapshots in sizes {
        ground.keep(snapshots)?;
        for _ in 0..scale.rounds() {
            ground.measure(times(scale), 1, snapshots as f64, &mut curves)?;
        }
        seen(format!("{snapshots} snapshots"));
    }
    ground.end();
    let place = format!("A tree of {DIR_FILES} files, of which one changes between snapshots.");
    Ok(curves.section(&about(scale, &place)))
}

/// What changed between two snapshots grows.
pub(super) fn changes(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let sizes = powers(0, scale.pick(2, 4, 5));
    let (key, title) = ("scaling-changes", "Files that changed since a snapshot");
    let mut curves = Curves::new(key, title, "files that changed", Unit::Count);
    let most = sizes.last().copied().unwrap_or(0);
    let mut ground = Ground::new(devices((1 << 30) + most * (1 << 17))?)?;
    ground.grow(most.max(DIR_FILES))?;
    for changes in sizes {
        for _ in 0..scale.rounds() {
            ground.measure(1, changes, changes as f64, &mut curves)?;
        }
        seen(format!("{changes} changed files"));
    }
    ground.end();
    Ok(curves.section(&about(scale, "So many files change before each operation.")))
}

fn powers(first: u32, last: u32) -> Vec<u64> {
    (first..=last).map(|power| 10u64.pow(power)).collect()
}

/// How often an operation is done in a round.
fn times(scale: Scale) -> u64 {
    scale.pick(3, 20, 50)
}

fn about(scale: Scale, place: &str) -> String {
    format!(
        "{place} In memory, each operation durable; {} of each in a round, {}. A deletion is timed until the last of its space is \
         free.",
        times(scale),
        scale.rounds_text()
    )
}

/// A volume with a tree that is branched.
struct Ground {
    device: Arc<dyn Device>,
    volume: Volume,
    main: Branch,
    dirs: Vec<Dir>,
    files: u64,
    /// Snapshots that stay.
    kept: u64,
    names: u64,
    prng: Prng,
}

impl Ground {
    fn new(device: Arc<dyn Device>) -> io::Result<Ground> {
        CreateOptions::new().node_size(NODE).format(&device)?;
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone())?;
        let main = volume.branch("main")?;
        let prng = Prng::seeded(1);
        Ok(Ground { device, volume, main, dirs: Vec::new(), files: 0, kept: 0, names: 0, prng })
    }

    /// Adds files until there are so many.
    fn grow(&mut self, files: u64) -> io::Result<()> {
        while self.files < files {
            let dir = (self.files / DIR_FILES) as usize;
            if dir == self.dirs.len() {
                self.volume.create_dir(format!("/d{dir}"))?;
                self.dirs.push(self.volume.open_dir(format!("/d{dir}"))?);
            }
            self.dirs[dir].write(format!("file-{}", self.files), [1; FILE_BYTES])?;
            self.files += 1;
        }
        quiesce(&self.volume)
    }

    /// Takes snapshots, with a change before each, until so many are kept.
    fn keep(&mut self, snapshots: u64) -> io::Result<()> {
        while self.kept < snapshots {
            self.change(1)?;
            self.main.snapshot(&format!("kept-{}", self.kept))?;
            self.kept += 1;
        }
        quiesce(&self.volume)
    }

    /// Writes so many files anew, other ones each time as far as there are.
    fn change(&mut self, files: u64) -> io::Result<()> {
        let first = self.prng.below(self.files);
        for number in (0..files).map(|more| (first + more) % self.files) {
            let dir = &self.dirs[(number / DIR_FILES) as usize];
            dir.write(format!("file-{number}"), [self.prng.below(250) as u8; FILE_BYTES])?;
        }
        Ok(())
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}-{}", self.names)
    }

    /// Does every operation so often, with so many changed files before each, and leaves the volume as it was.
    fn measure(&mut self, times: u64, changes: u64, x: f64, curves: &mut Curves) -> io::Result<()> {
        for _ in 0..times {
            self.change(changes)?;
            self.volume.commit()?;
            let (base, tip, fork) = (self.name("base"), self.name("tip"), self.name("fork"));
            let base = self.one(curves, "snapshot", x, |of| of.main.snapshot(&base))?;
            let branch = self.one(curves, "fork of a snapshot", x, |_| base.fork(&fork))?;
            let opened = self.one(curves, "opening a fork", x, |_| branch.open())?;
            self.one(curves, "first write in a fork", x, |_| {
                let file = opened.create("/new")?;
                file.sync_all()
            })?;
            opened.close()?;
            branch.delete()?;
            self.change(changes)?;
            self.volume.sync()?;
            self.one(curves, "rollback", x, |of| of.main.rollback_to(&base, Some(&tip)))?;
            let tip = self.main.snapshot_named(&tip)?;
            self.drain()?;
            self.one(curves, "deletion", x, |of| {
                tip.delete()?;
                of.drain()
            })?;
            base.delete()?;
            self.drain()?;
            quiesce(&self.volume)?;
        }
        Ok(())
    }

    /// Commits, which goes on with deletions, until none is left.
    fn drain(&self) -> io::Result<()> {
        for _ in 0..COMMITS_MAX {
            self.volume.commit()?;
            let counters = self.volume.counters()?;
            let left = counters.iter().find(|counter| counter.name == "deletions_left");
            if left.is_none_or(|left| left.value == 0) {
                return Ok(());
            }
        }
        Err(io::Error::other("a deletion does not come to its end"))
    }

    /// Times `work`, and counts what it writes.
    fn one<R>(
        &self,
        curves: &mut Curves,
        operation: &'static str,
        x: f64,
        work: impl FnOnce(&Ground) -> io::Result<R>,
    ) -> io::Result<R> {
        let before = self.device.stats().written_bytes;
        let time = Stopwatch::start();
        let done = work(self)?;
        let nanos = time.nanos();
        let bytes = self.device.stats().written_bytes - before;
        curves.add(operation, x, nanos as f64, Some(bytes as f64));
        Ok(done)
    }

    fn end(self) {
        drop(self.dirs);
        drop(self.main);
        self.volume.abandon();
    }
}
