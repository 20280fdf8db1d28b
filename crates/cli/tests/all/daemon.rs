//! The daemon in the background keeps nothing of the program that started it.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::{TestMount, can_mount, signal, wait_for, wait_until_ended};

/// A shell that finds the program in $P, the volume in $I and the directory in $D.
fn shell(place: &TestMount, script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env("P", env!("CARGO_BIN_EXE_holdfast"))
        .env("I", place.image())
        .env("D", place.dir())
        .current_dir(place.root.path())
        .stdin(Stdio::null());
    command
}

/// What `/proc/PID/NAME` of the daemon leads to.
fn link(pid: u32, name: &str) -> String {
    fs::read_link(format!("/proc/{pid}/{name}")).unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_lock_of_the_caller_ends_with_the_caller() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let script = "exec 9>lock && flock 9 && $P mount $I $D";
    assert!(shell(&place, script).status().unwrap().success());
    assert!(place.is_mounted());
    let lock = File::open(place.path("lock")).unwrap();
    lock.try_lock().expect("the daemon holds the lock of a shell that has ended");
    place.umount();
}

#[test]
fn a_pipe_of_the_caller_ends_with_the_caller() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // What a shell does for x=$(holdfast mount IMAGE DIR 3>&1): it reads until all processes have closed the pipe.
    let mut shell = shell(&place, "$P mount $I $D 3>&1").stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = shell.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        pipe.read_to_string(&mut said).unwrap();
        said
    });
    assert!(shell.wait().unwrap().success());
    wait_for("the daemon holds the pipe of its caller", || reader.is_finished());
    assert_eq!(reader.join().unwrap(), "");
    place.umount();
}

#[test]
fn it_has_no_terminal_no_directory_and_no_stream_of_the_caller() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // On a terminal of its own, which `script` makes, in the middle of a session.
    let mounted = shell(&place, "script -qec \"$P mount volume.img mnt\" /dev/null </dev/null")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(mounted.success() && place.is_mounted());
    let pid = place.daemon();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let (group, session, terminal) = (fields[2], fields[3], fields[4]);
    assert_eq!((group, session), (pid.to_string().as_str(), pid.to_string().as_str()), "{stat}");
    assert_eq!(terminal, "0", "{stat}");
    assert_eq!(link(pid, "cwd"), "/");
    // The daemon reports that it is ready before it leaves standard output.
    wait_for("the daemon keeps a stream of its caller", || {
        (0..3).all(|fd| link(pid, &format!("fd/{fd}")) == "/dev/null")
    });
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<String> = open
        .map(|fd| link(pid, &format!("fd/{}", fd.unwrap().file_name().to_str().unwrap())))
        .filter(|to| to.starts_with('/'))
        .collect();
    let expected = ["/dev/null", "/dev/fuse", place.image()];
    // The last is its connection, which it ends should it have to leave in a hurry.
    let is_its_own = |to: &String| expected.contains(&to.as_str()) || to.ends_with("/abort");
    assert!(open.iter().all(is_its_own), "{open:?}");
    place.umount();
}

#[test]
fn limits_of_the_caller_and_a_lack_of_memory_spare_it() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // Files of at most 1 MiB, half a minute of processor time, 64 descriptors: for the caller's own work.
    let script = "echo 500 >/proc/self/oom_score_adj && ulimit -S -f 2048 && ulimit -S -t 30 && ulimit -S -n 64 && $P mount $I $D";
    assert!(shell(&place, script).status().unwrap().success());
    let pid = place.daemon();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for name in ["Max cpu time", "Max file size", "Max open files"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let mut words = line[name.len()..].split_whitespace();
        assert_eq!(words.next(), words.next(), "{line}");
    }
    fs::write(place.dir.join("large"), vec![7; 8 << 20]).unwrap();
    place.run(&["sync", place.dir()]).fine();
    // With the right, it protects the daemon from being killed for memory; without, it leaves the caller's setting.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    const SYS_RESOURCE: u64 = 1 << 24;
    let may = u64::from_str_radix(caps.trim(), 16).unwrap() & SYS_RESOURCE != 0;
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), if may { "-900" } else { "0" });
    place.umount();
}

/// An umount of a mount whose daemon hangs says which process that is, and what can be done about it.
#[test]
fn an_umount_whose_daemon_does_not_answer_says_what_to_do() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("f"), b"accepted").unwrap();
    let pid = place.daemon();
    signal(pid, "STOP");
    let said = place.run(&["umount", "--timeout", "1", place.dir()]);
    signal(pid, "CONT");
    assert!(said.err.contains(&format!("(process {pid})")), "{said:?}");
    said.fails(32, &format!("kill -9 {pid}"));
    wait_until_ended(pid);
    place.fsck();
    assert_eq!(place.run(&["cat", &place.inside("/f")]).fine(), "accepted");
}

/// A path is all that umount(2) takes: with a volume named, what has come over its mount would go.
#[test]
fn an_umount_takes_nothing_away_that_is_mounted_over_it() {
    if !can_mount() {
        return;
    }
    let (lower, upper) = (TestMount::with_volume(), TestMount::with_volume());
    lower.mount();
    fs::write(lower.dir.join("lower"), b"").unwrap();
    lower.run(&["mount", upper.image(), lower.dir()]).fine();
    fs::write(lower.dir.join("upper"), b"").unwrap();
    for how in [&["umount"][..], &["umount", "-l"]] {
        let said = lower.run(&[how, &[lower.image()]].concat());
        said.fails(32, "something else is mounted over it; unmount that first");
        assert!(lower.dir.join("upper").exists(), "{how:?}");
    }
    lower.run(&["umount", lower.dir()]).fine();
    assert!(lower.dir.join("lower").exists());
    lower.run(&["umount", lower.image()]).fine();
    lower.fsck();
    upper.fsck();
}

/// What tells of mounts does not hang with one of them, nor leaves out another one for it.
#[test]
fn mounts_whose_daemon_is_stopped_or_dead_are_told_of() {
    if !can_mount() {
        return;
    }
    let (stopped, dead) = (TestMount::with_volume(), TestMount::with_volume());
    stopped.mount();
    dead.mount();
    let (pid, killed) = (stopped.daemon(), dead.daemon());
    signal(killed, "KILL");
    wait_until_ended(killed);
    signal(pid, "STOP");
    let ask = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", crate::common::PROGRAM]).args(args).stdin(Stdio::null());
        crate::common::said(command.output().unwrap())
    };
    let (info, list) = (ask(&["info", stopped.dir()]), ask(&["list"]));
    // Nor does a limit that no clock shows end in anything but an umount.
    let far = u64::MAX.to_string();
    let umount = ask(&["umount", "--timeout", &far, dead.dir()]);
    signal(pid, "CONT");
    assert!(info.fine().contains("does not answer"));
    let list = list.fine();
    for (place, state) in [(&stopped, "silent"), (&dead, "dead")] {
        let mut lines = list.lines().filter(|line| line.contains(place.dir()));
        let line = lines.next().unwrap();
        assert!(line.contains(state) && lines.next().is_none(), "{list}");
    }
    umount.fine();
    assert!(!dead.is_mounted());
    stopped.umount();
    stopped.fsck();
}
