//! What an fsync cost: asked for by `holdfast explain`, and said by the daemon when it was slow.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{TestMount, can_mount, number, said, signal};

#[test]
fn the_last_fsync_is_explained() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // Nothing is written but by fsyncs.
    place.run(&["mount", "-o", "commit=0", place.image(), place.dir()]).fine();
    let path = place.dir.join("file");
    let name = path.to_str().unwrap();
    let file = File::create(&path).unwrap();
    place.run(&["explain", name]).fails(1, "no fsync of it is known");
    file.write_all_at(&[1; 100_000], 0).unwrap();
    file.sync_all().unwrap();
    let text = place.run(&["explain", name]).fine();
    assert!(text.starts_with(&format!("{name}: fsync ")) && text.contains(" ago, it took "));
    for part in [
        "\n  in the volume: /file\n",
        "\n  batch ",
        " in 1 write and 1 flush\n",
        " of its own, ",
        " flushing\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(text.contains("  100.0 KiB of data written to its place first, in "), "{text}");
    let json = place.run(&["explain", "--json", name]).fine();
    assert_eq!((number(&json, "flushes"), number(&json, "log_writes")), (1, 1), "{json}");
    assert_eq!(number(&json, "data_bytes"), 102_400, "{json}");
    assert!(json.contains("\"led\":true") && json.contains("\"clean\":false"), "{json}");

    // Asking changes nothing, and the next fsync has nothing to do.
    file.sync_all().unwrap();
    let text = place.run(&["explain", name]).fine();
    assert!(text.contains("nothing was undurable: no write to the log and no flush"), "{text}");
    let json = place.run(&["explain", "--json", name]).fine();
    assert!(json.contains("\"clean\":true") && !json.contains("\"batch\""), "{json}");

    // A file without a name is reached through its descriptor.
    fs::remove_file(&path).unwrap();
    let link = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    place.run(&["explain", name]).fails(1, "No such file");
    assert!(place.run(&["explain", &link]).fine().contains("nothing was undurable"));
    drop(file);

    File::open(&place.dir).unwrap().sync_all().unwrap();
    assert!(place.run(&["explain", place.dir()]).fine().contains(": fsync "));
    place.run(&["sync", place.dir()]).fine();
    let text = place.run(&["explain", place.dir()]).fine();
    assert!(text.contains(": sync of the whole volume "), "{text}");
    place.umount();
    place.run(&["explain", place.dir()]).fails(1, "not in a mounted Holdfast volume");
    place.run(&["explain", "/proc/self/status"]).fails(1, "not in a mounted Holdfast volume");
}

#[test]
fn a_daemon_that_does_not_answer_is_left_alone() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let pid = place.daemon();
    signal(pid, "STOP");
    let mut asks = place.command(&["explain", place.dir()]);
    let asks = asks.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = asks.id();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(said(asks.wait_with_output().unwrap())));
    let answer = told.recv_timeout(Duration::from_secs(60));
    // Before anything can fail: without the daemon the test itself would wait for ever.
    signal(pid, "CONT");
    let answer = answer.unwrap_or_else(|_| panic!("process {id} waits for the daemon"));
    answer.fails(1, "the daemon does not answer within 5 s");
    place.umount();
}

#[test]
fn a_slow_fsync_gets_a_line_and_the_next_are_counted() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let log = place.path("log");
    let mount = |limit: &str| {
        let options = format!("log={log},slow_fsync={limit}");
        place.run(&["mount", "-o", &options, place.image(), place.dir()]).fine();
    };
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains("slow: ")).map(String::from).collect()
    };
    mount("1");
    // So much data cannot be written and summed in a millisecond.
    let file = File::create(place.dir.join("file")).unwrap();
    for round in 1..=3 {
        file.write_all_at(&vec![round; 12 << 20], 0).unwrap();
        file.sync_all().unwrap();
    }
    let told = lines();
    assert_eq!(told.len(), 1, "{told:?}");
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    assert!(told[0].contains(&format!("slow: fsync of inode {inode} (/file) took ")), "{told:?}");
    assert!(told[0].contains(": batch ") && told[0].contains(" flushing"), "{told:?}");
    let json = place.run(&["stats", "--json", place.dir()]).fine();
    assert_eq!(number(&json, "slow_fsyncs"), 3, "{json}");
    drop(file);
    place.umount();
    let told = lines();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].ends_with("slow: 2 more since the line before"), "{told:?}");

    mount("0");
    fs::write(place.dir.join("file"), vec![9; 12 << 20]).unwrap();
    File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
    place.umount();
    assert_eq!(lines().len(), 2);
}
