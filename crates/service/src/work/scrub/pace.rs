//! How long a scrub rests between two reads.
//!
//! Without a rate it takes at most half of the device's time: it rests as long as the read took. Where any fsync came in since the
//! read before, it rests eight times as long, so that no more than one of nine moments finds the device busy with it.

use std::time::Duration;

/// So many times as long as a read it rests while callers wait for the device.
const BESIDE_FSYNCS: u32 = 8;
/// The longest rest without a rate: a device that is slow for a moment is not left for minutes.
const REST_MAX: Duration = Duration::from_secs(2);
/// With a rate, what was not read in time is made up for within so long.
const BEHIND_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes in a second.
    rate: Option<u64>,
    /// How much sooner than the rate allows the last read has ended; negative: later.
    ahead_ns: i128,
    syncs: Option<u64>,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Pace {
        Pace { rate, ahead_ns: 0, syncs: None }
    }

    /// How long to rest behind a read. `syncs`: how many fsyncs there were so far.
    pub(super) fn rest(&mut self, bytes: u64, took: Duration, syncs: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let is_beside = self.syncs.replace(syncs).is_some_and(|before| before != syncs);
        let Some(rate) = self.rate else {
            let times = if is_beside { BESIDE_FSYNCS } else { 1 };
            return took.saturating_mul(times).min(REST_MAX);
        };
        let due = i128::from(bytes) * 1_000_000_000 / i128::from(rate.max(1));
        let ahead = self.ahead_ns + due - took.as_nanos() as i128;
        self.ahead_ns = ahead.clamp(-(BEHIND_MAX.as_nanos() as i128), 0);
        Duration::from_nanos(u64::try_from(ahead.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Duration = Duration::from_millis(1);

    #[test]
    fn it_rests_as_long_as_it_reads_and_longer_beside_fsyncs() {
        let mut pace = Pace::new(None);
        assert_eq!(pace.rest(4096, READ, 7), READ);
        assert_eq!(pace.rest(4096, READ, 7), READ);
        assert_eq!(pace.rest(4096, READ, 8), 8 * READ);
        assert_eq!(pace.rest(4096, READ, 8), READ);
        assert_eq!(pace.rest(0, READ, 9), Duration::ZERO, "nothing was read");
        assert_eq!(pace.rest(4096, Duration::from_secs(60), 9), REST_MAX);
    }

    #[test]
    fn a_rate_is_kept_over_reads_that_are_slower_and_faster() {
        let mut pace = Pace::new(Some(1 << 20));
        let (read, quarter) = (1 << 18, Duration::from_millis(250));
        assert_eq!(pace.rest(read, Duration::from_millis(50), 1), Duration::from_millis(200));
        // One that took longer than its share is made up for.
        assert_eq!(pace.rest(read, 2 * quarter, 1), Duration::ZERO);
        assert_eq!(pace.rest(read, Duration::ZERO, 1), Duration::ZERO);
        assert_eq!(pace.rest(read, Duration::ZERO, 1), quarter);
        // But not a whole minute.
        assert_eq!(pace.rest(read, Duration::from_secs(60), 1), Duration::ZERO);
        let rests: Duration = (0..8).map(|_| pace.rest(read, Duration::ZERO, 1)).sum();
        assert_eq!(rests, Duration::from_secs(1));
    }
}
