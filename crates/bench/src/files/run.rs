//! One run of a workload: threads, time, latencies, and what daemon and device did meanwhile.
//!
//! [`Run::repeat`] measures what is done again and again until time is over,
//! [`Run::once`] what is over by itself. Both read the [`Host`]'s meters just
//! before and just after; what reaches the device later, until everything is
//! quiesced, is counted apart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use hdrhistogram::Histogram;
use holdfast_base::clock::{Deadline, Stopwatch};
use serde::{Deserialize, Serialize};

use super::Scale;
use crate::result::Percentiles;
use crate::systems::cleanup::interrupted;
use crate::systems::{Blocks, Stats};
use crate::work::on_threads;

/// Operations of a worker that are not measured: the first ones find nothing warm.
const WARM_UP: u64 = 3;

/// A directory and what is known about it.
pub trait Host {
    /// Where to work.
    fn dir(&self) -> &Path;

    /// Makes everything durable.
    fn quiesce(&self) -> io::Result<()>;

    /// Forgets what is cached of it; answers why that cannot be done here, if so.
    fn cool(&self) -> io::Result<Result<(), String>>;

    /// What was asked for so far.
    fn reading(&self) -> io::Result<Reading>;

    /// The daemon's statistics, where it is ours. Asking takes processor time, so that it is done outside of what
    /// is measured.
    fn stats(&self) -> io::Result<Option<Stats>>;
}

/// Totals at a moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Nanoseconds that this process and the programs it started have worked.
    pub own_ns: u64,
    /// The same of a daemon that serves the directory.
    pub daemon_ns: Option<u64>,
    /// The same of the whole machine.
    pub machine_ns: u64,
    /// Requests of the device below, where they are known.
    pub blocks: Option<Blocks>,
    /// The most memory that the daemon has had.
    pub daemon_peak_bytes: Option<u64>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Things done, shown by the second.
    Operations,
    /// Bytes, shown as MiB by the second.
    Bytes,
    /// Something done once: shown as its time.
    Whole,
}

/// Where the time of the callers went, as shares of it, for Holdfast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Waiting for the device inside fsyncs: data, the log's writes and flushes, one's own or others'.
    pub device: f64,
    /// The daemon's processor time.
    pub daemon: f64,
    /// Processor time of the callers, the kernel's work for them included.
    pub callers: f64,
    /// What is left: requests on their way to the daemon and back, and waiting for a processor.
    pub round_trips: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// What was done.
    pub name: String,
    /// By how many at once.
    pub jobs: u64,
    /// What `amount` counts.
    pub unit: Unit,
    /// How many operations, or bytes.
    pub amount: u64,
    /// How many operations, where those are fewer than bytes.
    pub operations: u64,
    /// Time taken.
    pub seconds: f64,
    /// Of each operation.
    pub latency: Option<Percentiles>,
    /// Processor time of this process and its programs, in nanoseconds.
    pub own_ns: u64,
    /// Of the daemon.
    pub daemon_ns: Option<u64>,
    /// Of the whole machine.
    pub machine_ns: u64,
    /// The most memory that the daemon has had so far.
    pub daemon_peak_bytes: Option<u64>,
    /// What the device was asked for.
    pub blocks: Option<Blocks>,
    /// What it was asked for afterwards, until everything was quiesced.
    pub later: Option<Blocks>,
    /// Where the time went.
    pub shares: Option<Shares>,
    /// Why it could not be measured; everything else means nothing then.
    pub skipped: Option<String>,
}

impl Phase {
    /// Operations or MiB a second, or, of what is done once, how often it could be done in a second.
    pub fn rate(&self) -> f64 {
        let seconds = self.seconds.max(1e-9);
        match self.unit {
            Unit::Operations => self.amount as f64 / seconds,
            Unit::Bytes => self.amount as f64 / f64::from(1 << 20) / seconds,
            Unit::Whole => 1.0 / seconds,
        }
    }

    /// What [`Phase::rate`] is of.
    pub fn unit_word(&self) -> &'static str {
        match self.unit {
            Unit::Operations => "/s",
            Unit::Bytes => "MiB/s",
            Unit::Whole => "s",
        }
    }

    pub(super) fn skipped(name: String, why: String) -> Phase {
        Phase {
            name,
            jobs: 0,
            unit: Unit::Operations,
            amount: 0,
            operations: 0,
            seconds: 0.0,
            latency: None,
            own_ns: 0,
            daemon_ns: None,
            machine_ns: 0,
            daemon_peak_bytes: None,
            blocks: None,
            later: None,
            shares: None,
            skipped: Some(why),
        }
    }
}

/// Times single operations.
pub(super) struct Laps(Histogram<u64>);

impl Laps {
    fn new() -> Laps {
        // From a nanosecond to an hour, with three digits: the bounds are in order.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Laps(histogram.expect("the bounds of latencies are in order"))
    }

    /// Does `work` and remembers how long it took.
    pub(super) fn lap<T>(&mut self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let time = Stopwatch::start();
        let done = work()?;
        self.0.saturating_record(time.nanos());
        Ok(done)
    }

    fn add(&mut self, other: &Laps) {
        // Both have the same bounds; what would not fit is of no use.
        let _ = self.0.add(&other.0);
    }
}

/// A workload while it runs.
pub struct Run<'a> {
    host: &'a dyn Host,
    scale: &'a Scale,
    place: PathBuf,
    durable: bool,
    phases: Vec<Phase>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        host: &'a dyn Host,
        scale: &'a Scale,
        place: PathBuf,
        durable: bool,
    ) -> Run<'a> {
        Run { host, scale, place, durable, phases: Vec::new() }
    }

    pub(super) fn phases(self) -> Vec<Phase> {
        self.phases
    }

    /// The directory to work in.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Whose directory it is.
    pub(super) fn host(&self) -> &'a dyn Host {
        self.host
    }

    /// How much to do.
    pub(super) fn scale(&self) -> &'a Scale {
        self.scale
    }

    /// How to fsync.
    pub(super) fn syncer(&self) -> Syncer {
        Syncer(self.durable)
    }

    /// Makes everything durable, unmeasured.
    pub(super) fn quiesce(&self) -> io::Result<()> {
        self.host.quiesce()
    }

    /// Forgets what is cached; if that cannot be done, the phase called `name` is skipped.
    pub(super) fn cool(&mut self, name: &str) -> io::Result<bool> {
        self.host.quiesce()?;
        match self.host.cool()? {
            Ok(()) => Ok(true),
            Err(why) => {
                self.phases.push(Phase::skipped(self.named(name), why));
                Ok(false)
            }
        }
    }

    /// It could not be measured.
    pub(super) fn skip(&mut self, name: &str, why: String) {
        let name = self.named(name);
        self.phases.push(Phase::skipped(name, why));
    }

    fn named(&self, name: &str) -> String {
        match self.durable {
            true => name.into(),
            false => format!("{name}, fsync left out"),
        }
    }

    /// Repeats what `make` makes for each of `jobs` threads until time is over, or until a worker has nothing left
    /// and answers `None`. A worker answers how much it did: 1, or bytes.
    pub(super) fn repeat<W>(
        &mut self,
        name: &str,
        unit: Unit,
        jobs: u64,
        make: impl Fn(u64) -> io::Result<W>,
    ) -> io::Result<()>
    where
        W: FnMut() -> io::Result<Option<u64>> + Send,
    {
        let workers = (0..jobs)
            .map(|job| make(job).map(|worker| parking_lot::Mutex::new(Some(worker))))
            .collect::<io::Result<Vec<_>>>()?;
        self.host.quiesce()?;
        let (ready, go) = (Barrier::new(jobs as usize + 1), Barrier::new(jobs as usize + 1));
        let time = self.scale.time;
        let host = self.host;
        let (before, clock, results) = std::thread::scope(|scope| {
            let (workers, ready, go) = (&workers, &ready, &go);
            let threads = scope.spawn(move || {
                on_threads(jobs, |job| {
                    let worker = workers[job as usize].lock().take();
                    let mut worker = worker.expect("each thread takes its own worker");
                    // A worker that fails here returns its error after both barriers, where the others wait for it.
                    let warm = (0..WARM_UP).try_for_each(|_| worker().map(drop));
                    ready.wait();
                    go.wait();
                    warm?;
                    work(&mut worker, time)
                })
            });
            ready.wait();
            let before = host.stats().and_then(|stats| Ok((stats, host.reading()?)));
            let clock = Stopwatch::start();
            go.wait();
            let results = match threads.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            (before, clock, results)
        });
        let seconds = clock.elapsed().as_secs_f64();
        let (before, results) = (before?, results?);
        let after = (self.host.reading()?, self.host.stats()?);
        let mut laps = Laps::new();
        results.iter().for_each(|(_, own)| laps.add(own));
        let amount = results.iter().map(|(amount, _)| amount).sum();
        self.keep(name, unit, jobs, amount, seconds, laps, (before, after))
    }

    /// Does `work` once. It answers how much it did, and may time its operations.
    pub(super) fn once(
        &mut self,
        name: &str,
        unit: Unit,
        work: impl FnOnce(&mut Laps) -> io::Result<u64>,
    ) -> io::Result<()> {
        let before = (self.host.stats()?, self.host.reading()?);
        let clock = Stopwatch::start();
        let mut laps = Laps::new();
        let amount = work(&mut laps)?;
        let seconds = clock.elapsed().as_secs_f64();
        let after = (self.host.reading()?, self.host.stats()?);
        self.keep(name, unit, 1, amount, seconds, laps, (before, after))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one phase, put together once")]
    fn keep(
        &mut self,
        name: &str,
        unit: Unit,
        jobs: u64,
        amount: u64,
        seconds: f64,
        laps: Laps,
        (before, after): ((Option<Stats>, Reading), (Reading, Option<Stats>)),
    ) -> io::Result<()> {
        let ((old, before), (after, new)) = (before, after);
        let stats = old.zip(new);
        self.host.quiesce()?;
        let quiesced = self.host.reading()?;
        let between = |one: &Option<Blocks>, other: &Option<Blocks>| {
            Some(other.as_ref()?.since(one.as_ref()?))
        };
        let operations = if laps.0.is_empty() { amount } else { laps.0.len() };
        self.phases.push(Phase {
            name: self.named(name),
            jobs,
            unit,
            amount,
            operations,
            seconds,
            latency: (!laps.0.is_empty()).then(|| Percentiles::of(&laps.0)),
            own_ns: after.own_ns - before.own_ns,
            daemon_ns: daemon_ns(&before, &after),
            machine_ns: after.machine_ns - before.machine_ns,
            daemon_peak_bytes: after.daemon_peak_bytes,
            blocks: between(&before.blocks, &after.blocks),
            later: between(&after.blocks, &quiesced.blocks),
            shares: stats.and_then(|stats| shares(&before, &after, &stats, jobs, seconds)),
            skipped: None,
        });
        Ok(())
    }
}

fn daemon_ns(before: &Reading, after: &Reading) -> Option<u64> {
    Some(after.daemon_ns?.saturating_sub(before.daemon_ns?))
}

/// Of the time of all callers together: what the daemon's counters and the processors say, and the rest. Parts that
/// overlap (a daemon that works for one while another waits) are scaled so that they are never more than the whole.
fn shares(
    before: &Reading,
    after: &Reading,
    (old, new): &(Stats, Stats),
    jobs: u64,
    seconds: f64,
) -> Option<Shares> {
    const DEVICE: [&str; 4] = ["log_write_ns", "log_flush_ns", "fsync_wait_ns", "fsync_data_ns"];
    let grew =
        |name: &str| new.get(name).zip(old.get(name)).map_or(0, |(n, o)| n.saturating_sub(*o));
    let whole = (seconds * 1e9 * jobs as f64).max(1.0);
    let device = DEVICE.iter().map(|name| grew(name)).sum::<u64>() as f64 / whole;
    let daemon = daemon_ns(before, after)? as f64 / whole;
    let callers = (after.own_ns - before.own_ns) as f64 / whole;
    let sum = device + daemon + callers;
    let scale = if sum > 1.0 { 1.0 / sum } else { 1.0 };
    Some(Shares {
        device: device * scale,
        daemon: daemon * scale,
        callers: callers * scale,
        round_trips: (1.0 - sum * scale).max(0.0),
    })
}

/// Until time is over or nothing is left: how much was done, and how long each took. At least one.
fn work(
    worker: &mut impl FnMut() -> io::Result<Option<u64>>,
    time: Duration,
) -> io::Result<(u64, Laps)> {
    let (mut amount, mut laps) = (0, Laps::new());
    let until = Deadline::after(time);
    loop {
        interrupted()?;
        let clock = Stopwatch::start();
        let Some(done) = worker()? else { break };
        laps.0.saturating_record(clock.nanos());
        amount += done;
        if until.is_over() {
            break;
        }
    }
    Ok((amount, laps))
}

/// Makes files durable, or leaves that out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syncer(bool);

impl Syncer {
    /// fsync(2), or nothing.
    pub(super) fn file(self, file: &std::fs::File) -> io::Result<()> {
        if self.0 { file.sync_all() } else { Ok(()) }
    }

    /// Whether fsyncs are done.
    pub(super) fn is_durable(self) -> bool {
        self.0
    }
}
