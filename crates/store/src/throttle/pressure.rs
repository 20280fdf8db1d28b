//! How full it is: memory with dirty nodes, the ring with commits, and by both the time that a recovery would take.
//!
//! Every change asks whether it must wait, and hardly any must. So code that changes a quantity reads the levels, and
//! a change only checks the last reading.

use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::recover::{BYTES_PER_SECOND, Cost, PLACE, RecoveryWork};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::Geometry;
use holdfast_format::journal::REPLAY_BYTES_MAX;

use super::access_times::AccessTimes;
use super::{SLOW, fills};
use crate::OpenOptions;
use crate::space::slots::NodeSlots;

/// A smaller budget would mean nothing but checkpoints.
const BUDGET_MIN: Duration = Duration::from_millis(250);
/// A checkpoint of fewer bytes says more about flushes than about the device's rate.
const TELLING_BYTES: u64 = 4 << 20;
/// No device is taken for slower than this, in bytes a second.
const RATE_MIN: u64 = 8 << 20;
/// No device is taken for faster than this: what was written may be in a cache.
const RATE_MAX: u64 = 1 << 30;
/// So many changed nodes are left to a recovery on any device, however slow: with fewer, a checkpoint would follow
/// each few operations, and each takes as long.
const NODES_MIN: u64 = 16;
/// Bytes that wait for a commit are looked at again after so many more of them.
const STEP_BYTES: u64 = 16 << 10;
/// Head and four ranges of a node's record.
const HEAD_BYTES: u64 = 48;

/// The quantities that fill, and their bounds.
#[derive(Debug)]
pub(super) struct Levels {
    ring_bytes: AtomicU64,
    /// For which the ring has room.
    ring_room: u64,
    pub(super) dirty_nodes_max: u64,
    pub(super) budget: Duration,
    node_bytes: u64,
    /// Most places to which a node is written beside its own.
    copies: u64,
    journal_bytes: AtomicU64,
    log_bytes: AtomicU64,
    log_data_bytes: AtomicU64,
    log_blocks: AtomicU64,
    uncommitted_bytes: AtomicU64,
    dirty_nodes: AtomicU64,
    /// Those that are stored twice.
    dirty_copies: AtomicU64,
    sealed_nodes: AtomicU64,
    sealed_copies: AtomicU64,
    /// Bytes that the device moves in a second, by half of what checkpoints have seen.
    bytes_per_second: AtomicU64,
    pub(super) places: Arc<AccessTimes>,
    /// Whether the last reading makes no change wait.
    is_low: AtomicBool,
}

/// What the levels say at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// How full the fullest is, the log not counted: 1 is full.
    pub(super) pressure: f64,
    /// How long a recovery would take, the log included.
    pub(super) recovery: Duration,
    /// Whether that is longer than it may.
    pub(super) is_over_budget: bool,
    /// How long it may take: the budget, or more on a device that is too slow for that.
    pub(super) kept: Duration,
}

impl Pressure {
    /// Whether no change has to wait.
    pub(super) fn is_low(&self) -> bool {
        self.pressure < SLOW && !self.is_over_budget
    }
}

impl Levels {
    pub(super) fn new(
        geometry: &Geometry,
        options: &OpenOptions,
        places: Arc<AccessTimes>,
    ) -> Levels {
        let node_bytes = geometry.node_size as u64;
        let memory = (options.cache_bytes as u64 / 2).clamp(16 * node_bytes, REPLAY_BYTES_MAX / 4);
        Levels {
            ring_bytes: AtomicU64::new(geometry.journal().bytes().unwrap_or(u64::MAX)),
            ring_room: geometry.journal_room().saturating_mul(BLOCK_BYTES),
            dirty_nodes_max: memory / node_bytes,
            budget: options.recover.max(BUDGET_MIN),
            node_bytes,
            copies: geometry.node_copies().0.saturating_sub(1),
            journal_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_data_bytes: AtomicU64::new(0),
            log_blocks: AtomicU64::new(0),
            uncommitted_bytes: AtomicU64::new(0),
            dirty_nodes: AtomicU64::new(0),
            dirty_copies: AtomicU64::new(0),
            sealed_nodes: AtomicU64::new(0),
            sealed_copies: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(BYTES_PER_SECOND),
            places,
            is_low: AtomicBool::new(true),
        }
    }

    /// Bytes and nodes that wait for a commit. Whether they are so different from before that a reading says
    /// something new.
    pub(super) fn cache_is(&self, uncommitted_bytes: u64, dirty: NodeSlots) -> bool {
        let dirty_nodes = dirty.nodes();
        let before = self.uncommitted_bytes.load(Ordering::Relaxed);
        let nodes_before = self.dirty_nodes.load(Ordering::Relaxed);
        self.uncommitted_bytes.store(uncommitted_bytes, Ordering::Relaxed);
        self.dirty_nodes.store(dirty_nodes, Ordering::Relaxed);
        self.dirty_copies.store(dirty.twice, Ordering::Relaxed);
        before / STEP_BYTES != uncommitted_bytes / STEP_BYTES || nodes_before != dirty_nodes
    }

    /// What a recovery would have to do with the log.
    pub(super) fn log_is(&self, log: RecoveryWork) {
        self.log_bytes.store(log.log_bytes, Ordering::Relaxed);
        self.log_data_bytes.store(log.log_data_bytes, Ordering::Relaxed);
        self.log_blocks.store(log.log_blocks, Ordering::Relaxed);
    }

    /// Bytes of commits in the ring.
    pub(super) fn journal_is(&self, bytes: u64) {
        self.journal_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of the log that a recovery would read.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the journal's ring.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    /// It has so many from now on.
    pub(super) fn ring_is(&self, bytes: u64) {
        self.ring_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the journal could be longer.
    pub(super) fn has_room(&self) -> bool {
        self.ring_bytes() < self.ring_room
    }

    /// Whether it fills so that it should be.
    pub(super) fn fills_journal(&self) -> bool {
        let waits = self.uncommitted_bytes.load(Ordering::Relaxed);
        fills(self.journal_bytes.load(Ordering::Relaxed) + waits, self.ring_bytes())
    }

    /// So many nodes are on their way to their locations.
    pub(super) fn sealed_are(&self, nodes: NodeSlots) {
        self.sealed_nodes.store(nodes.nodes(), Ordering::Relaxed);
        self.sealed_copies.store(nodes.twice, Ordering::Relaxed);
    }

    /// A checkpoint wrote so many bytes of nodes to so many locations, flushes included. Large ones tell how fast a
    /// recovery will be: half as fast, because what else the machine does then is unknown.
    pub(super) fn checkpoint_took(&self, bytes: u64, runs: u64, nanos: u64) {
        self.places.checkpoint_took(bytes, runs, nanos);
        if bytes < TELLING_BYTES {
            return;
        }
        // Access times are estimated separately.
        let beyond =
            self.places.cost().saturating_sub(PLACE).as_nanos().saturating_mul(runs.into());
        let nanos = nanos.saturating_sub(u64::try_from(beyond).unwrap_or(u64::MAX)).max(nanos / 16);
        let seen = u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1)) / 2;
        let seen = u64::try_from(seen).unwrap_or(u64::MAX).clamp(RATE_MIN, RATE_MAX);
        let before = self.bytes_per_second.load(Ordering::Relaxed);
        // A slower device is believed at once, a faster one by and by.
        let now = if seen < before { seen } else { before + (seen - before) / 4 };
        self.bytes_per_second.store(now, Ordering::Relaxed);
    }

    /// Bytes of the payload that a commit would have now, about: its ranges, their prefixes, and some
    /// more for what writers add until they are frozen.
    pub(super) fn payload_estimate(&self) -> u64 {
        let ranges = self.uncommitted_bytes.load(Ordering::Relaxed);
        let prefixes = self.dirty_nodes.load(Ordering::Relaxed) * HEAD_BYTES;
        ranges + ranges / 4 + prefixes
    }

    /// How long a recovery takes that has so much to do.
    pub(super) fn estimate(&self, work: RecoveryWork) -> Duration {
        work.estimate_at(&self.cost())
    }

    /// What the device takes, as far as it was seen.
    pub(super) fn cost(&self) -> Cost {
        let bytes_per_second = self.bytes_per_second.load(Ordering::Relaxed);
        Cost { bytes_per_second, place: self.places.cost() }
    }

    /// How much longer a recovery may take than it must.
    pub(super) fn room(&self) -> Duration {
        let cost = self.cost();
        let few = RecoveryWork {
            nodes: NODES_MIN,
            node_bytes: self.node_bytes,
            copies: NODES_MIN * self.copies,
            ..RecoveryWork::default()
        };
        let least = few.estimate_at(&cost).saturating_sub(cost.fixed());
        self.budget.saturating_sub(cost.fixed()).max(least)
    }

    /// What a recovery would have to do now.
    fn work(&self) -> RecoveryWork {
        let dirty = self.dirty_nodes.load(Ordering::Relaxed);
        RecoveryWork {
            journal_bytes: self.journal_bytes.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_data_bytes: self.log_data_bytes.load(Ordering::Relaxed),
            log_blocks: self.log_blocks.load(Ordering::Relaxed),
            nodes: dirty + self.sealed_nodes.load(Ordering::Relaxed),
            node_bytes: self.node_bytes,
            copies: self.dirty_copies.load(Ordering::Relaxed)
                + self.sealed_copies.load(Ordering::Relaxed),
        }
    }

    /// Reads the levels, and remembers whether changes must wait. Two readings at the same time may leave the older
    /// answer, until the next reading: at most 16 KiB of bytes that wait for a commit later, or a node, a commit or a
    /// batch of the log.
    pub(super) fn read(&self) -> Pressure {
        let share = |part: u64, whole: u64| part as f64 / whole as f64;
        let work = self.work();
        let uncommitted = self.uncommitted_bytes.load(Ordering::Relaxed);
        // The fixed part cannot be helped by a checkpoint.
        let (fixed, room) = (self.cost().fixed(), self.room());
        let time = self.estimate(work.without_log()).saturating_sub(fixed).as_secs_f64()
            / room.as_secs_f64();
        let pressure = share(self.dirty_nodes.load(Ordering::Relaxed), self.dirty_nodes_max)
            .max(share(work.journal_bytes + uncommitted, self.ring_bytes()))
            .max(time);
        let recovery = self.estimate(work);
        let kept = self.budget.max(fixed.saturating_add(room));
        let reading = Pressure { pressure, recovery, is_over_budget: recovery > kept, kept };
        self.is_low.store(reading.is_low(), Ordering::Relaxed);
        reading
    }

    /// Whether no change has to wait, by the last reading.
    pub(super) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_format::Stored;

    use super::*;

    fn levels(recover: Duration) -> Levels {
        let geometry = Geometry::for_device(1 << 30, 16384).unwrap();
        let options = OpenOptions { recover, ..OpenOptions::default() };
        Levels::new(&geometry, &options, Arc::default())
    }

    #[test]
    fn the_fullest_of_three_is_the_pressure() {
        let levels = levels(Duration::from_secs(1000));
        let pressure = || levels.read().pressure;
        assert!(pressure() < 0.01);
        levels.cache_is(0, once(levels.dirty_nodes_max / 2));
        assert!((0.45..0.55).contains(&pressure()), "memory: {}", pressure());
        levels.journal_is(levels.ring_bytes() / 2);
        levels.cache_is(levels.ring_bytes() / 4, once(1));
        assert!((0.7..0.8).contains(&pressure()), "ring: {}", pressure());
    }

    #[test]
    fn a_slow_device_leaves_less_for_its_budget() {
        let levels = levels(Duration::from_secs(1));
        let pressure = || levels.read().pressure;
        levels.cache_is(0, once(1000));
        let before = pressure();
        levels.checkpoint_took(64 << 20, 1, 4_000_000_000);
        assert!(pressure() > 4.0 * before, "16 MiB/s: {} {before}", pressure());
        for _ in 0..20 {
            levels.checkpoint_took(64 << 20, 1, 50_000_000);
        }
        assert!(pressure() < before, "1.2 GiB/s: {} {before}", pressure());
        levels.checkpoint_took(4096, 1, 50_000_000);
        assert!(pressure() < before, "a few nodes tell nothing");
    }

    /// The promise is kept with fewer changed nodes, down to a few; below that it cannot be, and that is said.
    #[test]
    fn dear_places_leave_fewer_nodes_and_never_none() {
        let levels = levels(Duration::from_secs(1));
        let full_at = |place: Duration| {
            for _ in 0..16 {
                levels.places.read_took(0, place.as_nanos() as u64);
            }
            let nodes = (1..20_000).find(|nodes| {
                levels.cache_is(0, once(*nodes));
                levels.read().pressure >= 1.0
            });
            let reading = levels.read();
            let works = (reading.recovery, reading.kept);
            levels.cache_is(0, once(0));
            (nodes.unwrap_or(u64::MAX), works.1)
        };
        let (cheap, kept) = full_at(Duration::ZERO);
        assert!(cheap > 1000 && kept == levels.budget, "{cheap} {kept:?}");
        let (network, kept) = full_at(Duration::from_millis(1));
        assert!((200..500).contains(&network) && kept == levels.budget, "{network} {kept:?}");
        let (disk, kept) = full_at(Duration::from_millis(10));
        assert!((25..50).contains(&disk) && kept == levels.budget, "{disk} {kept:?}");
        let (tape, kept) = full_at(Duration::from_millis(100));
        assert_eq!(tape, NODES_MIN);
        assert!(kept > 4 * levels.budget, "it cannot be kept: {kept:?}");
    }

    fn once(nodes: u64) -> NodeSlots {
        NodeSlots::of(Stored::Once, nodes)
    }

    /// A recovery writes each node twice where nodes have copies, so fewer of them may be changed.
    #[test]
    fn copies_leave_fewer_nodes() {
        let geometry = Geometry::for_device(1 << 30, 16384).unwrap();
        let full_at = |stored: Stored| {
            let levels = Levels::new(&geometry, &OpenOptions::default(), Arc::default());
            let nodes = (1..20_000).step_by(16).find(|nodes| {
                levels.cache_is(0, NodeSlots::of(stored, *nodes));
                levels.read().recovery > levels.budget
            });
            nodes.unwrap()
        };
        let (once, twice) = (full_at(Stored::Once), full_at(Stored::Twice));
        assert!(twice < once * 3 / 4, "{once} {twice}");
    }

    #[test]
    fn a_reading_is_asked_for_in_steps_and_makes_changers_wait_or_go_on() {
        let levels = levels(Duration::from_secs(1));
        assert!(levels.is_low());
        assert!(!levels.cache_is(STEP_BYTES - 1, once(0)), "as before");
        assert!(levels.cache_is(STEP_BYTES, once(0)), "a step");
        assert!(levels.cache_is(STEP_BYTES, once(1)), "a node");
        assert!(!levels.cache_is(STEP_BYTES + 1, once(1)));
        assert!(levels.cache_is(0, once(1)), "a commit took them");

        levels.journal_is(levels.ring_bytes());
        assert!(levels.is_low(), "nobody has looked");
        levels.read();
        assert!(!levels.is_low());
        levels.journal_is(0);
        let log = |log_bytes| RecoveryWork { log_bytes, ..RecoveryWork::default() };
        levels.log_is(log(1 << 30));
        let reading = levels.read();
        assert!(reading.is_over_budget && reading.pressure < SLOW && !levels.is_low());
        levels.log_is(log(0));
        levels.read();
        assert!(levels.is_low());
    }
}
