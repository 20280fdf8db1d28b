//! Every statistic of a volume, named once: with its group, its kind and its meaning.
//!
//! Totals only grow; gauges, and totals that are expected to stay 0, are marked
//! so in the list below and nowhere else.
//! All are read without locks, one after the other, so that two of them may be
//! a moment apart. One [`Counters`] belongs to one open volume. What is shown,
//! and how, is up to the caller of [`Counters::list`].

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

/// What a statistic's values have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows: the difference of two readings is what happened between them.
    Total,
    /// It is what it is at a moment; a difference or a rate means nothing.
    Gauge,
    /// A total that is expected to stay 0: something went another way than it should.
    Alarm,
}

/// What a statistic counts, which its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Number,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    /// The unit of the statistic called `name`: `_ns` at the end means nanoseconds, `bytes` as one of its words bytes.
    pub fn of(name: &str) -> Unit {
        let mut words = name.split('_');
        if name.ends_with("_ns") {
            Unit::Nanoseconds
        } else if words.any(|word| word == "bytes") {
            Unit::Bytes
        } else {
            Unit::Number
        }
    }
}

/// A statistic as it was at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its name, a word for programs.
    pub name: &'static str,
    /// Its value, in the unit that [`Unit::of`] its name tells.
    pub value: u64,
    /// Whether it grows or goes up and down.
    pub kind: Kind,
    /// The part of the filesystem that it tells of.
    pub group: &'static str,
    /// What it means: one sentence.
    pub meaning: &'static str,
}

macro_rules! kind {
    () => {
        Kind::Total
    };
    (gauge) => {
        Kind::Gauge
    };
    (alarm) => {
        Kind::Alarm
    };
}

macro_rules! counters {
    ($($group:literal { $($(#[doc = $doc:literal])* $name:ident $(: $kind:ident)?,)* })*) => {
        /// The statistics of one volume.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($($(#[doc = $doc])* pub $name: Counter,)*)*
        }

        impl Counters {
            /// Every statistic, group after group, in the order of declaration.
            pub fn list(&self) -> Vec<Reading> {
                vec![$($(Reading {
                    name: stringify!($name),
                    value: self.$name.get(),
                    kind: kind!($($kind)?),
                    group: $group,
                    meaning: concat!($($doc,)*).trim_ascii(),
                },)*)*]
            }
        }
    };
}

counters! {
    "operations" {
        /// Calls of fsync, fdatasync, fsyncdir and sync, and synchronous writes.
        fsyncs,
        /// Those that found nothing undurable and cost nothing.
        clean_fsyncs,
        /// Operations applied to the tree.
        operations,
        /// Times a changer was slowed down because memory or journal fill faster than checkpoints empty them.
        throttled,
        /// Nanoseconds that changers were slowed down, in all.
        throttled_ns,
        /// Times an operation was refused for lack of space.
        no_space,
    }
    "log" {
        /// Batches written into the fsync log.
        log_batches,
        /// Records in them.
        log_records,
        /// Bytes that they wrote into the log, headers and padding included.
        log_bytes_written,
        /// Of those, bytes of file data.
        log_data_bytes,
        /// Write calls to the log.
        log_writes,
        /// Flushes that made batches durable.
        log_flushes,
        /// Times that the last batch or commit was confirmed while the volume rested, with a flush each.
        confirmations,
        /// Batches that flushed large data before they were written.
        log_data_flushes,
        /// Fsyncs that another one's batch made durable.
        log_followers,
        /// Batches that became a commit because the log had no room; expected to be 0.
        log_full: alarm,
        /// Batches that became a commit because they were larger than a batch may be; expected to be 0.
        log_too_large: alarm,
        /// Times a rename logged its directory's names once more, see `rename_log=directory`.
        log_directories,
        /// Fsyncs through a mount that took longer than `slow_fsync=`.
        slow_fsyncs,
        /// Nanoseconds that fsyncs waited for data of their own file to be written, in all.
        fsync_data_ns,
        /// Nanoseconds that fsyncs waited for batches of others, in all.
        fsync_wait_ns,
        /// Nanoseconds in which batches were formatted, in all.
        log_format_ns,
        /// Nanoseconds in which batches were written, in all.
        log_write_ns,
        /// Nanoseconds in which batches were flushed, in all.
        log_flush_ns,
        /// Bytes of the log that recovery would read now.
        log_bytes_used: gauge,
    }
    "commits" {
        /// Commits made durable.
        commits,
        /// Nodes that commits logged.
        commit_nodes,
        /// Byte ranges that commits logged.
        commit_ranges,
        /// Bytes of those ranges.
        commit_range_bytes,
        /// Dirty byte ranges merged because a node had more than four.
        range_merges_forced,
        /// Bytes that those merges marked dirty although unchanged.
        range_slack_bytes,
        /// Bytes that commits wrote into the journal, headers and padding included.
        journal_bytes_written,
        /// Commits that flushed large data before they wrote their frames.
        commit_data_flushes,
        /// Block-group records written into the tree.
        group_records_written,
        /// Block-group records found unchanged and skipped.
        group_records_skipped,
        /// Nanoseconds that changers were frozen by commits and checkpoints, in all.
        frozen_ns,
        /// Of those, nanoseconds in which the records of block groups were carried into the tree.
        frozen_groups_ns,
        /// Nanoseconds in which such records were carried early, while changers went on between.
        early_groups_ns,
        /// Half of the freezes were no longer than this, in nanoseconds.
        frozen_p50_ns: gauge,
        /// 99 of 100 freezes were no longer than this, in nanoseconds.
        frozen_p99_ns: gauge,
        /// The longest freeze, in nanoseconds.
        frozen_max_ns: gauge,
    }
    "checkpoints" {
        /// Checkpoints made durable.
        checkpoints,
        /// Nodes written by checkpoints.
        checkpoint_nodes,
        /// Bytes of nodes written by checkpoints.
        checkpoint_bytes,
        /// Nanoseconds that checkpoints took to write, in all.
        checkpoint_ns,
        /// Commits that became a checkpoint because the journal had no room; expected to be 0.
        journal_full: alarm,
        /// Bytes of the journal that recovery would read now.
        journal_bytes_used: gauge,
    }
    "tree" {
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
    }
    "data" {
        /// Bytes of file data written to the device.
        data_bytes_written,
        /// Of those, bytes written in place: the first data of blocks that fallocate had reserved, on a full volume.
        reserved_bytes_written,
        /// Bytes of file data read from the device.
        data_bytes_read,
        /// Blocks whose data failed its checksum; expected to be 0.
        checksum_failures: alarm,
    }
    "recovery" {
        /// What a recovery would take now, in nanoseconds, as far as can be told.
        recovery_estimate_ns: gauge,
        /// What it may take: checkpoints keep the estimate below this.
        recovery_budget_ns: gauge,
        /// What it may take after all: the budget, or more on a device that is too slow for it.
        recovery_kept_ns: gauge,
        /// What the device takes for a random place, as measured.
        device_place_ns: gauge,
        /// What the recovery took that opened this volume, in nanoseconds; 0 if none was needed.
        recovery_ns: gauge,
        /// Commits that it applied.
        recovered_commits: gauge,
        /// Nodes that it wrote.
        recovered_nodes: gauge,
        /// Bytes of the journal that it read.
        recovered_bytes: gauge,
        /// Batches of the fsync log that it applied.
        recovered_batches: gauge,
        /// Bytes of the log that it read.
        recovered_log_bytes: gauge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_listed_with_a_meaning() {
        let counters = Counters::default();
        counters.fsyncs.add(3);
        let list = counters.list();
        let first = Reading {
            name: "fsyncs",
            value: 3,
            kind: Kind::Total,
            group: "operations",
            meaning: "Calls of fsync, fdatasync, fsyncdir and sync, and synchronous writes.",
        };
        assert_eq!(list[0], first);
        assert!(list.iter().all(|reading| reading.meaning.ends_with('.')));
    }

    #[test]
    fn what_goes_up_and_down_is_a_gauge() {
        let list = Counters::default().list();
        let kind = |name: &str| list.iter().find(|reading| reading.name == name).unwrap().kind;
        for gauge in ["journal_bytes_used", "frozen_max_ns", "recovery_estimate_ns", "recovery_ns"]
        {
            assert_eq!(kind(gauge), Kind::Gauge, "{gauge}");
        }
        for alarm in ["log_full", "log_too_large", "journal_full", "checksum_failures"] {
            assert_eq!(kind(alarm), Kind::Alarm, "{alarm}");
        }
        for reading in &list {
            let is_said = reading.meaning.contains("expected to be 0");
            assert_eq!(reading.kind == Kind::Alarm, is_said, "{}", reading.name);
        }
        for total in ["commits", "frozen_ns", "journal_bytes_written"] {
            assert_eq!(kind(total), Kind::Total, "{total}");
        }
    }

    #[test]
    fn names_tell_units() {
        assert_eq!(Unit::of("frozen_p99_ns"), Unit::Nanoseconds);
        assert_eq!(Unit::of("journal_bytes_used"), Unit::Bytes);
        assert_eq!(Unit::of("written_bytes"), Unit::Bytes);
        assert_eq!(Unit::of("nodes_read"), Unit::Number);
        assert_eq!(Unit::of("fsyncs"), Unit::Number);
    }
}
