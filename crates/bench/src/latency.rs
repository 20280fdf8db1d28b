//! How long an fsync takes, alone and while others are busy on the same volume.
//!
//! One thread appends 4 KiB and calls fsync, again and again, and every call is
//! measured. Beside it, in phases that take turns round after round: nothing;
//! creates without fsync under commits and checkpoints that never pause; a
//! stranger that writes and fsyncs large files; a stranger that renames large
//! files over old ones without any fsync. All on one volume, so that the phases
//! differ in nothing else. Each phase ends with everything durable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use holdfast::{CreateOptions, Receipt, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_device::Device;
use serde::Serialize;

use crate::Counts;
use crate::counts::ratio;
use crate::work::{pattern, settle};

/// Bytes of an append.
const APPEND: usize = 4096;
/// Bytes of a write of the strangers.
const CHUNK: u64 = 1 << 20;
/// Appends that are not measured before each phase.
const WARM_UP: u64 = 20;
/// Between two creates: a load that goes on, not one that takes all processors.
const PACE: Duration = Duration::from_micros(200);
/// One in so many commits is a checkpoint at once.
const CHECKPOINT_EVERY: u64 = 4;
/// Directories that creates are spread over.
const DIRS: u64 = 20;
/// Longest time that is told from longer ones.
const LONGEST_NS: u64 = 100_000_000_000;
/// Ends of the ranges in [`Row::shares`], in medians of the phase without others.
pub const BOUNDS: [f64; 6] = [1.25, 1.5, 2.0, 3.0, 5.0, 10.0];

/// What goes on beside the appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Creates and small writes without fsync, commits and checkpoints.
    Commits,
    /// Large files, each written and fsynced.
    Fsyncs,
    /// Large files, each written and renamed over an old one.
    Renames,
}

impl Beside {
    /// In the order of the table.
    pub const ALL: [Beside; 4] =
        [Beside::Nothing, Beside::Commits, Beside::Fsyncs, Beside::Renames];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Beside::Nothing => "alone",
            Beside::Commits => "commits and checkpoints",
            Beside::Fsyncs => "large files, fsynced",
            Beside::Renames => "large files, renamed over old",
        }
    }

    /// What [`Row::done`] counts.
    pub fn unit(self) -> &'static str {
        match self {
            Beside::Nothing => "",
            Beside::Commits => "checkpoints",
            Beside::Fsyncs => "files",
            Beside::Renames => "renames",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Turns of all phases.
    pub rounds: usize,
    /// How long a phase takes.
    pub time: Duration,
    /// Bytes of a file that is fsynced.
    pub large_bytes: u64,
    /// Bytes of a file that is renamed.
    pub renamed_bytes: u64,
    /// How long a recovery may take: less means more checkpoints.
    pub recover: Duration,
}

impl Plan {
    /// Bytes of a volume with room for everything.
    pub fn volume_bytes(&self) -> u64 {
        2 * self.large_bytes + 4 * self.renamed_bytes + (1 << 30)
    }
}

/// Where the time of fsyncs went: means, in nanoseconds, as their receipts say.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Split {
    /// The write and the fsync together.
    pub total_ns: f64,
    /// The write, before the fsync.
    pub append_ns: f64,
    /// Until the file's data was written and its records made.
    pub data_ns: f64,
    /// Waiting for batches of others.
    pub wait_ns: f64,
    /// Formatting the batch.
    pub format_ns: f64,
    /// Writing it.
    pub write_ns: f64,
    /// Flushing it, and data before it.
    pub flush_ns: f64,
    /// Bytes of the batch.
    pub log_bytes: f64,
    /// Flushes.
    pub flushes: f64,
    /// Records that the batch carried along.
    pub other_records: f64,
}

impl Split {
    fn mean<'a>(samples: impl Iterator<Item = &'a Sample>) -> Split {
        let mut sum = Split::default();
        let mut count = 0.0f64;
        for Sample { nanos, append_ns, receipt } in samples {
            count += 1.0;
            sum.total_ns += *nanos as f64;
            sum.append_ns += *append_ns as f64;
            sum.data_ns += receipt.data_ns as f64;
            sum.wait_ns += receipt.wait_ns as f64;
            // Who did not lead has the batch's times in his receipt, and waited for them.
            if receipt.led {
                sum.format_ns += receipt.format_ns as f64;
                sum.write_ns += receipt.write_ns as f64;
                sum.flush_ns += receipt.flush_ns as f64;
            }
            sum.log_bytes += receipt.log_bytes as f64;
            sum.flushes += receipt.flushes as f64;
            sum.other_records += receipt.other_records as f64;
        }
        let count = count.max(1.0);
        Split {
            total_ns: sum.total_ns / count,
            append_ns: sum.append_ns / count,
            data_ns: sum.data_ns / count,
            wait_ns: sum.wait_ns / count,
            format_ns: sum.format_ns / count,
            write_ns: sum.write_ns / count,
            flush_ns: sum.flush_ns / count,
            log_bytes: sum.log_bytes / count,
            flushes: sum.flushes / count,
            other_records: sum.other_records / count,
        }
    }
}

/// All phases of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What went on beside the appends.
    pub beside: &'static str,
    /// Appends that were fsynced and measured.
    pub fsyncs: u64,
    /// Half of them took no longer, in nanoseconds; and so on.
    pub p50_ns: u64,
    /// 90 of 100.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The p99 over that of the appends alone.
    pub p99_to_alone: Option<f64>,
    /// Which share of the appends took up to each of [`BOUNDS`] times the median of those alone, and
    /// more than the one before; last, the rest.
    pub shares: Vec<f64>,
    /// Where the time of all of them went.
    pub all: Split,
    /// Where that of the slowest 1 in 100 went.
    pub slowest: Split,
    /// What the others did meanwhile.
    pub done: u64,
    /// What [`Row::done`] counts.
    pub unit: &'static str,
    /// What the volume counted.
    pub counts: Counts,
}

/// Runs all phases on `device`, whose content is lost. `seen` is told of each phase and its p99.
pub fn run(
    plan: &Plan,
    device: Arc<dyn Device>,
    mut seen: impl FnMut(usize, Beside, u64),
) -> io::Result<Vec<Row>> {
    CreateOptions::new().format(&device)?;
    let options = VolumeOptions::new().commit_secs(1).recover(plan.recover);
    let volume = options.open_device(device)?;
    (0..DIRS).try_for_each(|dir| volume.create_dir(format!("/d{dir}")))?;
    let mut phases = Beside::ALL.map(|beside| (beside, Phase::new()));
    for round in 0..plan.rounds {
        for turn in 0..phases.len() {
            // Another one first in each round.
            let at = (turn + round) % phases.len();
            let (beside, sum) = &mut phases[at];
            let phase = one(&volume, plan, *beside)?;
            seen(round, *beside, phase.times.value_at_quantile(0.99));
            sum.add(phase);
        }
    }
    volume.close()?;
    let [(_, alone), ..] = &phases;
    Ok(phases.iter().map(|(beside, phase)| phase.row(*beside, alone)).collect())
}

/// One append with its fsync.
struct Sample {
    nanos: u64,
    append_ns: u64,
    receipt: Receipt,
}

struct Phase {
    times: Histogram<u64>,
    samples: Vec<Sample>,
    done: u64,
    counts: Counts,
}

impl Phase {
    fn new() -> Phase {
        let times = Histogram::new_with_max(LONGEST_NS, 3).expect("the bounds are in order");
        Phase { times, samples: Vec::new(), done: 0, counts: Counts::default() }
    }

    fn add(&mut self, other: Phase) {
        self.times.add(&other.times).expect("both have the same bounds");
        self.samples.extend(other.samples);
        self.done += other.done;
        self.counts = self.counts.plus(&other.counts);
    }

    fn row(&self, beside: Beside, alone: &Phase) -> Row {
        let at = |quantile| self.times.value_at_quantile(quantile);
        let p99 = at(0.99);
        let median = alone.times.value_at_quantile(0.5) as f64;
        let up_to = |bound: f64| self.times.count_between(0, (bound * median) as u64);
        let ends = BOUNDS.iter().map(|&bound| up_to(bound)).chain([self.times.len()]);
        let mut last = 0;
        let shares = ends.map(|end| {
            let count = end - last;
            last = end;
            ratio(count as f64, self.times.len() as f64).unwrap_or(0.0)
        });
        Row {
            beside: beside.name(),
            fsyncs: self.times.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: p99,
            p999_ns: at(0.999),
            max_ns: self.times.max(),
            p99_to_alone: ratio(p99 as f64, alone.times.value_at_quantile(0.99) as f64),
            shares: shares.collect(),
            all: Split::mean(self.samples.iter()),
            slowest: Split::mean(self.samples.iter().filter(|sample| sample.nanos >= p99)),
            done: self.done,
            unit: beside.unit(),
            counts: self.counts,
        }
    }
}

/// One phase, and the way back to a quiet volume.
fn one(volume: &Volume, plan: &Plan, beside: Beside) -> io::Result<Phase> {
    let others = Others { volume, plan, stop: AtomicBool::new(false), done: AtomicU64::new(0) };
    let mut phase = Phase::new();
    std::thread::scope(|scope| -> io::Result<()> {
        let others = &others;
        let threads: Vec<_> =
            Others::of(beside).into_iter().map(|work| scope.spawn(move || work(others))).collect();
        let ended = || threads.iter().all(|thread| thread.is_finished());
        let measured = appends(others, &mut phase, ended);
        others.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a stranger does not panic")?;
        }
        measured
    })?;
    for name in ["/log", "/large", "/new", "/old"] {
        match volume.remove_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    settle(volume)?;
    Ok(phase)
}

/// Measures for as long as planned, and until the others have done something; they may end early by an error.
fn appends(others: &Others<'_>, phase: &mut Phase, ended: impl Fn() -> bool) -> io::Result<()> {
    let volume = others.volume;
    let chunk = pattern(APPEND);
    let file = volume.create("/log")?;
    let append = |number: u64| {
        let time = Stopwatch::start();
        file.write_all_at(&chunk, number * APPEND as u64)?;
        let append_ns = time.nanos();
        let receipt = file.sync_all_with_receipt()?;
        io::Result::Ok(Sample { nanos: time.nanos(), append_ns, receipt })
    };
    (0..WARM_UP).try_for_each(|number| append(number).map(drop))?;
    let before = Counts::of(volume)?;
    let done_before = others.done.load(Ordering::Relaxed);
    let end = Deadline::after(others.plan.time);
    for number in WARM_UP.. {
        let sample = append(number)?;
        phase.times.saturating_record(sample.nanos);
        phase.samples.push(sample);
        phase.done = others.done.load(Ordering::Relaxed) - done_before;
        if end.is_over() && (phase.done > 0 || ended()) {
            break;
        }
    }
    phase.counts = Counts::of(volume)?.since(&before);
    Ok(())
}

/// Those who work beside the appends.
struct Others<'a> {
    volume: &'a Volume,
    plan: &'a Plan,
    stop: AtomicBool,
    done: AtomicU64,
}

type Work<'a> = fn(&Others<'a>) -> io::Result<()>;

impl<'a> Others<'a> {
    /// One function for each thread.
    fn of(beside: Beside) -> Vec<Work<'a>> {
        match beside {
            Beside::Nothing => vec![],
            Beside::Commits => vec![Others::creates, Others::commits],
            Beside::Fsyncs => vec![Others::fsyncs],
            Beside::Renames => vec![Others::renames],
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn creates(&self) -> io::Result<()> {
        let chunk = pattern(APPEND);
        let mut number = 0;
        while self.goes_on() {
            let file = self.volume.create(format!("/d{}/new{number}", number % DIRS))?;
            file.write_all_at(&chunk, 0)?;
            number += 1;
            std::thread::sleep(PACE);
        }
        (0..number).try_for_each(|n| self.volume.remove_file(format!("/d{}/new{n}", n % DIRS)))
    }

    fn commits(&self) -> io::Result<()> {
        let engine = self.volume.engine()?;
        let mut number = 0;
        while self.goes_on() {
            number += 1;
            match number % CHECKPOINT_EVERY {
                0 => {
                    engine.checkpoint().map_err(io::Error::other)?;
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
                _ => engine.commit().map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    fn fsyncs(&self) -> io::Result<()> {
        let chunk = pattern(CHUNK as usize);
        while self.goes_on() {
            let file = self.volume.create("/large")?;
            if !self.fill(&file, &chunk, self.plan.large_bytes)? {
                break;
            }
            file.sync_all()?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn renames(&self) -> io::Result<()> {
        let chunk = pattern(CHUNK as usize);
        while self.goes_on() {
            let file = self.volume.create("/new")?;
            if !self.fill(&file, &chunk, self.plan.renamed_bytes)? {
                break;
            }
            self.volume.rename("/new", "/old")?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes `bytes` bytes; false if it was told to stop before.
    fn fill(&self, file: &holdfast::File, chunk: &[u8], bytes: u64) -> io::Result<bool> {
        let mut at = 0;
        while at < bytes {
            if !self.goes_on() {
                return Ok(false);
            }
            let len = CHUNK.min(bytes - at);
            file.write_all_at(&chunk[..len as usize], at)?;
            at += len;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::{DelayDevice, Delays};
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_phase_measures_and_the_others_are_busy() {
        let plan = Plan {
            rounds: 1,
            time: Duration::from_millis(200),
            large_bytes: 2 << 20,
            renamed_bytes: 1 << 20,
            recover: Duration::from_millis(50),
        };
        let delays = Delays {
            block: Duration::from_micros(5),
            flush: Duration::from_micros(50),
            channels: 8,
        };
        let memory = Arc::new(MemoryDevice::new(plan.volume_bytes()));
        let device = Arc::new(DelayDevice::new(memory, delays));
        let mut phases = Vec::new();
        let rows = run(&plan, device, |_, beside, _| phases.push(beside)).unwrap();
        assert_eq!(phases, Beside::ALL);
        for row in &rows {
            assert!(row.fsyncs > 0 && row.p50_ns <= row.p99_ns && row.p99_ns <= row.max_ns);
            assert!((row.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row:?}");
        }
        assert_eq!(rows[0].p99_to_alone, Some(1.0));
        assert_eq!(rows[0].done, 0);
        assert!(rows[1..].iter().all(|row| row.done > 0), "{rows:?}");
        assert!(rows[1].counts.commits > 0 && rows[1].counts.checkpoints > 0, "{rows:?}");
    }
}
