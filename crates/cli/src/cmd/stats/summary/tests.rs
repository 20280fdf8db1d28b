//! The screen of a report, line by line.

use holdfast_daemon::report::LoggedErrors;
use holdfast_fuse::{Operation, Operations};

use super::super::tests::counter;
use super::*;

/// A report of a mount that served `times` as many of each operation as its place in the list says.
pub(in crate::cmd::stats) fn busy(times: u64) -> Report {
    let operations = Operations::default();
    for (place, kind) in (1..).zip(Operation::ALL) {
        (0..times * place).for_each(|_| operations.record(*kind, 5_000_000));
    }
    let of = |kind: &Operation| (kind.name().into(), operations.latency(*kind).buckets());
    let mut report = super::super::tests::report(0, 0, 0);
    report.activity = Some(Activity {
        operations: Operation::ALL.iter().map(of).collect(),
        read_bytes: 3 << 20,
        written_bytes: times << 20,
        fsyncs: Fsyncs { count: 12, free: 2, writes: 15, flushes: 5, bytes: 40960 },
        space: Space {
            size_bytes: 8 << 30,
            used_bytes: 1 << 30,
            available_bytes: 6 << 30,
            files: 42,
        },
        transport: "device".into(),
        errors: LoggedErrors { count: 3, last: Some("a block is bad".into()), last_secs: 60 },
        ..Activity::default()
    });
    report.counters.extend([
        counter("no_space", 1, "operations"),
        counter("node_hits", 1999, "tree"),
        counter("node_misses", 1, "tree"),
        counter("recovery_estimate_ns", 20_000_000, "recovery"),
        counter("recovery_budget_ns", 1_000_000_000, "recovery"),
        counter("recovery_kept_ns", 2_000_000_000, "recovery"),
    ]);
    report
}

#[test]
fn the_screen_has_every_number() {
    let lines = lines(&busy(1), None, None);
    let errors = "errors      3; 1 operation refused because the volume was full; the last at 1970-01-01 00:01 UTC: \
                  a block is bad";
    assert_eq!(lines[0], errors);
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&lines[1]), ["operation", "count", "p50", "p99"]);
    assert_eq!(words(&lines[2]), ["lookup", "1", "5.2", "ms", "5.2", "ms"]);
    assert_eq!(words(&lines[13]), ["other", "12", "5.2", "ms", "5.2", "ms"]);
    let below = [
        "",
        "programs    3.0 MiB read; 1.0 MiB written",
        "device      0 B read; 0 B written",
        "each fsync  1.50 writes, 0.50 flushes, 4.0 KiB on the average of 10; 2 more had nothing to write",
        "cache       99.9 % of 2000 look-ups answered from memory",
        "space       1.0 GiB of 8.0 GiB used, 6.0 GiB available, 42 files",
        "recovery    mounting after a crash now would take about 20.0 ms; at most 2.0 s",
        "transport   /dev/fuse",
    ];
    assert_eq!(lines[14..], below);
}

#[test]
fn of_two_reports_counts_are_totals_and_all_else_is_between() {
    let lines = lines(&busy(5), Some((&busy(1), 2.0)), None);
    let words = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(1), ["operation", "count", "per", "second", "p50", "p99"]);
    assert_eq!(words(3), ["stat", "10", "4.0", "5.2", "ms", "5.2", "ms"]);
    assert_eq!(lines[15], "programs    3.0 MiB read, 0 B/s; 5.0 MiB written, 2.0 MiB/s");
    assert_eq!(lines[17], "each fsync  - (no fsync)");
    assert_eq!(lines[18], "cache       - (no look-ups)");
}

#[test]
fn a_low_window_keeps_errors_and_says_what_it_has_no_room_for() {
    let report = busy(1);
    let all = lines(&report, None, None);
    assert_eq!(lines(&report, None, Some(all.len())), all);
    for rows in 1..all.len() {
        let shown = lines(&report, None, Some(rows));
        assert_eq!(shown.len(), rows);
        assert!(rows == 1 || shown[0] == all[0], "{shown:?}");
        let is_said = |line: &String| line.starts_with("the window is too low for ");
        assert!(shown.iter().any(is_said), "{shown:?}");
    }
    // Of twelve kinds four have room beside the line that says so: those that were most.
    let shown = lines(&report, None, Some(all.len() - 7));
    let kinds: Vec<&str> = shown[2..6].iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(kinds, ["write", "fsync", "attributes", "other"]);
    assert_eq!(shown[6], "the window is too low for 8 rarer kinds of operations");
    assert_eq!(shown[7..], all[14..]);
}
