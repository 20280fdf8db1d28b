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
pub enum CounterKind {
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
    pub kind: CounterKind,
    /// The part of the filesystem that it tells of.
    pub group: &'static str,
    /// What it means: one sentence.
    pub meaning: &'static str,
}

macro_rules! kind {
    () => {
        CounterKind::Total
    };
    (gauge) => {
        CounterKind::Gauge
    };
    (alarm) => {
        CounterKind::Alarm
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
        /// Of those, calls that found everything durable and cost nothing.
        clean_fsyncs,
        /// Operations that changed the volume.
        operations,
        /// Times a changing operation was made to wait because memory or the journal filled faster than the device empties them.
        throttled,
        /// Nanoseconds that they waited, in all.
        throttled_ns,
        /// Writes that found not room for all of it at once, and were accepted in steps.
        writes_in_steps,
        /// Operations refused because the volume was full.
        no_space,
    }
    "log" {
        /// Batches written into the log; each makes one or more fsyncs durable.
        log_batches,
        /// Records in them: keys with their values.
        log_records,
        /// Bytes of these batches, headers and padding included.
        log_bytes_written,
        /// Of those, bytes of file data.
        log_data_bytes,
        /// Write calls to the log.
        log_writes,
        /// Flushes that made batches durable.
        log_flushes,
        /// Flushes that confirmed the last batch or commit while the volume was at rest.
        confirmations,
        /// Flushes of large data before its batch was written.
        log_data_flushes,
        /// Fsyncs that waited for a batch which another fsync wrote.
        log_followers,
        /// Fsyncs that waited until a snapshot, a rollback or the end of a branch was durable.
        log_held_back,
        /// Commits that fsyncs needed because the log had no room; expected to be 0.
        log_full: alarm,
        /// Commits that fsyncs needed because more had changed than a batch may hold; expected to be 0.
        log_too_large: alarm,
        /// Commits that fsyncs needed because a range had just been collapsed or inserted.
        log_moved,
        /// Renames that logged all changed names of their directory, see `rename_log=directory`.
        log_directories,
        /// Fsyncs through a mount that took longer than `slow_fsync=`.
        slow_fsyncs,
        /// Nanoseconds that fsyncs took to write the data of their own file, in all.
        fsync_data_ns,
        /// Nanoseconds that fsyncs waited for batches of other fsyncs, in all.
        fsync_wait_ns,
        /// Nanoseconds spent making batches, in all.
        log_format_ns,
        /// Nanoseconds spent writing them, in all.
        log_write_ns,
        /// Nanoseconds spent flushing them, in all.
        log_flush_ns,
        /// Bytes of the log that a recovery would read now.
        log_bytes_used: gauge,
    }
    "commits" {
        /// Commits: background writes of the changed bytes of tree nodes into the journal.
        commits,
        /// Tree nodes in them.
        commit_nodes,
        /// Byte ranges of these nodes.
        commit_ranges,
        /// Bytes of these ranges.
        commit_range_bytes,
        /// Changed byte ranges merged because a node had more than four.
        range_merges_forced,
        /// Bytes written without need because of such merges.
        range_slack_bytes,
        /// Bytes that commits wrote into the journal, headers and padding included.
        journal_bytes_written,
        /// Flushes of large data before its commit was written.
        commit_data_flushes,
        /// Records of block groups that commits wrote into the tree.
        group_records_written,
        /// Records of block groups that commits left out because they had not changed.
        group_records_skipped,
        /// Nanoseconds in which a commit or checkpoint copied what changed, and no operation could change anything, in all.
        frozen_ns,
        /// Of those, nanoseconds spent on records of block groups.
        frozen_groups_ns,
        /// Nanoseconds spent on records of block groups before, while operations went on.
        early_groups_ns,
        /// Half of these times were no longer than this, in nanoseconds.
        frozen_p50_ns: gauge,
        /// 99 of 100 of these times were no longer than this, in nanoseconds.
        frozen_p99_ns: gauge,
        /// The longest of these times, in nanoseconds.
        frozen_max_ns: gauge,
    }
    "checkpoints" {
        /// Checkpoints: background writes of changed tree nodes to their new places.
        checkpoints,
        /// Tree nodes that they wrote.
        checkpoint_nodes,
        /// Bytes of these nodes.
        checkpoint_bytes,
        /// Blocks of data freed by the deletion of snapshots.
        snapshot_blocks_freed,
        /// Snapshots, and branches that were deleted, whose space is not free yet, as far as this opening has looked.
        deletions_left: gauge,
        /// Of these, those that have failed on a damaged snapshot: they are tried again at the next opening; expected to be 0.
        deletions_failed: alarm,
        /// Branches opened for reading though what they grew out of cannot be read; expected to be 0.
        parents_unreadable: alarm,
        /// Deletions that were looked at, whether they can go on.
        deletions_looked_at,
        /// Nanoseconds that checkpoints took, in all.
        checkpoint_ns,
        /// Commits that became a checkpoint because the journal had no room; expected to be 0.
        journal_full: alarm,
        /// Bytes of the journal that a recovery would read now.
        journal_bytes_used: gauge,
    }
    "tree" {
        /// Tree nodes read from the device, those included that lay beside a missing one.
        nodes_read,
        /// Tree nodes read from their copies, because the place of the node itself is bad; expected to be 0.
        copies_used: alarm,
        /// Places of nodes and copies that were written again from the other one.
        copies_mended,
        /// Such places that could not be written; expected to be 0.
        copies_unmendable: alarm,
        /// Searches of the tree, to read or to change it, that found all nodes in memory.
        node_hits,
        /// Searches that had to wait for nodes from the device.
        node_misses,
        /// Tree nodes that differences of two trees looked into.
        nodes_compared,
        /// Tree nodes dropped from memory to make room.
        nodes_evicted,
        /// Tree nodes split because they were full.
        node_splits,
        /// Tree nodes merged because they were nearly empty.
        node_merges,
    }
    "data" {
        /// Bytes of file data written to the device.
        data_bytes_written,
        /// Of those, bytes written into blocks that fallocate had reserved, on a full volume.
        reserved_bytes_written,
        /// Discards of free space, each of one range; what was a hole before counts as well.
        discard_ranges,
        /// Bytes of these ranges.
        discarded_bytes,
        /// Discards that failed, so that the space stays with the volume until it is trimmed; expected to be 0.
        discard_failures: alarm,
        /// Bytes of the pieces of 4 MiB in which space became free that goes back once it was untouched for a while.
        discard_waiting_bytes: gauge,
        /// Bytes of file data read from the device.
        data_bytes_read,
        /// Blocks of data that failed their checksum; expected to be 0.
        checksum_failures: alarm,
    }
    "scrub" {
        /// Bytes that scrubs have read from the device.
        scrubbed_bytes,
        /// Times a scrub went down from the root of a tree anew: what it was about to read had become free.
        scrub_restarts,
        /// Nodes, blocks of data, and parts of journal and log, that scrubs have found damaged; expected to be 0.
        scrub_damages: alarm,
    }
    "recovery" {
        /// Estimate of what mounting would take after a crash now, in nanoseconds.
        recovery_estimate_ns: gauge,
        /// What it may take, as `recover=` says; checkpoints keep the estimate below it.
        recovery_budget_ns: gauge,
        /// What it may take on this device: the budget, or more if the device is too slow for that.
        recovery_kept_ns: gauge,
        /// Nanoseconds that the device takes to get to a random place, as measured.
        device_place_ns: gauge,
        /// Nanoseconds that the recovery took which opened this volume; 0 if none was needed.
        recovery_ns: gauge,
        /// Commits that it applied.
        recovered_commits: gauge,
        /// Tree nodes that it wrote.
        recovered_nodes: gauge,
        /// Bytes of the journal that it read.
        recovered_bytes: gauge,
        /// Batches of the log that it applied.
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
            kind: CounterKind::Total,
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
            assert_eq!(kind(gauge), CounterKind::Gauge, "{gauge}");
        }
        for alarm in ["log_full", "log_too_large", "journal_full", "checksum_failures"] {
            assert_eq!(kind(alarm), CounterKind::Alarm, "{alarm}");
        }
        for reading in &list {
            let is_said = reading.meaning.contains("expected to be 0");
            assert_eq!(reading.kind == CounterKind::Alarm, is_said, "{}", reading.name);
        }
        for total in ["commits", "frozen_ns", "journal_bytes_written"] {
            assert_eq!(kind(total), CounterKind::Total, "{total}");
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
