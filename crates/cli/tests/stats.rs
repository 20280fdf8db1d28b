//! Statistics of a mount: once and watched, and every way in which watching ends.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use common::{TestMount, can_mount, number, signal, wait_for, wait_until_ended};

/// A running `stats --watch`.
struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watch {
    fn start(place: &TestMount, args: &[&str]) -> Watch {
        let args: Vec<&str> = ["stats"].iter().chain(args).copied().chain([place.dir()]).collect();
        let mut child =
            place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Watch { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended: {:?}", self.child);
        line
    }

    /// Waits for its end: the exit code and what it said on stderr.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

#[test]
fn statistics_have_groups_units_and_raw_numbers_in_json() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), vec![1; 300_000]).unwrap();
    fs::File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
    let text = place.run(&["stats", place.dir()]).fine();
    for group in [
        "operations",
        "log",
        "each fsync, on the average",
        "commits",
        "checkpoints",
        "data",
        "recovery",
        "device",
    ] {
        assert!(text.lines().any(|line| line == group), "{group} is missing: {text}");
    }
    assert!(text.contains("KiB  written_bytes: "), "{text}");
    let json = place.run(&["stats", "--json", place.dir()]).fine();
    assert!(number(&json, "written_bytes") >= 300_000);
    assert_eq!(number(&json, "recovery_ns"), 0);
    assert!(number(&json, "fsyncs") >= 1);
    // What the library shows of the same engine has the same names.
    place.umount();
    let volume = holdfast::VolumeOptions::new().open(place.image()).unwrap();
    for reading in volume.counters().unwrap() {
        number(&json, reading.name);
    }
}

#[test]
fn watched_samples_are_appended_and_hold_what_is_new() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let mut watch = Watch::start(&place, &["--json", "--watch=0.1"]);
    let first = watch.line();
    assert!(first.contains("\"deltas\":null"), "{first}");
    let file = fs::File::create(place.dir.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    wait_for("the new operations are never shown", || {
        let line = watch.line();
        assert!(line.contains("\"timestamp\":") && line.contains("\"seconds\":0."), "{line}");
        let deltas = line.split("\"deltas\":").nth(1).unwrap();
        number(deltas, "operations") > 0
    });
    // Unmounted: the end, and no error.
    place.umount();
    let (code, said) = watch.end();
    assert_eq!((code, said), (Some(0), format!("holdfast: {} was unmounted\n", place.dir())));
}

#[test]
fn watching_ends_at_a_signal_and_when_nobody_reads() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    for name in ["INT", "TERM"] {
        let mut watch = Watch::start(&place, &["--watch=1000"]);
        assert!(watch.line().contains("served by process"));
        signal(watch.child.id(), name);
        assert_eq!(watch.end(), (Some(0), String::new()), "{name}");
    }
    // The next sample would be in a quarter of an hour.
    let mut child = place
        .command(&["stats", "--watch=1000", place.dir()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut byte).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    place.run(&["stats", "--watch=0", place.dir()]).fails(2, "--help");
    place.umount();
    place.run(&["stats", "--watch", place.dir()]).fails(1, "not a mounted");
}

#[test]
fn an_unmount_wakes_a_watcher_that_sleeps() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let mut watch = Watch::start(&place, &["--watch=1000"]);
    watch.line();
    place.umount();
    let (code, said) = watch.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("was unmounted"), "{said}");
}

#[test]
fn a_dead_daemon_is_told_with_what_to_do() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let mut watch = Watch::start(&place, &["--watch=0.1"]);
    watch.line();
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    let what = format!("run: holdfast umount {}", place.dir());
    std::thread::scope(|scope| {
        let drained = scope.spawn(move || {
            let mut rest = Vec::new();
            watch.lines.read_to_end(&mut rest).unwrap();
            watch.end()
        });
        let (code, said) = drained.join().unwrap();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&what), "{said}");
    });
    place.run(&["stats", place.dir()]).fails(1, &what);
    place.umount();
}

#[test]
fn info_tells_what_a_recovery_would_take() {
    let place = TestMount::with_volume();
    let info = || place.run(&["info", place.image()]).fine();
    let json = || place.run(&["info", "--json", place.image()]).fine();
    assert!(info().contains("recovery      none needed"), "{}", info());
    assert_eq!(number(&json(), "journal_commits"), 0);
    if !can_mount() {
        return;
    }
    place.mount();
    let file = fs::File::create(place.dir.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // Of a mounted volume the daemon is asked.
    assert!(info().contains("recovery now  "), "{}", info());
    let live = json();
    let live = live.split("\"live\":").nth(1).unwrap();
    assert!(
        number(live, "recovery_estimate_ns") > 0 || number(live, "log_bytes_used") == 0,
        "{live}"
    );
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    assert!(info().contains("the daemon does not answer"), "{}", info());
    place.umount();
    // What the crash left is shown from the volume alone, and again by the mount that recovers it.
    let crashed = json();
    let held = [("journal_commits", "commit"), ("log_batches", "batch")]
        .map(|(name, thing)| (number(&crashed, name), thing));
    let needed = info();
    let said = place.run(&["mount", place.image(), place.dir()]).fine();
    for (count, thing) in held {
        let part = format!("{count} {thing}");
        assert!(count == 0 || needed.contains(&part) && said.contains(&part), "{needed}\n{said}");
    }
    assert_eq!(held.iter().any(|(count, _)| *count > 0), said.contains("recovered "), "{said}");
    place.umount();
    assert!(info().contains("recovery      none needed"), "{}", info());
}
