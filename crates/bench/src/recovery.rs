//! What a recovery was promised to take, and what it took, on volumes of different sizes.
//!
//! Creates and small overwrites are committed, a few at a time, until some
//! checkpoints have emptied the journal; then on until the promised time is
//! nearly the longest that was seen. There the power is cut, whatever a
//! checkpoint is doing, and the volume is opened again. A second, clean opening
//! shows what opening costs anyway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, Dir, File, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::cut::CutDevice;
use crate::work::{fill_dirs, open_dirs, pattern};

/// Bytes of an overwrite.
const WRITE: usize = 4096;
/// Checkpoints that are watched before the journal may count as full.
const WATCHED: u64 = 3;
/// Above this share of the longest promise seen, it is full.
const NEARLY: f64 = 0.95;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// What a recovery may take.
    pub budget: Duration,
    /// Directories with files in them before.
    pub dirs: u64,
    /// Files in each of those.
    pub dir_files: u64,
    /// Bytes of the file that is overwritten.
    pub file_bytes: u64,
    /// Share of the volume that a file without content takes, in percent.
    pub taken_percent: u64,
    /// Creates, and as many overwrites, between two commits.
    pub per_commit: u64,
    /// Most commits before the journal counts as full, whatever it says.
    pub commits_max: u64,
    /// Decides places and names.
    pub seed: u64,
}

/// One volume.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// What a recovery may take.
    pub budget_ns: u64,
    /// What was promised in the moment of the crash.
    pub promised_ns: u64,
    /// Bytes of the journal that were in use then.
    pub journal_bytes: u64,
    /// The most that were ever in use.
    pub journal_bytes_max: u64,
    /// The longest recovery that was ever promised.
    pub promised_ns_max: u64,
    /// Whether checkpoints were seen before, so that the journal was as full as it gets.
    pub filled: bool,
    /// What the recovery took, as the volume says.
    pub recovery_ns: u64,
    /// Commits that it applied.
    pub recovered_commits: u64,
    /// Nodes that it wrote.
    pub recovered_nodes: u64,
    /// Bytes of the journal that it read.
    pub recovered_bytes: u64,
    /// What opening took, recovery included.
    pub open_ns: u64,
    /// What opening it once more took, after a clean close.
    pub clean_open_ns: u64,
    /// Reads of the device during the first opening.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Bytes written then.
    pub written_bytes: u64,
}

/// Fills the journal of a fresh volume, crashes it and opens it. `device` opens the same bytes each
/// time it is called; it is called again only when nobody holds what it gave before.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
) -> io::Result<Row> {
    let fresh = device()?;
    let volume_bytes = fresh.len();
    CreateOptions::new().node_size(plan.node_size).format(&fresh)?;
    let volume = VolumeOptions::new().open_device(fresh)?;
    prepare(&volume, plan, volume_bytes)?;
    volume.close()?;

    let options = VolumeOptions::new().commit_secs(0).recover(plan.budget);
    let power = CutDevice::new(device()?);
    let volume = options.open_device(power.clone())?;
    let full = fill(&volume, plan, &power)?;
    volume.abandon();
    drop(power);

    let again = device()?;
    let before = again.stats();
    let time = Stopwatch::start();
    let volume = options.open_device(again.clone())?;
    let open_ns = time.nanos();
    let after = again.stats();
    drop(again);
    let engine = volume.engine()?;
    let counters = engine.counters();
    let mut row = Row {
        volume_bytes,
        node_size: plan.node_size,
        budget_ns: plan.budget.as_nanos() as u64,
        promised_ns: full.promised_ns,
        journal_bytes: full.journal_bytes,
        journal_bytes_max: full.journal_bytes_max,
        promised_ns_max: full.promised_ns_max,
        filled: full.filled,
        recovery_ns: counters.recovery_ns.get(),
        recovered_commits: counters.recovered_commits.get(),
        recovered_nodes: counters.recovered_nodes.get(),
        recovered_bytes: counters.recovered_bytes.get(),
        open_ns,
        clean_open_ns: 0,
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        written_bytes: after.written_bytes - before.written_bytes,
    };
    drop(engine);
    volume.close()?;

    let last = device()?;
    let time = Stopwatch::start();
    let volume = options.open_device(last)?;
    row.clean_open_ns = time.nanos();
    volume.close()?;
    Ok(row)
}

fn prepare(volume: &Volume, plan: &Plan, volume_bytes: u64) -> io::Result<()> {
    fill_dirs(volume, plan.dirs.max(1), plan.dir_files)?;
    let chunk = pattern(1 << 20);
    let file = volume.create("/large")?;
    let mut at = 0;
    while at < plan.file_bytes {
        let len = (chunk.len() as u64).min(plan.file_bytes - at);
        file.write_all_at(&chunk[..len as usize], at)?;
        at += len;
    }
    // So that a larger volume also has more in its trees and bitmaps.
    let taken = volume_bytes / 100 * plan.taken_percent;
    if taken > 0 {
        volume.create("/taken")?.allocate(0, taken)?;
    }
    Ok(())
}

#[derive(Default)]
struct Full {
    promised_ns: u64,
    promised_ns_max: u64,
    journal_bytes: u64,
    journal_bytes_max: u64,
    filled: bool,
}

fn fill(volume: &Volume, plan: &Plan, power: &CutDevice) -> io::Result<Full> {
    let dirs = open_dirs(volume, plan.dirs.max(1))?;
    let file = volume.open_with("/large", &holdfast::OpenOptions::new().write(true))?;
    let engine = volume.engine()?;
    let counters = engine.counters();
    let mut work = Work { dirs: &dirs, file: &file, plan, prng: Prng::seeded(plan.seed), done: 0 };
    let start = Counts::of(volume)?;
    let mut full = Full::default();
    for _ in 0..plan.commits_max {
        work.some()?;
        volume.commit()?;
        full.promised_ns = counters.recovery_estimate_ns.get();
        full.journal_bytes = counters.journal_bytes_used.get();
        full.filled = Counts::of(volume)?.since(&start).checkpoints >= WATCHED;
        let nearly = NEARLY * full.promised_ns_max as f64;
        if full.filled && full.promised_ns as f64 >= nearly {
            break;
        }
        full.promised_ns_max = full.promised_ns_max.max(full.promised_ns);
        full.journal_bytes_max = full.journal_bytes_max.max(full.journal_bytes);
    }
    power.cut();
    full.promised_ns_max = full.promised_ns_max.max(full.promised_ns);
    full.journal_bytes_max = full.journal_bytes_max.max(full.journal_bytes);
    Ok(full)
}

struct Work<'a> {
    dirs: &'a [Dir],
    file: &'a File,
    plan: &'a Plan,
    prng: Prng,
    done: u64,
}

impl Work<'_> {
    /// What goes into one commit.
    fn some(&mut self) -> io::Result<()> {
        let blocks = (self.plan.file_bytes / WRITE as u64).max(1);
        let chunk = pattern(WRITE);
        for _ in 0..self.plan.per_commit {
            drop(self.prng.pick(self.dirs).create(format!("new{}", self.done))?);
            self.file.write_all_at(&chunk, self.prng.below(blocks) * WRITE as u64)?;
            self.done += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn an_abandoned_volume_opens_again_and_is_reported() {
        let plan = Plan {
            node_size: 4096,
            budget: Duration::from_millis(100),
            dirs: 10,
            dir_files: 3,
            file_bytes: 1 << 20,
            taken_percent: 10,
            per_commit: 5,
            commits_max: 10,
            seed: 1,
        };
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let row = run(&plan, || Ok(memory.clone())).expect("the workload runs");
        assert_eq!(row.volume_bytes, 64 << 20);
        assert_eq!(row.budget_ns, 100_000_000);
        assert!(row.reads > 0 && row.read_bytes >= row.recovered_bytes, "{row:?}");
        assert!(row.journal_bytes > 0 && row.journal_bytes <= row.journal_bytes_max, "{row:?}");
        assert!(row.promised_ns > 0, "{row:?}");
        assert!((1..=10).contains(&row.recovered_commits), "{row:?}");
        assert!(row.recovered_nodes > 0 && row.recovered_bytes > 0, "{row:?}");
    }
}
