//! Renames in a directory that was just fsynced: `rename_log=names` beside `directory` (M2).
//!
//! As published: empty files in one directory, everything committed, one more
//! file, an fsync of the directory, and then every file gets another name. One
//! fsync of the directory ends it. Rounds of both positions are interleaved;
//! the median counts. What grows with the square of the files is left out
//! where it would take too long, and said so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, RenameLog, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::work::settle;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Positions of the switch.
    pub switches: Vec<RenameLog>,
    /// Files in the directory, one number after the other, upwards.
    pub files: Vec<u64>,
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
    /// Median of the mean renames, in nanoseconds. `None` if it was left out.
    pub rename_ns: Option<f64>,
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
}

/// Runs everything on devices that `device` makes, each fresh; `seen` is told files, switch and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(u64, RenameLog, &Run),
) -> io::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for &files in &plan.files {
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); plan.switches.len()];
        let expected: Vec<Option<f64>> =
            plan.switches.iter().map(|switch| expected(&rows, *switch, files)).collect();
        let too_long: Vec<bool> = expected
            .iter()
            .map(|seconds| seconds.is_some_and(|seconds| seconds > plan.longest.as_secs_f64()))
            .collect();
        for round in 0..plan.rounds.max(plan.renames_min.div_ceil(files.max(1))) {
            for at in 0..plan.switches.len() {
                // The other one first in every second round.
                let at = if round % 2 == 0 { at } else { plan.switches.len() - 1 - at };
                if !too_long[at] {
                    let run = one(plan, device()?, plan.switches[at], files)?;
                    seen(files, plan.switches[at], &run);
                    runs[at].push(run);
                }
            }
        }
        for (at, rounds) in runs.into_iter().enumerate() {
            let expected = expected[at].filter(|_| too_long[at]);
            rows.push(row(plan.switches[at], files, rounds, expected));
        }
    }
    Ok(rows)
}

fn row(switch: RenameLog, files: u64, rounds: Vec<Run>, expected_seconds: Option<f64>) -> Row {
    let middle = |value: fn(&Run) -> f64| {
        (!rounds.is_empty()).then(|| median(rounds.iter().map(value).collect()))
    };
    let bytes: u64 = rounds.iter().map(|run| run.counts.log_bytes).sum();
    Row {
        rename_log: switch.word(),
        files,
        rename_ns: middle(|run| run.rename_ns),
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
            rows.iter().filter(|row| row.rename_log == switch.word() && row.rename_ns.is_some());
        let first = rows.next()?;
        let last = rows.next_back()?;
        Some(Growth {
            rename_log: first.rename_log,
            from: first.files,
            to: last.files,
            ratio: ratio(last.rename_ns?, first.rename_ns?),
        })
    };
    RenameLog::ALL.iter().filter_map(of).collect()
}

fn one(plan: &Plan, device: Arc<dyn Device>, switch: RenameLog, files: u64) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume = VolumeOptions::new()
        .rename_log(switch)
        .commit_secs(plan.commit_secs)
        .inode_cache(plan.inode_cache)
        .open_device(device)?;
    volume.create_dir("/dir")?;
    let dir = volume.open_dir("/dir")?;
    let names: Vec<(String, String)> =
        (0..files).map(|file| (format!("file-{file}"), format!("renamed-{file}"))).collect();
    for (name, _) in &names {
        drop(dir.create(name)?);
    }
    settle(&volume)?;
    drop(dir.create("one more")?);
    dir.sync_all()?;
    let before = Counts::of(&volume)?;
    let time = Stopwatch::start();
    for (number, (old, new)) in (1..).zip(&names) {
        dir.rename(old, new)?;
        if plan.per_fsync > 0 && number % plan.per_fsync == 0 {
            dir.sync_all()?;
        }
    }
    let renames = time.nanos();
    let time = Stopwatch::start();
    dir.sync_all()?;
    let run = Run {
        rename_ns: renames as f64 / files.max(1) as f64,
        fsync_ns: time.nanos(),
        counts: Counts::of(&volume)?.since(&before),
    };
    drop(dir);
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
        let rows = run(&plan(), memory, |_, _, _| runs += 1).expect("the workload runs");
        assert_eq!((rows.len(), runs), (4, 8));
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
    }

    #[test]
    fn what_would_take_too_long_is_left_out_and_said() {
        let plan = Plan { longest: Duration::ZERO, rounds: 1, files: vec![5, 10, 20], ..plan() };
        let rows = run(&plan, memory, |_, _, _| {}).expect("the workload runs");
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
