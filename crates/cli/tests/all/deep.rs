//! Trees that no honest program makes: very deep ones, and a directory that lies in itself. Commands end, in bounded memory.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_format::checksum::crc64_with_hole;
use rustix::fs::{Mode, OFlags};

use crate::common::{TestMount, can_mount, said};

/// Bytes of a node of these volumes, and where its sum stands.
const NODE: usize = 16384;
const SUM_AT: usize = 8;

/// MiB that a walk may have in memory, whatever it walks through.
const WALK: u64 = 128;

/// Runs a command with the arguments that follow, and tells its exit code and the most that it had in memory, in KiB.
const MEASURE: &str = "
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
";

/// The most MiB that a command had in memory, which must end well; `None`, and says so, where there is no Python.
fn peak_mib(place: &TestMount, args: &[&str]) -> Option<u64> {
    let command = place.command(args);
    let mut python = Command::new("python3");
    python.args(["-c", MEASURE]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        python.env(name, value.unwrap_or_default());
    }
    let Ok(told) = python.output() else {
        holdfast_base::skip::skipped("python3");
        return None;
    };
    let told = said(told);
    let (code, kib) = told.out.trim().split_once(' ').unwrap();
    assert_eq!(code, "0", "{args:?}: {}", told.err);
    Some(kib.parse::<u64>().unwrap() >> 10)
}

fn nothing() -> Stdio {
    Stdio::from(File::create("/dev/null").unwrap())
}

/// Makes directories in one another.
fn make_deep(top: &Path, levels: usize) {
    let how = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = rustix::fs::open(top, how, Mode::empty()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..levels {
        rustix::fs::mkdirat(&dir, &name, Mode::from_raw_mode(0o755)).unwrap();
        dir = rustix::fs::openat(&dir, &name, how, Mode::empty()).unwrap();
    }
}

#[test]
fn a_difference_that_takes_too_much_memory_comes_in_no_order() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    place.run(&["snapshot", "create", place.dir(), "before"]).fine();
    // The paths of all of them take some 170 MB.
    make_deep(&place.dir, 1300);
    let all = ["diff", place.dir(), "@before"];
    let told = said(place.command(&all).stdout(nothing()).stderr(Stdio::piped()).output().unwrap());
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("what follows is in no order"), "{}", told.err);
    place.run(&["diff", "--patch", place.dir(), "@before"]).fails(2, "too much for a patch");
    let counts = place.run(&["diff", "--stat", place.dir(), "@before"]).fine();
    assert!(counts.starts_with("1300 created"), "{counts}");
    // Other walks keep no path of each.
    for args in [&["ls", "-R", place.dir()][..], &["export", "--tar", place.dir()]] {
        let told = place.command(args).stdout(nothing()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((told.status.code(), &told.stderr[..]), (Some(0), &b""[..]), "{args:?}");
    }
    place.umount();
    let top = format!("{}:/{}", place.image(), "d".repeat(200));
    for args in [&["ls", "-R", place.image()][..], &["export", "--tar", place.image()]] {
        let Some(peak) = peak_mib(&place, args) else { break };
        assert!(peak < WALK, "{}: {peak} MiB", args[0]);
    }
    place.mount();
    place.run(&["rm", "-r", &top]).fine();
    assert_eq!(place.run(&["ls", place.dir()]).fine(), "");
    place.umount();
}

/// Has a name lead to another directory, in each node that has it.
fn redirect(image: &Path, name: &str, to: u64) {
    let mut bytes = fs::read(image).unwrap();
    let head = [&[4, name.len() as u8][..], name.as_bytes()].concat();
    let mut changed = 0;
    for at in (0..bytes.len().saturating_sub(NODE)).step_by(4096) {
        let node = &mut bytes[at..at + NODE];
        let sum = |node: &[u8]| crc64_with_hole(node, SUM_AT).to_le_bytes();
        if node[SUM_AT..SUM_AT + 8] != sum(node) {
            continue;
        }
        for found in 8..NODE - head.len() {
            if node[found..].starts_with(&head) {
                node[found - 8..found].copy_from_slice(&to.to_le_bytes());
                changed += 1;
            }
        }
        let sum = sum(node);
        node[SUM_AT..SUM_AT + 8].copy_from_slice(&sum);
    }
    assert!(changed > 0);
    fs::write(image, bytes).unwrap();
}

/// `/outer/in_itself` is `/outer`.
fn circle() -> TestMount {
    let place = TestMount::with_volume();
    let image = place.image().to_owned();
    let at = |path: &str| format!("{image}:{path}");
    place.run(&["mkdir", "-p", &at("/outer/in_itself")]).fine();
    let listed = place.run(&["ls", "--json", &at("/")]).fine();
    let outer: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    redirect(Path::new(&image), "in_itself", outer["inode"].as_u64().unwrap());
    place
}

#[test]
fn walks_end_where_a_directory_lies_in_itself() {
    let place = circle();
    let image = place.image().to_owned();
    let outer = format!("{image}:/outer");
    let to = place.path("copy");
    let walks: [&[&str]; 6] = [
        &["ls", "-R", &image],
        &["export", "--tar", &image],
        &["send", &image],
        &["cp", "-r", &outer, &to],
        &["chmod", "-R", "700", &outer],
        &["rm", "-r", &outer],
    ];
    let expect_ends = || {
        for args in walks {
            let told = place.command(args).stdout(nothing()).stderr(Stdio::piped()).output();
            let told = said(told.unwrap());
            assert!(told.code != 0, "{args:?}");
            assert!(
                told.err.to_lowercase().contains("input/output error"),
                "{args:?}: {}",
                told.err
            );
        }
    };
    expect_ends();
    if can_mount() {
        place.mount();
        expect_ends();
        place.umount();
    }
    assert_eq!(place.run(&["fsck", &image]).code, 4);
}
