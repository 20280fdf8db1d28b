//! The system gives no thread: each start of one in the life of a mount is refused in turn, once, or from then on.
//!
//! The mount fails with one sentence and leaves nothing behind, or it works. Each mount is served by this test program,
//! run again, as `holdfast mount --foreground` serves it.
//!
//! A program of its own: it refuses threads to its whole process, which scripts/test.sh runs again with rings.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{TestMount, can_mount};

const TEST: &str = "every_start_of_a_thread_of_a_mount_is_refused";
/// For the program run again: the start that is refused, whether later ones are as well, and where to say which.
const REFUSED: &str = "HOLDFAST_TEST_REFUSED";
/// What it does: the words of a command line, one a line.
const WORDS: &str = "HOLDFAST_TEST_WORDS";
/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The life of the program that was run again.
fn again(refused: &str) {
    let (nth, rest) = refused.split_once(' ').unwrap();
    let (from_then_on, places) = rest.split_once(' ').unwrap();
    holdfast_sync::refuse(Some(nth.parse().unwrap()), from_then_on == "true");
    let words = std::env::var(WORDS).unwrap();
    holdfast_cli::main(words.lines().map(Into::into));
    let refused = holdfast_sync::refused();
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    fs::write(places, refused.join("\n")).unwrap();
}

/// A command of `holdfast` that is refused threads.
struct Refused<'p> {
    place: &'p TestMount,
    child: Child,
    what: String,
}

impl<'p> Refused<'p> {
    fn start(place: &'p TestMount, nth: u64, from_then_on: bool, words: &[&str]) -> Refused<'p> {
        let refused = format!("{nth} {from_then_on} {}", place.path("places"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).current_dir(place.root.path());
        command.env(REFUSED, refused).env(WORDS, [&["holdfast"], words].concat().join("\n"));
        command.env("NOTIFY_SOCKET", place.path("ready")).stdin(Stdio::null());
        let said = File::create(place.path("said")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let what = format!("{words:?}, start {nth} is refused, from then on: {from_then_on}");
        Refused { place, child, what }
    }

    /// Waits until `is_so`, or the program has ended. Says whether it has ended.
    fn ends_before(&mut self, mut is_so: impl FnMut() -> bool) -> bool {
        let since = Instant::now();
        loop {
            let has_ended = self.child.try_wait().unwrap().is_some();
            if has_ended || is_so() {
                return has_ended;
            }
            assert!(since.elapsed() < PATIENCE, "{}: it hangs", self.what);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// It has ended: which places in the source were refused a thread, and what it said.
    fn end(mut self) -> (Vec<String>, String) {
        self.ends_before(|| false);
        let places = fs::read_to_string(self.place.path("places"));
        let places = places.unwrap_or_else(|error| panic!("{}: it died: {error}", self.what));
        let said = fs::read_to_string(self.place.path("said")).unwrap();
        (places.lines().map(String::from).collect(), said)
    }
}

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        // Already ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What callers ask of a mount, by several at once.
fn work(dir: &Path) {
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            scope.spawn(move || {
                let path = dir.join(format!("file-{worker}"));
                let mut file = File::create(&path).unwrap();
                file.write_all(&[worker; 300_000]).unwrap();
                file.sync_all().unwrap();
                let mut found = Vec::new();
                File::open(&path).unwrap().read_to_end(&mut found).unwrap();
                assert!(found == [worker; 300_000]);
                fs::rename(&path, dir.join(format!("done-{worker}"))).unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(dir).unwrap().count(), 4);
}

/// One mount. Says whether it came to be, and which places were refused a thread.
fn live(place: &TestMount, nth: u64, from_then_on: bool, transport: &str) -> (bool, Vec<String>) {
    place.run(&["mkfs", "-q", "--force", "--size", "64M", place.image()]).fine();
    let _ = fs::remove_file(place.path("ready"));
    let _ = fs::remove_file(place.path("places"));
    let ready = UnixDatagram::bind(place.path("ready")).unwrap();
    ready.set_nonblocking(true).unwrap();
    let options = format!("transport={transport},log={}", place.path("log"));
    let words = ["mount", "--foreground", "-o", &options, place.image(), place.dir()];
    let mut mount = Refused::start(place, nth, from_then_on, &words);
    let what = mount.what.clone();
    let works = !mount.ends_before(|| ready.recv(&mut [0; 64]).is_ok());
    if works {
        work(&place.dir);
        let listed = place.run(&["ls", place.image()]);
        match listed.code {
            0 => assert_eq!(listed.out.lines().count(), 4, "{what}: {listed:?}"),
            // The daemon has none for the command, or for callers.
            _ => assert!(
                listed.err.contains("gives no thread") || listed.err.contains("process"),
                "{what}: {listed:?}"
            ),
        }
        place.umount();
    }
    let (places, said) = mount.end();
    assert!(!place.is_mounted(), "{what}: the mount is still there");
    if !works {
        assert!(said.starts_with("holdfast: ") && said.lines().count() == 1, "{what}: {said}");
        assert!(said.contains("gives no thread"), "{what}: {said}");
        assert!(!places.is_empty(), "{what}: {said}");
    }
    place.fsck();
    (works, places)
}

/// Files of the table of threads in ARCHITECTURE.md whose threads belong to a mount.
fn files_of_the_table() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("## Threads\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let files = |of: &str| {
        let words = table.split('`').filter(|word| word.starts_with(of) && word.ends_with(".rs"));
        let files: Vec<String> = words.map(Into::into).collect();
        assert!(!files.is_empty(), "the table names no file of {of}");
        files
    };
    [files("fuse/"), files("daemon/")].concat()
}

/// Rounds until each start was met.
const ROUNDS_MAX: u32 = 4;

/// Where no thread is started on this machine.
fn may_be_missing(file: &str, has_rings: bool) -> bool {
    file == "fuse/src/transport/uring.rs" && !has_rings
}

/// Refuses one start after the other, and notes where it was and whether the mount worked.
fn round(
    place: &TestMount,
    transport: &str,
    from_then_on: bool,
    table: &mut BTreeMap<(bool, String), [u64; 2]>,
) {
    let mut runs_without = 0;
    for nth in 1.. {
        let (works, places) = live(place, nth, from_then_on, transport);
        if places.is_empty() {
            assert!(works);
            runs_without += 1;
            // Readers are started as they are needed: now some more, now fewer.
            if runs_without == 3 {
                break;
            }
        }
        for place in places {
            let row = table.entry((from_then_on, place)).or_default();
            row[usize::from(works)] += 1;
        }
    }
}

#[test]
fn every_start_of_a_thread_of_a_mount_is_refused() {
    if let Ok(refused) = std::env::var(REFUSED) {
        return again(&refused);
    }
    if !can_mount() {
        return;
    }
    let place = TestMount::new();
    let mut table: BTreeMap<(bool, String), [u64; 2]> = BTreeMap::new();
    let offered = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let has_rings = offered.is_ok_and(|word| word.trim() == "Y");
    let transports: &[&str] = if has_rings { &["device", "auto"] } else { &["device"] };
    // Which start is the nth is chance, as readers are started as they are needed: it may pass over one.
    for _ in 0..ROUNDS_MAX {
        for (transport, from_then_on) in transports.iter().flat_map(|it| [(it, false), (it, true)])
        {
            round(&place, transport, from_then_on, &mut table);
        }
        let mut wanted = files_of_the_table();
        wanted.retain(|file| !may_be_missing(file, has_rings));
        if wanted.iter().all(|file| table.keys().any(|(_, at)| at.contains(file))) {
            break;
        }
    }
    if !has_rings {
        holdfast_base::skip::skipped("the kernel offers no rings");
    }
    println!("| refused | thread started at | failed | worked |");
    println!("| --- | --- | ---: | ---: |");
    for ((from_then_on, place), [failed, worked]) in &table {
        let how = if *from_then_on { "from then on" } else { "once" };
        println!("| {how} | {place} | {failed} | {worked} |");
    }
    for file in files_of_the_table() {
        let is_refused = table.keys().any(|(_, place)| place.contains(&file));
        assert!(is_refused || may_be_missing(&file, has_rings), "no thread was refused in {file}");
    }
}
