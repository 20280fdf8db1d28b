//! Creates with commits between, and as little else as can be: made to be run under an instruction counter.
//!
//! On one thread, in memory, without timers, the same for the same seed: what
//! differs between two positions of the switch is what tracking changes (M3)
//! and formatting commits costs. `scripts/prove/callgrind.sh` counts it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, Dirty, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::{Device, MemoryDevice};
use serde::Serialize;

use crate::Counts;
use crate::work::{fill_dirs, open_dirs};

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Position of the switch.
    pub dirty: Dirty,
    /// Directories.
    pub dirs: u64,
    /// Files to create, each in a directory that chance picks.
    pub creates: u64,
    /// Creates between two commits.
    pub per_commit: u64,
    /// Decides the order of directories.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Position of the switch.
    pub dirty: &'static str,
    /// Files created.
    pub creates: u64,
    /// Creates between two commits.
    pub per_commit: u64,
    /// Time taken.
    pub seconds: f64,
    /// Everything that was counted.
    pub counts: Counts,
}

/// Runs it on a fresh volume in memory.
pub fn run(plan: &Plan) -> io::Result<Row> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 << 30));
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume = VolumeOptions::new()
        .dirty(plan.dirty)
        .commit_secs(0)
        .recover(Duration::from_secs(24 * 60 * 60))
        .open_device(device)?;
    fill_dirs(&volume, plan.dirs, 0)?;
    let dirs = open_dirs(&volume, plan.dirs)?;
    volume.sync()?;
    let before = Counts::of(&volume)?;
    let mut prng = Prng::seeded(plan.seed);
    let time = Stopwatch::start();
    for number in 0..plan.creates {
        drop(prng.pick(&dirs).create(format!("file-{number}"))?);
        if (number + 1) % plan.per_commit.max(1) == 0 {
            volume.sync()?;
        }
    }
    let seconds = time.elapsed().as_secs_f64();
    let counts = Counts::of(&volume)?.since(&before);
    volume.abandon();
    Ok(Row {
        node_size: plan.node_size,
        dirty: plan.dirty.word(),
        creates: plan.creates,
        per_commit: plan.per_commit,
        seconds,
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_does_the_same() {
        for &dirty in Dirty::ALL {
            let plan =
                Plan { node_size: 65536, dirty, dirs: 4, creates: 60, per_commit: 20, seed: 7 };
            let one = run(&plan).expect("the workload runs");
            let other = run(&plan).expect("the workload runs");
            let logged = |row: &Row| {
                let counts = row.counts;
                (counts.commits, counts.commit_nodes, counts.commit_ranges, counts.journal_full)
            };
            assert_eq!(logged(&one), logged(&other));
            assert_eq!((one.creates, one.dirty), (60, dirty.word()));
        }
    }
}
