//! `bench ops`, `bench dir` and `bench peers`: that they measure, and that nothing of them stays, whatever happens.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use holdfast_bench::result::Report;
use holdfast_bench::systems::{Bed, Mounted, Ours, System, can_mount};

use crate::common::{self, TestMount, signal, wait_for};

/// Whether loop devices can be made. Printed, so that a skipped test is not taken for a passed one.
fn has_loop_devices() -> bool {
    match can_mount() {
        Ok(()) => true,
        Err(why) => {
            holdfast_base::skip::skipped(why);
            false
        }
    }
}

/// Mounts and loop devices below `root`.
fn left(root: &Path) -> Vec<String> {
    let root = root.to_str().unwrap();
    let mounts = holdfast_base::proc::list("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(root)).map(String::from).collect();
    for device in fs::read_dir("/sys/block").unwrap() {
        let file = fs::read_to_string(device.unwrap().path().join("loop/backing_file"));
        left.extend(file.ok().filter(|file| file.contains(root)));
    }
    left
}

/// Everything below `root`, by name.
fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn operations_are_counted_at_the_device_and_in_the_library() {
    if !has_loop_devices() {
        return;
    }
    let place = TestMount::new();
    let report = place.path("ops.json");
    let root = place.root.path().join("work");
    fs::create_dir(&root).unwrap();
    let systems =
        if System::Ext4.missing_package().is_none() { "holdfast,ext4" } else { "holdfast" };
    let args = ["bench", "ops", "--quick", "--operations=4", "--size=192M", "--json", &report];
    let args = [&args[..], &["--systems", systems, "--dir", root.to_str().unwrap()]].concat();
    let other = [&args[..], &["--program", "no/such"]].concat();
    place.run(&other).fails(1, "no/such");
    let other = [&args[..], &["--program", common::PROGRAM]].concat();
    let out = place.run(&other).fine();
    assert!(out.contains("append 4 KiB + fsync"), "{out}");
    let report = Report::read(Path::new(&report)).unwrap();
    let bytes = &report.section("ops-bytes").unwrap().table;
    let flushes = &report.section("ops-flushes").unwrap().table;
    let number = |table: &holdfast_bench::result::Table, row: &str, column: &str| {
        table.cell(row, column).unwrap().median().unwrap()
    };
    // A commit in the background may add to what the mount is seen to do, never to what the library does.
    assert_eq!(number(bytes, "append 4 KiB + fsync", "own"), 4608.0);
    assert_eq!(number(flushes, "append 4 KiB + fsync", "own"), 1.0);
    assert!(number(bytes, "append 4 KiB + fsync", "holdfast") >= 4608.0);
    assert_eq!(number(flushes, "fsync of a clean file", "own"), 0.0);
    assert!(number(flushes, "SQLite WAL, FULL, insert 4 KiB row", "holdfast") >= 1.0);
    assert_eq!(bytes.rows.len(), 15);
    assert!(left(&root).is_empty() && names(&root).is_empty(), "{:?}", left(&root));
}

#[test]
fn a_failure_inside_a_mount_leaves_nothing_behind() {
    if !has_loop_devices() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_holdfast-dev")).to_path_buf();
    let ours = Ours { program, options: "commit=1".into(), ..Ours::default() };
    let failed = std::panic::catch_unwind(|| {
        let bed = Bed::new(root.path(), 64 << 20, 512).unwrap();
        let mounted = Mounted::new(System::Holdfast, &bed, &ours).unwrap();
        let _open = fs::write(mounted.dir().join("file"), "bytes");
        assert_eq!(left(root.path()).len(), 2, "a mount and a loop device");
        panic!("on purpose");
    });
    assert_eq!(failed.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert!(left(root.path()).is_empty(), "{:?}", left(root.path()));
    assert!(names(root.path()).is_empty());
}

#[test]
fn a_signal_leaves_nothing_behind() {
    if !has_loop_devices() {
        return;
    }
    let place = TestMount::new();
    let root = place.root.path().join("work");
    fs::create_dir(&root).unwrap();
    let args = ["bench", "ops", "--quick", "--operations=1000000", "--size=64M", "--dir"];
    let args = [&args[..], &[root.to_str().unwrap(), "--systems=holdfast"]].concat();
    let mut child =
        place.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The first rows are at work when their log is there.
    wait_for("nothing is mounted", || {
        names(&root).iter().any(|name| root.join(name).join("mnt/log").exists())
    });
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    wait_for("a mount, a device or a file stays", || {
        left(&root).is_empty() && names(&root).is_empty()
    });
}

#[test]
fn any_directory_is_measured_and_as_it_was_afterwards() {
    let place = TestMount::new();
    let (report, root) = (place.path("dir.json"), place.root.path().join("work"));
    fs::create_dir(&root).unwrap();
    let args = ["bench", "dir", root.to_str().unwrap(), "--scale=quick", "--seconds=0.02"];
    let args = [&args[..], &["--rounds=1", "--json", &report]].concat();
    let out = place.run(&args).fine();
    assert!(out.contains("append 4 KiB + fsync, fsync left out"), "{out}");
    assert!(names(&root).is_empty());
    let report = Report::read(Path::new(&report)).unwrap();
    let rates = &report.section("rates").unwrap().table;
    let cell = rates.cell("append 4 KiB + fsync", "directory").unwrap();
    assert!(cell.median().unwrap() > 0.0);
    for workload in ["git clone and sync", "unpack a tree and sync"] {
        assert!(report.section("times").unwrap().table.cell(workload, "directory").is_some());
    }
    assert!(report.section("where").is_none(), "it is no mount of ours");
    assert!(report.section("latency-p99").is_some() && report.section("throughput").is_some());
}

#[test]
fn peers_take_turns_on_one_device() {
    if !has_loop_devices() {
        return;
    }
    let place = TestMount::new();
    let (report, root) = (place.path("peers.json"), place.root.path().join("work"));
    fs::create_dir(&root).unwrap();
    let has_ext4 = System::Ext4.missing_package().is_none();
    let systems = if has_ext4 { "holdfast,ext4,raw" } else { "holdfast,raw" };
    let args = ["bench", "peers", "--size=192M", "--scale=quick", "--seconds=0.05", "--rounds=2"];
    let args = [&args[..], &["--workloads=append,stat,modules", "--systems", systems]].concat();
    let args = [&args[..], &["--dir", root.to_str().unwrap(), "--json", &report]].concat();
    place.run(&args).fine();
    assert!(left(&root).is_empty() && names(&root).is_empty(), "{:?}", left(&root));
    let report = Report::read(Path::new(&report)).unwrap();
    let rates = &report.section("rates").unwrap().table;
    let number = |row: &str, key: &str| rates.cell(row, key).unwrap().median();
    let append = "append 4 KiB + fsync";
    for key in ["holdfast", "raw", "floor"] {
        assert!(number(append, key).unwrap() > 0.0, "{key}");
    }
    let of_ext4 = rates.cell(append, "ext4");
    assert_eq!(number(append, "best-peer").is_some(), has_ext4, "{of_ext4:?}");
    assert_eq!(number("readdir in a directory of 100, warm", "raw"), None);
    let shares = &report.section("where").unwrap().table;
    let share = shares.cell(append, "holdfast-device").unwrap().median().unwrap();
    assert!(share > 0.0 && share <= 1.0);
    assert!(report.section("memory").is_some() && report.section("device").is_some());
}

#[test]
fn servers_of_others_are_mounted_measured_and_gone() {
    let others = [System::Fuse2fs, System::FuseOverlayfs, System::Bindfs];
    let others: Vec<String> = others
        .into_iter()
        .filter(|system| match system.missing_package() {
            None => true,
            Some(package) => {
                holdfast_base::skip::skipped(format_args!("package {package} is missing"));
                false
            }
        })
        .map(|system| system.word())
        .collect();
    if !has_loop_devices() || others.is_empty() {
        return;
    }
    let place = TestMount::new();
    let (report, root) = (place.path("peers.json"), place.root.path().join("work"));
    fs::create_dir(&root).unwrap();
    let systems = others.join(",");
    let args = ["bench", "peers", "--size=192M", "--scale=quick", "--seconds=0.05", "--rounds=2"];
    let args = [&args[..], &["--workloads=append", "--systems", &systems]].concat();
    let args = [&args[..], &["--dir", root.to_str().unwrap(), "--json", &report]].concat();
    place.run(&args).fine();
    assert!(left(&root).is_empty() && names(&root).is_empty(), "{:?}", left(&root));
    let report = Report::read(Path::new(&report)).unwrap();
    for name in &others {
        for section in ["rates", "memory"] {
            let table = &report.section(section).unwrap().table;
            let cell = table.cell("append 4 KiB + fsync", name).unwrap();
            assert!(cell.median().is_some_and(|value| value > 0.0), "{name}, {section}: {cell:?}");
        }
    }
}

#[test]
fn comparing_needs_root_and_says_so() {
    if has_loop_devices() {
        return;
    }
    let place = TestMount::new();
    place.run(&["bench", "peers"]).fails(1, "need");
}
