//! The statistics of a volume that the measurements use, and how much they grew.
//!
//! A measurement takes [`Counts::of`] before and after: what was counted
//! between is [`Counts::since`]. Gauges and maxima are not here, because a
//! difference of them means nothing.

use std::io;

use holdfast::Volume;
use holdfast_device::DeviceStats;
use serde::Serialize;

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident = $counter:ident,)*) => {
        /// What a volume counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What `volume` has counted since it was opened.
            pub fn of(volume: &Volume) -> io::Result<Counts> {
                let engine = volume.engine()?;
                let counters = engine.counters();
                Ok(Counts { $($name: counters.$counter.get(),)* })
            }

            /// The same of a volume that another process has opened: `value` knows statistics by name.
            pub fn named(value: impl Fn(&str) -> u64) -> Counts {
                Counts { $($name: value(stringify!($counter)),)* }
            }

            /// How much each grew since `before`.
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Commits made durable.
    commits = commits,
    /// Nodes that they logged.
    commit_nodes = commit_nodes,
    /// Byte ranges that they logged.
    commit_ranges = commit_ranges,
    /// Bytes of those ranges.
    commit_range_bytes = commit_range_bytes,
    /// Bytes written into the journal, headers and padding included.
    journal_bytes = journal_bytes_written,
    /// Commits that became a checkpoint for want of room.
    journal_full = journal_full,
    /// Checkpoints made durable.
    checkpoints = checkpoints,
    /// Nanoseconds that changers were frozen.
    frozen_ns = frozen_ns,
    /// Of those, nanoseconds for the records of block groups.
    frozen_groups_ns = frozen_groups_ns,
    /// Group records written.
    groups_written = group_records_written,
    /// Group records found unchanged and skipped.
    groups_skipped = group_records_skipped,
    /// Calls of fsync and the like.
    fsyncs = fsyncs,
    /// Those that found nothing to do.
    clean_fsyncs = clean_fsyncs,
    /// Batches of the fsync log made durable.
    log_batches = log_batches,
    /// Records in them.
    log_records = log_records,
    /// Bytes that they wrote, headers and padding included.
    log_bytes = log_bytes_written,
    /// Batches that became a commit because the log had no room.
    log_full = log_full,
    /// Batches that became a commit because they were too large.
    log_too_large = log_too_large,
    /// Times a rename logged a whole directory.
    log_directories = log_directories,
    /// Nanoseconds in which batches were formatted.
    log_format_ns = log_format_ns,
}

impl Counts {
    /// Times that changers were frozen: once by each commit, whether it also began a checkpoint, wrote
    /// frames, or found the journal full and became a checkpoint.
    pub fn freezes(&self) -> u64 {
        self.commits + self.journal_full
    }

    /// Batches that had to become a commit.
    pub fn escapes(&self) -> u64 {
        self.log_full + self.log_too_large
    }

    /// Records of a mean batch; 0 if there was none.
    pub fn records_per_batch(&self) -> f64 {
        ratio(self.log_records as f64, self.log_batches as f64).unwrap_or(0.0)
    }

    /// Group records that a mean commit carried, skipped or not; `None` if there was no commit.
    pub fn records_per_freeze(&self) -> Option<f64> {
        ratio((self.groups_skipped + self.groups_written) as f64, self.freezes() as f64)
    }

    /// Share of group records that were skipped, 0 to 1; 0 if there were none.
    pub fn skipped_share(&self) -> f64 {
        ratio(self.groups_skipped as f64, (self.groups_skipped + self.groups_written) as f64)
            .unwrap_or(0.0)
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
        let before = Counts { commits: 2, groups_skipped: 1, ..Counts::default() };
        let after = Counts { commits: 5, groups_skipped: 4, groups_written: 1, ..before };
        let between = after.since(&before);
        assert_eq!((between.commits, between.freezes()), (3, 3));
        assert_eq!(between.skipped_share(), 0.75);
        assert_eq!(Counts::default().skipped_share(), 0.0);
        let named = Counts::named(|name| u64::from(name == "group_records_written"));
        assert_eq!(named, Counts { groups_written: 1, ..Counts::default() });
    }

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert_eq!(median(Vec::new()), 0.0);
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
    }
}
