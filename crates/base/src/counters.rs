//! Every statistic of a volume, named once.
//!
//! Counters only grow (except the gauges, marked so) and are read without
//! locks. One [`Counters`] belongs to one open volume.

use std::sync::atomic::{AtomicU64, Ordering};

/// One statistic.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Replaces the value: for gauges.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Keeps the larger of the value and `value`: for maxima.
    pub fn raise_to(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The statistics of one volume.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        impl Counters {
            /// Name, value and meaning of every counter, in the order of declaration.
            pub fn list(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name.get(), concat!($($doc,)*).trim_ascii()),)*]
            }
        }
    };
}

counters! {
    /// Calls of fsync, fdatasync, fsyncdir and sync.
    fsyncs,
    /// Those that found nothing undurable and cost nothing.
    clean_fsyncs,
    /// Operations applied to the tree.
    operations,
    /// Commits made durable.
    commits,
    /// Nodes that commits logged.
    commit_nodes,
    /// Byte ranges that commits logged.
    commit_ranges,
    /// Bytes of those ranges.
    commit_range_bytes,
    /// Bytes that commits wrote into the journal, heads and padding included.
    journal_bytes_written,
    /// Bytes of the journal that recovery would read now (a gauge).
    journal_bytes_used,
    /// Commits that flushed large data before they wrote their frames.
    commit_data_flushes,
    /// Commits that became a checkpoint because the journal had no room; expected to be 0.
    journal_full,
    /// Checkpoints made durable.
    checkpoints,
    /// Nodes written by checkpoints.
    checkpoint_nodes,
    /// Bytes of nodes written by checkpoints.
    checkpoint_bytes,
    /// Nanoseconds that changers were frozen by commits and checkpoints, in all.
    frozen_ns,
    /// Of those, nanoseconds in which the records of block groups were carried into the tree.
    frozen_groups_ns,
    /// Half of the freezes were no longer than this, in nanoseconds (a gauge).
    frozen_p50_ns,
    /// 99 of 100 freezes were no longer than this, in nanoseconds (a gauge).
    frozen_p99_ns,
    /// The longest freeze, in nanoseconds (a maximum).
    frozen_max_ns,
    /// Block-group records written into the tree.
    group_records_written,
    /// Block-group records found unchanged and skipped.
    group_records_skipped,
    /// Dirty byte ranges merged because a node had more than four.
    range_merges_forced,
    /// Bytes that those merges marked dirty although unchanged.
    range_slack_bytes,
    /// Nodes read from the device.
    nodes_read,
    /// Node look-ups answered from memory.
    node_hits,
    /// Nodes dropped from memory.
    nodes_evicted,
    /// Node splits.
    node_splits,
    /// Node merges.
    node_merges,
    /// Bytes of file data written to the device.
    data_bytes_written,
    /// Bytes of file data read from the device.
    data_bytes_read,
    /// Blocks whose data failed its checksum.
    checksum_failures,
    /// Times a changer was slowed down because memory or journal fill faster than checkpoints empty them.
    throttled,
    /// Nanoseconds that changers were slowed down, in all.
    throttled_ns,
    /// What a recovery would take now, in nanoseconds, as far as can be told (a gauge).
    recovery_estimate_ns,
    /// What it may take: checkpoints keep the estimate below this (a gauge).
    recovery_budget_ns,
    /// What the recovery took that opened this volume, in nanoseconds; 0 if none was needed.
    recovery_ns,
    /// Commits that it applied.
    recovered_commits,
    /// Nodes that it wrote.
    recovered_nodes,
    /// Bytes of the journal that it read.
    recovered_bytes,
    /// Times an operation was refused for lack of space.
    no_space,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_listed_with_a_meaning() {
        let counters = Counters::default();
        counters.fsyncs.add(3);
        let list = counters.list();
        assert_eq!(list[0], ("fsyncs", 3, "Calls of fsync, fdatasync, fsyncdir and sync."));
        assert!(list.iter().all(|(_, _, meaning)| !meaning.is_empty()));
    }
}
