//! Bytes in the journal for each thing that changed: node size, switch (M3) and commit rhythm side by side.
//!
//! Two workloads, both sparse: overwrites of 4 KiB at random places of a large
//! file, and creates each in a directory of its own. There is no timer and no
//! limit on the recovery, so that commits happen where the rhythm says and
//! checkpoints only where the ring is full; a row tells how many there were.
//! Counted is from the volume as prepared and opened to the last commit.

use std::io;

use holdfast::{Dirty, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::MemoryDevice;
use serde::Serialize;
use std::time::Duration;

use crate::Counts;
use crate::counts::ratio;
use crate::work::{copy, fill_dirs, open_dirs, pattern, prepared, shuffled};

/// Bytes of an overwrite.
const WRITE: usize = 4096;
/// The overwritten file.
const FILE: &str = "/large";
/// Nothing is checkpointed for the sake of a short recovery.
const NO_BUDGET: Duration = Duration::from_secs(24 * 60 * 60);
/// Nor for the sake of memory.
const CACHE: usize = 2 << 30;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_sizes: Vec<usize>,
    /// Positions of the switch.
    pub switches: Vec<Dirty>,
    /// Bytes of the file that is overwritten.
    pub file_bytes: u64,
    /// Overwrites of 4 KiB; 0 leaves this workload out.
    pub overwrites: u64,
    /// Overwrites between two commits.
    pub overwrites_per_commit: Vec<u64>,
    /// Creates, each in a directory of its own; 0 leaves this workload out.
    pub creates: u64,
    /// Files that each of those directories has before.
    pub dir_files: u64,
    /// Creates between two commits.
    pub creates_per_commit: Vec<u64>,
    /// Decides places and order.
    pub seed: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub workload: &'static str,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Position of the switch.
    pub dirty: &'static str,
    /// Items between two commits.
    pub per_commit: u64,
    /// Overwrites or creates.
    pub items: u64,
    /// Time taken.
    pub seconds: f64,
    /// Bytes in the journal, heads and padding included, for each item.
    pub journal_per_item: f64,
    /// Bytes of logged ranges for each item.
    pub payload_per_item: f64,
    /// Logged nodes for each item.
    pub nodes_per_item: f64,
    /// Logged ranges for each logged node.
    pub ranges_per_node: f64,
    /// Everything that was counted.
    pub counts: Counts,
}

/// The switches of one workload against each other. `None` where a run is missing or logged nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What was done.
    pub workload: &'static str,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Items between two commits.
    pub per_commit: u64,
    /// Journal bytes of `ranges` over those of `bitmap`.
    pub ranges_to_bitmap: Option<f64>,
    /// The same for the bytes of ranges alone.
    pub ranges_to_bitmap_payload: Option<f64>,
    /// Journal bytes of `whole` over those of `ranges`.
    pub whole_to_ranges: Option<f64>,
    /// The same for the bytes of ranges alone.
    pub whole_to_ranges_payload: Option<f64>,
}

/// Runs everything, one after the other; `seen` is told each row as soon as it is there.
pub fn run(plan: &Plan, mut seen: impl FnMut(&Row)) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &node_size in &plan.node_sizes {
        if plan.overwrites > 0 {
            let base = prepare_file(plan, node_size)?;
            for &per_commit in &plan.overwrites_per_commit {
                for &dirty in &plan.switches {
                    let run = Run { base: &base, node_size, dirty, per_commit, plan };
                    rows.push(run.overwrite()?);
                    rows.last().into_iter().for_each(&mut seen);
                }
            }
        }
        if plan.creates > 0 {
            let base = prepare_dirs(plan, node_size)?;
            for &per_commit in &plan.creates_per_commit {
                for &dirty in &plan.switches {
                    let run = Run { base: &base, node_size, dirty, per_commit, plan };
                    rows.push(run.create()?);
                    rows.last().into_iter().for_each(&mut seen);
                }
            }
        }
    }
    Ok(rows)
}

/// A volume with one large file, written from one end to the other.
fn prepare_file(plan: &Plan, node_size: usize) -> io::Result<std::sync::Arc<MemoryDevice>> {
    let bytes = (1 << 30) + plan.file_bytes + 2 * plan.overwrites * WRITE as u64;
    // At least 4 GiB, where the ring has its full size. Memory is taken only for what is written.
    prepared(bytes.max(4 << 30), node_size, |volume| {
        let chunk = pattern(1 << 20);
        let file = volume.create(FILE)?;
        let mut at = 0;
        while at < plan.file_bytes {
            let len = (chunk.len() as u64).min(plan.file_bytes - at);
            file.write_all_at(&chunk[..len as usize], at)?;
            at += len;
        }
        Ok(())
    })
}

/// A volume with as many directories as there are creates.
fn prepare_dirs(plan: &Plan, node_size: usize) -> io::Result<std::sync::Arc<MemoryDevice>> {
    prepared(4 << 30, node_size, |volume| fill_dirs(volume, plan.creates, plan.dir_files))
}

struct Run<'a> {
    base: &'a MemoryDevice,
    node_size: usize,
    dirty: Dirty,
    per_commit: u64,
    plan: &'a Plan,
}

impl Run<'_> {
    fn open(&self) -> io::Result<Volume> {
        VolumeOptions::new()
            .dirty(self.dirty)
            .commit_secs(0)
            .recover(NO_BUDGET)
            .cache_bytes(CACHE)
            .open_device(copy(self.base))
    }

    fn overwrite(&self) -> io::Result<Row> {
        let volume = self.open()?;
        let file = volume.open_with(FILE, &holdfast::OpenOptions::new().write(true))?;
        let mut prng = Prng::seeded(self.plan.seed);
        let blocks = (self.plan.file_bytes / WRITE as u64).max(1);
        let mut chunk = pattern(WRITE);
        self.measure(&volume, "overwrite 4 KiB", self.plan.overwrites, |item| {
            chunk[..8].copy_from_slice(&item.to_le_bytes());
            file.write_all_at(&chunk, prng.below(blocks) * WRITE as u64)
        })
    }

    fn create(&self) -> io::Result<Row> {
        let volume = self.open()?;
        let dirs = open_dirs(&volume, self.plan.creates)?;
        let order = shuffled(self.plan.creates, &mut Prng::seeded(self.plan.seed));
        self.measure(&volume, "create", self.plan.creates, |item| {
            let dir = &dirs[order[item as usize] as usize];
            dir.create(format!("new{item}")).map(drop)
        })
    }

    /// `items` times `item`, with a commit after every `per_commit` and one at the end.
    fn measure(
        &self,
        volume: &Volume,
        workload: &'static str,
        items: u64,
        mut item: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Row> {
        // What opening left to be done is not the workload's.
        volume.commit()?;
        let before = Counts::of(volume)?;
        let time = Stopwatch::start();
        measured(volume, items, self.per_commit, &mut item)?;
        let seconds = time.elapsed().as_secs_f64();
        let counts = Counts::of(volume)?.since(&before);
        let per_item = |value: u64| ratio(value as f64, items as f64).unwrap_or(0.0);
        Ok(Row {
            workload,
            node_size: self.node_size,
            dirty: self.dirty.word(),
            per_commit: self.per_commit,
            items,
            seconds,
            journal_per_item: per_item(counts.journal_bytes),
            payload_per_item: per_item(counts.commit_range_bytes),
            nodes_per_item: per_item(counts.commit_nodes),
            ranges_per_node: ratio(counts.commit_ranges as f64, counts.commit_nodes as f64)
                .unwrap_or(0.0),
            counts,
        })
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

/// The switches against each other, for each workload, node size and rhythm in `rows`.
pub fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let mut ratios: Vec<Ratio> = Vec::new();
    for row in rows {
        let same = |other: &Row| {
            (other.workload, other.node_size, other.per_commit)
                == (row.workload, row.node_size, row.per_commit)
        };
        let seen = ratios.iter().any(|ratio| {
            (ratio.workload, ratio.node_size, ratio.per_commit)
                == (row.workload, row.node_size, row.per_commit)
        });
        if seen {
            continue;
        }
        let of = |dirty: Dirty, value: fn(&Row) -> f64| {
            rows.iter().find(|other| same(other) && other.dirty == dirty.word()).map(value)
        };
        let between = |one, other, value| {
            ratio(of(one, value)?, of(other, value)?).filter(|ratio| *ratio > 0.0)
        };
        let journal: fn(&Row) -> f64 = |row| row.journal_per_item;
        let payload: fn(&Row) -> f64 = |row| row.payload_per_item;
        ratios.push(Ratio {
            workload: row.workload,
            node_size: row.node_size,
            per_commit: row.per_commit,
            ranges_to_bitmap: between(Dirty::Ranges, Dirty::Bitmap, journal),
            ranges_to_bitmap_payload: between(Dirty::Ranges, Dirty::Bitmap, payload),
            whole_to_ranges: between(Dirty::Whole, Dirty::Ranges, journal),
            whole_to_ranges_payload: between(Dirty::Whole, Dirty::Ranges, payload),
        });
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            node_sizes: vec![4096],
            switches: Dirty::ALL.to_vec(),
            file_bytes: 4 << 20,
            overwrites: 30,
            overwrites_per_commit: vec![1, 30],
            creates: 20,
            dir_files: 10,
            creates_per_commit: vec![7],
            seed: 1,
        }
    }

    #[test]
    fn every_switch_and_rhythm_has_a_row() {
        let mut seen = 0;
        let rows = run(&plan(), |_| seen += 1).expect("the workloads run");
        assert_eq!((rows.len(), seen), (9, 9));
        for row in &rows {
            assert!(row.items == 30 || row.items == 20);
            assert_eq!(row.counts.commits, row.items.div_ceil(row.per_commit), "{row:?}");
            assert_eq!((row.counts.journal_full, row.counts.checkpoints), (0, 0), "{row:?}");
            assert!(row.counts.journal_bytes > row.counts.commit_range_bytes, "{row:?}");
            assert!(row.dirty == "ranges" || row.counts.merges_forced == 0, "{row:?}");
        }
        let ratios = ratios(&rows);
        for ratio in &ratios {
            assert!(ratio.whole_to_ranges.expect("both were run") > 1.0, "{ratio:?}");
            assert!(ratio.ranges_to_bitmap.expect("both were run") > 0.0, "{ratio:?}");
        }
        assert_eq!(ratios.len(), 3);
        assert_eq!((ratios[0].workload, ratios[0].per_commit), ("overwrite 4 KiB", 1));
    }

    #[test]
    fn the_same_seed_logs_the_same() {
        let plan = Plan { overwrites_per_commit: vec![10], ..plan() };
        let counts = || {
            let rows = run(&plan, |_| {}).expect("the workloads run");
            rows.iter()
                .map(|row| (row.counts.commit_nodes, row.counts.commit_ranges))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(), counts());
    }

    #[test]
    fn ratios_compare_only_runs_of_the_same_kind() {
        let row = |dirty: Dirty, per_commit, journal_per_item| Row {
            workload: "create",
            node_size: 4096,
            dirty: dirty.word(),
            per_commit,
            items: 1,
            seconds: 0.0,
            journal_per_item,
            payload_per_item: 0.0,
            nodes_per_item: 0.0,
            ranges_per_node: 0.0,
            counts: Counts::default(),
        };
        let rows = [
            row(Dirty::Ranges, 1, 100.0),
            row(Dirty::Bitmap, 1, 80.0),
            row(Dirty::Whole, 1, 1000.0),
            row(Dirty::Ranges, 9, 10.0),
        ];
        let ratios = ratios(&rows);
        assert_eq!(ratios.len(), 2);
        assert_eq!(ratios[0].ranges_to_bitmap, Some(1.25));
        assert_eq!(ratios[0].whole_to_ranges, Some(10.0));
        assert_eq!(ratios[0].whole_to_ranges_payload, None);
        assert_eq!(ratios[1].whole_to_ranges, None);
    }
}
