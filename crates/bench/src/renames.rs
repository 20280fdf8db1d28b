//! Renames in a directory that was just fsynced: `rename_log=names` beside `directory` (M2).
//!
//! As published: empty files in one directory, everything committed, one more
//! file, an fsync of the directory, and then every file gets another name. One
//! fsync of the directory ends it. Rounds of all kinds are interleaved; the
//! median counts. What grows with the square of the files is left out where it
//! would take too long, and said so. More files also mean more memory that
//! does not fit a processor's caches: as many files in small directories, in
//! turn, show how much of the growth that is.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, RenameLog, VolumeOptions};
use holdfast_base::clock::{ProcessorTime, Stopwatch};
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::work::{fill_dirs, open_dirs, settle};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Positions of the switch.
    pub switches: Vec<RenameLog>,
    /// Files in the directory, one number after the other, upwards.
    pub files: Vec<u64>,
    /// The same numbers of files once more with `names`, in directories of so many; 0 leaves that out.
    pub spread: u64,
    /// Renames between two fsyncs of the directory; 0 for one fsync at the end.
    pub per_fsync: u64,
    /// Runs of each kind.
    pub rounds: u64,
    /// Renames of each kind at least: small directories get more runs, or chance would decide.
    pub renames_min: u64,
    /// Longest that the renames of one run may take, if they take as long as the square of the files tells.
    pub longest: Duration,
    /// Seconds between background commits. A commit begins anew what a rename has to log.
    pub commit_secs: u32,
    /// Inodes that the volume keeps in memory.
    pub inode_cache: usize,
}

impl Plan {
    /// Bytes that the device needs.
    pub fn device_bytes(&self) -> u64 {
        (1 << 30) + self.files.iter().max().unwrap_or(&0) * 4096
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Nanoseconds of a mean rename, with the fsyncs between renames, if there are any.
    pub rename_ns: f64,
    /// Of those, nanoseconds that the renaming thread worked: the rest it waited, for others or for a processor.
    pub thread_ns: f64,
    /// The same for all threads of the process together.
    pub process_ns: f64,
    /// Nanoseconds of the fsync at the end.
    pub fsync_ns: u64,
    /// Everything that was counted, from the first rename to the end of that fsync.
    pub counts: Counts,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Position of the switch.
    pub rename_log: &'static str,
    /// Files renamed.
    pub files: u64,
    /// Files of each directory: all of them, or [`Plan::spread`].
    pub dir_files: u64,
    /// Median of the mean renames, in nanoseconds. `None` if it was left out.
    pub rename_ns: Option<f64>,
    /// Median of the work of the renaming thread for each rename, in nanoseconds.
    pub thread_ns: Option<f64>,
    /// Median of the work of all threads.
    pub process_ns: Option<f64>,
    /// Median of the fsyncs at the end, in nanoseconds.
    pub fsync_ns: Option<f64>,
    /// Seconds that a run was expected to take, if it was left out for that.
    pub expected_seconds: Option<f64>,
    /// Bytes that a rename wrote into the log, in the mean.
    pub log_bytes_per_rename: f64,
    /// The runs.
    pub rounds: Vec<Run>,
}

impl Row {
    /// The last run, whose counts stand for all: they differ by chance only.
    pub fn counts(&self) -> Counts {
        self.rounds.last().map(|run| run.counts).unwrap_or_default()
    }
}

/// From the smallest to the largest directory that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// Position of the switch.
    pub rename_log: &'static str,
    /// Files of the smallest.
    pub from: u64,
    /// Files of the largest.
    pub to: u64,
    /// Time of a rename there over the time here.
    pub ratio: Option<f64>,
    /// The same for the work of the renaming thread.
    pub thread_ratio: Option<f64>,
}

/// One large directory against small ones, with the same number of files.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// Files in all, and in the large directory.
    pub files: u64,
    /// Files of each small one.
    pub dir_files: u64,
    /// Time of a rename in the large one over that in the small ones.
    pub ratio: Option<f64>,
    /// The same for the work of the renaming thread.
    pub thread_ratio: Option<f64>,
}

/// Runs everything on devices that `device` makes, each fresh; `seen` is told files, files of a
/// directory, switch and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(u64, u64, RenameLog, &Run),
) -> io::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for &files in &plan.files {
        let mut kinds: Vec<Kind> = plan
            .switches
            .iter()
            .map(|&switch| Kind {
                switch,
                dir_files: files,
                expected: expected(&rows, switch, files),
            })
            .collect();
        if (1..files).contains(&plan.spread) && plan.switches.contains(&RenameLog::Names) {
            let switch = RenameLog::Names;
            kinds.push(Kind { switch, dir_files: plan.spread, expected: None });
        }
        let longest = plan.longest.as_secs_f64();
        let too_long = |kind: &Kind| kind.expected.is_some_and(|seconds| seconds > longest);
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); kinds.len()];
        for round in 0..plan.rounds.max(plan.renames_min.div_ceil(files.max(1))) {
            for at in 0..kinds.len() {
                // The last one first in every second round.
                let at = if round % 2 == 0 { at } else { kinds.len() - 1 - at };
                let kind = &kinds[at];
                if !too_long(kind) {
                    let run = one(plan, device()?, kind, files)?;
                    seen(files, kind.dir_files, kind.switch, &run);
                    runs[at].push(run);
                }
            }
        }
        for (kind, rounds) in kinds.into_iter().zip(runs) {
            let left_out = too_long(&kind);
            let expected = kind.expected.filter(|_| left_out);
            rows.push(row(kind, files, rounds, expected));
        }
    }
    Ok(rows)
}

/// What one run differs in from the others with as many files.
struct Kind {
    switch: RenameLog,
    dir_files: u64,
    /// Seconds that it will take, about.
    expected: Option<f64>,
}

fn row(kind: Kind, files: u64, rounds: Vec<Run>, expected_seconds: Option<f64>) -> Row {
    let middle = |value: fn(&Run) -> f64| {
        (!rounds.is_empty()).then(|| median(rounds.iter().map(value).collect()))
    };
    let bytes: u64 = rounds.iter().map(|run| run.counts.log_bytes).sum();
    Row {
        rename_log: kind.switch.word(),
        files,
        dir_files: kind.dir_files,
        rename_ns: middle(|run| run.rename_ns),
        thread_ns: middle(|run| run.thread_ns),
        process_ns: middle(|run| run.process_ns),
        fsync_ns: middle(|run| run.fsync_ns as f64),
        expected_seconds,
        log_bytes_per_rename: ratio(bytes as f64, (files * rounds.len() as u64) as f64)
            .unwrap_or(0.0),
        rounds,
    }
}

/// Seconds of a run with `files` files, if each rename costs as much more as there are more files. For
/// the position that costs the same in any directory this is more than it takes.
fn expected(rows: &[Row], switch: RenameLog, files: u64) -> Option<f64> {
    if switch == RenameLog::Names {
        return None;
    }
    let before = rows.iter().rev().find(|row| row.rename_log == switch.word())?;
    if let Some(seconds) = before.expected_seconds {
        return Some(seconds * (files as f64 / before.files.max(1) as f64).powi(2));
    }
    let more = files as f64 / before.files.max(1) as f64;
    Some(before.rename_ns? * before.files as f64 / 1e9 * more.powi(2))
}

/// How a rename's time grew, for each position of the switch.
pub fn growth(rows: &[Row]) -> Vec<Growth> {
    let of = |switch: &RenameLog| {
        let mut rows =
            rows.iter().filter(|row| row.rename_log == switch.word() && is_measured(row));
        let first = rows.next()?;
        let last = rows.next_back()?;
        Some(Growth {
            rename_log: first.rename_log,
            from: first.files,
            to: last.files,
            ratio: ratio(last.rename_ns?, first.rename_ns?),
            thread_ratio: ratio(last.thread_ns?, first.thread_ns?),
        })
    };
    RenameLog::ALL.iter().filter_map(of).collect()
}

/// One directory against several, for each number of files where both were measured.
pub fn spreads(rows: &[Row]) -> Vec<Spread> {
    let many = rows.iter().filter(|row| row.dir_files < row.files);
    many.filter_map(|many| {
        let mut of = rows.iter().filter(|row| is_measured(row) && row.files == many.files);
        let large = of.find(|row| row.rename_log == many.rename_log)?;
        Some(Spread {
            files: many.files,
            dir_files: many.dir_files,
            ratio: ratio(large.rename_ns?, many.rename_ns?),
            thread_ratio: ratio(large.thread_ns?, many.thread_ns?),
        })
    })
    .collect()
}

/// Whether it is a row of one directory that was not left out.
fn is_measured(row: &Row) -> bool {
    row.dir_files == row.files && row.rename_ns.is_some()
}

fn one(plan: &Plan, device: Arc<dyn Device>, kind: &Kind, files: u64) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume = VolumeOptions::new()
        .rename_log(kind.switch)
        .commit_secs(plan.commit_secs)
        .inode_cache(plan.inode_cache)
        .open_device(device)?;
    let count = files.div_ceil(kind.dir_files.max(1));
    fill_dirs(&volume, count, 0)?;
    let dirs = open_dirs(&volume, count)?;
    // Several directories take turns, so that neighbours in time are no neighbours in memory.
    let dir_of = |number: usize| &dirs[number % dirs.len()];
    let names: Vec<(String, String)> =
        (0..files).map(|file| (format!("file-{file}"), format!("renamed-{file}"))).collect();
    for (number, (name, _)) in names.iter().enumerate() {
        drop(dir_of(number).create(name)?);
    }
    settle(&volume)?;
    dirs.iter().try_for_each(|dir| dir.create("one more").map(drop))?;
    dirs.iter().try_for_each(|dir| dir.sync_all())?;
    let before = Counts::of(&volume)?;
    let (time, work) = (Stopwatch::start(), ProcessorTime::start());
    for (number, (old, new)) in names.iter().enumerate() {
        let dir = dir_of(number);
        dir.rename(old, new)?;
        if plan.per_fsync > 0 && (number as u64 + 1).is_multiple_of(plan.per_fsync) {
            dir.sync_all()?;
        }
    }
    let (renames, thread, process) = (time.nanos(), work.thread_nanos(), work.process_nanos());
    let time = Stopwatch::start();
    // The first makes the others durable as well: history is one sequence (P3).
    dir_of(0).sync_all()?;
    let run = Run {
        rename_ns: renames as f64 / files.max(1) as f64,
        thread_ns: thread as f64 / files.max(1) as f64,
        process_ns: process as f64 / files.max(1) as f64,
        fsync_ns: time.nanos(),
        counts: Counts::of(&volume)?.since(&before),
    };
    drop(dirs);
    volume.abandon();
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    fn plan() -> Plan {
        Plan {
            node_size: 4096,
            switches: RenameLog::ALL.to_vec(),
            files: vec![20, 80],
            spread: 30,
            per_fsync: 0,
            rounds: 2,
            renames_min: 0,
            longest: Duration::from_secs(3600),
            commit_secs: 0,
            inode_cache: 1000,
        }
    }

    fn memory() -> io::Result<Arc<dyn Device>> {
        Ok(Arc::new(MemoryDevice::new(64 << 20)))
    }

    #[test]
    fn every_size_has_a_row_for_each_position() {
        let mut runs = 0;
        let rows = run(&plan(), memory, |_, _, _, _| runs += 1).expect("the workload runs");
        assert_eq!((rows.len(), runs), (5, 10));
        for row in &rows {
            assert!(row.rename_ns.is_some_and(|ns| ns > 0.0), "{row:?}");
            assert_eq!(row.rounds.len(), 2);
            // Nothing else of the engine commits meanwhile, and a log that is not full escapes nothing.
            assert_eq!(row.counts().escapes(), 0, "{row:?}");
            assert!(row.rename_log == "directory" || row.counts().log_directories == 0, "{row:?}");
        }
        let growth = growth(&rows);
        assert_eq!(growth.len(), 2);
        assert_eq!((growth[0].from, growth[0].to), (20, 80));
        let spreads = spreads(&rows);
        assert_eq!((spreads.len(), spreads[0].files, spreads[0].dir_files), (1, 80, 30));
    }

    #[test]
    fn what_would_take_too_long_is_left_out_and_said() {
        let files = vec![5, 10, 20];
        let plan = Plan { longest: Duration::ZERO, rounds: 1, spread: 0, files, ..plan() };
        let rows = run(&plan, memory, |_, _, _, _| {}).expect("the workload runs");
        let of = |word: &str| rows.iter().filter(|row| row.rename_log == word).collect::<Vec<_>>();
        assert!(of("names").iter().all(|row| row.rename_ns.is_some()));
        let directory = of("directory");
        assert!(directory[0].rename_ns.is_some());
        let expected = |at: usize| directory[at].expected_seconds.expect("it was left out");
        assert!(directory[1].rename_ns.is_none());
        assert!((expected(2) / expected(1) - 4.0).abs() < 1e-9);
        assert_eq!(growth(&rows).len(), 1, "one point is no growth");
    }
}
