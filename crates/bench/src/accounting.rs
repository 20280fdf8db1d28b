//! Records of block groups: `changed` beside `always` (M1), round after round in one run.
//!
//! Two workloads, each for a fixed time under a commit timer: random writes of
//! 4 KiB by several threads, each into a file of its own, with so little memory
//! for waiting data that every write soon goes to the device; and creates and
//! unlinks over many directories. What a commit costs is a mean over the run;
//! of several rounds the median counts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{Accounting, CreateOptions, Dir, File, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::work::{fill_dirs, on_threads, open_dirs, pattern};

/// Bytes of a write.
const WRITE: usize = 4096;
/// Written data that may wait: the least that the engine offers.
const DIRTY_BYTES: usize = 4 << 20;
/// Between two looks at the counters: seldom enough to cost nothing.
const LOOK: Duration = Duration::from_millis(20);
/// Files that a thread of the second workload keeps, so that it creates and unlinks alike.
const KEPT: usize = 2000;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Threads; of the first workload each has a file.
    pub jobs: u64,
    /// Bytes of such a file.
    pub file_bytes: u64,
    /// Directories of the second workload.
    pub dirs: u64,
    /// How long a run takes.
    pub time: Duration,
    /// Seconds between commits.
    pub commit_secs: u32,
    /// Runs of each kind.
    pub rounds: u64,
    /// Decides places and names.
    pub seed: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Operations per second.
    pub per_second: f64,
    /// Nanoseconds of a mean freeze.
    pub frozen_mean_ns: f64,
    /// Of those, for the records of block groups.
    pub groups_mean_ns: f64,
    /// 99 of 100 freezes were no longer.
    pub frozen_p99_ns: u64,
    /// The longest freeze.
    pub frozen_max_ns: u64,
    /// Commits one after the other, as far as they were seen apart.
    pub skips: Vec<Skips>,
    /// Everything that was counted.
    pub counts: Counts,
}

/// What happened to group records from one look at the counters to the next that found a commit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Skips {
    /// Commits of the run so far.
    pub commits: u64,
    /// Share of records that were found unchanged and skipped, of those since the last look.
    pub share: f64,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub workload: &'static str,
    /// Position of the switch.
    pub accounting: &'static str,
    /// Median of operations per second.
    pub per_second: f64,
    /// Median of the mean freezes, in nanoseconds.
    pub frozen_mean_ns: f64,
    /// The same for the records of block groups.
    pub groups_mean_ns: f64,
    /// Share of records that were found unchanged and skipped, all runs together.
    pub skipped_share: f64,
    /// Everything that was counted, all runs together.
    pub counts: Counts,
    /// The runs.
    pub rounds: Vec<Run>,
}

/// `changed` over `always` for one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What was done.
    pub workload: &'static str,
    /// Of operations per second.
    pub per_second: Option<f64>,
    /// Of mean freezes.
    pub frozen: Option<f64>,
    /// Of the time in them for the records of block groups.
    pub groups: Option<f64>,
}

/// The first workload's name.
pub const WRITES: &str = "random writes of 4 KiB";
/// The second workload's name.
pub const NAMES: &str = "creates and unlinks";

/// Runs everything on devices that `device` makes, each fresh; `seen` is told workload, switch and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(&'static str, Accounting, &Run),
) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let works: [(&'static str, Work); 2] = [(WRITES, random_writes), (NAMES, creates_and_unlinks)];
    for (workload, work) in works {
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..plan.rounds {
            for at in 0..2 {
                let at = if round % 2 == 0 { at } else { 1 - at };
                let accounting = Accounting::ALL[at];
                let run = one(plan, device()?, accounting, work)?;
                seen(workload, accounting, &run);
                runs[at].push(run);
            }
        }
        for (accounting, rounds) in Accounting::ALL.iter().zip(runs) {
            rows.push(row(workload, *accounting, rounds));
        }
    }
    Ok(rows)
}

fn row(workload: &'static str, accounting: Accounting, rounds: Vec<Run>) -> Row {
    let middle = |value: fn(&Run) -> f64| median(rounds.iter().map(value).collect());
    let counts = rounds.iter().fold(Counts::default(), |sum, run| sum.plus(&run.counts));
    Row {
        workload,
        accounting: accounting.word(),
        per_second: middle(|run| run.per_second),
        frozen_mean_ns: middle(|run| run.frozen_mean_ns),
        groups_mean_ns: middle(|run| run.groups_mean_ns),
        skipped_share: counts.skipped_share(),
        counts,
        rounds,
    }
}

/// Both positions against each other.
pub fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let of = |workload: &str, accounting: Accounting| {
        rows.iter().find(|row| row.workload == workload && row.accounting == accounting.word())
    };
    let both = |workload| {
        let changed = of(workload, Accounting::Changed)?;
        let always = of(workload, Accounting::Always)?;
        Some(Ratio {
            workload,
            per_second: ratio(changed.per_second, always.per_second),
            frozen: ratio(changed.frozen_mean_ns, always.frozen_mean_ns),
            groups: ratio(changed.groups_mean_ns, always.groups_mean_ns),
        })
    };
    [WRITES, NAMES].into_iter().filter_map(both).collect()
}

/// Prepares, then works until it is time, and says how many operations that were. The part to be
/// measured begins when the function calls its last argument.
type Work = fn(&Volume, &Plan, &mut dyn FnMut() -> io::Result<()>) -> io::Result<u64>;

fn one(
    plan: &Plan,
    device: Arc<dyn Device>,
    accounting: Accounting,
    work: Work,
) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume = VolumeOptions::new()
        .accounting(accounting)
        .commit_secs(plan.commit_secs)
        .dirty_bytes(DIRTY_BYTES)
        .open_device(device)?;
    let mut before = None;
    let is_over = AtomicBool::new(false);
    let (done, seconds, looks) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&volume, &is_over));
        let done = work(&volume, plan, &mut || {
            volume.commit()?;
            before = Some((Counts::of(&volume)?, Stopwatch::start()));
            Ok(())
        });
        let seconds = before.as_ref().map(|(_, time)| time.elapsed().as_secs_f64());
        is_over.store(true, Ordering::Relaxed);
        let looks = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        io::Result::Ok((done?, seconds, looks?))
    })?;
    let never = || io::Error::other("the workload never began");
    let ((before, _), seconds) = before.zip(seconds).ok_or_else(never)?;
    let counts = Counts::of(&volume)?.since(&before);
    let engine = volume.engine()?;
    let gauges = engine.counters();
    let mean = |value: u64| ratio(value as f64, counts.freezes() as f64).unwrap_or(0.0);
    let run = Run {
        per_second: done as f64 / seconds.max(1e-9),
        frozen_mean_ns: mean(counts.frozen_ns),
        groups_mean_ns: mean(counts.frozen_groups_ns),
        frozen_p99_ns: gauges.frozen_p99_ns.get(),
        frozen_max_ns: gauges.frozen_max_ns.get(),
        skips: skips(&before, &looks),
        counts,
    };
    drop(engine);
    volume.abandon();
    Ok(run)
}

/// Looks at the counters until it is over, and keeps what differs by a commit.
fn watch(volume: &Volume, is_over: &AtomicBool) -> io::Result<Vec<Counts>> {
    let mut looks: Vec<Counts> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let now = Counts::of(volume)?;
        if looks.last().is_none_or(|last| last.commits < now.commits) {
            looks.push(now);
        }
    }
    Ok(looks)
}

/// What each look after `begin` found new.
fn skips(begin: &Counts, looks: &[Counts]) -> Vec<Skips> {
    let mut last = *begin;
    let mut skips = Vec::new();
    for look in looks.iter().filter(|look| look.commits > begin.commits) {
        let new = look.since(&last);
        if new.groups_written + new.groups_skipped > 0 {
            let commits = look.commits - begin.commits;
            skips.push(Skips { commits, share: new.skipped_share() });
        }
        last = *look;
    }
    skips
}

fn random_writes(
    volume: &Volume,
    plan: &Plan,
    begin: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<u64> {
    let files = (0..plan.jobs)
        .map(|job| {
            let file = volume.create(format!("/job{job}"))?;
            // A hole at first, as fio leaves it: the space is taken by the writes.
            file.set_len(plan.file_bytes)?;
            Ok(file)
        })
        .collect::<io::Result<Vec<File>>>()?;
    begin()?;
    let until = Deadline::after(plan.time);
    let done = on_threads(plan.jobs, |job| {
        let file = &files[job as usize];
        let mut prng = Prng::seeded(plan.seed + job);
        let blocks = (plan.file_bytes / WRITE as u64).max(1);
        let mut chunk = pattern(WRITE);
        let mut done: u64 = 0;
        while !until.is_over() {
            chunk[..8].copy_from_slice(&done.to_le_bytes());
            file.write_all_at(&chunk, prng.below(blocks) * WRITE as u64)?;
            done += 1;
        }
        file.sync_all()?;
        Ok(done)
    })?;
    Ok(done.iter().sum())
}

fn creates_and_unlinks(
    volume: &Volume,
    plan: &Plan,
    begin: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<u64> {
    fill_dirs(volume, plan.dirs, 4)?;
    let dirs = open_dirs(volume, plan.dirs)?;
    begin()?;
    let until = Deadline::after(plan.time);
    let done = on_threads(plan.jobs, |job| {
        let mut prng = Prng::seeded(plan.seed + job);
        let mut kept: Vec<(&Dir, String)> = Vec::new();
        let mut done: u64 = 0;
        while !until.is_over() {
            if kept.len() < KEPT {
                let dir = prng.pick(&dirs);
                let name = format!("job{job}-{done}");
                drop(dir.create(&name)?);
                kept.push((dir, name));
            }
            // One more than half of the time when full, so that the number of files sways.
            if kept.len() >= KEPT || prng.one_in(2) && kept.len() > KEPT / 2 {
                let at = prng.below(kept.len() as u64) as usize;
                let (dir, name) = kept.swap_remove(at);
                dir.remove_file(&name)?;
            }
            done += 1;
        }
        Ok(done)
    })?;
    Ok(done.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn commits_are_told_apart() {
        let counts = |commits, groups_written, groups_skipped| Counts {
            commits,
            groups_written,
            groups_skipped,
            ..Counts::default()
        };
        let looks = [counts(1, 9, 9), counts(3, 10, 12), counts(4, 10, 12), counts(6, 13, 13)];
        let found = skips(&counts(2, 9, 9), &looks);
        let expected = [Skips { commits: 1, share: 0.75 }, Skips { commits: 4, share: 0.25 }];
        assert_eq!(found, expected);
    }

    #[test]
    fn both_workloads_run_under_both_positions() {
        let plan = Plan {
            node_size: 16384,
            jobs: 2,
            file_bytes: 1 << 20,
            dirs: 5,
            time: Duration::from_millis(60),
            commit_secs: 0,
            rounds: 1,
            seed: 1,
        };
        let fresh = || Ok(Arc::new(MemoryDevice::new(256 << 20)) as Arc<dyn Device>);
        let mut runs = 0;
        let rows = run(&plan, fresh, |_, _, _| runs += 1).expect("the workloads run");
        assert_eq!((rows.len(), runs), (4, 4));
        assert!(rows.iter().all(|row| row.per_second > 0.0));
        for row in rows.iter().filter(|row| row.accounting == "always") {
            // Only commits carry the switch out.
            if row.counts.commits > 0 {
                assert_eq!(row.counts.groups_skipped, 0, "always means always: {row:?}");
            }
        }
        assert_eq!(ratios(&rows).len(), 2);
    }
}
