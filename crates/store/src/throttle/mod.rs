//! When to commit, when to make a checkpoint, and when to slow writers down.
//!
//! Three things fill: memory with dirty nodes, the ring with commits, and the
//! time that a recovery would take, by both. The fullest of them is the pressure. From
//! half of it on the checkpointer works. From three quarters on changes wait a little, longer
//! the fuller it is, so that none is stopped late and for long. At the whole they wait for the checkpoint.
//!
//! The log makes a recovery longer, too, but a commit is enough to end that. One is wanted when
//! the log has its part of the time, and writers wait for one if all of the time is used. All waits are counted.
//!
//! Knows nothing of what commits and checkpoints do.

mod pressure;
pub(crate) mod access_times;

use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::counters::Counters;
use holdfast_base::recover::RecoveryWork;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::wait;
use holdfast_format::Geometry;
use parking_lot::{Condvar, Mutex};

use crate::cache::Cache;
use crate::space::slots::NodeSlots;
use crate::{Inner, OpenOptions, Result, StoreError};
use access_times::AccessTimes;
use pressure::{Levels, Pressure};

/// A commit is wanted when it would log more than this: so a freeze copies little more, in less
/// than a millisecond.
const COMMIT_BYTES: u64 = 2 << 20;
/// And more nodes than this, however little has changed in each: a freeze searches each of them.
const COMMIT_NODES: u64 = 4096;
/// A commit is wanted when so many bytes wait for the log, each key counted once; a quarter of a small log.
const PENDING_BYTES: u64 = 2 << 20;
/// A commit is wanted when only the log holds the data of so many blocks, 16 MiB: they are in memory, too.
const LOG_BLOCKS_MAX: u64 = (16 << 20) / BLOCK_BYTES;
/// Pressure from which the checkpointer works.
const WORK: f64 = 0.5;
/// Pressure from which writers are slowed down.
const SLOW: f64 = 0.75;
/// The longest that one writer is slowed down before the pressure is whole.
const SLOWEST: Duration = Duration::from_millis(8);
/// Between two attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The log's part of the budget. What a recovery cannot read, apply and write to its locations in that time is not left
/// to the next checkpoint: a commit makes it dead. Until then, data that changes again or is deleted is never written
/// to a location.
const LOG_SHARE: u32 = 4;

/// What fills, and which threads wait for which.
#[derive(Debug)]
pub(crate) struct Throttle {
    levels: Levels,
    /// Bytes of the log's ring that are in use, and for which it has room.
    log_ring: AtomicU64,
    log_room: u64,
    /// Longer rings are not to be had before the next checkpoint.
    rings_stay: AtomicBool,
    /// There are no threads: the caller that changes something does the wanted job itself.
    alone: bool,
    state: Mutex<ThrottleState>,
    wanted: Condvar,
    relief: Condvar,
}

#[derive(Debug, Default)]
struct ThrottleState {
    commit: bool,
    checkpoint: bool,
    rings: bool,
    ended: bool,
}

impl ThrottleState {
    /// Whether a job is wanted.
    fn wanted(&mut self, job: Job) -> &mut bool {
        match job {
            Job::Commit => &mut self.commit,
            Job::Checkpoint => &mut self.checkpoint,
            Job::Rings => &mut self.rings,
        }
    }
}

/// What a background thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Commit,
    Checkpoint,
    /// Makes the rings longer, which is a checkpoint as well.
    Rings,
}

/// What a recovery may take on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryLimits {
    /// At most this, as far as it is for us.
    pub(crate) kept: Duration,
    /// What was asked for.
    pub(crate) budget: Duration,
    /// What a random access costs.
    pub(crate) place: Duration,
}

impl Throttle {
    /// `places`: what was seen of the device until now.
    pub(crate) fn new(
        geometry: &Geometry,
        options: &OpenOptions,
        counters: &Counters,
        places: Arc<AccessTimes>,
    ) -> Throttle {
        let levels = Levels::new(geometry, options, places);
        counters.recovery_budget_ns.set(nanos(levels.budget));
        Throttle {
            log_ring: AtomicU64::new(geometry.log().bytes().unwrap_or(u64::MAX)),
            log_room: geometry.log_room().saturating_mul(BLOCK_BYTES),
            rings_stay: AtomicBool::new(false),
            alone: !options.threads,
            state: Mutex::default(),
            wanted: Condvar::new(),
            relief: Condvar::new(),
            levels,
        }
    }

    /// The cache after a change.
    pub(crate) fn cache_is(&self, cache: &Cache) {
        let uncommitted = cache.uncommitted_bytes() as u64;
        let is_much = uncommitted > COMMIT_BYTES.min(self.levels.ring_bytes() / 8);
        if is_much || cache.uncommitted_slots().nodes() > COMMIT_NODES {
            self.want(Job::Commit);
        }
        if self.levels.cache_is(uncommitted, cache.dirty_slots()) {
            self.look();
        }
    }

    /// Whether so many bytes that arrived for the log, and may say the same several times, are to be looked at closer.
    pub(crate) fn is_to_be_folded(&self, arrived: usize) -> bool {
        arrived as u64 > self.pending_max() / 2
    }

    /// What waits for the log after changes, in bytes.
    pub(crate) fn pending_is(&self, pending: usize) {
        if pending as u64 > self.pending_max() {
            self.want(Job::Commit);
        }
    }

    fn pending_max(&self) -> u64 {
        PENDING_BYTES.min(self.log_ring() / 4)
    }

    /// The log after a batch, or after a commit that made some of it dead: what a recovery would have to do with it
    /// now, and of that what is not dead as soon as the commit is durable that is being made.
    pub(crate) fn log_is(&self, all: RecoveryWork, fresh: RecoveryWork, counters: &Counters) {
        self.levels.log_is(all);
        counters.log_bytes_used.set(all.log_bytes);
        counters.recovery_estimate_ns.set(nanos(self.levels.read().recovery));
        if fills(all.log_bytes, self.log_ring()) && self.log_ring() < self.log_room {
            self.want_longer_rings();
        }
        if fresh.log_bytes > self.log_ring() / 2
            || fresh.log_blocks > LOG_BLOCKS_MAX
            || self.levels.estimate(fresh).saturating_sub(self.levels.cost().fixed())
                > self.log_time()
        {
            self.want(Job::Commit);
        }
    }

    /// Bytes of the log's ring.
    fn log_ring(&self) -> u64 {
        self.log_ring.load(Ordering::Relaxed)
    }

    /// Whether log and journal fill so that they should be longer.
    pub(crate) fn rings_that_fill(&self) -> [bool; 2] {
        [fills(self.levels.log_bytes(), self.log_ring()), self.levels.fills_journal()]
    }

    /// The rings have other lengths from now on.
    pub(crate) fn rings_are(&self, geometry: &Geometry) {
        self.log_ring.store(geometry.log_blocks * BLOCK_BYTES, Ordering::Relaxed);
        self.levels.ring_is(geometry.journal_blocks * BLOCK_BYTES);
    }

    /// Nothing makes them longer before the next checkpoint.
    pub(crate) fn rings_stay(&self) {
        self.rings_stay.store(true, Ordering::Relaxed);
    }

    fn want_longer_rings(&self) {
        if !self.rings_stay.load(Ordering::Relaxed) {
            self.want(Job::Rings);
        }
    }

    /// A commit is wanted when the log makes a recovery so much longer.
    fn log_time(&self) -> Duration {
        self.levels.room() / LOG_SHARE
    }

    /// A node, or as many bytes, were read in one access.
    pub(crate) fn read_took(&self, bytes: u64, nanos: u64) {
        self.levels.places.read_took(bytes, nanos);
    }

    /// What is known of the device, and what follows from that for a recovery.
    pub(crate) fn update(&self, counters: &Counters) -> RecoveryLimits {
        let (reading, cost) = (self.levels.read(), self.levels.cost());
        counters.recovery_kept_ns.set(nanos(reading.kept));
        counters.device_place_ns.set(nanos(cost.place));
        RecoveryLimits { kept: reading.kept, budget: self.levels.budget, place: cost.place }
    }

    /// Bytes of the payload that a commit would have now, about: its ranges, their prefixes, and some
    /// more for what writers add until they are frozen.
    pub(crate) fn payload_estimate(&self) -> usize {
        usize::try_from(self.levels.payload_estimate()).unwrap_or(usize::MAX)
    }

    /// So many nodes are on their way to their locations; none when they have arrived.
    pub(crate) fn sealed_are(&self, nodes: NodeSlots) {
        self.levels.sealed_are(nodes);
    }

    /// The journal after a commit or a checkpoint.
    pub(crate) fn journal_is(&self, bytes: u64, counters: &Counters) {
        self.levels.journal_is(bytes);
        counters.journal_bytes_used.set(bytes);
        counters.recovery_estimate_ns.set(nanos(self.look().recovery));
        self.update(counters);
    }

    /// A checkpoint wrote so many bytes of nodes in that time, flushes included: it tells how fast a recovery will be.
    /// `runs`: to so many locations.
    pub(crate) fn checkpoint_took(&self, bytes: u64, runs: u64, nanos: u64) {
        self.levels.checkpoint_took(bytes, runs, nanos);
    }

    /// Reads the levels; a checkpoint is wanted if it says so.
    fn look(&self) -> Pressure {
        let reading = self.levels.read();
        if self.levels.fills_journal() && self.levels.has_room() {
            self.want_longer_rings();
        }
        if reading.pressure >= WORK {
            self.want(Job::Checkpoint);
        }
        reading
    }

    /// A checkpoint has made room.
    pub(crate) fn relieved(&self) {
        self.rings_stay.store(false, Ordering::Relaxed);
        let _state = self.state.lock();
        self.relief.notify_all();
    }

    /// Whether threads make commits and checkpoints.
    pub(crate) fn has_threads(&self) -> bool {
        !self.alone
    }

    /// Something that was sealed is to be written.
    pub(crate) fn want_checkpoint(&self) {
        self.want(Job::Checkpoint);
    }

    fn want(&self, job: Job) {
        if !std::mem::replace(self.state.lock().wanted(job), true) {
            self.wanted.notify_all();
        }
    }

    /// Whether the job is wanted and only the caller can do it. Then it is wanted no more.
    fn is_mine(&self, job: Job) -> bool {
        self.alone && std::mem::take(self.state.lock().wanted(job))
    }

    /// As if the log were full.
    #[cfg(test)]
    #[cfg(not(feature = "steered"))]
    pub(crate) fn want_commit(&self) {
        self.want(Job::Commit);
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

    /// Slows a writer down by how far the pressure is above [`SLOW`], at most until a checkpoint ends.
    fn slow_down(&self, pressure: f64) {
        let share = ((pressure - SLOW) / (1.0 - SLOW)).clamp(0.0, 1.0);
        let until = Deadline::after(SLOWEST.mul_f64(share * share));
        wait::will_wait();
        let mut state = self.state.lock();
        let _ = self.relief.wait_for(&mut state, until.left());
    }
}

/// Whether so many bytes of a ring are a reason to make it longer: long before they are one for a commit or a checkpoint.
pub(super) fn fills(bytes: u64, ring: u64) -> bool {
    bytes > ring / 4
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Starts the threads that make commits and checkpoints when they are wanted, and adds them to `threads`. One that
/// panics stops the volume: its work would not be done.
pub(crate) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
    let all = [(Job::Commit, "commit"), (Job::Checkpoint, "checkpoint"), (Job::Rings, "rings")];
    for (job, name) in
        all.into_iter().filter(|(job, _)| *job != Job::Rings || inner.has_short_rings())
    {
        let inner = inner.clone();
        let started = holdfast_sync::start(name, move || {
            let step = inner.step("the work of a background thread");
            work(&inner, job);
            step.end();
        });
        threads.push(started.map_err(|error| {
            let why = format!("the system gives no thread for {name}s ({error})");
            StoreError::Refused(format!("{why}; raise its limit of processes"))
        })?);
    }
    Ok(())
}

fn work(inner: &Inner, job: Job) {
    let mut said = String::new();
    while inner.throttle.wait_for(job) {
        let done = inner.perform(job);
        // A node that could not be read stops nothing: the next call tries again.
        let Err(error) = done else {
            said.clear();
            continue;
        };
        // It is wanted again by changes to come: said once, and not tried all the time.
        let why = error.to_string();
        if said != why {
            tracing::error!("{job:?} failed: {why}");
            said = why;
        }
        if inner.stop.is_stopped() || !inner.throttle.rest() {
            return;
        }
    }
}

impl Inner {
    /// Makes a writer wait as long as the pressure asks for. No lock is held meanwhile.
    pub(crate) fn throttle(&self) -> Result<()> {
        for job in [Job::Rings, Job::Commit, Job::Checkpoint] {
            if self.throttle.is_mine(job)
                && let Err(error) = self.perform(job)
            {
                // As in a thread: a failed device stops the volume, and the caller hears of that.
                tracing::error!("{job:?} failed: {error}");
            }
        }
        self.discard_alone();
        if self.throttle.levels.is_low() {
            return Ok(());
        }
        let reading = self.throttle.levels.read();
        if reading.is_low() {
            return Ok(());
        }
        let Pressure { pressure, is_over_budget, .. } = reading;
        let time = Stopwatch::start();
        let done = if pressure >= 1.0 {
            self.checkpoint_above(1.0)
        } else if is_over_budget {
            self.perform(Job::Commit)
        } else {
            self.throttle.want(Job::Checkpoint);
            self.throttle.slow_down(pressure);
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
            Job::Rings => self.lengthen_rings(),
        }
    }

    /// Makes a checkpoint unless one that was waited for has brought the pressure below `limit`.
    fn checkpoint_above(&self, limit: f64) -> Result<()> {
        let one = self.lock_checkpoints()?;
        if self.throttle.levels.read().pressure < limit {
            return Ok(());
        }
        self.run_checkpoint(one)
    }
}

#[cfg(test)]
mod tests;
