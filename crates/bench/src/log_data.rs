//! Small writes with an fsync each, over what of their data goes into the log: to choose that limit.
//!
//! Data up to the limit travels inside the log's batch and needs no write of
//! its own before the fsync is answered; its way home is paid later, by a
//! commit, which is why every run ends with one and counts it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, File, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::counts::{median, ratio};
use crate::fsync::{quantile, since};
use crate::work::{pattern, settle};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a tree node.
    pub node_size: usize,
    /// Bytes of data that an fsync puts into the log, one number after the other.
    pub limits: Vec<usize>,
    /// How long a run takes.
    pub time: Duration,
    /// Runs of each kind.
    pub rounds: u64,
    /// Seconds between background commits.
    pub commit_secs: u32,
}

impl Plan {
    /// Bytes that the device needs.
    pub fn device_bytes(&self) -> u64 {
        4 << 30
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Operations per second.
    pub per_second: f64,
    /// Half of them took no longer than this, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// Operations.
    pub operations: u64,
    /// Bytes that the device was given until the last was answered.
    pub device_bytes: u64,
    /// Writes.
    pub device_writes: u64,
    /// Flushes.
    pub device_flushes: u64,
    /// Bytes that it was given in all, with a commit and a checkpoint at the end.
    pub settled_bytes: u64,
    /// Everything that the volume counted until the last was answered.
    pub counts: Counts,
}

/// All runs of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub workload: &'static str,
    /// Bytes of data that an fsync puts into the log.
    pub log_data_bytes: usize,
    /// Median of operations per second.
    pub per_second: f64,
    /// Median of the halves, in nanoseconds.
    pub p50_ns: f64,
    /// Median of the 99 percents.
    pub p99_ns: f64,
    /// Bytes written to the device for each operation, all runs together, as the next ones.
    pub bytes_per_operation: f64,
    /// Writes.
    pub writes_per_operation: f64,
    /// Flushes.
    pub flushes_per_operation: f64,
    /// Bytes of log batches.
    pub log_bytes_per_operation: f64,
    /// Bytes with a commit and a checkpoint at the end.
    pub settled_bytes_per_operation: f64,
    /// The runs.
    pub rounds: Vec<Run>,
}

/// What operations need.
struct Ready<'a> {
    volume: &'a Volume,
    /// The file that is appended to.
    log: File,
    content: Vec<u8>,
}

/// The operation with a number.
type Work = fn(&Ready<'_>, u64) -> io::Result<()>;

const WORKS: [(&str, Work); 4] = [
    ("append 16 KiB + fsync", |ready, number| ready.append(number, 16384)),
    ("append 4 KiB + fsync", |ready, number| ready.append(number, 4096)),
    ("append 100 B + fsync", |ready, number| ready.append(number, 100)),
    ("create, 4 KiB, fsync", |ready, number| ready.create(number)),
];

impl Ready<'_> {
    fn append(&self, number: u64, len: usize) -> io::Result<()> {
        self.log.write_all_at(&self.content[..len], number * len as u64)?;
        self.log.sync_all()
    }

    fn create(&self, number: u64) -> io::Result<()> {
        let file = self.volume.create(format!("/file-{number}"))?;
        file.write_all_at(&self.content[..4096], 0)?;
        file.sync_all()
    }
}

/// Runs everything on devices that `device` makes, each fresh; `seen` is told workload, limit and each run.
pub fn run(
    plan: &Plan,
    mut device: impl FnMut() -> io::Result<Arc<dyn Device>>,
    mut seen: impl FnMut(&'static str, usize, &Run),
) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, work) in WORKS {
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); plan.limits.len()];
        for round in 0..plan.rounds {
            for at in 0..plan.limits.len() {
                let at = if round % 2 == 0 { at } else { plan.limits.len() - 1 - at };
                let run = one(plan, device()?, plan.limits[at], work)?;
                seen(name, plan.limits[at], &run);
                runs[at].push(run);
            }
        }
        for (limit, rounds) in plan.limits.iter().zip(runs) {
            rows.push(row(name, *limit, rounds));
        }
    }
    Ok(rows)
}

fn row(workload: &'static str, log_data_bytes: usize, rounds: Vec<Run>) -> Row {
    let middle = |value: fn(&Run) -> f64| median(rounds.iter().map(value).collect());
    let operations = rounds.iter().map(|run| run.operations).sum::<u64>() as f64;
    let each = |value: fn(&Run) -> u64| {
        ratio(rounds.iter().map(value).sum::<u64>() as f64, operations).unwrap_or(0.0)
    };
    Row {
        workload,
        log_data_bytes,
        per_second: middle(|run| run.per_second),
        p50_ns: middle(|run| run.p50_ns as f64),
        p99_ns: middle(|run| run.p99_ns as f64),
        bytes_per_operation: each(|run| run.device_bytes),
        writes_per_operation: each(|run| run.device_writes),
        flushes_per_operation: each(|run| run.device_flushes),
        log_bytes_per_operation: each(|run| run.counts.log_bytes),
        settled_bytes_per_operation: each(|run| run.settled_bytes),
        rounds,
    }
}

fn one(plan: &Plan, device: Arc<dyn Device>, limit: usize, work: Work) -> io::Result<Run> {
    CreateOptions::new().node_size(plan.node_size).format(&device)?;
    let volume = VolumeOptions::new()
        .commit_secs(plan.commit_secs)
        .log_data_bytes(limit)
        .open_device(device.clone())?;
    let ready = Ready { volume: &volume, log: volume.create("/log")?, content: pattern(16384) };
    settle(&volume)?;
    let before = (Counts::of(&volume)?, device.stats());
    let mut latencies = Vec::new();
    let time = Stopwatch::start();
    let until = Deadline::after(plan.time);
    while latencies.is_empty() || !until.is_over() {
        let each = Stopwatch::start();
        work(&ready, latencies.len() as u64)?;
        latencies.push(each.nanos());
    }
    let seconds = time.elapsed().as_secs_f64().max(1e-9);
    let counts = Counts::of(&volume)?.since(&before.0);
    let asked = since(&device.stats(), &before.1);
    settle(&volume)?;
    let settled = since(&device.stats(), &before.1);
    drop(ready);
    volume.abandon();
    let operations = latencies.len() as u64;
    latencies.sort_unstable();
    Ok(Run {
        per_second: operations as f64 / seconds,
        p50_ns: quantile(&latencies, 50),
        p99_ns: quantile(&latencies, 99),
        operations,
        device_bytes: asked.written_bytes,
        device_writes: asked.writes,
        device_flushes: asked.flushes,
        settled_bytes: settled.written_bytes,
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_limit_has_a_row_for_each_workload() {
        let plan = Plan {
            node_size: 4096,
            limits: vec![0, 4096],
            time: Duration::from_millis(10),
            rounds: 1,
            commit_secs: 0,
        };
        let fresh = || Ok(Arc::new(MemoryDevice::new(64 << 20)) as Arc<dyn Device>);
        let mut runs = 0;
        let rows = run(&plan, fresh, |_, _, _| runs += 1).expect("the workloads run");
        assert_eq!((rows.len(), runs), (8, 8));
        for row in &rows {
            assert!(row.per_second > 0.0 && row.flushes_per_operation >= 1.0, "{row:?}");
            assert!(row.settled_bytes_per_operation >= row.bytes_per_operation, "{row:?}");
        }
    }
}
