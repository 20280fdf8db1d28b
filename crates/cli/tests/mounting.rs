//! Mounting: errors are reported in the foreground, umount waits, a killed daemon loses nothing that was synced.
//!
//! A program of its own: scripts/test.sh runs it again, on the other way of requests.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use common::loop_device::LoopDevice;
use common::{Nobody, PROGRAM, TestMount, can_mount, number, signal, wait_for, wait_until_ended};

#[test]
fn a_mount_works_and_umount_returns_when_the_volume_is_free() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    for round in 0..5 {
        place.mount();
        let line = place.mount_line().unwrap();
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!((fields[0], fields[2]), (place.image(), "fuse.holdfast"), "{line}");
        fs::write(place.dir.join(format!("file-{round}")), vec![round; 300_000]).unwrap();
        place.umount();
        // Free at once, and with everything in it: the next command takes the lock without waiting.
        let names = place.run(&["ls", place.image()]).fine();
        assert!(names.contains(&format!("file-{round}")), "{names}");
        place.fsck();
    }
}

#[test]
fn why_a_mount_failed_is_said_in_the_foreground() {
    let place = TestMount::with_volume();
    place.run(&["mount", "missing.img", place.dir()]).fails(32, "missing.img");
    place.run(&["mount", place.image(), "missing"]).fails(32, "missing");
    place.run(&["mount", place.image(), place.image()]).fails(32, "not a directory");
    place.run(&["mount", "-o", "comit=3", place.image(), place.dir()]).fails(1, "comit");
    place.run(&["mount", place.image()]).fails(1, "--help");
    fs::write(place.path("letter"), vec![b'x'; 100_000]).unwrap();
    place.run(&["mount", "letter", place.dir()]).fails(32, "not a Holdfast volume");
    place.run(&["umount", place.dir()]).fails(32, "not a mounted");
    assert!(!place.is_mounted());
}

#[test]
fn nofail_forgives_a_missing_volume_only() {
    let place = TestMount::new();
    let said = place.run(&["mount", "-o", "nofail", "missing.img", place.dir()]);
    assert_eq!(said.code, 0, "{said:?}");
    fs::write(&place.image, vec![b'x'; 100_000]).unwrap();
    place
        .run(&["mount", "-o", "nofail", place.image(), place.dir()])
        .fails(32, "not a Holdfast volume");
}

#[test]
fn a_second_mount_is_refused_and_the_holder_named() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    let holder = format!("process {} (holdfast)", place.daemon());
    let already = format!("is mounted at {} already", place.dir());
    place.run(&["mount", place.image(), &other]).fails(32, &already);
    place.run(&["mount", "--foreground", place.image(), &other]).fails(32, &holder);
    assert_eq!(place.run(&["ls", place.image()]).fine(), "", "its daemon lists it");
    place.run(&["fsck", place.image()]).fails(8, &holder);
    place.run(&["mkfs", "--force", place.image()]).fails(1, &holder);
    // Nothing of that disturbed it.
    fs::write(place.dir.join("file"), "content").unwrap();
    place.umount();
    place.fsck();
}

#[test]
fn a_second_mount_through_a_loop_device_is_refused_and_the_holder_named() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let attach = || LoopDevice::over(place.image());
    let (Some(one), Some(two)) = (attach(), attach()) else { return };
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    place.mount();
    let holder = format!("process {} (holdfast)", place.daemon());
    place.run(&["mount", &one.path, &other]).fails(32, &holder);
    place.run(&["fsck", &two.path]).fails(8, &holder);
    place.run(&["mkfs", "--force", &one.path]).fails(1, &holder);
    fs::write(place.dir.join("file"), "content").unwrap();
    place.umount();
    place.run(&["mount", &one.path, place.dir()]).fine();
    let holder = format!("process {} (holdfast)", place.daemon());
    place.run(&["mount", place.image(), &other]).fails(32, &holder);
    place.run(&["mount", &two.path, &other]).fails(32, &holder);
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "content");
    place.umount();
    place.fsck();
}

#[test]
fn what_was_synced_survives_a_killed_daemon() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let synced = place.dir.join("synced");
    let content: Vec<u8> =
        (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&synced, &content).unwrap();
    fs::File::open(&synced).unwrap().sync_all().unwrap();
    fs::create_dir(place.dir.join("a")).unwrap();
    fs::write(place.dir.join("a/b"), "two").unwrap();
    place.run(&["sync", place.dir()]).fine();
    fs::write(place.dir.join("later"), "perhaps").unwrap();

    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    assert!(fs::metadata(&synced).is_err(), "the dead mount should not answer");
    let help = format!("run: holdfast umount {}", place.dir());
    let inside = synced.to_str().unwrap();
    place.run(&["sync", place.dir()]).fails(1, &help);
    place.run(&["sync", inside]).fails(1, &help);
    place.run(&["mount", place.image(), place.dir()]).fails(32, &help);
    place.run(&["cp", inside, &place.path("copy")]).fails(1, &help);
    let below = place.run(&["mount", "-o", "nofail", inside, &place.path("")]);
    below.fails(0, &format!("{help} (nofail)"));
    // `list` shows the mount as well, though no process of it can be asked.
    // A busy machine may not have asked it in time.
    common::wait_for("no list shows that it is dead", || {
        let list = place.run(&["list"]).fine();
        let mut lines = list.lines().filter(|line| line.contains(place.dir()));
        lines.next().unwrap().contains("dead")
    });
    common::wait_for("no JSON shows that it is dead", || {
        let json: serde_json::Value =
            serde_json::from_str(&place.run(&["list", "--json"]).fine()).unwrap();
        let lost = json["other_mounts"].as_array().unwrap();
        lost.iter().any(|it| it["directory"] == place.dir() && it["state"] == "dead")
    });
    place.umount();
    assert!(!place.run(&["list"]).fine().contains(place.dir()));
    place.mount();
    assert!(fs::read(&synced).unwrap() == content);
    assert_eq!(fs::read_to_string(place.dir.join("a/b")).unwrap(), "two");
    place.umount();
    place.fsck();
}

/// No kernel's filesystem loses what was written when a process dies: nor does a daemon that had a moment's rest.
#[test]
fn what_was_written_before_a_rest_survives_a_killed_daemon() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // Nothing but the rest: the timer comes later than this test ends.
    place.run(&["mount", "-o", "commit=3600", place.image(), place.dir()]).fine();
    fs::create_dir(place.dir.join("a")).unwrap();
    let content = vec![7; 300_000];
    fs::write(place.dir.join("a/large"), &content).unwrap();
    fs::write(place.dir.join("a/small"), "small").unwrap();
    fs::rename(place.dir.join("a"), place.dir.join("b")).unwrap();
    let written = || place.run(&["stats", "--json", place.dir()]).fine();
    common::wait_for("nothing is written", || number(&written(), "data_bytes_written") >= 300_000);
    // The file as a kill would leave it, now: it needs nothing of the daemon any more.
    let [copy, out] = ["copy.img", "out"].map(|name| place.path(name));
    common::wait_for("all of it never is in the file", || {
        let _ = fs::remove_dir_all(&out);
        fs::copy(place.image(), &copy).unwrap();
        place.run(&["cp", "-r", &format!("{copy}:/b"), &out]).code == 0
            && fs::read(format!("{out}/large")).unwrap() == content
            && fs::read_to_string(format!("{out}/small")).is_ok_and(|text| text == "small")
    });
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    place.umount();
    place.mount();
    assert!(fs::read(place.dir.join("b/large")).unwrap() == content);
    assert_eq!(fs::read_to_string(place.dir.join("b/small")).unwrap(), "small");
    place.umount();
    place.fsck();
}

#[test]
fn sigterm_unmounts_and_writes_everything() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), "content").unwrap();
    let daemon = place.daemon();
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    assert!(!place.is_mounted());
    assert_eq!(place.run(&["cat", &place.inside("/file")]).fine(), "content");
    place.fsck();
}

#[test]
fn in_the_foreground_it_serves_until_unmounted_and_exits_with_0() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let mut server = place
        .command(&["mount", "--foreground", place.image(), place.dir()])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("it does not mount", || place.is_mounted());
    fs::write(place.dir.join("file"), "content").unwrap();
    place.umount();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), "content").unwrap();
    place.umount();
    let before = fs::read(&place.image).unwrap();
    place.run(&["mount", "-o", "ro", place.image(), place.dir()]).fine();
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "content");
    assert!(fs::write(place.dir.join("file"), "other").is_err());
    place.umount();
    assert!(fs::read(&place.image).unwrap() == before);
}

#[test]
fn the_helper_is_called_as_mount_8_calls_it() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let (image, dir) = (place.image(), place.dir());
    place.run_as("mount.holdfast", &[image, dir, "-f", "-o", "rw"]).fine();
    assert!(!place.is_mounted());
    place.run_as("mount.holdfast", &[image, dir, "-o", "rw,odd"]).fails(1, "odd");
    let args = [image, dir, "-s", "-n", "-v", "-o", "rw,noatime,odd,x-gvfs", "-t", "holdfast"];
    place.run_as("mount.holdfast", &args).fine();
    assert!(place.mount_line().unwrap().contains("noatime"));
    place.umount();
}

#[test]
fn odd_names_of_image_and_directory_work() {
    if !can_mount() {
        return;
    }
    let mut place = TestMount::new();
    place.image = place.root.path().join("my, volume\\1.img");
    place.dir = place.root.path().join("my dir");
    fs::create_dir(&place.dir).unwrap();
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    place.run(&["mount", place.image(), place.dir()]).fine();
    fs::write(place.dir.join("file"), "content").unwrap();
    place.run(&["sync", place.dir()]).fine();
    place.run(&["umount", place.dir()]).fine();
    assert_eq!(place.run(&["cat", &place.inside("/file")]).fine(), "content");
}

#[test]
fn a_busy_mount_says_so_and_stays() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let open = fs::File::create(place.dir.join("file")).unwrap();
    place.run(&["umount", place.dir()]).fails(32, "busy");
    open.write_all_at(b"still works", 0).unwrap();
    drop(open);
    // The kernel may still be sending the close.
    wait_for("it stays busy", || place.run(&["umount", place.dir()]).code == 0);
    assert!(!place.is_mounted());
}

#[test]
fn statistics_count_the_work_of_the_daemon() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let count = || {
        let json = place.run(&["stats", "--json", place.dir()]).fine();
        let at = json.find("\"fsyncs\":").expect("a counter") + 9;
        let len = json[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
        json[at..at + len].parse::<u64>().unwrap()
    };
    let before = count();
    let file = fs::File::create(place.dir.join("file")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    assert!(count() > before);
    drop(file);
    let shown = place.run(&["stats", place.dir()]).fine();
    assert!(shown.contains("flushes"), "{shown}");
    place.umount();
    place.run(&["stats", place.dir()]).fails(1, "not a mounted");
}

#[test]
fn a_recovery_is_printed_by_mount_and_logged() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let file = fs::File::create(place.dir.join("file")).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    place.umount();
    let log = place.path("log");
    let options = format!("recover=0.5,log={log}");
    let said = place.run(&["mount", "-o", &options, place.image(), place.dir()]).fine();
    let stats = place.run(&["stats", "--json", place.dir()]).fine();
    let logged = fs::read_to_string(&log).unwrap();
    // Lines name files.
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
    // The daemon reports what the engine counted. The background may have made a commit of the fsync's batch; a commit
    // that was a checkpoint needs no recovery.
    if number(&stats, "recovery_ns") > 0 {
        assert!(said.starts_with("holdfast: recovered "), "{said}");
        for (counter, what) in [("recovered_commits", "commit"), ("recovered_batches", "batch")] {
            let count = number(&stats, counter);
            assert_eq!(count > 0, said.contains(&format!(" {count} {what}")), "{said}");
        }
        // What the device could do when it was measured decides.
        let is_promised = said.ends_with("at most 0.5 s is promised\n");
        assert!(is_promised || said.contains("too slow for 0.5 s"), "{said}");
        assert!(logged.contains(said.trim_start_matches("holdfast: ").trim_end()), "{logged}");
    } else {
        assert_eq!(said, "");
        assert!(!logged.contains("recovered"), "{logged}");
    }
    place.umount();
    // Closed in order, there is nothing to recover.
    assert_eq!(place.run(&["mount", place.image(), place.dir()]).fine(), "");
    place.umount();
}

#[test]
fn a_user_without_privilege_can_mount_his_own() {
    // Runs the program as nobody, through the set-uid helper.
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    // /dev/fuse may be closed to users here; then the refusal must be reported.
    if !nobody.mounts(&place) {
        return;
    }
    let file = place.dir.join("file");
    nobody.sh(&format!("echo mine > {0} && sync {0}", file.display())).fine();
    let explained = nobody.run(&["explain", file.to_str().unwrap()]).fine();
    assert!(explained.contains(" and 1 flush"), "{explained}");
    nobody.run(&["umount", place.dir()]).fine();
    assert_eq!(nobody.run(&["cat", &place.inside("/file")]).fine(), "mine\n");
}

/// On a terminal, and in the log, a mount without rings says how root allows them; elsewhere it is quiet.
#[test]
fn who_lacks_rings_is_told_how_to_get_them() {
    if !can_mount() {
        return;
    }
    let allowed = || fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok();
    let place = TestMount::with_volume();
    let log = place.path("log");
    for transport in ["auto", "device"] {
        let before = allowed();
        let options = format!("transport={transport},log={log}");
        let mount = format!("{PROGRAM} mount -o {options} {} {}", place.image(), place.dir());
        let said = Command::new("script").args(["-qec", &mount, "/dev/null"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let logged = fs::read_to_string(&log).unwrap();
        let info = place.run(&["info", place.image()]).fine();
        place.umount();
        fs::remove_file(&log).unwrap();
        assert!(logged.contains("requests come through "), "{logged}");
        assert!(info.contains("\ntransport     "), "{info}");
        // Others may change what the whole machine allows.
        let is_missed = before.as_deref().is_some_and(|word| word.trim() == "N");
        if before == allowed() {
            let is_told = is_missed && transport == "auto";
            assert_eq!(said.contains("enable_uring"), is_told, "{said}");
            assert_eq!(logged.contains("enable_uring"), is_told, "{logged}");
        }
    }
    assert_eq!(place.run(&["mount", place.image(), place.dir()]).fine(), "");
}

/// A name is bytes, whatever they look like.
#[test]
fn names_that_are_no_utf_8_are_names() {
    if !can_mount() {
        return;
    }
    let place = TestMount::new();
    let named = |bytes: &[u8]| place.root.path().join(OsStr::from_bytes(bytes));
    let (image, dir, file) = (named(b"im\xffage"), named(b"di\xfer"), named(b"fi\xfde"));
    let run = |words: &[&dyn AsRef<OsStr>]| {
        common::said(place.command(&[]).args(words.iter().map(|it| it.as_ref())).output().unwrap())
    };
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&file, "odd").unwrap();
    run(&[&"mkfs", &"-q", &"--size", &"64M", &image]).fine();
    let inside = |path: &[u8]| {
        OsStr::from_bytes(&[image.as_os_str().as_bytes(), b":/", path].concat()).to_owned()
    };
    run(&[&"cp", &file, &inside(b"")]).fine();
    assert_eq!(run(&[&"cat", &inside(b"fi\xfde")]).fine(), "odd");
    run(&[&"mount", &image, &dir]).fine();
    for command in ["info", "stats", "sync", "list"] {
        let of: &[&dyn AsRef<OsStr>] =
            if command == "list" { &[&command] } else { &[&command, &dir] };
        run(of).fine();
    }
    let list = run(&[&"list", &"--json"]).fine();
    for (name, path) in [("volume", &image), ("directory", &dir)] {
        let bytes = path.as_os_str().as_bytes().iter();
        let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        assert!(list.contains(&format!("\"{name}_hex\":\"{hex}\"")), "{list}");
    }
    assert!(run(&[&"info", &dir]).fine().contains("mounted at"));
    run(&[&"info", &image]).fine();
    assert_eq!(run(&[&"ls", &inside(b"")]).fine().lines().count(), 1);
    run(&[&"rm", &inside(b"fi\xfde")]).fine();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    run(&[&"umount", &image]).fine();
    run(&[&"fsck", &"-n", &image]).fine();
}
