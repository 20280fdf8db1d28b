//! Statistics of a mount: once and watched, and every way in which watching ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::common::{TestMount, can_mount, number, signal, wait_for, wait_until_ended};

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

/// What a program gets that asked for JSON.
#[test]
fn failures_of_commands_with_json_are_json() {
    let place = TestMount::with_volume();
    for args in [&["stats", "--json", place.dir()][..], &["info", "--json", "/nowhere"]] {
        let said = place.run(args);
        let error = &parsed(&said.err)["error"];
        assert!(said.code == 1 && said.out.is_empty(), "{said:?}");
        assert!(error["code"] == 1 && error["message"].is_string(), "{error}");
    }
    let said = place.run(&["list", "--json", "--nonsense"]);
    assert_eq!((said.code, &parsed(&said.err)["error"]["code"]), (2, &2.into()), "{said:?}");
    // Behind -- there are words of another command.
    let said = place.run(&["run", "--", "true", "--json"]);
    assert!(said.err.starts_with("holdfast: "), "{said:?}");
}

#[test]
fn all_statistics_have_groups_units_and_raw_numbers_in_json() {
    if !can_mount() {
        return;
    }
    let place = TestMount::in_use();
    let text = place.run(&["stats", "--all", place.dir()]).fine();
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
    // Kibibytes, or mebibytes with the log of a new image.
    assert!(text.contains("iB  written_bytes: "), "{text}");
    let json = place.run(&["stats", "--json", place.dir()]).fine();
    let all = &parsed(&json)["all"];
    assert!(all["device"]["written_bytes"].as_u64().unwrap() >= 300_000);
    assert_eq!(all["counters"]["recovery_ns"], 0);
    assert!(all["counters"]["fsyncs"].as_u64().unwrap() >= 1);
    // What the library shows of the same engine has the same names.
    place.umount();
    let volume = holdfast::VolumeOptions::new().open(place.image()).unwrap();
    for reading in volume.counters().unwrap() {
        assert!(all["counters"][reading.name].is_u64(), "{}", reading.name);
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

/// The statistics of a mount, as `--json` prints them.
fn statistics(place: &TestMount) -> Value {
    parsed(&place.run(&["stats", "--json", place.dir()]).fine())
}

/// How much the number at `path` grew.
fn grown(before: &Value, after: &Value, path: &str) -> u64 {
    let of = |value: &Value| value.pointer(path).and_then(Value::as_u64).unwrap();
    of(after) - of(before)
}

#[test]
fn the_summary_counts_what_programs_did() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let before = statistics(&place);
    let at = |name: &str| place.dir.join(name);
    for n in 0..10 {
        fs::write(at(&format!("f{n}")), vec![n; 5000]).unwrap();
    }
    fs::create_dir(at("d")).unwrap();
    std::os::unix::fs::symlink("f0", at("s")).unwrap();
    fs::hard_link(at("f0"), at("h")).unwrap();
    for n in 0..4 {
        fs::rename(at(&format!("f{n}")), at(&format!("d/f{n}"))).unwrap();
    }
    for n in 4..7 {
        fs::remove_file(at(&format!("f{n}"))).unwrap();
    }
    for n in 7..9 {
        fs::File::open(at(&format!("f{n}"))).unwrap().sync_all().unwrap();
    }
    assert_eq!(fs::read_dir(at("d")).unwrap().count(), 4);
    let after = statistics(&place);
    let count = |kind: &str| grown(&before, &after, &format!("/operations/{kind}/count"));
    // Ten files, a directory, a symbolic link and one more name.
    assert_eq!((count("create"), count("write")), (13, 10));
    assert_eq!((count("rename"), count("remove"), count("fsync")), (4, 3, 2));
    assert!(count("lookup") > 0 && count("open") >= 2 && count("list") > 0, "{after}");
    assert_eq!(grown(&before, &after, "/bytes/written_by_programs"), 50_000);
    assert_eq!(count("attributes"), 0, "{after}");
    // Out of a file that the kernel has not in memory.
    place.umount();
    place.mount();
    assert_eq!(fs::read(at("f9")).unwrap(), [9; 5000]);
    let after = statistics(&place);
    assert_eq!(after["bytes"]["read_by_programs"], 5000);
    assert!(after["operations"]["read"]["count"].as_u64().unwrap() >= 1);
    assert_eq!(after["operations"]["write"]["p50_ns"], Value::Null);
    place.umount();
}

#[test]
fn the_summary_has_times_costs_and_state_that_make_sense() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // Nothing is written but by fsyncs.
    place.run(&["mount", "-o", "commit=0", place.image(), place.dir()]).fine();
    let mut file = fs::File::create(place.dir.join("file")).unwrap();
    file.sync_all().unwrap();
    let before = statistics(&place);
    for _ in 0..20 {
        file.write_all(&[7; 1000]).unwrap();
        file.sync_all().unwrap();
    }
    file.sync_all().unwrap();
    let after = statistics(&place);
    assert_eq!(after["schema"], 1);
    for (kind, times) in after["operations"].as_object().unwrap() {
        let [p50, p99] = ["p50_ns", "p99_ns"].map(|name| times[name].as_u64());
        assert_eq!(times["count"].as_u64().unwrap() > 0, p50.is_some(), "{kind}: {times}");
        assert!(p50 <= p99, "{kind}: {times}");
    }
    // An append costs one write and one flush; an fsync of what is durable costs nothing.
    let fsync = &after["fsync"];
    assert_eq!(grown(&before, &after, "/fsync/count"), 21);
    assert_eq!(grown(&before, &after, "/fsync/with_nothing_to_write"), 1);
    for each in ["writes_each", "flushes_each"] {
        assert_eq!(fsync[each], 1.0, "{fsync}");
    }
    assert!(fsync["bytes_each"].as_f64().unwrap() >= 1000.0, "{fsync}");
    let rate = after["cache"]["hit_rate"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&rate) && rate > 0.0, "{rate}");
    let space = &after["space"];
    let of = |name: &str| space[name].as_u64().unwrap();
    assert!(of("used_bytes") > 0 && of("available_bytes") > 0, "{space}");
    assert!(of("used_bytes") + of("available_bytes") <= of("size_bytes"), "{space}");
    assert!(of("files") >= 2, "{space}");
    let recovery = &after["recovery"];
    assert!(recovery["limit_ns"].as_u64() >= Some(1_000_000_000), "{recovery}");
    assert_eq!(after["errors"]["count"], 0);
    assert_eq!(after["errors"]["last"], Value::Null);
    let rings = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if rings.is_ok_and(|word| word.trim() == "N") {
        assert_eq!(after["transport"], "device");
    }
    drop(file);
    place.umount();
}

#[test]
fn a_damaged_file_is_an_error_in_the_summary() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), vec![0xa7; 100_000]).unwrap();
    place.umount();
    let mut image = fs::read(place.image()).unwrap();
    let at = image.windows(64).rposition(|bytes| bytes == [0xa7; 64]).unwrap();
    image[at] = 0;
    fs::write(place.image(), image).unwrap();
    place.mount();
    fs::read(place.dir.join("file")).unwrap_err();
    let errors = statistics(&place)["errors"].clone();
    assert!(errors["count"].as_u64() >= Some(1), "{errors}");
    let last = errors["last"].as_str().unwrap();
    assert!(last.contains("checksum"), "{errors}");
    assert!(errors["last_time"].as_u64() > Some(0), "{errors}");
    let text = place.run(&["stats", place.dir()]).fine();
    assert!(text.lines().any(|l| l.starts_with("errors") && l.ends_with(last)), "{text}");
    place.umount();
}

/// Words of docs/GLOSSARY.md that name parts of the engine.
fn words_of_the_engine() -> Vec<String> {
    let glossary = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/GLOSSARY.md");
    let glossary = fs::read_to_string(glossary).unwrap();
    let parts = glossary.split("\n## ").filter(|part| {
        ["The three tiers", "Space and data", "Trees in memory"]
            .iter()
            .any(|title| part.starts_with(title))
    });
    let rows = parts.flat_map(str::lines).filter_map(|line| line.strip_prefix("| "));
    let terms = rows.filter_map(|row| row.split(" | ").next()).flat_map(|term| term.split(", "));
    let mut terms: Vec<String> = terms.map(str::to_lowercase).collect();
    // These two are a user's words as well.
    terms.retain(|term| !["term", "---", "recovery", "journal"].contains(&term.as_str()));
    terms.extend(["journal", "node", "tree", "lsn", "inode", "freeze", "frozen"].map(String::from));
    terms
}

/// Those of `words` that stand in a text, also in the plural.
fn found<'a>(words: &'a [String], text: &str) -> Vec<&'a str> {
    let letters = |c: char| if c.is_alphanumeric() { c } else { ' ' };
    let plain: String = text.to_lowercase().chars().map(letters).collect();
    let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    let stands = |word: &&String| {
        ["", "s", "es"].iter().any(|end| plain.contains(&format!(" {word}{end} ")))
    };
    words.iter().filter(stands).map(String::as_str).collect()
}

#[test]
fn the_help_of_mkfs_and_mount_has_no_word_of_the_engine() {
    let place = TestMount::with_volume();
    let mut words = words_of_the_engine();
    // A block device, a log of lines, and a piece of something are common words; a command has the name of the last.
    words.retain(|word| !["block", "log", "piece", "trim"].contains(&word.as_str()));
    for command in ["mkfs", "mount"] {
        let help = place.run(&[command, "--help"]).fine();
        // Without the names of options.
        let is_name = |word: &&str| word.contains('=') || word.starts_with("--");
        let text: Vec<&str> = help.split_whitespace().filter(|word| !is_name(word)).collect();
        assert_eq!(found(&words, &text.join(" ")), Vec::<&str>::new(), "{help}");
    }
    assert_eq!(found(&words, "two tree nodes, in a checkpoint."), ["checkpoint", "node", "tree"]);
}

#[test]
fn the_summary_fits_a_screen_and_has_no_word_of_the_engine() {
    if !can_mount() {
        return;
    }
    let place = TestMount::in_use();
    fs::rename(place.dir.join("file"), place.dir.join("other")).unwrap();
    fs::remove_file(place.dir.join("other")).unwrap();
    let text = place.run(&["stats", place.dir()]).fine();
    assert!(text.lines().count() <= 24, "{text}");
    let words = words_of_the_engine();
    assert!(words.len() > 30 && words.contains(&"checkpoint".to_string()), "{words:?}");
    // Without the first line, which holds the path of the volume.
    let shown = text.lines().skip(1).collect::<Vec<_>>().join("\n");
    let mut json = statistics(&place);
    json.as_object_mut().unwrap().retain(|name, _| !["all", "volume"].contains(&name.as_str()));
    for text in [shown, json.to_string()] {
        assert_eq!(found(&words, &text), Vec::<&str>::new(), "{text}");
    }
    place.umount();
}

#[test]
fn watched_samples_are_appended_and_hold_what_is_new() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let mut watch = Watch::start(&place, &["--json", "--watch=0.1"]);
    let first = parsed(&watch.line());
    assert!(first["interval"].is_null() && first["all"]["deltas"].is_null(), "{first}");
    let file = fs::File::create(place.dir.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    wait_for("the new operations are never shown", || {
        let line = parsed(&watch.line());
        assert!(line["timestamp"].is_f64() && line["seconds"].as_f64() > Some(0.0), "{line}");
        let created = line["interval"]["operations"]["create"]["count"].as_u64().unwrap();
        created > 0 && line["all"]["deltas"]["counters"]["operations"].as_u64() > Some(0)
    });
    // Unmounted: the end, and no error.
    place.umount();
    let (code, said) = watch.end();
    assert_eq!((code, said), (Some(0), format!("holdfast: {} was unmounted\n", place.dir())));
}

#[test]
fn watching_ends_at_a_signal_and_when_its_reader_is_gone() {
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
