//! Bytes in the journal for each thing that changed (M3).
//!
//! Two workloads, both sparse: overwrites of 4 KiB at random offsets of a large
//! file, and creates each in a directory of its own. There is no timer and no
//! limit on the recovery, so that commits happen where the rhythm says and
//! checkpoints only where the ring is full. Counted is from the volume as
//! prepared and opened to the last commit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Dirty, OpenOptions, Volume, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_device::MemoryDevice;

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

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// 4 KiB at random offsets of a large file.
    Overwrites,
    /// An empty file, each in a directory of its own.
    Creates,
}

impl Work {
    /// One change in words.
    pub fn name(self) -> &'static str {
        match self {
            Work::Overwrites => "overwrite 4 KiB",
            Work::Creates => "create",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What changes.
    pub work: Work,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// How many changes.
    pub items: u64,
    /// Bytes of the file that is overwritten.
    pub file_bytes: u64,
    /// Files that each directory has before.
    pub dir_files: u64,
    /// Decides offsets and order.
    pub seed: u64,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Bytes in the journal, headers and padding included, for each item.
    pub journal_per_item: f64,
    /// Everything that was counted.
    pub counts: Counts,
}

impl Plan {
    /// A volume with what will change: closed, its nodes clean and at their locations. Each run gets a copy of its own.
    pub fn prepare(&self) -> io::Result<Arc<MemoryDevice>> {
        // At least 4 GiB, where the ring has its full size. Memory is taken only for what is written.
        if self.work == Work::Creates {
            return prepared(4 << 30, self.node_size, |volume| {
                fill_dirs(volume, self.items, self.dir_files)
            });
        }
        let bytes = (1 << 30) + self.file_bytes + 2 * self.items * WRITE as u64;
        prepared(bytes.max(4 << 30), self.node_size, |volume| {
            let chunk = pattern(1 << 20);
            let file = volume.create(FILE)?;
            let mut at = 0;
            while at < self.file_bytes {
                let len = (chunk.len() as u64).min(self.file_bytes - at);
                file.write_all_at(&chunk[..len as usize], at)?;
                at += len;
            }
            Ok(())
        })
    }

    /// Runs on a copy of `base`, with a commit after every `per_commit` items and one at the end.
    pub fn run(&self, base: &MemoryDevice, dirty: Dirty, per_commit: u64) -> io::Result<Run> {
        let volume = VolumeOptions::new()
            .dirty(dirty)
            .commit_secs(0)
            .recover(NO_BUDGET)
            .cache_bytes(CACHE)
            .open_device(copy(base))?;
        let mut prng = Prng::seeded(self.seed);
        if self.work == Work::Creates {
            let dirs = open_dirs(&volume, self.items)?;
            let order = shuffled(self.items, &mut prng);
            return self.count(&volume, per_commit, &mut |item| {
                dirs[order[item as usize] as usize].create(format!("new{item}")).map(drop)
            });
        }
        let file = volume.open_with(FILE, &OpenOptions::new().write(true))?;
        let blocks = (self.file_bytes / WRITE as u64).max(1);
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
    ) -> io::Result<Run> {
        // What opening left to be done is not the workload's.
        volume.commit()?;
        let before = Counts::of(volume)?;
        measured(volume, self.items, per_commit, item)?;
        let counts = Counts::of(volume)?.since(&before);
        let each = ratio(counts.journal_bytes as f64, self.items as f64);
        Ok(Run { journal_per_item: each.unwrap_or(0.0), counts })
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
            let (file_bytes, dir_files) = (4 << 20, 10);
            let plan = Plan { work, node_size: 4096, items, file_bytes, dir_files, seed: 1 };
            let base = plan.prepare().expect("it is prepared");
            let run = |dirty| plan.run(&base, dirty, per_commit).expect("the workload runs");
            let runs: Vec<Run> = Dirty::ALL.iter().map(|dirty| run(*dirty)).collect();
            for run in &runs {
                let counts = run.counts;
                assert_eq!(counts.commits, items.div_ceil(per_commit), "{run:?}");
                assert_eq!((counts.journal_full, counts.checkpoints), (0, 0), "{run:?}");
                assert!(counts.journal_bytes > counts.commit_range_bytes, "{run:?}");
            }
            let [ranges, bitmap, whole] = &runs[..] else { panic!("{runs:?}") };
            assert!(whole.journal_per_item > ranges.journal_per_item.max(bitmap.journal_per_item));
            let (one, other) = (ranges.counts, run(Dirty::Ranges).counts);
            assert_eq!(
                (one.commit_nodes, one.commit_ranges),
                (other.commit_nodes, other.commit_ranges)
            );
        }
    }
}
