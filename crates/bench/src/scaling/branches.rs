//! Snapshots, forks, rollbacks and deletions while the tree or the number of snapshots grows.

use std::io;
use std::sync::Arc;

use holdfast::Branch;
use holdfast_base::prng::Prng;
use holdfast_device::Device;

use super::curves::Curves;
use super::powers;
use super::tree::Tree;
use crate::mechanisms::{Devices, Progress, Scale, rounds_text};
use crate::result::{Section, Unit};
use crate::work::quiesce;

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
        ground.tree.grow(files)?;
        for _ in 0..scale.rounds() {
            ground.measure(times(scale), files as f64, &mut curves)?;
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
    ground.tree.grow(DIR_FILES)?;
    for snapshots in sizes {
        ground.keep(snapshots)?;
        for _ in 0..scale.rounds() {
            ground.measure(times(scale), snapshots as f64, &mut curves)?;
        }
        seen(format!("{snapshots} snapshots"));
    }
    ground.end();
    let place = format!("A tree of {DIR_FILES} files, of which one changes between snapshots.");
    Ok(curves.section(&about(scale, &place)))
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
        rounds_text(scale.rounds())
    )
}

/// A tree that is branched.
struct Ground {
    tree: Tree,
    main: Branch,
    /// Snapshots that stay.
    kept: u64,
    names: u64,
    prng: Prng,
}

impl Ground {
    fn new(device: Arc<dyn Device>) -> io::Result<Ground> {
        let tree = Tree::new(device, DIR_FILES, &[1; FILE_BYTES])?;
        let main = tree.volume.branch("main")?;
        Ok(Ground { tree, main, kept: 0, names: 0, prng: Prng::seeded(1) })
    }

    /// Takes snapshots, with a change before each, until so many are kept.
    fn keep(&mut self, snapshots: u64) -> io::Result<()> {
        while self.kept < snapshots {
            self.change()?;
            self.main.snapshot(&format!("kept-{}", self.kept))?;
            self.kept += 1;
        }
        quiesce(&self.tree.volume)
    }

    /// Writes a file anew, any one.
    fn change(&mut self) -> io::Result<()> {
        let number = self.prng.below(self.tree.files);
        let content = [self.prng.below(250) as u8; FILE_BYTES];
        self.tree.dir(number).write(format!("file-{number}"), content)
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}-{}", self.names)
    }

    /// Does every operation so often, with a changed file before each, and leaves the volume as it was.
    fn measure(&mut self, times: u64, x: f64, curves: &mut Curves) -> io::Result<()> {
        for _ in 0..times {
            self.change()?;
            self.tree.volume.commit()?;
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
            self.change()?;
            self.tree.volume.sync()?;
            self.one(curves, "rollback", x, |of| of.main.rollback_to(&base, Some(&tip)))?;
            let tip = self.main.snapshot_named(&tip)?;
            self.drain()?;
            self.one(curves, "deletion", x, |of| {
                tip.delete()?;
                of.drain()
            })?;
            base.delete()?;
            self.drain()?;
            quiesce(&self.tree.volume)?;
        }
        Ok(())
    }

    /// Commits, which goes on with deletions, until none is left.
    fn drain(&self) -> io::Result<()> {
        for _ in 0..COMMITS_MAX {
            self.tree.volume.commit()?;
            let counters = self.tree.volume.counters()?;
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
        curves.measure(operation, (x, 1), &*self.tree.device, || work(self), || Ok(()))
    }

    fn end(self) {
        drop(self.main);
        self.tree.end();
    }
}
