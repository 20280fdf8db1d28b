//! How long commits stopped writers.

use hdrhistogram::Histogram;
use holdfast_base::counters::Counters;

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
