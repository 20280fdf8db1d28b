//! `-o supervised`: the process that serves a volume dies, and its mounts go on. What a request under way comes to is tested in the crate
//! `fuse`, and many deaths under many programs are `scripts/prove/supervised.sh`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use holdfast_control::{Ask, Name, Reply, Which, ask};

use crate::common::loop_device::LoopDevice;
use crate::common::many::Many;
use crate::common::{self, TestMount, can_mount, signal, wait_for, wait_until_ended};

/// Whether the kernel sends requests again, and mounting can work.
fn can_go_on() -> bool {
    if !holdfast_base::skip::kernel_is(6, 9) {
        holdfast_base::skip::skipped("Linux 6.9, which sends requests again");
        return false;
    }
    can_mount()
}

fn supervised() -> TestMount {
    let place = TestMount::with_volume();
    let log = format!("supervised,log={}", place.path("log"));
    place.run(&["mount", "-o", &log, place.image(), place.dir()]).fine();
    place
}

fn log(place: &TestMount) -> String {
    fs::read_to_string(place.path("log")).unwrap()
}

/// Kills the process that serves, and returns the number of the next one.
fn die(place: &TestMount) -> u32 {
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    let next = place.daemon();
    assert_ne!(daemon, next);
    next
}

/// Whether a daemon has a thread that works for a command.
fn is_at_work(daemon: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
    let mut names = threads.map(|it| fs::read_to_string(it.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name.trim() == "work"))
}

/// The process that has started `pid`.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn open_files_names_and_orphans_go_on_over_deaths() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    let supervisor = parent(place.daemon());
    let file = File::options().append(true).create(true).open(place.dir.join("file")).unwrap();
    let gone = File::options().read(true).write(true).create_new(true).open(place.dir.join("gone"));
    let gone = gone.unwrap();
    gone.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(place.dir.join("gone")).unwrap();
    for death in 0..5 {
        (&file).write_all(&[death; 5000]).unwrap();
        fs::create_dir(place.dir.join(format!("dir{death}"))).unwrap();
        let next = die(&place);
        assert_eq!(parent(next), supervisor);
        let mut bytes = [0; 10];
        gone.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, gone.metadata().unwrap().nlink()), (b"still here", 0));
    }
    let wanted: Vec<u8> = (0..5).flat_map(|death| [death; 5000]).collect();
    assert!(fs::read(place.dir.join("file")).unwrap() == wanted);
    assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 6);
    let said = log(&place);
    assert_eq!(said.matches("another one goes on").count(), 5, "{said}");
    assert_eq!(said.matches(" again after ").count(), 5, "{said}");
    drop((file, gone));
    place.umount();
    wait_until_ended(supervisor);
    // Nothing without a name is left, and nothing is wrong.
    let info = place.run(&["fsck", "-n", "-d", place.image()]).fine();
    assert!(info.contains("1 file"), "{info}");
}

#[test]
fn all_mounts_of_the_volume_go_on() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    fs::write(place.dir.join("f"), "main").unwrap();
    place.run(&["snapshot", "create", place.dir(), "monday"]).fine();
    place.run(&["fork", place.dir(), "work"]).fine();
    let (work, monday) = (place.path("work"), place.path("monday"));
    for dir in [&work, &monday] {
        fs::create_dir(dir).unwrap();
    }
    let named = |name: &str| format!("{}{name}", place.image());
    place.run(&["mount", &named(":work"), &work]).fine();
    place.run(&["mount", &named("@monday"), &monday]).fine();
    fs::write(Path::new(&work).join("f"), "work").unwrap();
    for _ in 0..2 {
        die(&place);
        let read = |dir: &str| fs::read_to_string(Path::new(dir).join("f")).unwrap();
        assert_eq!([place.dir(), &work, &monday].map(read), ["main", "work", "main"]);
        fs::write(Path::new(&work).join("g"), "new").unwrap();
        assert!(fs::write(Path::new(&monday).join("g"), "new").is_err());
    }
    // The first goes, and the others go on.
    place.umount();
    let pid = || {
        let list = place.run(&["list", "--json"]).fine();
        let ours = list.split("\"pid\":").find(|part| part.contains(place.image()));
        ours.unwrap_or_else(|| panic!("{list}")).split(',').next().unwrap().to_owned()
    };
    let before = pid();
    place.run(&["restart", place.image()]).fine();
    assert_ne!(before, pid());
    assert_eq!(fs::read_to_string(Path::new(&work).join("f")).unwrap(), "work");
    place.run(&["umount", &work]).fine();
    place.run(&["umount", &monday]).fine();
    place.fsck();
}

#[test]
fn a_process_is_started_anew_by_command() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    let before = place.daemon();
    let said = place.run(&["restart", place.dir()]).fine();
    let next: u32 = said.trim().parse().unwrap();
    assert_eq!((place.daemon(), next == before), (next, false));
    let said = place.run(&["restart", "--json", place.image()]).fine();
    assert_eq!(said.trim(), format!("{{\"pid\":{},\"program\":\"installed\"}}", place.daemon()));
    place.umount();
    place.run(&["restart", place.image()]).fails(1, "no process serves it");
    // And a mount without one behind it is told.
    place.mount();
    place.run(&["restart", place.dir()]).fails(1, "-o supervised");
    place.umount();
}

#[test]
fn what_ends_in_good_order_is_not_started_again() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    fs::write(place.dir.join("f"), "1").unwrap();
    let supervisor = parent(place.daemon());
    signal(supervisor, "TERM");
    wait_until_ended(supervisor);
    assert!(!place.is_mounted());
    place.fsck();
    // As any other mount, if it fails.
    let why = place.run(&["mount", "-o", "supervised,squash=all", place.image(), place.dir()]);
    why.fails(32, "leave out nodefault_permissions and squash=");
    let why = place.run(&["mount", "-o", "supervised,branch=none", place.image(), place.dir()]);
    why.fails(32, "none");
    let foreground = ["mount", "--foreground", "-o", "supervised", place.image(), place.dir()];
    place.run(&foreground).fails(1, "--foreground");
    let file = place.path("no-volume");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    place
        .run(&["mount", "-o", "supervised", &file, place.dir()])
        .fails(32, "not a Holdfast volume");
    assert!(!place.is_mounted());
}

/// A volume on which every process dies at once: its mount ends, and does not take the machine with it.
#[test]
fn what_dies_again_and_again_is_given_up() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    let supervisor = parent(place.daemon());
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let is_over = || log(&place).contains("its mounts are given up");
    wait_for("it is never given up", || {
        let daemons = fs::read_to_string(&children).unwrap_or_default();
        for pid in daemons.split_whitespace() {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", pid])
                .stderr(std::process::Stdio::null())
                .status();
        }
        std::thread::sleep(Duration::from_millis(2));
        is_over()
    });
    wait_until_ended(supervisor);
    let said = log(&place);
    let deaths = said.matches("another one goes on").count();
    assert!(deaths >= 10, "{said}");
    // ENOTCONN.
    assert_eq!(File::create(place.dir.join("n")).unwrap_err().raw_os_error(), Some(107));
    place.umount();
    place.fsck();
}

/// What a remount has changed is so with the next process as well.
#[test]
fn a_remount_goes_on() {
    if !can_go_on() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("root");
        return;
    }
    let place = supervised();
    place.run(&["mount", "-o", "remount,sync", place.image(), place.dir()]).fine();
    die(&place);
    let flushes =
        || common::number(&place.run(&["stats", "--json", place.dir()]).fine(), "flushes");
    let before = flushes();
    fs::create_dir(place.dir.join("d")).unwrap();
    assert!(flushes() > before, "it is not durable when it is answered");
    place.umount();
}

/// Neither a file that is no program nor one that ends at once costs the mounts.
#[test]
fn a_program_that_does_not_come_to_serve_is_left_alone() {
    if !can_go_on() {
        return;
    }
    let place = TestMount::with_volume();
    let program = place.path("holdfast");
    common::copy_program(common::PROGRAM, &program);
    let log_to = format!("supervised,log={}", place.path("log"));
    let mounted = std::process::Command::new(&program)
        .args(["mount", "-o", &log_to, place.image(), place.dir()])
        .status();
    assert!(mounted.unwrap().success());
    fs::write(place.dir.join("f"), "1").unwrap();
    for (text, said) in
        [("no program", "cannot be started"), ("#!/bin/false\n", "did not come to serve")]
    {
        // As an installer does it: the program that runs is not written to.
        let (written, new) = (place.path("written"), place.path("new"));
        fs::write(&written, text).unwrap();
        common::copy_program(&written, &new);
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(&new, &program).unwrap();
        place.run(&["restart", place.dir()]).fails(3, said);
        assert_eq!(fs::read_to_string(place.dir.join("f")).unwrap(), "1");
        assert!(log(&place).contains(said), "{}", log(&place));
    }
    fs::remove_file(&program).unwrap();
    for _ in 0..15 {
        let restarted = place.run(&["restart", "--json", place.dir()]);
        assert!(restarted.err.contains("is not there"), "{restarted:?}");
        let goes_on = format!("{{\"pid\":{},\"program\":\"first\"}}", place.daemon());
        assert_eq!((restarted.code, restarted.out.trim()), (3, goes_on.as_str()));
    }
    // A good one that comes later is taken.
    common::copy_program(common::PROGRAM, &program);
    place.run(&["restart", place.dir()]).fine();
    assert!(!log(&place).contains("given up"), "{}", log(&place));
    place.umount();
    place.fsck();
}

#[test]
fn who_has_lost_the_supervisor_is_not_restarted() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    let (daemon, supervisor) = (place.daemon(), parent(place.daemon()));
    signal(supervisor, "KILL");
    wait_until_ended(supervisor);
    place.run(&["restart", place.dir()]).fails(1, "its supervisor is gone");
    fs::write(place.dir.join("f"), "1").unwrap();
    // The daemon holds the lock as well.
    place.run(&["fsck", place.image()]).fails(8, "in use");
    assert_eq!(place.daemon(), daemon);
    place.umount();
    wait_until_ended(daemon);
    place.fsck();
}

/// Locks of what is behind a device outlive the process that took them, too.
#[test]
fn the_file_behind_a_loop_device_stays_locked_without_the_supervisor() {
    if !can_go_on() {
        return;
    }
    let place = TestMount::with_volume();
    let Some(device) = LoopDevice::over(place.image()) else { return };
    place.run(&["mount", "-o", "supervised", &device.path, place.dir()]).fine();
    die(&place);
    let supervisor = parent(place.daemon());
    place.run(&["fsck", place.image()]).fails(8, "in use");
    signal(supervisor, "KILL");
    wait_until_ended(supervisor);
    place.run(&["fsck", place.image()]).fails(8, "in use");
    place.umount();
}

/// Commands that wait in the kernel over a death come as soon as the first mount goes on, before the last one does: they find all that is
/// mounted.
#[test]
fn commands_behind_a_death_find_the_mounts_that_are_still_to_go_on() {
    if !can_go_on() {
        return;
    }
    let many = Many { place: supervised() };
    let place = &many.place;
    // The first mount answers while the next process takes over all these.
    for n in 0..40 {
        place.run(&["snapshot", "create", place.dir(), &format!("s{n}")]).fine();
        many.mount(&format!("@s{n}"), &format!("s{n}"));
    }
    for fork in ["work", "other"] {
        place.run(&["fork", place.dir(), fork]).fine();
    }
    fs::write(place.dir.join("f"), "then").unwrap();
    place.run(&["snapshot", "create", place.dir(), "last"]).fine();
    let dirs = [":work", ":other", "@last"].map(|what| many.mount(what, &what[1..]));
    place.run(&["snapshot", "create", dirs[0].to_str().unwrap(), "monday"]).fine();
    for dir in &dirs[..2] {
        fs::write(dir.join("f"), "then").unwrap();
    }
    let name = |name: &str| Name(name.into());
    let which = |text: &str| Which::Name(name(text));
    let asks = [
        Ask::RollBack { branch: Some(which("work")), to: which("monday"), keep: None },
        Ask::DeleteBranch { name: which("other"), number: None },
        Ask::DeleteSnapshot { branch: None, name: which("last"), number: None },
    ];
    let first = File::open(&place.dir).unwrap();
    let (daemon, supervisor) = (place.daemon(), parent(place.daemon()));
    signal(supervisor, "STOP");
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    let (asking, has_asked) = std::sync::mpsc::channel();
    let replies = std::thread::scope(|scope| {
        let threads = asks.each_ref().map(|what| {
            let (asking, first) = (asking.clone(), &first);
            scope.spawn(move || {
                asking.send(()).unwrap();
                ask(first, what)
            })
        });
        has_asked.iter().take(asks.len()).for_each(drop);
        signal(supervisor, "CONT");
        threads.map(|thread| thread.join().unwrap())
    });
    for reply in &replies {
        assert!(matches!(reply, Ok(Reply::Refused { .. })), "{replies:?}\n{}", log(place));
    }
    for dir in &dirs {
        let read = fs::read_to_string(dir.join("f"));
        let read = read.unwrap_or_else(|error| panic!("{dir:?}: {error}\n{}", log(place)));
        assert_eq!(read, "then", "{dir:?}");
    }
    let said = log(place);
    assert!(!said.contains("cannot go on"), "{said}");
    drop(first);
    place.run(&["umount", place.image()]).fine();
    place.fsck();
}

/// What only the process knew that has died is not made up.
#[test]
fn a_branch_gets_another_head_only_by_who_knows_its_kernel() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    fs::write(place.dir.join("f"), "old").unwrap();
    place.run(&["snapshot", "create", place.dir(), "monday"]).fine();
    fs::write(place.dir.join("f"), "newer").unwrap();
    let rollback = ["snapshot", "rollback", place.dir(), "monday"];
    die(&place);
    place.run(&rollback).fails(1, "has outlived its process");
    assert_eq!(fs::read_to_string(place.dir.join("f")).unwrap(), "newer");
    place.umount();
    let log_to = format!("supervised,log={}", place.path("log"));
    place.run(&["mount", "-o", &log_to, place.image(), place.dir()]).fine();
    place.run(&rollback).fine();
    assert_eq!(fs::read_to_string(place.dir.join("f")).unwrap(), "old");
    place.run(&["restart", place.dir()]).fails(1, "unmount it and mount it again");
    let supervisor = parent(place.daemon());
    signal(place.daemon(), "KILL");
    wait_until_ended(supervisor);
    assert!(log(&place).contains("are given up"), "{}", log(&place));
    // ENOTCONN.
    assert_eq!(File::create(place.dir.join("n")).unwrap_err().raw_os_error(), Some(107));
    place.umount();
    place.fsck();
}

/// It has no name by which the next process could find it, and a program that has it.
#[test]
fn a_file_without_a_name_is_there_from_the_answer_on() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    for death in 0..3 {
        let daemon = place.daemon();
        let file =
            File::options().read(true).write(true).custom_flags(flags).open(&place.dir).unwrap();
        signal(daemon, "KILL");
        wait_until_ended(daemon);
        file.write_all_at(b"still here", 0).unwrap();
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, file.metadata().unwrap().nlink()), (b"still here", 0), "{death}");
    }
    place.umount();
    place.fsck();
}

/// Work that changes nothing under a kernel keeps no mount from going on, however long it takes.
#[test]
fn a_death_beside_work_ends_that_work_alone() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    fs::write(place.dir.join("big"), vec![7; 20 << 20]).unwrap();
    place.run(&["sync", place.dir()]).fine();
    // One that goes on for a minute, and one whose stream has no reader.
    let scrub = ["scrub", "--rate", "300k", place.dir()];
    let send = ["send", place.dir()];
    for words in [&scrub[..], &send] {
        let mut command = place.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let command = command.spawn().unwrap();
        let daemon = place.daemon();
        wait_for("it does not begin", || is_at_work(daemon));
        die(&place);
        assert!(!command.wait_with_output().unwrap().status.success(), "{words:?}");
        let written = fs::write(place.dir.join("new"), words[0]);
        written.unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", log(&place)));
    }
    place.umount();
    place.fsck();
}

/// The process dies when the mount is gone and its branch is being closed: the next one closes it, and says so.
#[test]
fn an_unmount_hears_of_its_end_from_the_next_process() {
    if !can_go_on() {
        return;
    }
    let place = supervised();
    place.run(&["fork", place.dir(), "work"]).fine();
    let work = place.path("work");
    fs::create_dir(&work).unwrap();
    for round in 0..5 {
        place.run(&["mount", &place.inside("work"), &work]).fine();
        fs::write(Path::new(&work).join(round.to_string()), vec![7; 1 << 20]).unwrap();
        let daemon = place.daemon();
        let umount = place.command(&["umount", &work]);
        let umount = { umount }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let is_mounted = || {
            let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
            mounts.contains(&format!(" {work} "))
        };
        while is_mounted() {
            std::thread::yield_now();
        }
        signal(daemon, "KILL");
        common::said(umount.wait_with_output().unwrap()).fine();
    }
    place.umount();
    let files = place.run(&["ls", &place.inside("work:/")]).fine();
    assert_eq!(files.lines().count(), 5, "{files}");
    place.fsck();
}
