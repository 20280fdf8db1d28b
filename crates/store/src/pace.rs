//! When to commit, when to make a checkpoint, and when to slow changers down.
//!
//! Three things fill: memory with dirty nodes, the ring with commits, and the
//! time that a recovery would take, by both. The fullest of them is the pressure. From
//! half of it on the checkpointer works; from three quarters on changers wait
//! a little, more the fuller it is, so that nobody is stopped late and long;
//! at the whole they wait for the checkpoint.
//!
//! The log makes a recovery longer, too, but a commit is enough to end that. One is wanted when
//! the log has its part of the time, and changers wait for one if all of the time is used. All waits are counted.
//!
//! Knows nothing of what commits and checkpoints do.

use holdfast_sync::atomic::{AtomicU64, Ordering};
use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::counters::Counters;
use holdfast_base::recover::{BYTES_PER_SECOND, FIXED, Work};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::wait;
use holdfast_format::Geometry;
use holdfast_format::journal::REPLAY_BYTES_MAX;
use parking_lot::{Condvar, Mutex};

use crate::cache::Cache;
use crate::{Inner, OpenOptions, Result, StoreError};

/// A commit is wanted when it would log more than this: so a freeze copies little more, in less
/// than a millisecond.
const COMMIT_BYTES: u64 = 2 << 20;
/// A commit is wanted when so many bytes wait for the log; a quarter of a small log.
const PENDING_BYTES: u64 = 2 << 20;
/// A commit is wanted when only the log holds the data of so many blocks, 16 MiB: they are in memory, too.
const LOG_BLOCKS_MAX: u64 = (16 << 20) / BLOCK_BYTES;
/// Head and four ranges of a node's record.
const HEAD_BYTES: u64 = 48;
/// Pressure from which the checkpointer works.
const WORK: f64 = 0.5;
/// Pressure from which changers are slowed down.
const SLOW: f64 = 0.75;
/// The longest that one changer is slowed down before the pressure is whole.
const SLOWEST: Duration = Duration::from_millis(8);
/// A checkpoint of fewer bytes says more about flushes than about the device's rate.
const TELLING_BYTES: u64 = 4 << 20;
/// No device is taken for slower than this, in bytes a second.
const RATE_MIN: u64 = 8 << 20;
/// No device is taken for faster than this: what was written may be in somebody's cache.
const RATE_MAX: u64 = 1 << 30;
/// Between two attempts of what failed.
const RETRY: Duration = Duration::from_secs(1);
/// A smaller budget would mean nothing but checkpoints.
const BUDGET_MIN: Duration = Duration::from_millis(250);
/// The log's part of the budget: more of it than a recovery can read, do and bring to its places in that time is
/// not left to the next checkpoint, a commit makes it dead. Until then data that changes again, or is deleted, is
/// never written to a place.
const LOG_SHARE: u32 = 4;

/// What fills, and who waits for whom.
#[derive(Debug)]
pub(crate) struct Pace {
    ring_bytes: u64,
    /// A commit is wanted when so many bytes of the log wait for one.
    log_bytes_max: u64,
    /// A commit is wanted when they make a recovery so much longer.
    log_time: Duration,
    node_bytes: u64,
    dirty_nodes_max: u64,
    commit_bytes: u64,
    pending_bytes: u64,
    budget: Duration,
    journal_bytes: AtomicU64,
    log_bytes: AtomicU64,
    log_data_bytes: AtomicU64,
    log_blocks: AtomicU64,
    uncommitted_bytes: AtomicU64,
    dirty_nodes: AtomicU64,
    sealed_nodes: AtomicU64,
    /// Bytes that the device moves in a second, by half of what checkpoints have seen.
    bytes_per_second: AtomicU64,
    /// There are no threads: who changes something does what is wanted.
    alone: bool,
    state: Mutex<State>,
    wanted: Condvar,
    relief: Condvar,
}

#[derive(Debug, Default)]
struct State {
    commit: bool,
    checkpoint: bool,
    ended: bool,
}

impl State {
    /// Whether a job is wanted.
    fn wanted(&mut self, job: Job) -> &mut bool {
        match job {
            Job::Commit => &mut self.commit,
            Job::Checkpoint => &mut self.checkpoint,
        }
    }
}

/// What a background thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Commit,
    Checkpoint,
}

impl Pace {
    pub(crate) fn new(geometry: &Geometry, options: &OpenOptions, counters: &Counters) -> Pace {
        let ring_bytes = geometry.journal().bytes().unwrap_or(u64::MAX);
        let node_bytes = geometry.node_size as u64;
        let memory = (options.cache_bytes as u64 / 2).clamp(16 * node_bytes, REPLAY_BYTES_MAX / 4);
        let budget = options.recover.max(BUDGET_MIN);
        counters.recovery_budget_ns.set(nanos(budget));
        let log_ring = geometry.log().bytes().unwrap_or(u64::MAX);
        Pace {
            ring_bytes,
            log_bytes_max: log_ring / 2,
            log_time: (budget - FIXED) / LOG_SHARE,
            node_bytes,
            dirty_nodes_max: memory / node_bytes,
            commit_bytes: COMMIT_BYTES.min(ring_bytes / 8),
            pending_bytes: PENDING_BYTES.min(geometry.log_blocks * BLOCK_BYTES / 4),
            budget,
            journal_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_data_bytes: AtomicU64::new(0),
            log_blocks: AtomicU64::new(0),
            uncommitted_bytes: AtomicU64::new(0),
            dirty_nodes: AtomicU64::new(0),
            sealed_nodes: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(BYTES_PER_SECOND),
            alone: !options.threads,
            state: Mutex::default(),
            wanted: Condvar::new(),
            relief: Condvar::new(),
        }
    }

    /// The cache after a change.
    pub(crate) fn cache_is(&self, cache: &Cache) {
        let uncommitted = cache.uncommitted_bytes() as u64;
        self.uncommitted_bytes.store(uncommitted, Ordering::Relaxed);
        self.dirty_nodes.store(cache.dirty_nodes() as u64, Ordering::Relaxed);
        if uncommitted > self.commit_bytes {
            self.want(Job::Commit);
        }
        if self.pressure() >= WORK {
            self.want(Job::Checkpoint);
        }
    }

    /// What waits for the log after a change, in bytes.
    pub(crate) fn pending_is(&self, pending: usize) {
        if pending as u64 > self.pending_bytes {
            self.want(Job::Commit);
        }
    }

    /// The log after a batch, or after a commit that made some of it dead: what a recovery would have to do with it now,
    /// and of that what is not dead as soon as the commit is durable that is being made.
    pub(crate) fn log_is(&self, all: Work, fresh: Work, counters: &Counters) {
        self.log_bytes.store(all.log_bytes, Ordering::Relaxed);
        self.log_data_bytes.store(all.log_data_bytes, Ordering::Relaxed);
        self.log_blocks.store(all.log_blocks, Ordering::Relaxed);
        counters.log_bytes_used.set(all.log_bytes);
        counters.recovery_estimate_ns.set(nanos(self.recovery()));
        if fresh.log_bytes > self.log_bytes_max
            || fresh.log_blocks > LOG_BLOCKS_MAX
            || self.estimate(fresh).saturating_sub(FIXED) > self.log_time
        {
            self.want(Job::Commit);
        }
    }

    /// Bytes of the payload that a commit would have now, about: its ranges, their heads, and some
    /// more for what changers add until they are frozen.
    pub(crate) fn payload_estimate(&self) -> usize {
        let ranges = self.uncommitted_bytes.load(Ordering::Relaxed);
        let heads = self.dirty_nodes.load(Ordering::Relaxed) * HEAD_BYTES;
        usize::try_from(ranges + ranges / 4 + heads).unwrap_or(usize::MAX)
    }

    /// So many nodes are on their way to their homes; none when they have arrived.
    pub(crate) fn sealed_are(&self, nodes: usize) {
        self.sealed_nodes.store(nodes as u64, Ordering::Relaxed);
    }

    /// The journal after a commit or a checkpoint.
    pub(crate) fn journal_is(&self, bytes: u64, counters: &Counters) {
        self.journal_bytes.store(bytes, Ordering::Relaxed);
        counters.journal_bytes_used.set(bytes);
        counters.recovery_estimate_ns.set(nanos(self.recovery()));
        if self.pressure() >= WORK {
            self.want(Job::Checkpoint);
        }
    }

    /// A checkpoint wrote so many bytes of nodes, flushes included. Large ones tell how fast a recovery
    /// will be: half as fast, because nobody knows what else the machine does then.
    pub(crate) fn checkpoint_took(&self, bytes: u64, nanos: u64) {
        if bytes < TELLING_BYTES {
            return;
        }
        let seen = u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1)) / 2;
        let seen = u64::try_from(seen).unwrap_or(u64::MAX).clamp(RATE_MIN, RATE_MAX);
        let before = self.bytes_per_second.load(Ordering::Relaxed);
        // A slower device is believed at once, a faster one by and by.
        let now = if seen < before { seen } else { before + (seen - before) / 4 };
        self.bytes_per_second.store(now, Ordering::Relaxed);
    }

    /// How long a recovery would take now.
    fn recovery(&self) -> Duration {
        self.estimate(self.work())
    }

    fn estimate(&self, work: Work) -> Duration {
        work.estimate_at(self.bytes_per_second.load(Ordering::Relaxed))
    }

    /// A checkpoint has made room.
    pub(crate) fn relieved(&self) {
        let _state = self.state.lock();
        self.relief.notify_all();
    }

    /// What a recovery would have to do now.
    fn work(&self) -> Work {
        let dirty = self.dirty_nodes.load(Ordering::Relaxed);
        Work {
            journal_bytes: self.journal_bytes.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_data_bytes: self.log_data_bytes.load(Ordering::Relaxed),
            log_blocks: self.log_blocks.load(Ordering::Relaxed),
            nodes: dirty + self.sealed_nodes.load(Ordering::Relaxed),
            node_bytes: self.node_bytes,
        }
    }

    /// Whether a recovery could take longer than it may.
    fn is_over_budget(&self) -> bool {
        self.recovery() > self.budget
    }

    /// How full the fullest is, the log not counted: 1 is full.
    fn pressure(&self) -> f64 {
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let dirty = self.dirty_nodes.load(Ordering::Relaxed);
        let journal = self.journal_bytes.load(Ordering::Relaxed);
        let uncommitted = self.uncommitted_bytes.load(Ordering::Relaxed);
        // The fixed part cannot be helped by a checkpoint.
        let time = self.estimate(self.work().without_log()).saturating_sub(FIXED).as_secs_f64()
            / (self.budget - FIXED).as_secs_f64();
        share(dirty, self.dirty_nodes_max)
            .max(share(journal + uncommitted, self.ring_bytes))
            .max(time)
    }

    fn want(&self, job: Job) {
        if !std::mem::replace(self.state.lock().wanted(job), true) {
            self.wanted.notify_all();
        }
    }

    /// Whether the job is wanted, and nobody but the caller will do it; then it is wanted no more.
    fn is_mine(&self, job: Job) -> bool {
        self.alone && std::mem::take(self.state.lock().wanted(job))
    }

    /// The moment of a commit: it takes all that one was wanted for.
    pub(crate) fn commit_begins(&self) {
        self.state.lock().commit = false;
    }

    /// No work is wanted any more.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.wanted.notify_all();
    }

    /// Waits until the job is wanted; false at the end.
    fn wait_for(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return false;
            }
            if std::mem::take(state.wanted(job)) {
                return true;
            }
            self.wanted.wait(&mut state);
        }
    }

    /// A pause after a failure; false at the end.
    fn rest(&self) -> bool {
        let until = Deadline::after(RETRY);
        let mut state = self.state.lock();
        while !state.ended && !until.is_over() {
            let _ = self.wanted.wait_for(&mut state, until.left());
        }
        !state.ended
    }

    /// Slows a changer down by how far the pressure is above [`SLOW`], at most until a checkpoint ends.
    fn slow_down(&self, pressure: f64) {
        let share = ((pressure - SLOW) / (1.0 - SLOW)).clamp(0.0, 1.0);
        let until = Deadline::after(SLOWEST.mul_f64(share * share));
        wait::will_wait();
        let mut state = self.state.lock();
        let _ = self.relief.wait_for(&mut state, until.left());
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Starts the threads that make commits and checkpoints when they are wanted.
pub(crate) fn spawn(inner: &Arc<Inner>) -> Result<Vec<JoinHandle<()>>> {
    [(Job::Commit, "commit"), (Job::Checkpoint, "checkpoint")]
        .into_iter()
        .map(|(job, name)| {
            let inner = inner.clone();
            holdfast_sync::thread::Builder::new()
                .name(name.into())
                .spawn(move || work(&inner, job))
                .map_err(|error| {
                    StoreError::Refused(format!("the system gives no thread: {error}"))
                })
        })
        .collect()
}

fn work(inner: &Inner, job: Job) {
    let mut said = String::new();
    while inner.pace.wait_for(job) {
        let done = inner.perform(job);
        // A node that could not be read stops nothing: the next call tries again.
        let Err(error) = done else {
            said.clear();
            continue;
        };
        // It is wanted again at the next change: said once, and not tried all the time.
        let why = error.to_string();
        if said != why {
            tracing::error!("{job:?} failed: {why}");
            said = why;
        }
        if inner.stop.is_stopped() || !inner.pace.rest() {
            return;
        }
    }
}

impl Inner {
    /// Makes a changer wait as long as the pressure asks for. No lock is held meanwhile.
    pub(crate) fn throttle(&self) -> Result<()> {
        for job in [Job::Commit, Job::Checkpoint] {
            if self.pace.is_mine(job)
                && let Err(error) = self.perform(job)
            {
                // As in a thread: a failed device stops the volume, and the caller hears of that.
                tracing::error!("{job:?} failed: {error}");
            }
        }
        let pressure = self.pace.pressure();
        let is_over_budget = self.pace.is_over_budget();
        if pressure < SLOW && !is_over_budget {
            return Ok(());
        }
        let time = Stopwatch::start();
        let done = if pressure >= 1.0 {
            self.checkpoint_above(1.0)
        } else if is_over_budget {
            self.perform(Job::Commit)
        } else {
            self.pace.want(Job::Checkpoint);
            self.pace.slow_down(pressure);
            Ok(())
        };
        self.counters.throttled.increment();
        self.counters.throttled_ns.add(time.nanos());
        done
    }

    fn perform(&self, job: Job) -> Result<()> {
        match job {
            Job::Commit => self.commit_upto(holdfast_base::Lsn(self.lsn.load(Ordering::Acquire))),
            Job::Checkpoint => self.checkpoint_above(WORK),
        }
    }

    /// Makes a checkpoint unless one that was waited for has brought the pressure below `limit`.
    fn checkpoint_above(&self, limit: f64) -> Result<()> {
        let one = self.one_checkpoint.lock();
        if self.pace.pressure() < limit {
            return Ok(());
        }
        self.run_checkpoint(one)
    }
}

/// Longer freezes count as this one: a minute.
const FREEZE_MAX_NS: u64 = 60_000_000_000;

/// How long freezes were.
#[derive(Debug)]
pub(crate) struct Freezes(Histogram<u64>);

impl Default for Freezes {
    fn default() -> Freezes {
        // Bounds from the start: what grows by itself grows only in calls that can fail.
        let bounds = Histogram::new_with_bounds(1, FREEZE_MAX_NS, 2);
        Freezes(bounds.expect("bounds and two digits are valid"))
    }
}

impl Freezes {
    /// Adds one and tells the counters.
    pub(crate) fn record(&mut self, nanos: u64, counters: &Counters) {
        self.0.saturating_record(nanos);
        counters.frozen_p50_ns.set(self.0.value_at_quantile(0.5));
        counters.frozen_p99_ns.set(self.0.value_at_quantile(0.99));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(recover: Duration) -> Pace {
        let geometry = Geometry::for_device(1 << 30, 16384).unwrap();
        let options = OpenOptions { recover, ..OpenOptions::default() };
        Pace::new(&geometry, &options, &Counters::default())
    }

    #[test]
    fn the_fullest_of_three_is_the_pressure() {
        let pace = pace(Duration::from_secs(1000));
        assert!(pace.pressure() < 0.01);
        pace.dirty_nodes.store(pace.dirty_nodes_max / 2, Ordering::Relaxed);
        assert!((0.45..0.55).contains(&pace.pressure()), "memory: {}", pace.pressure());
        pace.journal_is(pace.ring_bytes * 3 / 4, &Counters::default());
        assert!((0.7..0.8).contains(&pace.pressure()), "ring: {}", pace.pressure());
    }

    #[test]
    fn the_log_is_a_part_of_the_estimate_and_never_most_of_it() {
        let (pace, counters) = (pace(Duration::from_secs(1)), Counters::default());
        let log_is = |log_bytes, log_blocks| {
            let logged = Work { log_bytes, log_blocks, ..Work::default() };
            pace.log_is(logged, logged, &counters);
        };
        assert_eq!(pace.recovery(), Duration::ZERO);
        log_is(512, 0);
        assert!(counters.recovery_estimate_ns.get() >= nanos(FIXED));
        assert!(!pace.state.lock().commit);
        log_is(pace.log_bytes_max + 512, 0);
        assert!(pace.state.lock().commit, "a commit makes it dead");
        assert_eq!(pace.pressure(), 0.0, "no checkpoint is needed");
        let before = pace.recovery();
        log_is(pace.log_bytes_max + 512, 256);
        assert!(pace.recovery() > before, "data in the log goes to its place");
        log_is(0, 0);
        assert_eq!((counters.log_bytes_used.get(), counters.recovery_estimate_ns.get()), (0, 0));
    }

    #[test]
    fn data_in_the_log_stays_there_while_a_recovery_has_time_for_it() {
        let counters = Counters::default();
        let log_is = |pace: &Pace, batches: u64, of_data: u64, blocks: u64| {
            let log_data_bytes = batches * of_data;
            let log_bytes = batches * 512 + log_data_bytes;
            let logged = Work { log_bytes, log_data_bytes, log_blocks: blocks, ..Work::default() };
            pace.log_is(logged, logged, &counters);
            std::mem::take(&mut pace.state.lock().commit)
        };
        let of_a_second = pace(Duration::from_secs(1));
        assert!(!log_is(&of_a_second, 1500, 4096, 1500), "6 MiB of blocks");
        assert!(log_is(&of_a_second, 3000, 4096, 3000));
        assert!(!of_a_second.is_over_budget());
        // The same blocks again and again have few places to go to.
        assert!(!log_is(&of_a_second, 1800, 4096, 1));
        // A few bytes of many blocks make a short log, and much to do.
        assert!(log_is(&of_a_second, 4000, 100, 4000));
        assert!(log_is(&pace(Duration::from_millis(300)), 1500, 4096, 1500), "a smaller budget");
        let of_an_hour = pace(Duration::from_secs(3600));
        assert!(!log_is(&of_an_hour, 4000, 100, 4000));
        assert!(log_is(&of_an_hour, 4100, 100, 4100), "they are in memory, too");
    }

    #[test]
    fn a_commit_that_is_being_made_is_not_wanted_again() {
        let (pace, counters) = (pace(Duration::from_secs(1)), Counters::default());
        let logged = |log_blocks: u64| {
            let log_data_bytes = log_blocks * 4096;
            let log_bytes = log_data_bytes + log_blocks * 512;
            Work { log_bytes, log_data_bytes, log_blocks, ..Work::default() }
        };
        pace.log_is(logged(3010), logged(10), &counters);
        assert!(!pace.state.lock().commit);
        assert_eq!(counters.log_bytes_used.get(), logged(3010).log_bytes);
        assert!(pace.recovery() - FIXED > pace.log_time, "but a crash now would find all of it");
        pace.log_is(logged(6000), logged(3000), &counters);
        assert!(pace.state.lock().commit);
        pace.commit_begins();
        assert!(!pace.state.lock().commit);
        // Commits that do not come to their end.
        assert!(!pace.is_over_budget());
        pace.log_is(logged(12_000), logged(10), &counters);
        assert!(pace.is_over_budget() && pace.pressure() == 0.0, "changers wait for a commit");
    }

    #[test]
    fn a_slow_device_leaves_less_for_its_budget() {
        let pace = pace(Duration::from_secs(1));
        pace.dirty_nodes.store(1000, Ordering::Relaxed);
        let before = pace.pressure();
        pace.checkpoint_took(64 << 20, 4_000_000_000);
        assert!(pace.pressure() > 4.0 * before, "16 MiB/s: {} {before}", pace.pressure());
        for _ in 0..20 {
            pace.checkpoint_took(64 << 20, 50_000_000);
        }
        assert!(pace.pressure() < before, "1.2 GiB/s: {} {before}", pace.pressure());
        pace.checkpoint_took(4096, 50_000_000);
        assert!(pace.pressure() < before, "a few nodes tell nothing");
    }

    #[test]
    fn percentiles_are_those_of_the_freezes() {
        let (mut freezes, counters) = (Freezes::default(), Counters::default());
        for _ in 0..98 {
            freezes.record(10_000, &counters);
        }
        freezes.record(5_000_000, &counters);
        freezes.record(u64::MAX, &counters);
        let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= wanted / 100;
        assert!(near(counters.frozen_p50_ns.get(), 10_000), "{:?}", counters.frozen_p50_ns);
        assert!(near(counters.frozen_p99_ns.get(), 5_000_000), "{:?}", counters.frozen_p99_ns);
    }
}
