//! Whether a leader waits a moment for callers that were answered just now, and that are likely to ask again.
//!
//! Two clients that fsync in turn would otherwise never share a flush: each asks while that of the other is under way. jbd2
//! and PostgreSQL (`commit_delay`) wait so too. Here it is learned whether that pays: a wait must bring more callers
//! into the batch than it takes of the time of one.

use std::time::Duration;

use holdfast_base::clock::Stopwatch;

/// The longest wait, however slow the device.
const PATIENCE_MAX: Duration = Duration::from_millis(15);
/// After so many waits in a row that did not pay, the next attempt comes no later than after 2 to this power batches.
const VAIN_MAX: u32 = 8;

/// What was learned.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Waits in a row that did not pay.
    vain: u32,
    /// Batches that are made at once before it is tried again.
    at_once: u32,
    /// How many callers the last batch answered, if none was left then, and when.
    last: Option<(usize, Stopwatch)>,
}

impl Gather {
    /// The last batch answered so many callers, and none is left.
    pub(super) fn answered_all(&mut self, answered: usize) {
        self.last = Some((answered, Stopwatch::start()));
    }

    /// How many more callers are likely to come, when one comes after all were answered and a batch takes so long.
    pub(super) fn likely(&self, took: Duration) -> usize {
        match self.last {
            Some((answered, time)) if time.elapsed() <= took => answered.saturating_sub(1),
            _ => 0,
        }
    }

    /// How long to wait at most before the next batch, when so many callers are likely to come and a batch takes so
    /// long; `None`: not at all.
    pub(super) fn patience(&mut self, likely: usize, took: Duration) -> Option<Duration> {
        if likely == 0 {
            return None;
        }
        if self.at_once > 0 {
            self.at_once -= 1;
            return None;
        }
        Some((took / 2).min(PATIENCE_MAX))
    }

    /// It was waited for so long, a batch takes as long as `took`, and `came` callers came to those that `waited` before.
    pub(super) fn waited(
        &mut self,
        (came, waited): (usize, usize),
        time: Duration,
        took: Duration,
    ) {
        let paid = took.as_nanos() * came as u128 >= time.as_nanos() * waited as u128;
        self.vain = if paid && came > 0 { 0 } else { (self.vain + 1).min(VAIN_MAX) };
        self.at_once = (1 << self.vain) - 1;
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::clock::SimulatedClock;

    use super::*;

    const TOOK: Duration = Duration::from_micros(100);

    #[test]
    fn what_does_not_pay_is_tried_ever_less_often() {
        let mut gather = Gather::default();
        assert_eq!(gather.patience(0, TOOK), None, "none was answered");
        for _ in 0..10 {
            assert_eq!(gather.patience(1, TOOK), Some(TOOK / 2));
            gather.waited((1, 1), TOOK / 2, TOOK);
        }
        // Half of the time of a batch, for a tenth more callers.
        let mut tries = 0;
        for _ in 0..1000 {
            if gather.patience(5, TOOK).is_some() {
                gather.waited((1, 10), TOOK / 2, TOOK);
                tries += 1;
            }
        }
        assert!((8..=12).contains(&tries), "{tries} tries");
        gather.waited((10, 10), TOOK / 4, TOOK);
        assert!(gather.patience(10, TOOK).is_some(), "it pays again");
        gather.waited((10, 10), TOOK / 4, TOOK);
        assert_eq!(gather.patience(1, Duration::from_secs(9)), Some(PATIENCE_MAX));
    }

    #[test]
    fn those_that_shared_the_last_batch_are_likely_to_come_again() {
        let clock = SimulatedClock::new();
        let _entered = clock.enter();
        let mut gather = Gather::default();
        assert_eq!(gather.likely(TOOK), 0, "there was no batch");
        gather.answered_all(1);
        assert_eq!(gather.likely(TOOK), 0, "the one that comes is the one");
        gather.answered_all(4);
        clock.advance(TOOK);
        assert_eq!(gather.likely(TOOK), 3);
        clock.advance(TOOK);
        assert_eq!(gather.likely(TOOK), 0, "it is too long ago");
    }
}
