//! Other users and namespaces: which user may ask a mount for what, which answers are believed, what a terminal shows.

use std::fs::{self, File};
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use std::time::Duration;

use crate::common::{
    Nobody, TestMount, can_mount, number, said, signal, wait_for, wait_until_ended,
};

/// The number of a statistic of a mount, asked by root.
fn count(place: &TestMount, name: &str) -> u64 {
    number(&place.run(&["stats", "--json", place.dir()]).fine(), name)
}

#[test]
fn nobody_can_answer_in_the_place_of_the_daemon() {
    if !can_mount() {
        return;
    }
    // Every name that a daemon might take is taken already.
    let names = (1..600).map(|minor| format!("holdfast/0:{minor}"));
    let bound = names.filter_map(|name| {
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&name).ok()?;
        listener.set_nonblocking(true).unwrap();
        Some(listener)
    });
    let listeners: Vec<UnixListener> = bound.collect();
    // One thread for all of them: the test runs where threads are few, too.
    std::thread::spawn(move || {
        let lie = r#"{"pid":1,"volume":"/","counters":[{"name":"\u001b[2Jtrust me","value":1,
            "group":"log","gauge":false,"meaning":"x"}]}"#;
        loop {
            for mut stream in
                listeners.iter().filter_map(|listener| Some(listener.accept().ok()?.0))
            {
                let _ = stream.write_all(lie.as_bytes());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let place = TestMount::with_volume();
    place.mount();
    let shown = place.run(&["stats", place.dir()]).fine();
    assert!(shown.contains("each fsync") && !shown.contains("trust me"), "{shown}");
    assert!(shown.contains(place.image()), "{shown}");
    place.umount();
}

#[test]
fn another_network_is_no_other_world() {
    let can = Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|s| s.success());
    if !can_mount() || !can {
        holdfast_base::skip::skipped("needs unshare -n");
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let program = env!("CARGO_BIN_EXE_holdfast");
    let there = |args: &[&str]| {
        said(Command::new("unshare").args(["-n", program]).args(args).output().unwrap())
    };
    assert!(there(&["stats", place.dir()]).fine().contains("each fsync"));
    assert!(there(&["info", place.image()]).fine().contains("recovery now  "));
    place.umount();
}

#[test]
fn strangers_may_sync_as_with_sync_2_and_nothing_else() {
    let place = TestMount::with_volume();
    let Some(nobody) = Nobody::at(&place) else { return };
    // Nothing is written but by fsyncs.
    place.run(&["mount", "-o", "commit=0", place.image(), place.dir()]).fine();
    for mode in [0o755, 0o700] {
        // With and without permission to read the mounted directory.
        fs::set_permissions(&place.dir, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(place.dir.join(format!("file-{mode}")), vec![7; 100_000]).unwrap();
        let (fsyncs, records) = (count(&place, "fsyncs"), count(&place, "log_records"));
        nobody.run(&["sync", place.dir()]).fine();
        assert_eq!(count(&place, "fsyncs"), fsyncs + 1);
        assert!(count(&place, "log_records") > records, "what root has done is durable");
        nobody.run(&["stats", place.dir()]).fails(1, "only root and the user who has mounted");
        let text = nobody.sh(&format!("getfattr -n holdfast.stats {} 2>&1", place.dir()));
        assert!(text.code != 0 && !text.out.contains("each fsync"), "{text:?}");
    }
    nobody.run(&["umount", place.dir()]).fails(32, "");
    assert!(place.is_mounted());
    place.umount();
}

#[test]
fn root_is_answered_by_a_mount_that_lets_only_its_user_in() {
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    if !nobody.mounts(&place) {
        return;
    }
    let file = place.dir.join("file");
    nobody.sh(&format!("echo mine > {}", file.display())).fine();
    assert!(fs::metadata(&file).is_err(), "root is not let in");
    let pid = place.daemon();
    assert!(fs::metadata(format!("/proc/{pid}")).is_ok());
    assert!(nobody.run(&["stats", place.dir()]).fine().contains("each fsync"));
    place.run(&["sync", place.dir()]).fine();
    assert!(count(&place, "log_batches") >= 1);
    // Everything is written, and the program says so.
    place.umount();
    assert_eq!(nobody.run(&["cat", &place.inside("/file")]).fine(), "mine\n");
}

#[test]
fn a_daemon_that_does_not_answer_blocks_no_command() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let daemon = place.daemon();
    signal(daemon, "STOP");
    // kill(1) returns before every thread has stopped, and one of them could still answer.
    wait_for("the daemon never stops", || {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
        let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")));
        states.into_iter().all(|stat| stat.is_ok_and(|stat| stat.contains(") T ")))
    });
    let stats = place.run(&["stats", place.dir()]);
    signal(daemon, "CONT");
    stats.fails(1, "does not answer");
    assert_eq!(place.daemon(), daemon, "it does again");
    place.umount();
}

#[test]
fn a_terminal_sees_no_name_that_it_would_obey() {
    if !can_mount() {
        return;
    }
    let mut place = TestMount::with_volume();
    place.dir = place.root.path().join("m\x1b[2J\u{9b}31m");
    fs::create_dir(&place.dir).unwrap();
    place.mount();
    let open = File::open(&place.dir).unwrap();
    let busy = place.run(&["umount", place.dir()]);
    drop(open);
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    let dead = ["stats", "sync", "explain"].map(|command| place.run(&[command, place.dir()]));
    for said in [busy].into_iter().chain(dead) {
        assert!(said.code != 0 && said.err.contains("m\\u{1b}[2J\\u{9b}31m"), "{said:?}");
        assert!(!said.err.trim_end().contains(char::is_control), "{said:?}");
    }
    // What an image says of itself is not to be trusted.
    let image = place.path("other.img");
    place.run(&["mkfs", "-q", "--size", "64M", "--label", "a\x1b[2Jb", &image]).fine();
    let info = place.run(&["info", &image]).fine();
    assert!(info.contains("a\\u{1b}[2Jb"), "{info}");
}

#[test]
fn a_dead_mount_is_taken_away_while_it_is_in_use() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["umount", "--dead", place.dir()]).fine();
    place.mount();
    // A living one stays.
    place.run(&["umount", "--dead", place.dir()]).fine();
    assert!(place.is_mounted());
    for args in [&["umount"][..], &["umount", "--dead"][..]] {
        let open = File::create(place.dir.join("file")).unwrap();
        let daemon = place.daemon();
        signal(daemon, "KILL");
        wait_until_ended(daemon);
        place.run(&[args, &[place.dir()]].concat()).fine();
        assert!(!place.is_mounted());
        drop(open);
        place.mount();
    }
    place.umount();
    place.fsck();
}
