//! Creates with many pending files and one fsync behind them: `batch=indexed` beside `scan` (M4).
//!
//! Empty files in several directories, nothing synced until all are there, and
//! then one fsync, which has to log them all. What background commits have
//! taken before is no part of its batch, so a row tells how many records the
//! batches held. Rounds of both positions are interleaved; the median counts.

use std::io;
use std::sync::Arc;

use holdfast::{Batching, CreateOptions, VolumeOptions};
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
    pub switches: Vec<Batching>,
    /// Directories, one number after the other.
    pub dirs: Vec<u64>,
    /// Files in each of them, one number after the other.
    pub files: Vec<u64>,
    /// Every file is fsynced at the end, not only the last: what was published did so.
    pub each: bool,
    /// Runs of each kind.
    pub rounds: u64,
    /// Seconds between background commits; 0 for none by time.
    pub commit_secs: u32,
}

impl Plan {
    /// Bytes that the device needs.
    pub fn device_bytes(&self) -> u64 {
        let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
        (2 << 30) + most(&self.dirs) * most(&self.files) * 2048
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Nanoseconds of the creates, for each file.
    pub create_ns: f64,
    /// Nanoseconds of creates and fsyncs together, for each file.
    pub total_ns: f64,
    /// Of those, nanoseconds that the thread worked: the rest it waited, for others or for a processor.
    pub thread_ns: f64,
    /// Nanoseconds in which batches were formatted, for each record in them.
    pub format_ns: f64,
    /// Everything that was counted.
    pub counts: Counts,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Position of the switch.
    pub batch: &'static str,
    /// Directories.
    pub dirs: u64,
    /// Files in each.
    pub files: u64,
    /// Medians of what a [`Run`] holds.
    pub create_ns: f64,
    /// Creates and fsyncs.
    pub total_ns: f64,
    /// The thread's work for both.
    pub thread_ns: f64,
    /// Formatting, for each record.
    pub format_ns: f64,
    /// Files per second, fsyncs included.
    pub per_second: f64,
    /// Records of a mean batch.
    pub records_per_batch: f64,
    /// The runs.
    pub rounds: Vec<Run>,
}

/// Both positions against each other, for one number of directories and files.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// Directories.
    pub dirs: u64,
    /// Files in each.
    pub files: u64,
    /// Files per second of `indexed` over those of `scan`.
    pub per_second: Option<f64>,
    /// Formatting of `scan` over that of `indexed`.
    pub format: Option<f64>,
}

/// How one position's costs grew.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// Position of the switch.
    pub batch: &'static str,
    /// The fewest and the most files.
    pub files: (u64, u64),
    /// Time for each file of the most over that of the fewest.
    pub ratio: Option<f64>,
    /// The same for the thread's work.
    pub thread_ratio: Option<f64>,
    /// Records of the smallest mean batch that had at least 1,000, and of the largest.
    pub records: (f64, f64),
    /// Formatting of a record in the largest over that in the smallest.
    pub format_ratio: Option<f64>,
}

/// Smaller batches say nothing about what a record costs.
const TELLING_RECORDS: f64 = 1000.0;

/// How the costs of each position grew with the files, and with the records of a batch.
pub fn growth(rows: &[Row]) -> Vec<Growth> {
    let of = |switch: &Batching| {
        let own = || rows.iter().filter(|row| row.batch == switch.word());
        let fewest = own().min_by_key(|row| row.dirs * row.files)?;
        let most = own().max_by_key(|row| row.dirs * row.files)?;
        let telling = || own().filter(|row| row.records_per_batch >= TELLING_RECORDS);
        let by_records = |a: &&Row, b: &&Row| a.records_per_batch.total_cmp(&b.records_per_batch);
        let small = telling().min_by(by_records);
        let large = telling().max_by(by_records);
        let records = |row: Option<&Row>| row.map_or(0.0, |row| row.records_per_batch);
        Some(Growth {
            batch: switch.word(),
            files: (fewest.dirs * fewest.files, most.dirs * most.files),
            ratio: ratio(most.total_ns, fewest.total_ns),
            thread_ratio: ratio(most.thread_ns, fewest.thread_ns),
            records: (records(small), records(large)),
            format_ratio: small
                .zip(large)
                .and_then(|(small, large)| ratio(large.format_ns, small.format_ns)),
        })
    };
    Batching::ALL.iter().filter_map(of).collect()
}

/// Runs everything on devices that `device` makes, each fresh; `seen` is told directories, files,
/// switch and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(u64, u64, Batching, &Run),
) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &dirs in &plan.dirs {
        for &files in &plan.files {
            let mut runs: Vec<Vec<Run>> = vec![Vec::new(); plan.switches.len()];
            for round in 0..plan.rounds {
                for at in 0..plan.switches.len() {
                    let at = if round % 2 == 0 { at } else { plan.switches.len() - 1 - at };
                    let run = one(plan, device()?, plan.switches[at], dirs, files)?;
                    seen(dirs, files, plan.switches[at], &run);
                    runs[at].push(run);
                }
            }
            for (switch, rounds) in plan.switches.iter().zip(runs) {
                rows.push(row(*switch, dirs, files, rounds));
            }
        }
    }
    Ok(rows)
}

fn row(switch: Batching, dirs: u64, files: u64, rounds: Vec<Run>) -> Row {
    let middle = |value: fn(&Run) -> f64| median(rounds.iter().map(value).collect());
    let counts = rounds.iter().fold(Counts::default(), |sum, run| sum.plus(&run.counts));
    let total_ns = middle(|run| run.total_ns);
    Row {
        batch: switch.word(),
        dirs,
        files,
        create_ns: middle(|run| run.create_ns),
        total_ns,
        thread_ns: middle(|run| run.thread_ns),
        format_ns: middle(|run| run.format_ns),
        per_second: ratio(1e9, total_ns).unwrap_or(0.0),
        records_per_batch: counts.records_per_batch(),
        rounds,
    }
}

/// Both positions against each other, where both were measured.
pub fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let indexed = rows.iter().filter(|row| row.batch == Batching::Indexed.word());
    indexed
        .filter_map(|row| {
            let scan = rows.iter().find(|other| {
                other.batch == Batching::Scan.word()
                    && (other.dirs, other.files) == (row.dirs, row.files)
            })?;
            Some(Ratio {
                dirs: row.dirs,
                files: row.files,
                per_second: ratio(row.per_second, scan.per_second),
                format: ratio(scan.format_ns, row.format_ns),
            })
        })
        .collect()
}

fn one(
    plan: &Plan,
    device: Arc<dyn Device>,
    switch: Batching,
    dirs: u64,
    files: u64,
) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume =
        VolumeOptions::new().batching(switch).commit_secs(plan.commit_secs).open_device(device)?;
    fill_dirs(&volume, dirs, 0)?;
    let dirs = open_dirs(&volume, dirs)?;
    let names: Vec<String> = (0..files).map(|file| format!("file-{file}")).collect();
    settle(&volume)?;
    let before = Counts::of(&volume)?;
    let (time, work) = (Stopwatch::start(), ProcessorTime::start());
    for dir in &dirs {
        for name in &names {
            drop(dir.create(name)?);
        }
    }
    let created = time.nanos();
    let all = dirs.iter().flat_map(|dir| names.iter().map(move |name| (dir, name)));
    // Of one that was made earlier a commit may have everything: the last one has all files before it.
    let others = if plan.each { 0 } else { (dirs.len() * names.len()).saturating_sub(1) };
    for (dir, name) in all.skip(others) {
        dir.open_file(name)?.sync_all()?;
    }
    let (total, thread) = (time.nanos(), work.thread_nanos());
    let counts = Counts::of(&volume)?.since(&before);
    let count = (dirs.len() * names.len()) as f64;
    drop(dirs);
    volume.abandon();
    Ok(Run {
        create_ns: ratio(created as f64, count).unwrap_or(0.0),
        total_ns: ratio(total as f64, count).unwrap_or(0.0),
        thread_ns: ratio(thread as f64, count).unwrap_or(0.0),
        format_ns: ratio(counts.log_format_ns as f64, counts.log_records as f64).unwrap_or(0.0),
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_number_of_files_has_a_row_for_each_position() {
        let plan = Plan {
            node_size: 4096,
            switches: Batching::ALL.to_vec(),
            dirs: vec![1, 3],
            files: vec![4, 32],
            each: true,
            rounds: 2,
            commit_secs: 0,
        };
        let fresh = || Ok(Arc::new(MemoryDevice::new(64 << 20)) as Arc<dyn Device>);
        let mut runs = 0;
        let rows = run(&plan, fresh, |_, _, _, _| runs += 1).expect("the workload runs");
        assert_eq!((rows.len(), runs), (8, 16));
        for row in &rows {
            assert!(row.total_ns >= row.create_ns && row.per_second > 0.0, "{row:?}");
            for run in &row.rounds {
                // One of them makes all durable; the others have nothing left to do.
                let files = row.dirs * row.files;
                assert_eq!((run.counts.fsyncs, run.counts.clean_fsyncs), (files, files - 1));
                assert_eq!(run.counts.escapes(), 0, "{row:?}");
            }
        }
        assert_eq!(ratios(&rows).len(), 4);
        let growth = growth(&rows);
        assert_eq!((growth.len(), growth[0].files), (2, (4, 96)));
        assert_eq!(growth[0].format_ratio, None, "no batch is large enough to tell");
    }
}
