//! A terminal shows what is left to wait for; elsewhere nothing is printed.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PROGRAM, TestMount, can_mount, said, signal, wait_for};
use crate::host::SmallHost;

/// A filesystem in which no write goes on until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(host: &SmallHost) -> Option<Frozen> {
        let dir = host.path("");
        let done = Command::new("fsfreeze").arg("--freeze").arg(&dir).output();
        if !done.is_ok_and(|out| out.status.success()) {
            holdfast_base::skip::skipped("a filesystem cannot be frozen here");
            return None;
        }
        Some(Frozen(dir))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).status();
    }
}

/// The program at a terminal of its own.
struct AtTerminal {
    child: Child,
    seen: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl AtTerminal {
    fn run(place: &TestMount, words: &str) -> AtTerminal {
        let mut script = Command::new("script");
        // Words without spaces: script(1) hands them to a shell.
        script.args(["-q", "-e", "-c", &format!("exec {PROGRAM} {words}"), "/dev/null"]);
        script.current_dir(place.root.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut part) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..len]));
            }
        });
        AtTerminal { child, seen, reader }
    }

    fn shows(&self, words: &str) -> bool {
        self.seen.lock().unwrap().contains(words)
    }

    #[track_caller]
    fn ends_well(mut self) -> String {
        assert!(self.child.wait().unwrap().success(), "{}", self.seen.lock().unwrap());
        self.reader.join().unwrap();
        self.seen.lock().unwrap().clone()
    }
}

fn can_have_terminals() -> bool {
    let can = Command::new("script").arg("--version").output().is_ok();
    if !can {
        holdfast_base::skip::skipped("no script(1) here");
    }
    can
}

fn is_waiting(of: &Path) -> bool {
    let tasks = fs::read_dir("/proc").unwrap().flatten();
    tasks.map(|process| process.path()).any(|process| {
        let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let state = fs::read_to_string(process.join("stat")).unwrap_or_default();
        words.starts_with(PROGRAM) && words.contains(of.to_str().unwrap()) && state.contains(") D ")
    })
}

#[test]
fn sync_and_umount_show_how_many_bytes_are_left_on_a_terminal() {
    if !can_mount() || !can_have_terminals() {
        return;
    }
    let Some(host) = SmallHost::ext4(96) else { return };
    let mut place = TestMount::new();
    place.image = host.path("volume.img");
    // All of it is the host's, which is asked for nothing while it is frozen.
    place.run(&["mkfs", "-q", "--allocate", "--size", "64M", place.image()]).fine();
    for command in ["sync", "umount"] {
        place.mount();
        let Some(frozen) = Frozen::new(&host) else { return };
        fs::write(place.dir.join(command), vec![1; 6 << 20]).unwrap();
        // This one has no reader.
        let elsewhere = place.command(&["sync", place.dir()]);
        let mut elsewhere =
            { elsewhere }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let at_terminal = AtTerminal::run(&place, &format!("{command} {}", place.dir()));
        wait_for("nothing says what is left", || {
            at_terminal.shows("6.0 MiB of files still to write")
        });
        assert!(elsewhere.try_wait().unwrap().is_none());
        drop(frozen);
        at_terminal.ends_well();
        let quiet = said(elsewhere.wait_with_output().unwrap());
        assert_eq!(quiet.fine(), "");
        if command == "sync" {
            place.umount();
        }
        assert!(!place.is_mounted());
    }
    place.mount();
    assert_eq!(fs::read(place.dir.join("umount")).unwrap(), vec![1; 6 << 20]);
    let fast = AtTerminal::run(&place, &format!("sync {}", place.dir()));
    let shown = fast.ends_well();
    assert!(!shown.contains("still to write"), "{shown:?}");
    place.umount();
    place.fsck();
}

#[test]
fn mkfs_shows_how_much_is_still_to_take_from_the_host() {
    if !can_have_terminals() {
        return;
    }
    let Some(host) = SmallHost::ext4(192) else { return };
    let mut place = TestMount::new();
    place.image = host.path("volume.img");
    for quiet in ["", "-q"] {
        File::create(&place.image).unwrap().set_len(128 << 20).unwrap();
        let Some(frozen) = Frozen::new(&host) else { return };
        let words = format!("mkfs --allocate --force {quiet} {}", place.image());
        let at_terminal = AtTerminal::run(&place, &words);
        wait_for("it does not wait for its host", || is_waiting(&place.image));
        let since = Instant::now();
        wait_for("time passes", || since.elapsed() > Duration::from_millis(1500));
        drop(frozen);
        let shown = at_terminal.ends_well();
        let tells = shown.contains("64.0 MiB still to take from the host");
        assert_eq!(tells, quiet.is_empty(), "{shown:?}");
    }
    place.fsck();
}

#[test]
fn an_unmount_names_a_daemon_that_is_stopped() {
    if !can_mount() {
        return;
    }
    let place = TestMount::in_use();
    let daemon = place.daemon();
    signal(daemon, "STOP");
    let umount = place.command(&["umount", place.dir()]);
    let mut umount = { umount }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut err = std::io::BufReader::new(umount.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut err, &mut line).unwrap();
    signal(daemon, "CONT");
    assert!(line.contains(&format!("process {daemon}, which is stopped")), "{line:?}");
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!((umount.wait().unwrap().success(), rest.as_str()), (true, ""));
    place.fsck();
}
