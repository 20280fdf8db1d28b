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
use holdfast_device::DeviceStats;

use super::Scale;
use crate::counts::{Counts, asked};
use crate::systems::meter;
use crate::undo::interrupted;
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

    /// What it has taken so far.
    fn reading(&self) -> io::Result<Reading>;

    /// The daemon's statistics, where it is ours. Asking takes processor time, so that it is done outside of what
    /// is measured.
    fn counts(&self) -> io::Result<Option<Counts>>;
}

/// Totals at a moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Nanoseconds that this process and the programs it started have worked.
    pub own_ns: u64,
    /// The same of a daemon that serves the directory.
    pub daemon_ns: Option<u64>,
    /// What the device below was asked, where that is known.
    pub asked: Option<DeviceStats>,
    /// The most memory that the daemon has had.
    pub daemon_peak_bytes: Option<u64>,
}

impl Reading {
    /// This process, and a daemon, now.
    pub(crate) fn now(daemon: Option<u32>, asked: Option<DeviceStats>) -> io::Result<Reading> {
        Ok(Reading {
            own_ns: meter::own_ns()?,
            daemon_ns: daemon.map(meter::process_ns).transpose()?,
            asked,
            daemon_peak_bytes: daemon.map(meter::peak_bytes).transpose()?,
        })
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Things done, shown by the second.
    #[default]
    Operations,
    /// Bytes, shown as MiB by the second.
    Bytes,
    /// Something done once: shown as its time.
    Whole,
}

/// Where the time of the callers went, as shares of it, for Holdfast.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Debug, Default)]
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
    /// Nanoseconds that half of the operations took at most, and 99 of 100.
    pub latency: Option<(u64, u64)>,
    /// Processor time of this process and its programs, and of the daemon, in nanoseconds.
    pub processor_ns: u64,
    /// The most memory that the daemon has had so far.
    pub daemon_peak_bytes: Option<u64>,
    /// What the device was asked.
    pub asked: Option<DeviceStats>,
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

    pub(super) fn skipped(name: String, why: String) -> Phase {
        Phase { name, skipped: Some(why), ..Phase::default() }
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
                self.skip(name, why);
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
            .map(|job| make(job).map(|worker| holdfast_locks::Mutex::new(Some(worker))))
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
            let before = host.counts().and_then(|counts| Ok((counts, host.reading()?)));
            let clock = Stopwatch::start();
            go.wait();
            let results = match threads.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            (before, clock.elapsed(), results)
        });
        let (before, results) = (before?, results?);
        let mut laps = Laps::new();
        results.iter().for_each(|(_, own)| laps.add(own));
        let amount = results.iter().map(|(amount, _)| amount).sum();
        let (name, seconds) = (self.named(name), clock.as_secs_f64());
        self.keep(Phase { name, unit, jobs, amount, seconds, ..Phase::default() }, &laps, before)
    }

    /// Does `work` once. It answers how much it did, and may time its operations.
    pub(super) fn once(
        &mut self,
        name: &str,
        unit: Unit,
        work: impl FnOnce(&mut Laps) -> io::Result<u64>,
    ) -> io::Result<()> {
        let before = (self.host.counts()?, self.host.reading()?);
        let clock = Stopwatch::start();
        let mut laps = Laps::new();
        let amount = work(&mut laps)?;
        let (name, seconds) = (self.named(name), clock.elapsed().as_secs_f64());
        self.keep(Phase { name, unit, jobs: 1, amount, seconds, ..Phase::default() }, &laps, before)
    }

    /// Adds what the host says now to a phase that has just ended.
    fn keep(
        &mut self,
        mut phase: Phase,
        laps: &Laps,
        (counts, before): (Option<Counts>, Reading),
    ) -> io::Result<()> {
        let after = self.host.reading()?;
        let daemon_ns =
            after.daemon_ns.zip(before.daemon_ns).map(|(new, old)| new.saturating_sub(old));
        let own_ns = after.own_ns - before.own_ns;
        phase.processor_ns = own_ns + daemon_ns.unwrap_or(0);
        phase.daemon_peak_bytes = after.daemon_peak_bytes;
        phase.asked = after.asked.zip(before.asked).map(|(new, old)| asked(&new, &old));
        phase.operations = if laps.0.is_empty() { phase.amount } else { laps.0.len() };
        let at = |quantile| laps.0.value_at_quantile(quantile);
        phase.latency = (!laps.0.is_empty()).then(|| (at(0.5), at(0.99)));
        if let (Some(old), Some(new), Some(daemon_ns)) = (counts, self.host.counts()?, daemon_ns) {
            phase.shares = Some(shares(&new.since(&old), own_ns, daemon_ns, &phase));
        }
        self.phases.push(phase);
        self.host.quiesce()
    }
}

/// Of the time of all callers together: what the daemon's counters and the processors say, and the rest. Parts that
/// overlap (a daemon that works for one while another waits) are scaled so that they are never more than the whole.
fn shares(counts: &Counts, own_ns: u64, daemon_ns: u64, phase: &Phase) -> Shares {
    const DEVICE: [&str; 4] = ["log_write_ns", "log_flush_ns", "fsync_wait_ns", "fsync_data_ns"];
    let whole = (phase.seconds * 1e9 * phase.jobs as f64).max(1.0);
    let device = DEVICE.iter().map(|name| counts.get(name)).sum::<u64>();
    let [device, daemon, callers] = [device, daemon_ns, own_ns].map(|ns| ns as f64 / whole);
    let sum = device + daemon + callers;
    let scale = if sum > 1.0 { 1.0 / sum } else { 1.0 };
    Shares {
        device: device * scale,
        daemon: daemon * scale,
        callers: callers * scale,
        round_trips: (1.0 - sum * scale).max(0.0),
    }
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
