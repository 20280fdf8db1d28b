//! The statistics of a volume by their names, and how much they grew.
//!
//! A measurement takes [`Counts::of`] before and after: what was counted between is [`Counts::since`], which means
//! something for totals only. What the names count is in `base/src/counters.rs`.

use std::collections::BTreeMap;
use std::io;

use holdfast::Volume;
use holdfast_device::DeviceStats;
use serde::Serialize;

/// What a volume counted; of a mounted one also what its device was asked, by names that begin with `device.`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<String, u64>);

impl FromIterator<(String, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(counts: I) -> Counts {
        Counts(counts.into_iter().collect())
    }
}

impl Counts {
    /// What `volume` has counted since it was opened.
    pub fn of(volume: &Volume) -> io::Result<Counts> {
        let all = volume.counters()?.into_iter();
        Ok(all.map(|counter| (counter.name.to_string(), counter.value)).collect())
    }

    /// How much each grew since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let grown =
            |(name, value): (&String, &u64)| (name.clone(), value.saturating_sub(before.get(name)));
        self.0.iter().map(grown).collect()
    }

    /// The statistic called `name`; 0 if there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One statistic over another, if that is a number.
    pub fn ratio(&self, one: &str, other: &str) -> Option<f64> {
        ratio(self.get(one) as f64, self.get(other) as f64)
    }
}

/// What a device was asked between.
pub(crate) fn asked(after: &DeviceStats, before: &DeviceStats) -> DeviceStats {
    DeviceStats {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        writes: after.writes - before.writes,
        written_bytes: after.written_bytes - before.written_bytes,
        flushes: after.flushes - before.flushes,
        discards: after.discards - before.discards,
    }
}

/// `one / other`, if that is a number.
pub(crate) fn ratio(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

/// The value in the middle; of an even number of values the lower of the two. 0 if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len => values[(len - 1) / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_differences() {
        let of = |a, b| Counts::from_iter([("a".to_string(), a), ("b".to_string(), b)]);
        let between = of(5, 2).since(&of(2, 0));
        assert_eq!((between.get("a"), between.get("b"), between.get("c")), (3, 2, 0));
        assert_eq!((between.ratio("a", "b"), between.ratio("a", "c")), (Some(1.5), None));
    }

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
