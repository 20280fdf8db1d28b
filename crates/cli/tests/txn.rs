//! Transactions of commands, and commands in forks of their own: all or nothing, whatever ends in between.
//!
//! A program of its own: transactions make mount namespaces, which keep the mounts of all others until they end.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "txn/merges.rs"]
mod merges;
#[path = "txn/run.rs"]
mod run;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{
    NOBODY, PROGRAM, Said, TestMount, can_mount, said, signal, wait_for, wait_until_ended,
};

/// Whether this user may have mounts of its own here, as root has them.
fn can_run() -> bool {
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|it| it.success());
    if !can {
        holdfast_base::skip::skipped("needs unshare -m");
    }
    can && can_mount()
}

/// A mounted volume with a file `file` of "one\n".
fn mounted() -> TestMount {
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), "one\n").unwrap();
    place
}

/// The program with signals as a terminal has them: what starts the tests may have some ignored, and a shell cannot catch those.
fn command(place: &TestMount, args: &[&str]) -> Command {
    let program = place.command(args);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(program.get_program());
    command.args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Runs a shell script in a transaction of the mount, with its directory as the working directory.
fn txn(place: &TestMount, options: &[&str], script: &str) -> Said {
    let args = [&["txn"], options, &[place.dir(), "--", "sh", "-c", script]].concat();
    said(command(place, &args).current_dir(&place.dir).output().unwrap())
}

/// A transaction that runs until its shell reads a line.
fn start(place: &TestMount, options: &[&str], script: &str) -> Child {
    let script = format!("{script}; echo ready; read line");
    let args = [&["txn"], options, &[place.dir(), "--", "sh", "-c", &script]].concat();
    let mut command = command(place, &args);
    command.current_dir(&place.dir).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    child
}

fn go_on(mut child: Child) -> Said {
    // It may be gone already.
    let _ = child.stdin.take().unwrap().write_all(b"\n");
    said(child.wait_with_output().unwrap())
}

fn text(place: &TestMount, name: &str) -> String {
    fs::read_to_string(place.dir.join(name)).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The branches, and the snapshots with a name of `main`.
fn lineage(place: &TestMount) -> (Vec<String>, Vec<String>) {
    let list = |what: &str, list: &str| {
        let said = place.run(&[what, "list", "--json", place.image()]).fine();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let names = said[list].as_array().unwrap().iter();
        let names = names.map(|it| it["name"].as_str().unwrap().to_owned());
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    (list("branch", "branches"), list("snapshot", "snapshots"))
}

#[track_caller]
fn expect_nothing_left(place: &TestMount) {
    assert_eq!(lineage(place), (vec!["main".into()], vec![]));
}

#[test]
fn a_command_changes_the_branch_as_a_whole_or_not_at_all() {
    if !can_run() {
        return;
    }
    let place = mounted();
    fs::create_dir(place.dir.join("sub")).unwrap();
    // No other process sees anything of it before.
    let child = start(&place, &[], "echo two > file; mkdir new; echo x > new/x; pwd > where");
    assert_eq!(names(&place.dir), ["file", "sub"]);
    assert_eq!(text(&place, "file"), "one\n");
    go_on(child).fine();
    assert_eq!(names(&place.dir), ["file", "new", "sub", "where"]);
    assert_eq!((text(&place, "file"), text(&place, "new/x")), ("two\n".into(), "x\n".into()));
    assert_eq!(text(&place, "where").trim_end(), place.dir());
    expect_nothing_left(&place);
    // The exit code is the command's, and nothing has happened.
    for (script, code) in [("rm -r file new; exit 3", 3), ("rm file; kill -9 $$", 137)] {
        let said = txn(&place, &[], script);
        assert_eq!((said.code, said.err.as_str()), (code, ""), "{script}");
        assert_eq!(text(&place, "file"), "two\n");
        expect_nothing_left(&place);
    }
    place.run(&["txn", place.dir(), "--", "/no/such"]).fails(127, "/no/such");
    place.run(&["txn", place.dir(), "--", "/"]).fails(126, "ermission denied");
    // Below the root, from elsewhere, with the streams and the descriptors of the caller.
    let below = place.dir.join("sub");
    let script = "echo to stderr >&2; cat; pwd; echo below > made; cat <&5";
    let shell = "exec \"$0\" txn . -- sh -c \"$1\" 5<\"$2\"";
    fs::write(place.path("five"), "five\n").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", shell, PROGRAM, script, &place.path("five")]).current_dir(&below);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
    let done = said(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.err.as_str()), (0, "to stderr\n"));
    assert_eq!(done.out, format!("from stdin\n{}\nfive\n", below.display()));
    assert_eq!(text(&place, "sub/made"), "below\n");
    // A command that only looks.
    assert_eq!(txn(&place, &[], "cat file").fine(), "two\n");
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
    assert_eq!(place.run(&["cat", &place.inside("/new/x")]).fine(), "x\n");
}

#[test]
fn what_is_no_mount_of_a_branch_that_may_be_written_is_refused() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let root = place.root.path().to_str().unwrap();
    for (dir, words) in [
        (root, "is in no Holdfast mount"),
        ("/proc", "is in no Holdfast mount"),
        ("no such", "no such"),
        (place.image(), "is not a directory"),
    ] {
        place.run(&["txn", dir, "--", "touch", &place.path("ran")]).fails(125, words);
    }
    place.run(&["txn", place.dir()]).fails(125, "COMMAND");
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    place.umount();
    for what in [&["mount", "-o", "ro"][..], &["mount", "-o", "snapshot=s"]] {
        place.run(&[what, &[place.image(), place.dir()]].concat()).fine();
        let words = if what.contains(&"ro") { "mounted read-only" } else { "a snapshot never" };
        place.run(&["txn", place.dir(), "--", "touch", &place.path("ran")]).fails(125, words);
        place.umount();
    }
    assert!(!Path::new(&place.path("ran")).exists());
    place.run(&["run", place.image(), "--", "true"]).fails(125, "is not mounted");
    place.fsck();
}

#[test]
fn a_branch_that_has_changed_meanwhile_is_left_alone_and_the_work_is_kept() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let child = start(&place, &[], "echo two > file; test ! -e other");
    fs::write(place.dir.join("other"), "other\n").unwrap();
    go_on(child).fails(75, "kept as the branch txn-");
    assert_eq!((text(&place, "file"), text(&place, "other")), ("one\n".into(), "other\n".into()));
    let (branches, snapshots) = lineage(&place);
    let kept = branches[1].as_str();
    assert!(kept.starts_with("txn-") && snapshots == [kept], "{branches:?} {snapshots:?}");
    // It is what the command made, and can still be had.
    place.run(&["branch", "promote", "--force", "--discard", place.dir(), kept]).fine();
    assert_eq!(names(&place.dir), ["file"]);
    assert_eq!(text(&place, "file"), "two\n");
    place.run(&["snapshot", "delete", place.dir(), kept]).fine();
    expect_nothing_left(&place);
    // Again, until nothing changes. Reading is no change. Each run finds the same input and the caller's descriptors.
    let [counter, input, gate] = ["counter", "input", "gate"].map(|name| place.path(name));
    fs::write(&input, "not this\nall of this\n").unwrap();
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut input = fs::File::open(input).unwrap();
    input.seek(SeekFrom::Start(9)).unwrap();
    let script = format!("echo x >&5; cat file > seen; cat > input; read line < {gate}");
    let shell = "exec \"$0\" txn --retry=1 . -- sh -c \"$1\" 5>>\"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", shell, PROGRAM, &script, &counter]).current_dir(&place.dir);
    let child = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let runs =
        |count: usize| fs::read_to_string(&counter).is_ok_and(|it| it == "x\n".repeat(count));
    wait_for("the command does not run", || runs(1));
    fs::write(place.dir.join("busy"), "x").unwrap();
    fs::write(&gate, "\n").unwrap();
    wait_for("the command does not run again with descriptor 5", || runs(2));
    fs::write(&gate, "\n").unwrap();
    let done = said(child.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("main has changed meanwhile; trying again"), "{done:?}");
    assert_eq!(names(&place.dir), ["busy", "file", "input", "seen"]);
    assert_eq!(text(&place, "input"), "all of this\n");
    fs::remove_file(place.dir.join("input")).unwrap();
    // What can be read only once is not what each run would have.
    let mut command = place.command(&["txn", "--retry", place.dir(), "--", "touch", "ran"]);
    command.current_dir(&place.dir).stdin(Stdio::piped());
    said(command.output().unwrap()).fails(125, "can be read only once");
    assert_eq!(names(&place.dir), ["busy", "file", "seen"]);
    expect_nothing_left(&place);
    // Of two at once one wins.
    let [one, other] = ["a", "b"].map(|name| start(&place, &[], &format!("echo > {name}")));
    go_on(other).fine();
    go_on(one).fails(75, "has changed");
    assert_eq!(names(&place.dir), ["b", "busy", "file", "seen"]);
    // What failed may be kept as well.
    let said = txn(&place, &["--keep", "failed"], "echo half > file; exit 9");
    assert_eq!((said.code, said.err.as_str()), (9, ""));
    let (branches, snapshots) = lineage(&place);
    assert_eq!((branches[2].as_str(), snapshots[1].as_str()), ("failed", "failed"));
    place.umount();
    assert_eq!(place.run(&["cat", &place.inside("failed:/file")]).fine(), "half\n");
    place.fsck();
}

#[test]
fn a_dry_run_shows_what_would_change_and_changes_nothing() {
    if !can_run() {
        return;
    }
    let place = mounted();
    fs::write(place.dir.join("gone"), "x").unwrap();
    // What others do meanwhile is not told.
    let child =
        start(&place, &["--dry-run"], "echo two > file; rm gone; mkdir new; echo x > new/x");
    fs::write(place.dir.join("other"), "x").unwrap();
    let shown = go_on(child).fine();
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["changed     file", "created     new/", "created     new/x", "removed     gone"]
    );
    assert_eq!(names(&place.dir), ["file", "gone", "other"]);
    assert_eq!(text(&place, "file"), "one\n");
    // Nothing would be changed by what fails.
    let said = txn(&place, &["--dry-run"], "rm file; exit 3");
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (3, "", ""));
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
}

#[test]
fn a_transaction_in_a_transaction_is_part_of_it() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let inner = |script: &str| format!("\"{PROGRAM}\" txn . -- sh -c '{script}'");
    let script = format!(
        "set -e; echo two > file; {}; cat deep; ! {}; test ! -e lost; {}; ls",
        inner("echo deep > deep; cat file"),
        inner("echo x > lost; exit 1"),
        inner(&format!("\"{PROGRAM}\" txn . -- touch deeper; test -e deeper")),
    );
    assert_eq!(txn(&place, &[], &script).fine(), "two\ndeep\ndeep\ndeeper\nfile\n");
    assert_eq!(names(&place.dir), ["deep", "deeper", "file"]);
    // Nothing of an inner one stays if the outer one fails.
    let said = txn(&place, &[], &format!("{} && exit 4", inner("touch gone")));
    assert_eq!((said.code, said.err.as_str()), (4, ""));
    assert_eq!(names(&place.dir), ["deep", "deeper", "file"]);
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
}

#[test]
fn what_is_killed_leaves_nothing_done_and_the_next_one_sweeps() {
    if !can_run() {
        return;
    }
    let place = mounted();
    // The command's parent: with it goes the command.
    let script = format!(
        "echo two > file; \"{PROGRAM}\" txn . -- touch inner; echo $$ > {}",
        place.path("pid")
    );
    let mut child = start(&place, &[], &script);
    let command: u32 = fs::read_to_string(place.path("pid")).unwrap().trim().parse().unwrap();
    signal(child.id(), "KILL");
    child.wait().unwrap();
    wait_until_ended(command);
    assert_eq!(text(&place, "file"), "one\n");
    let (branches, snapshots) = lineage(&place);
    assert_eq!((branches.len(), snapshots.len()), (2, 1), "{branches:?} {snapshots:?}");
    assert!(branches[1].starts_with(".txn-") && branches[1] == snapshots[0]);
    let dry = ["prune", "--keep", "1h:1h", "--dry-run", place.dir()];
    assert!(place.run(&dry).fine().contains("left by a command that was killed"));
    // One that is in use stays, and what has no owner goes.
    let mut running = start(&place, &[], "echo three > file");
    let left = |lineage: (Vec<String>, Vec<String>)| lineage.0.len() - 1 + lineage.1.len();
    wait_for("it is not swept", || {
        txn(&place, &[], "exit 0").fine();
        left(lineage(&place)) == 2
    });
    assert!(!place.run(&["prune", "--keep", "1h:1h", place.dir()]).fine().contains("killed"));
    // A signal for this process alone is the command's.
    let input = running.stdin.take();
    signal(running.id(), "TERM");
    let done = said(running.wait_with_output().unwrap());
    drop(input);
    assert_eq!((done.code, done.err.as_str()), (143, ""));
    expect_nothing_left(&place);
    assert_eq!(text(&place, "file"), "one\n");
    // The terminal's, which the command gets as well, decides nothing by itself.
    let script = "trap 'echo caught > file' INT; kill -INT $PPID; kill -INT $$";
    txn(&place, &[], script).fine();
    assert_eq!(text(&place, "file"), "caught\n");
    place.umount();
    place.fsck();
}

/// What the command has started lives on when `holdfast` and the command are killed, with files of the fork open.
#[test]
fn what_lives_on_behind_a_killed_one_does_not_keep_its_fork() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let [pid, errors] = ["pid", "errors"].map(|name| place.path(name));
    // A transaction in the transaction is killed as well, and what it began lives on too.
    let left = format!(
        "exec 3>>left; echo $$ >> {pid}; while echo more >&3; do sleep 0.01; done; echo cut >> {errors}; exec sleep 1000"
    );
    fs::write(place.path("left.sh"), left).unwrap();
    let left = format!("setsid sh {} >/dev/null 2>&1 </dev/null &", place.path("left.sh"));
    let inner = format!("{left} kill -9 $PPID; exec sleep 1000");
    fs::write(place.path("inner.sh"), inner).unwrap();
    let inner = place.path("inner.sh");
    let lives = |count| fs::read_to_string(&pid).is_ok_and(|it| it.lines().count() == count);
    let script = format!(
        "echo two > file; {left} \"{PROGRAM}\" txn . -- sh {inner}; while test $(wc -l < {pid}) != 2; do sleep 0.01; done"
    );
    let mut child = start(&place, &[], &script);
    assert!(lives(2));
    signal(child.id(), "KILL");
    child.wait().unwrap();
    wait_for("the forks are not swept", || {
        txn(&place, &[], "true").fine();
        lineage(&place) == (vec!["main".into()], vec![])
    });
    wait_for("what lives on is not cut off", || {
        fs::read_to_string(&errors).is_ok_and(|it| it.lines().count() == 2)
    });
    assert_eq!((names(&place.dir), text(&place, "file")), (vec!["file".into()], "one\n".into()));
    // An outer one that fails by itself leaves nothing of an inner one that was killed.
    let said = txn(
        &place,
        &[],
        &format!("\"{PROGRAM}\" txn . -- sh -c 'kill -9 $PPID; exec sleep 9'; exit 6"),
    );
    assert_eq!(said.code, 6, "{said:?}");
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
    for pid in fs::read_to_string(&pid).unwrap().lines() {
        let pid = pid.parse().unwrap();
        signal(pid, "KILL");
        wait_until_ended(pid);
    }
}

#[test]
fn signals_decide_nothing_twice() {
    if !can_run() {
        return;
    }
    let place = mounted();
    // Two at once are both passed on, as some stop a command by two.
    let [term, hup] = ["term", "hup"].map(|name| place.path(name));
    let script = format!(
        "trap 'touch {term}' TERM; trap 'touch {hup}' HUP; echo ready; n=0\n\
         until test -e {term} && test -e {hup}; do n=$((n+1)); test $n -lt 500 || exit 8; sleep 0.02; done"
    );
    let child = start(&place, &[], &script);
    for name in ["STOP", "TERM", "HUP", "CONT"] {
        signal(child.id(), name);
    }
    assert_eq!(go_on(child).code, 0);
    // For `holdfast` alone, at any moment: either nothing has happened, and it says so, or all.
    for (round, name) in
        ["TERM", "INT", "TERM", "INT", "TERM", "INT", "TERM", "INT"].iter().enumerate()
    {
        let made = format!("made-{round}");
        let mut command = self::command(&place, &["txn", place.dir(), "--", "touch", &made]);
        command.current_dir(&place.dir).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(15 * round as u64));
        signal(child.id(), name);
        let ended = child.wait().unwrap();
        let is_made = place.dir.join(&made).exists();
        assert_eq!(ended.success(), is_made, "{round} {name}: {ended:?}");
    }
    txn(&place, &[], "true").fine();
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
}

/// What root or a remount forbids in a mount holds in the command's mount too; and only that is ended from outside.
#[test]
fn the_mount_of_a_command_is_no_other() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let flags = "remount,nosuid,nodev,noexec,noatime";
    place.run_as("mount.fuse.holdfast", &[place.image(), place.dir(), "-o", flags]).fine();
    let mounts = txn(&place, &[], "cat /proc/self/mountinfo").fine();
    let own = mounts.lines().rfind(|line| line.contains(place.dir())).unwrap();
    let options: Vec<&str> = own.split(' ').nth(5).unwrap().split(',').collect();
    for word in ["nosuid", "nodev", "noexec", "noatime"] {
        assert!(options.contains(&word), "{word}: {own}");
    }
    // A branch that was given such a name and mounted: neither through its own mount nor through another one.
    let name = ".txn-0123456789abcde";
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    place.run(&["fork", place.dir(), name]).fine();
    place.run(&["mount", "-o", &format!("branch={name}"), place.image(), &other]).fine();
    let release = format!("{{\"release\":{{\"name\":\"{name}\"}}}}");
    let command = [holdfast_fuse::CONTROL, release.as_bytes()].concat();
    let command = String::from_utf8(command).unwrap();
    for dir in [&other, place.dir()] {
        let answer = place.run(&["ask", &command, dir]).fine();
        assert!(answer.contains("refused") && answer.contains("unmount it"), "{dir}: {answer}");
    }
    fs::write(Path::new(&other).join("still"), "there").unwrap();
    place.run(&["umount", &other]).fine();
    place.umount();
    place.fsck();
}

/// The daemon is killed while a command runs, and at moments around that in which its fork becomes the branch.
#[test]
fn a_killed_daemon_leaves_all_or_nothing() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let files = ["file", "f1", "f2", "f3", "f4", "f5"];
    let fill = |round: &str| {
        files.iter().map(|name| format!("echo {round} > {name}")).collect::<Vec<_>>().join("; ")
    };
    txn(&place, &[], &fill("before")).fine();
    let mut was = "before".to_owned();
    let mut outcomes = [0, 0];
    // Later and later until all of it was done before, and then between: around the moment at which it happens.
    let (mut nothing_at, mut all_at): (f64, Option<f64>) = (0.0, None);
    for number in 0..13 {
        let delay_ms = match (number, all_at) {
            (0, _) => None,
            (_, None) => Some(nothing_at * 2.0 + 4.0),
            (_, Some(all_at)) => Some((nothing_at + all_at) / 2.0),
        };
        if number > 8 && all_at.is_some_and(|all_at| all_at - nothing_at < 1.0) {
            break;
        }
        let round = format!("{number}-killed-after-{delay_ms:?}");
        let mut child = start(&place, &[], &fill(&format!("'{round}'")));
        let daemon = place.daemon();
        let done = match delay_ms {
            None => {
                signal(daemon, "KILL");
                go_on(child)
            }
            Some(delay) => {
                child.stdin.take().unwrap().write_all(b"\n").unwrap();
                std::thread::sleep(Duration::from_secs_f64(delay / 1000.0));
                signal(daemon, "KILL");
                said(child.wait_with_output().unwrap())
            }
        };
        wait_until_ended(daemon);
        place.run(&["umount", place.dir()]);
        place.mount();
        let is = files.map(|name| text(&place, name).trim_end().to_owned());
        let all = is.iter().all(|text| *text == round);
        assert!(
            all || is.iter().all(|text| *text == was),
            "{round}, before {was}: {is:?}, {done:?}"
        );
        assert!(all || done.code != 0, "{round}: it was said to be done: {done:?}");
        outcomes[usize::from(all)] += 1;
        match delay_ms {
            Some(delay) if all => all_at = Some(delay),
            Some(delay) => nothing_at = delay,
            None => {}
        }
        if all {
            was = round;
        }
        // What is left is swept.
        txn(&place, &[], "true").fine();
        expect_nothing_left(&place);
    }
    assert!(
        outcomes.iter().all(|count| *count > 0),
        "kills before and after it happened: {outcomes:?}"
    );
    place.umount();
    place.fsck();
}

#[test]
fn what_a_command_leaves_behind_is_cut_off_when_it_ends() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let [pid, errors, program] = ["pid", "errors", "left.sh"].map(|name| place.path(name));
    // It writes until it cannot, says so, and stays.
    let left = format!(
        "exec 3>>left; echo before >&3; echo $$ > {pid}; while echo more >&3; do sleep 0.01; done\n\
         cat file || echo cut > {errors}; exec sleep 1000"
    );
    fs::write(&program, left).unwrap();
    let script = format!(
        "echo two > file; exec >/dev/null 2>&1; sh {program} & while ! test -s {pid}; do sleep 0.01; done"
    );
    txn(&place, &[], &script).fine();
    assert_eq!(text(&place, "file"), "two\n");
    let left = text(&place, "left");
    assert!(left.starts_with("before\n"), "{left:?}");
    expect_nothing_left(&place);
    wait_for("what was left behind is not cut off", || Path::new(&errors).exists());
    assert_eq!(text(&place, "left"), left, "nothing of it comes later");
    // Nor does it keep the mount, or the volume.
    place.umount();
    place.fsck();
    let pid: u32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    signal(pid, "KILL");
    wait_until_ended(pid);
}

#[test]
fn a_full_volume_has_no_half_of_a_transaction() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let said =
        txn(&place, &[], "echo two > file; dd if=/dev/zero of=big bs=1M count=200 2>/dev/null");
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!((names(&place.dir), text(&place, "file")), (vec!["file".into()], "one\n".into()));
    expect_nothing_left(&place);
    // What fits is done, and what it was gives its space back.
    for round in 0..4 {
        txn(&place, &[], "dd if=/dev/urandom of=some bs=1M count=20 2>/dev/null").fine();
        assert_eq!(fs::metadata(place.dir.join("some")).unwrap().len(), 20 << 20, "{round}");
        wait_for("space does not come back", || free(&place.dir) > 25 << 20);
    }
    place.umount();
    place.fsck();
}

/// Free bytes, as df(1) says.
fn free(dir: &Path) -> u64 {
    let df = Command::new("df").args(["--output=avail", "-B1"]).arg(dir).output().unwrap();
    let df = String::from_utf8(df.stdout).unwrap();
    df.lines().nth(1).unwrap().trim().parse().unwrap()
}

/// In a mount namespace in which /dev/fuse is open to all, a user without any privilege does the same.
#[test]
fn an_ordinary_user_has_transactions() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    if !is_root || !can_run() {
        return holdfast_base::skip::skipped("needs root to become another user");
    }
    let place = TestMount::new();
    let program = place.path("holdfast");
    common::copy_program(PROGRAM, &program);
    fs::set_permissions(place.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(place.root.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(&place.dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let dev = place.path("dev");
    fs::create_dir(&dev).unwrap();
    // What `nobody` does, with a daemon of its own, in one namespace.
    let of_user = format!(
        "set -e; cd {root}; hf={program}\n\
         $hf mkfs -q --size 64M volume.img; $hf mount volume.img mnt; trap '$hf umount mnt' EXIT\n\
         echo one > mnt/file; cd mnt\n\
         $hf txn . -- sh -c 'echo two > file; id -u; test ! -O /; ls -ln file | cut -d\" \" -f3'\n\
         cat file\n\
         $hf txn . -- sh -c 'echo three > file; exit 6' || echo code $?; cat file\n\
         $hf txn . -- sh -c \"echo four > file; $hf txn . -- sh -c 'cat file; echo five > deep'\"; cat file deep\n\
         $hf txn . -- sh -c '(exec 3>>left; while echo x >&3; do sleep 0.01; done) 2>/dev/null >/dev/null & echo on >&2; until test -s left; do sleep 0.01; done'\n\
         cat left | head -1\n\
         $hf run . -- cat deep\n\
         {{ $hf branch list .; $hf snapshot list .; }} | grep -F .txn- || echo nothing left; cd ..",
        root = place.root.path().display(),
    );
    // What it needs of the system, without what is tested.
    let needed = format!(
        "set -e; cd {root}; unshare -Um true; : <>/dev/fuse\n\
         {program} mkfs -q --size 64M other.img; {program} mount other.img mnt; {program} umount mnt",
        root = place.root.path().display(),
    );
    let script = "set -e; mount -t tmpfs -o mode=755 tmpfs \"$1\"; mknod \"$1/fuse\" c 10 229; chmod 666 \"$1/fuse\"; \
         mount --bind \"$1/fuse\" /dev/fuse; \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$2\"";
    let as_user = |what: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", &dev, what]).stdin(Stdio::null());
        // Theirs, not that of the tests.
        command.env("TMPDIR", place.root.path());
        said(command.output().unwrap())
    };
    let able = as_user(&needed);
    for refused in ["unshare", "/dev/fuse", "fusermount3", "only permitted for"] {
        if able.code != 0 && able.err.contains(refused) {
            return holdfast_base::skip::skipped(&able.err);
        }
    }
    assert_eq!(able.code, 0, "{able:?}");
    let done = as_user(&of_user);
    assert_eq!((done.code, done.err.as_str()), (0, "on\n"), "{done:?}");
    let out = "65534\n65534\ntwo\ncode 6\ntwo\nfour\nfour\nfive\nx\nfive\nnothing left\n";
    assert_eq!(done.out, out, "{done:?}");
}
