//! What a random access costs on this device: a seek of a disk, a round trip of a network, next to nothing.
//!
//! It is measured and never assumed: by reads of nodes, of the superblocks when a volume opens, and by
//! checkpoints, whose writes and flush reach the device even where a cache of the host answers reads. The slower
//! of the two counts, since a recovery starts cold.
//!
//! The estimate is the upper quartile of the last sixteen readings: one slow answer in many says nothing, and a few
//! quick ones out of some cache do not hide what the others took.

use holdfast_sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::recover::{BYTES_PER_SECOND, PLACE};
use parking_lot::Mutex;

/// Readings that are remembered of each kind.
const SEEN: usize = 16;
/// Fewer say nothing.
const TELLING: usize = 3;
/// Longer reads say more about the rate of the device than about its access time.
const READ_BYTES_MAX: u64 = 64 << 10;
/// A checkpoint of fewer runs of nodes says more about flushes.
const RUNS_MIN: u64 = 8;
/// Its flushes, its superblock, and the way to them, counted as random accesses.
const CHECKPOINT_PLACES: u64 = 4;
/// No device is taken for slower than this.
const PLACE_MAX: Duration = Duration::from_millis(200);

/// What was seen of a device.
#[derive(Debug, Default)]
pub(crate) struct AccessTimes {
    reads: Mutex<Readings>,
    checkpoints: Mutex<Readings>,
    read_nanos: AtomicU64,
    checkpoint_nanos: AtomicU64,
}

impl AccessTimes {
    /// So many bytes were read, in one access.
    pub(crate) fn read_took(&self, bytes: u64, nanos: u64) {
        if bytes <= READ_BYTES_MAX {
            let nanos = nanos.saturating_sub(transfer_nanos(bytes));
            self.read_nanos.store(self.reads.lock().add(nanos), Ordering::Relaxed);
        }
    }

    /// A checkpoint wrote so many bytes, to so many locations, flushes included.
    pub(crate) fn checkpoint_took(&self, bytes: u64, runs: u64, nanos: u64) {
        let nanos = nanos.saturating_sub(transfer_nanos(bytes)) / (runs + CHECKPOINT_PLACES);
        // A few runs only bound the access time from above. Without them a slow reading would stay: it makes
        // checkpoints small.
        if runs >= RUNS_MIN || nanos < self.checkpoint_nanos.load(Ordering::Relaxed) {
            self.checkpoint_nanos.store(self.checkpoints.lock().add(nanos), Ordering::Relaxed);
        }
    }

    /// What one costs.
    pub(crate) fn cost(&self) -> Duration {
        let reads = self.read_nanos.load(Ordering::Relaxed);
        let checkpoints = self.checkpoint_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(reads.max(checkpoints)).clamp(PLACE, PLACE_MAX)
    }
}

/// What the bytes themselves take on a slow disk: so an access never seems much cheaper than it is.
fn transfer_nanos(bytes: u64) -> u64 {
    bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND
}

/// The last readings of one kind, the oldest first.
#[derive(Debug, Default)]
struct Readings(Vec<u64>);

impl Readings {
    /// Takes one in and gives what all of them say; 0 as long as they are too few.
    fn add(&mut self, nanos: u64) -> u64 {
        if self.0.len() == SEEN {
            self.0.remove(0);
        }
        self.0.push(nanos);
        if self.0.len() < TELLING {
            return 0;
        }
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[sorted.len() - 1 - sorted.len() / 4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    #[test]
    fn a_disk_is_known_after_a_few_reads_and_a_cache_does_not_hide_it() {
        let places = AccessTimes::default();
        assert_eq!(places.cost(), PLACE, "nothing was seen");
        for _ in 0..3 {
            places.read_took(4096, 10 * MILLI);
        }
        assert!(places.cost() > Duration::from_millis(9), "{:?}", places.cost());
        for at in 0..SEEN {
            places.read_took(4096, if at % 3 == 0 { 10 * MILLI } else { 1000 });
        }
        assert!(places.cost() > Duration::from_millis(9), "a third of them reached the disk");
    }

    #[test]
    fn one_slow_answer_says_nothing_and_no_answer_makes_it_free() {
        let places = AccessTimes::default();
        for at in 0..100 {
            places.read_took(4096, if at % 8 == 0 { 500 * MILLI } else { 1000 });
        }
        assert_eq!(places.cost(), PLACE);
        for _ in 0..SEEN {
            places.read_took(4096, u64::MAX);
        }
        assert_eq!(places.cost(), PLACE_MAX, "bounded");
        places.read_took(1 << 20, 0);
        assert_eq!(places.cost(), PLACE_MAX, "a long read is no place");
    }

    #[test]
    fn checkpoints_tell_of_a_disk_behind_a_cache() {
        let places = AccessTimes::default();
        for _ in 0..SEEN {
            places.read_took(4096, 1000);
            places.checkpoint_took(40 * 16384, 40, 44 * 10 * MILLI);
        }
        let cost = places.cost();
        assert!((9..=10).contains(&cost.as_millis()), "{cost:?}");
        let quick = AccessTimes::default();
        for _ in 0..SEEN {
            // An SSD: a flush of a millisecond, twice.
            quick.checkpoint_took(40 * 16384, 40, 4 * MILLI);
            quick.checkpoint_took(16384, 1, 2 * MILLI);
        }
        assert_eq!(quick.cost(), PLACE);
    }
}
