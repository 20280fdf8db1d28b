//! Records of block groups: which of them commits write, and what that costs (M1).
//!
//! Two workloads, each for a fixed time under a commit timer: random writes of
//! 4 KiB by several threads, each into a file of its own, with so little memory
//! for waiting data that every write soon goes to the device; and creates and
//! unlinks over many directories. What a commit costs is a mean over the run.
//!
//! Each runs once more with a checkpoint in place of every commit. A commit of ours only logs: of the nodes that it
//! logs none gets a new place before the next checkpoint. One of btrfs gives every node that changed a new place, so
//! that carrying a record takes and frees blocks itself, and visits groups again. A checkpoint does that, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{Accounting, CreateOptions, Dir, File, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;
use holdfast_device::Device;

use crate::Counts;
use crate::counts::ratio;
use crate::work::{fill_dirs, on_threads, open_dirs, pattern};

use Ends::{Checkpoints, Commits};

/// Bytes of a write.
const WRITE: usize = 4096;
/// Written data that may wait: the least that the engine offers.
const DIRTY_BYTES: usize = 4 << 20;
/// Between two looks at the counters: seldom enough to cost nothing.
const LOOK: Duration = Duration::from_millis(20);
/// Files that a thread of the second workload keeps, so that it creates and unlinks alike.
const KEPT: usize = 2000;

/// Bytes of a tree node.
const NODE: usize = 16384;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Threads; of the first workload each has a file.
    pub(crate) jobs: u64,
    /// Bytes of such a file.
    pub(crate) file_bytes: u64,
    /// Directories of the second workload.
    pub(crate) dirs: u64,
    /// How long a run takes.
    pub(crate) time: Duration,
    /// Seconds between commits, or between checkpoints.
    pub(crate) commit_secs: u32,
    /// Decides offsets and names.
    pub(crate) seed: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Operations per second.
    pub(crate) per_second: f64,
    /// Nanoseconds of a mean freeze.
    pub(crate) frozen_ns: f64,
    /// Of those, for the records of block groups.
    pub(crate) groups_ns: f64,
    /// Commits one after the other, as far as they were seen apart.
    pub(crate) skips: Vec<Skips>,
    /// Everything that was counted.
    pub(crate) counts: Counts,
}

/// What happened to group records from one look at the counters to the next that found a commit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Skips {
    /// Commits of the run so far.
    pub(crate) commits: u64,
    /// Share of records that were found unchanged and skipped, of those since the last look.
    pub(crate) share: f64,
}

/// What ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// A commit, by the volume's timer.
    Commits,
    /// A checkpoint, as often.
    Checkpoints,
}

/// The workloads: their names, what is done, and what ends a transaction.
pub(crate) const WORKS: [(&str, Work, Ends); 4] = [
    ("random writes of 4 KiB", random_writes, Commits),
    ("random writes, each commit a checkpoint", random_writes, Checkpoints),
    ("creates and unlinks", creates_and_unlinks, Commits),
    ("creates and unlinks, each commit a checkpoint", creates_and_unlinks, Checkpoints),
];

/// Prepares, then works until it is time, and says how many operations that were. The part to be
/// measured begins when the function calls its last argument.
pub(crate) type Work = fn(&Volume, &Plan, &mut dyn FnMut() -> io::Result<()>) -> io::Result<u64>;

/// Runs `work` on `device`, which is empty.
pub(crate) fn run(
    plan: &Plan,
    device: Arc<dyn Device>,
    accounting: Accounting,
    (work, ends): (Work, Ends),
) -> io::Result<Run> {
    CreateOptions::new().node_size(NODE).format(&device)?;
    let (commit_secs, every) = match ends {
        Commits => (plan.commit_secs, None),
        Checkpoints => (0, Some(Duration::from_secs(plan.commit_secs.into()))),
    };
    let volume = VolumeOptions::new()
        .accounting(accounting)
        .commit_secs(commit_secs)
        .dirty_bytes(DIRTY_BYTES)
        .open_device(device)?;
    let mut before = None;
    let is_over = AtomicBool::new(false);
    let (done, seconds, looks) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&volume, &is_over, every));
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
    let mean = |value: u64| ratio(value as f64, counts.freezes() as f64).unwrap_or(0.0);
    let run = Run {
        per_second: done as f64 / seconds.max(1e-9),
        frozen_ns: mean(counts.frozen_ns),
        groups_ns: mean(counts.frozen_groups_ns),
        skips: skips(&before, &looks),
        counts,
    };
    volume.abandon();
    Ok(run)
}

/// Looks at the counters until it is over, and keeps what differs by a commit. Makes a checkpoint `every` so often.
fn watch(
    volume: &Volume,
    is_over: &AtomicBool,
    every: Option<Duration>,
) -> io::Result<Vec<Counts>> {
    let mut looks: Vec<Counts> = Vec::new();
    let mut next = every.map(Deadline::after);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if let Some(every) = every.filter(|_| next.is_some_and(Deadline::is_over)) {
            volume.engine()?.checkpoint().map_err(io::Error::other)?;
            next = Some(Deadline::after(every));
        }
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
            // One more than half of the time when full, so that the number of files varies.
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
    fn all_workloads_run_under_both_positions() {
        let plan = Plan {
            jobs: 2,
            file_bytes: 1 << 20,
            dirs: 5,
            time: Duration::from_millis(60),
            commit_secs: 0,
            seed: 1,
        };
        for (name, work, ends) in WORKS {
            for &accounting in Accounting::ALL {
                let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
                let run = run(&plan, device, accounting, (work, ends)).expect("the workload runs");
                assert!(run.per_second > 0.0, "{name}: {run:?}");
                if ends == Checkpoints {
                    assert!(run.counts.checkpoints > 0, "{name}: {run:?}");
                }
                // Only commits use the switch.
                if accounting == Accounting::Always && run.counts.commits > 0 {
                    assert_eq!(run.counts.groups_skipped, 0, "always means always: {run:?}");
                }
            }
        }
    }
}
