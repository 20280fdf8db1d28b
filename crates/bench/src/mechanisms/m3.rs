//! M3: a node remembers what changed in at most four ranges (`dirty=ranges`).
//!
//! Creates of empty files with a commit every second; and, in the library, bytes in the journal for each thing that
//! changed, by a [`Plan`]: overwrites of 4 KiB at random offsets of a large file, and creates each in a directory of
//! its own. There is no timer then and no limit on the recovery, so that commits happen where the rhythm says and
//! checkpoints only where the ring is full.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use holdfast::{Dirty, OpenOptions, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::{Device, MemoryDevice};

use super::compare::{Better, Both, Comparison, Line, Pair, Wanted, in_rounds};
use super::{Bench, Measured, Scale};
use crate::counts::{Counts, median, ratio};
use crate::folder::Folder;
use crate::result::{Cell, Row, Section, Table, Unit};
use crate::work::{fill, fill_dirs, names, on_threads, pattern};

/// Of XFS, ranges instead of bitmaps in the buffer log items: parallel creates of fs_mark per second with
/// directory blocks of 64 KiB, a debug kernel. Before it fell from 176,000 to 150,000; after it was 225,000 to 237,000.
const CREATES_64K: Both = (163_000.0, 231_000.0);
/// With blocks of 4 KiB; the authors give one figure.
const CREATES_4K: f64 = 310_000.0;
/// Share of the processor for formatting.
const FORMATTING: Both = (0.23, 0.02);

/// Node sizes of the published comparison and the one between.
const NODES: [usize; 3] = [4096, 16384, 65536];

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Measured> {
    let scale = bench.scale;
    let (files, jobs, dirs) = match bench.is_library() {
        true => (scale.pick(3_000, 300_000, 1_000_000), 1, scale.pick(10, 100, 100)),
        false => (scale.pick(200, 20_000, 100_000), 4, 1),
    };
    let (mut lines, mut first) = (Vec::new(), None);
    for node_size in NODES {
        let positions = [Dirty::Bitmap, Dirty::Ranges, Dirty::Whole];
        let found = in_rounds(&positions, scale.rounds(), |switch| {
            let rate = creates(bench, node_size, switch, files, jobs, dirs)?;
            bench.say(format_args!("M3, nodes of {node_size}, {switch}: {rate:.0}/s"));
            Ok(rate)
        })?;
        let pair = Pair::of(&found, |rate| *rate);
        let after = median(pair.after.clone());
        let to_first = ratio(after, *first.get_or_insert(after));
        lines.push(Line {
            label: Unit::Bytes.show(node_size as f64),
            x: node_size as f64,
            pair,
            published: (node_size == 65536).then_some(CREATES_64K),
            why: String::new(),
            more: vec![Cell::of(&found[2]), Cell::maybe(to_first)],
        });
    }
    let largest = &lines[NODES.len() - 1];
    let (to_4k, pair) = (largest.more[1].median(), largest.pair.clone());
    let gains = vec![
        bench.gain(
            "M3",
            "creates/s with nodes of 64 KiB over 4 KiB, after".into(),
            to_4k,
            CREATES_64K.1 / CREATES_4K,
            0.9,
        ),
        bench.gain(
            "M3",
            "creates/s with nodes of 64 KiB, after over before".into(),
            pair.faster(),
            Better::More.published(CREATES_64K),
            1.0,
        ),
    ];
    let comparison = Comparison {
        key: format!("m3-{}", bench.place()),
        title: format!("M3, {}: four ranges instead of a bitmap", bench.place()),
        about: format!(
            "{} create {} empty files, each in {} of its own, with a commit every second, {}.",
            holdfast_base::show::count(jobs, "thread"),
            Unit::Count.show(files as f64),
            holdfast_base::show::count(dirs, "directory"),
            bench.rounds_text()
        ),
        label: "nodes of",
        axes: Some(("bytes of a node", "creates")),
        words: ("bitmap", "ranges"),
        unit: Unit::PerSecond,
        better: Better::More,
        lines,
    };
    let section = comparison.section(&[
        ("whole", "whole nodes", Unit::PerSecond),
        ("to-4k", "after, to 4 KiB", Unit::Ratio),
    ]);
    let section = section.note(format!(
        "Published with blocks of 4 KiB: {}. Published share of the processor for formatting: {} before, {} after. Ours is \
         counted in instructions, by scripts/prove/callgrind.sh.",
        Unit::PerSecond.show(CREATES_4K),
        Unit::Share.show(FORMATTING.0),
        Unit::Share.show(FORMATTING.1)
    ));
    let mut sections = vec![section];
    if bench.is_library() {
        sections.push(bytes(scale, bench)?);
    }
    Ok(Measured { sections, gains })
}

/// Creates `files` files by `jobs` threads, each in `dirs` directories of its own; how many a second.
fn creates(
    bench: &mut Bench<'_>,
    node_size: usize,
    dirty: Dirty,
    files: u64,
    jobs: u64,
    dirs: u64,
) -> io::Result<f64> {
    let volume = bench.volume(Wanted {
        bytes: (4 << 30) + files * 2048,
        node_size,
        library: VolumeOptions::new().dirty(dirty).commit_secs(1),
        mount: format!("commit=1,dirty={dirty}"),
    })?;
    let root = volume.root();
    let folders = (0..jobs * dirs).map(|number| root.folder(&format!("d{number}")));
    let folders = folders.collect::<io::Result<Vec<Folder>>>()?;
    volume.quiesce()?;
    let (each, names) = (files / jobs, names("file-", files / jobs));
    let time = Stopwatch::start();
    on_threads(jobs, |job| {
        let own = &folders[(job * dirs) as usize..][..dirs as usize];
        let mut all = own.iter().cycle().zip(&names);
        all.try_for_each(|(folder, name)| folder.create(name).map(drop))
    })?;
    let per_second = (each * jobs) as f64 / time.elapsed().as_secs_f64().max(1e-9);
    drop((folders, root));
    volume.end()?;
    Ok(per_second)
}

/// Bytes that a commit logs, over node size.
fn bytes(scale: Scale, bench: &mut Bench<'_>) -> io::Result<Section> {
    let mebibytes = scale.pick(8, 512, 2048);
    let dir_files = scale.pick(10, 100, 100);
    let rhythms: &[u64] = scale.pick(&[10], &[10, 1000], &[10, 1000]);
    let works = [
        (Work::Overwrites, "overwrite 4 KiB", scale.pick(100, 2_000, 10_000)),
        (Work::Creates, "create", scale.pick(50, 1_000, 1_000)),
    ];
    let mut table =
        Table::new("workload, items in a commit").column("node", "nodes of", Unit::Bytes);
    for dirty in Dirty::ALL {
        table = table.column(dirty.word(), dirty.word(), Unit::Bytes);
    }
    table = table.column("bitmap-gain", "bitmap over ranges", Unit::Ratio);
    table = table.column("whole-gain", "whole over ranges", Unit::Ratio);
    for node_size in NODES {
        for (work, name, items) in works {
            let plan = Plan { work, node_size, items, mebibytes, dir_files, seed: 1 };
            let base = plan.prepare()?;
            for &per_commit in rhythms {
                let each = |dirty: &Dirty| {
                    let counts = plan.run(&base, *dirty, per_commit)?;
                    let bytes = counts.get("journal_bytes_written") as f64 / items as f64;
                    bench.say(format_args!(
                        "M3, {name}, {per_commit} in a commit, {dirty}: {bytes:.0} B"
                    ));
                    Ok(bytes)
                };
                let each = Dirty::ALL.iter().map(each).collect::<io::Result<Vec<f64>>>()?;
                let mut cells = vec![Cell::one(node_size as f64)];
                cells.extend(each.iter().copied().map(Cell::one));
                cells.extend(each[1..].iter().map(|bytes| Cell::maybe(ratio(*bytes, each[0]))));
                table.push(Row { label: format!("{name}, {per_commit}"), cells });
            }
        }
    }
    let about = "Journal bytes, headers and padding included, for each file created in a directory of its own, and for \
                 each overwrite of 4 KiB at a random place of a large file.";
    let title = "M3, library: what a commit logs for each thing that changed";
    Ok(Section::new("m3-bytes", title, about, table))
}

/// Bytes of an overwrite.
const WRITE: usize = 4096;
/// The overwritten file.
const FILE: &str = "/large";
/// Nothing is checkpointed for the sake of a short recovery.
const NO_BUDGET: Duration = Duration::from_secs(24 * 60 * 60);
/// Nor for the sake of memory.
const CACHE: usize = 2 << 30;

/// What is done between commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Empty files, each in a directory of its own.
    Creates,
    /// 4 KiB at random offsets of a large file.
    Overwrites,
}

/// Commits of sparse changes.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// What is done between commits.
    #[arg(long = "workload", value_enum, default_value_t = Work::Creates)]
    pub work: Work,
    /// Bytes of a tree node.
    #[arg(long = "node", value_parser = crate::node_size, default_value = "64k")]
    pub node_size: usize,
    /// Creates, each in a directory of its own, or overwrites.
    #[arg(long, default_value_t = 1000)]
    pub items: u64,
    /// Files that each of the directories has before.
    #[arg(long, default_value_t = 100)]
    pub dir_files: u64,
    /// MiB of the file that is overwritten at random.
    #[arg(long, default_value_t = 2048)]
    pub mebibytes: u64,
    /// Decides offsets and order.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// A volume with what will change: closed, its nodes clean and at their locations. Each run gets a copy of its own.
    pub fn prepare(&self) -> io::Result<MemoryDevice> {
        // At least 4 GiB, where the ring has its full size. Memory is taken only for what is written.
        let bytes = (1 << 30) + (self.mebibytes << 20) + 2 * self.items * WRITE as u64;
        let bytes = if self.work == Work::Creates { 4 << 30 } else { bytes.max(4 << 30) };
        let memory = Arc::new(MemoryDevice::new(bytes));
        let device: Arc<dyn Device> = memory.clone();
        crate::new_volume().node_size(self.node_size).format(&device)?;
        let volume = VolumeOptions::new().open_device(device)?;
        match self.work {
            Work::Creates => drop(fill_dirs(&volume, self.items, self.dir_files)?),
            Work::Overwrites => fill(&volume.create(FILE)?, self.mebibytes << 20)?,
        }
        volume.close()?;
        Ok(memory.snapshot())
    }

    /// Runs on a copy of `base`, with a commit after every `per_commit` items and one at the end: what was counted from
    /// the volume as prepared and opened to the last commit.
    pub fn run(&self, base: &MemoryDevice, dirty: Dirty, per_commit: u64) -> io::Result<Counts> {
        let options = VolumeOptions::new().dirty(dirty).commit_secs(0);
        let options = options.recover(NO_BUDGET).cache_bytes(CACHE);
        let volume = options.open_device(Arc::new(base.snapshot()))?;
        let mut prng = Prng::seeded(self.seed);
        if self.work == Work::Creates {
            let dirs = (0..self.items).map(|number| volume.open_dir(format!("/d{number}")));
            let mut dirs = dirs.collect::<io::Result<Vec<_>>>()?;
            prng.shuffle(&mut dirs);
            return self.count(&volume, per_commit, &mut |item| {
                dirs[item as usize].create(format!("new{item}")).map(drop)
            });
        }
        let file = volume.open_with(FILE, &OpenOptions::new().write(true))?;
        let blocks = ((self.mebibytes << 20) / WRITE as u64).max(1);
        let mut chunk = pattern(WRITE);
        self.count(&volume, per_commit, &mut |item| {
            chunk[..8].copy_from_slice(&item.to_le_bytes());
            file.write_all_at(&chunk, prng.below(blocks) * WRITE as u64)
        })
    }

    fn count(
        &self,
        volume: &Volume,
        per_commit: u64,
        item: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Counts> {
        // What opening left to be done is not the workload's.
        volume.commit()?;
        let before = Counts::of(volume)?;
        measured(volume, self.items, per_commit, item)?;
        Ok(Counts::of(volume)?.since(&before))
    }
}

/// What is measured and nothing else. A function of its own, because an instruction counter is told
/// its name: see `scripts/prove/callgrind.sh`.
#[inline(never)]
fn measured(
    volume: &Volume,
    items: u64,
    per_commit: u64,
    item: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    for number in 0..items {
        item(number)?;
        if (number + 1) % per_commit.max(1) == 0 || number + 1 == items {
            volume.commit()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_nodes_log_more_and_the_same_seed_logs_the_same() {
        for (work, items, per_commit) in
            [(Work::Overwrites, 30, 1), (Work::Overwrites, 30, 30), (Work::Creates, 20, 7)]
        {
            let (mebibytes, dir_files) = (4, 10);
            let plan = Plan { work, node_size: 4096, items, mebibytes, dir_files, seed: 1 };
            let base = plan.prepare().expect("it is prepared");
            let run = |dirty| plan.run(&base, dirty, per_commit).expect("the workload runs");
            let [ranges, bitmap, whole] =
                [Dirty::Ranges, Dirty::Bitmap, Dirty::Whole].map(|dirty| {
                    let counts = run(dirty);
                    assert_eq!(counts.get("commits"), items.div_ceil(per_commit));
                    assert_eq!(counts.get("journal_full") + counts.get("checkpoints"), 0);
                    let bytes = counts.get("journal_bytes_written");
                    assert!(bytes > counts.get("commit_range_bytes"));
                    bytes
                });
            assert!(whole > ranges.max(bitmap));
            let [one, other] = [run(Dirty::Ranges), run(Dirty::Ranges)];
            for name in ["commit_nodes", "commit_ranges"] {
                assert_eq!(one.get(name), other.get(name));
            }
        }
    }
}
