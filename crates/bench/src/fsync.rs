//! Writes with fsyncs by many threads, each into a file of its own: what M5 was published with.
//!
//! Two workloads: sequential writes of 64 KiB with an fsync after each, and
//! random writes of 4 KiB with an fsync after every sixteenth. Files are full
//! and committed before. Both positions of `fsync_wait=` take turns. Each cell runs for a fixed time; the bytes, writes and
//! flushes of the device are divided by the fsyncs that were answered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, File, FsyncWait, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;
use holdfast_device::{Device, DeviceStats};
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::work::{on_threads, pattern, settle};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Threads, one number after the other.
    pub jobs: Vec<u64>,
    /// Bytes of a thread's file.
    pub file_bytes: u64,
    /// How long a run takes.
    pub time: Duration,
    /// Runs of each kind.
    pub rounds: u64,
    /// Seconds between background commits.
    pub commit_secs: u32,
    /// Bytes of data that an fsync puts into the log; `None` for the volume's default.
    pub log_data_bytes: Option<usize>,
    /// Decides places.
    pub seed: u64,
}

impl Plan {
    /// Bytes that the device needs: files, what replaces them between two commits, and room.
    pub fn device_bytes(&self) -> u64 {
        (3 << 30) + 3 * self.jobs.iter().max().unwrap_or(&0) * self.file_bytes
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    write: usize,
    writes_per_fsync: u64,
    random: bool,
}

const WORKS: [Work; 2] = [
    Work {
        name: "sequential 64 KiB, fsync after each",
        write: 64 << 10,
        writes_per_fsync: 1,
        random: false,
    },
    Work {
        name: "random 4 KiB, fsync after 16",
        write: 4 << 10,
        writes_per_fsync: 16,
        random: true,
    },
];

/// The workloads' names: the sequential one, then the random one.
pub fn names() -> [&'static str; 2] {
    WORKS.map(|work| work.name)
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// MiB written per second.
    pub mib_per_second: f64,
    /// Fsyncs answered per second.
    pub fsyncs_per_second: f64,
    /// Half of the fsyncs took no longer than this, in nanoseconds.
    pub fsync_p50_ns: u64,
    /// 99 of 100 took no longer.
    pub fsync_p99_ns: u64,
    /// Fsyncs answered.
    pub fsyncs: u64,
    /// Bytes that the device was given.
    pub device_bytes: u64,
    /// Writes that it was given.
    pub device_writes: u64,
    /// Flushes that it was asked for.
    pub device_flushes: u64,
    /// Everything that the volume counted.
    pub counts: Counts,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub workload: &'static str,
    /// Threads.
    pub jobs: u64,
    /// What an fsync waited for after its data was written.
    pub fsync_wait: &'static str,
    /// Median of MiB per second.
    pub mib_per_second: f64,
    /// Median of fsyncs per second.
    pub fsyncs_per_second: f64,
    /// Median of the halves.
    pub fsync_p50_ns: f64,
    /// Median of the 99 percents.
    pub fsync_p99_ns: f64,
    /// Flushes of the device for each fsync, all runs together, as the next ones.
    pub flushes_per_fsync: f64,
    /// Writes of the device.
    pub writes_per_fsync: f64,
    /// Bytes written to the device.
    pub bytes_per_fsync: f64,
    /// Bytes of a mean log batch.
    pub bytes_per_batch: f64,
    /// Records of a mean log batch.
    pub records_per_batch: f64,
    /// Fsyncs that a mean log batch answered.
    pub fsyncs_per_batch: f64,
    /// The runs.
    pub rounds: Vec<Run>,
}

/// Runs everything on devices that `device` makes, each fresh; `seen` is told workload, jobs and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(&'static str, u64, FsyncWait, &Run),
) -> io::Result<Vec<Row>> {
    let mut runs: Vec<(Work, u64, FsyncWait, Vec<Run>)> = Vec::new();
    for work in WORKS {
        for &jobs in &plan.jobs {
            runs.extend(FsyncWait::ALL.iter().map(|wait| (work, jobs, *wait, Vec::new())));
        }
    }
    for round in 0..plan.rounds {
        // The last one first in every second round.
        let ordered: Vec<_> = match round % 2 {
            0 => runs.iter_mut().collect(),
            _ => runs.iter_mut().rev().collect(),
        };
        for (work, jobs, wait, rounds) in ordered {
            let run = one(plan, device()?, work, *jobs, *wait)?;
            seen(work.name, *jobs, *wait, &run);
            rounds.push(run);
        }
    }
    Ok(runs.into_iter().map(|(work, jobs, wait, rounds)| row(&work, jobs, wait, rounds)).collect())
}

fn row(work: &Work, jobs: u64, wait: FsyncWait, rounds: Vec<Run>) -> Row {
    let middle = |value: fn(&Run) -> f64| median(rounds.iter().map(value).collect());
    let total = |value: fn(&Run) -> u64| rounds.iter().map(value).sum::<u64>() as f64;
    let fsyncs = total(|run| run.fsyncs);
    let batches = total(|run| run.counts.log_batches);
    let per = |value: f64, of: f64| ratio(value, of).unwrap_or(0.0);
    Row {
        workload: work.name,
        jobs,
        fsync_wait: wait.word(),
        mib_per_second: middle(|run| run.mib_per_second),
        fsyncs_per_second: middle(|run| run.fsyncs_per_second),
        fsync_p50_ns: middle(|run| run.fsync_p50_ns as f64),
        fsync_p99_ns: middle(|run| run.fsync_p99_ns as f64),
        flushes_per_fsync: per(total(|run| run.device_flushes), fsyncs),
        writes_per_fsync: per(total(|run| run.device_writes), fsyncs),
        bytes_per_fsync: per(total(|run| run.device_bytes), fsyncs),
        bytes_per_batch: per(total(|run| run.counts.log_bytes), batches),
        records_per_batch: per(total(|run| run.counts.log_records), batches),
        fsyncs_per_batch: per(fsyncs, batches),
        rounds,
    }
}

fn one(
    plan: &Plan,
    device: Arc<dyn Device>,
    work: &Work,
    jobs: u64,
    wait: FsyncWait,
) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let mut options = VolumeOptions::new().commit_secs(plan.commit_secs).fsync_wait(wait);
    if let Some(bytes) = plan.log_data_bytes {
        options = options.log_data_bytes(bytes);
    }
    let volume = options.open_device(device.clone())?;
    let files = (0..jobs).map(|job| full(&volume, job, plan)).collect::<io::Result<Vec<_>>>()?;
    settle(&volume)?;
    let before = (Counts::of(&volume)?, device.stats());
    let time = Stopwatch::start();
    let until = Deadline::after(plan.time);
    let latencies = on_threads(jobs, |job| {
        write(&files[job as usize], work, plan.file_bytes, Prng::seeded(plan.seed + job), &until)
    })?;
    let seconds = time.elapsed().as_secs_f64().max(1e-9);
    let counts = Counts::of(&volume)?.since(&before.0);
    let asked = since(&device.stats(), &before.1);
    drop(files);
    volume.abandon();
    let mut latencies: Vec<u64> = latencies.into_iter().flatten().collect();
    latencies.sort_unstable();
    let fsyncs = latencies.len() as u64;
    let written = fsyncs * work.writes_per_fsync * work.write as u64;
    Ok(Run {
        mib_per_second: written as f64 / f64::from(1 << 20) / seconds,
        fsyncs_per_second: fsyncs as f64 / seconds,
        fsync_p50_ns: quantile(&latencies, 50),
        fsync_p99_ns: quantile(&latencies, 99),
        fsyncs,
        device_bytes: asked.written_bytes,
        device_writes: asked.writes,
        device_flushes: asked.flushes,
        counts,
    })
}

/// A file with `plan.file_bytes` bytes in it.
fn full(volume: &Volume, job: u64, plan: &Plan) -> io::Result<File> {
    let file = volume.create(format!("/job{job}"))?;
    let chunk = pattern(1 << 20);
    let mut at = 0;
    while at < plan.file_bytes {
        let len = (chunk.len() as u64).min(plan.file_bytes - at);
        file.write_all_at(&chunk[..len as usize], at)?;
        at += len;
    }
    Ok(file)
}

/// Writes until it is time, and says how long each fsync took, in nanoseconds. At least one.
fn write(
    file: &File,
    work: &Work,
    file_bytes: u64,
    mut prng: Prng,
    until: &Deadline,
) -> io::Result<Vec<u64>> {
    let mut chunk = pattern(work.write);
    let places = (file_bytes / work.write as u64).max(1);
    let mut latencies = Vec::new();
    let mut written: u64 = 0;
    while latencies.is_empty() || !until.is_over() {
        for _ in 0..work.writes_per_fsync {
            chunk[..8].copy_from_slice(&written.to_le_bytes());
            let place = if work.random { prng.below(places) } else { written % places };
            file.write_all_at(&chunk, place * work.write as u64)?;
            written += 1;
        }
        let time = Stopwatch::start();
        file.sync_all()?;
        latencies.push(time.nanos());
    }
    Ok(latencies)
}

/// What a device was asked between.
pub(crate) fn since(after: &DeviceStats, before: &DeviceStats) -> DeviceStats {
    DeviceStats {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        writes: after.writes - before.writes,
        written_bytes: after.written_bytes - before.written_bytes,
        flushes: after.flushes - before.flushes,
        discards: after.discards - before.discards,
    }
}

/// The value that `percent` of the sorted ones do not exceed; 0 if there are none.
pub(crate) fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn both_workloads_run_with_every_number_of_jobs() {
        let plan = Plan {
            node_size: 4096,
            jobs: vec![1, 3],
            file_bytes: 1 << 20,
            time: Duration::from_millis(20),
            rounds: 2,
            commit_secs: 0,
            log_data_bytes: Some(0),
            seed: 1,
        };
        let fresh = || Ok(Arc::new(MemoryDevice::new(256 << 20)) as Arc<dyn Device>);
        let mut runs = 0;
        let rows = run(&plan, fresh, |_, _, _, _| runs += 1).expect("the workloads run");
        assert_eq!((rows.len(), runs), (8, 16));
        for row in &rows {
            assert!(row.mib_per_second > 0.0 && row.flushes_per_fsync > 0.0, "{row:?}");
            for run in &row.rounds {
                assert!(run.fsyncs >= row.jobs && run.fsync_p50_ns <= run.fsync_p99_ns);
                assert_eq!(run.counts.fsyncs, run.fsyncs);
            }
        }
        let sequential = &rows[0];
        assert!(sequential.bytes_per_fsync >= f64::from(64 << 10), "{sequential:?}");
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        assert_eq!(quantile(&[], 50), 0);
        assert_eq!(quantile(&[7], 1), 7);
        assert_eq!((quantile(&[1, 2, 3, 4], 50), quantile(&[1, 2, 3, 4], 99)), (2, 4));
    }
}
