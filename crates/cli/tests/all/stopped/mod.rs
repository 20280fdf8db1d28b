//! A volume that an error has stopped (P7) says since when and why, is read meanwhile, and goes on when it is mounted again.

use std::fs::{self, File};
use std::io::Write;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::{TestMount, can_mount};

/// Bytes of files that a daemon may write behind; `None`: it may write all.
fn limit(daemon: u32, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(daemon).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

#[test]
fn a_volume_that_stops_says_why_and_can_be_read_until_it_is_mounted_again() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let (dir, image) = (place.dir(), place.image());
    fs::create_dir(place.dir.join("sub")).unwrap();
    fs::write(place.dir.join("sub/a"), "durable").unwrap();
    place.run(&["sync", dir]).fine();
    place.run(&["snapshot", "create", dir, "monday"]).fine();
    let says_nothing = |words: &[&str]| {
        let said = place.run(words).fine();
        assert!(!said.contains("stopped") || said.contains("\"stopped\":null"), "{said}");
    };
    for words in [&["info", dir][..], &["info", "--json", dir], &["list"], &["stats", dir]] {
        says_nothing(words);
    }
    // The host takes no write any more.
    let daemon = place.daemon();
    limit(daemon, Some(0));
    let mut file = File::create(place.dir.join("b")).unwrap();
    file.write_all(b"lost").and_then(|()| file.sync_all()).unwrap_err();
    limit(daemon, None);
    // It stays so, though the host would take writes again.
    File::create(place.dir.join("c")).and_then(|file| file.sync_all()).unwrap_err();
    let info = place.run(&["info", dir]).fine();
    let line = info.lines().find(|line| line.starts_with("stopped")).expect("a line says it");
    assert!(line.contains("Z, after an error: write of ") && line.contains("File too large"));
    assert!(line.contains("mount it again when the cause is gone"), "{line}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run(&["info", "--json", dir]).fine()).unwrap();
    assert!(json["stopped"]["since"].as_i64().unwrap() > 1_700_000_000, "{json}");
    assert!(json["stopped"]["reason"].as_str().unwrap().contains("File too large"), "{json}");
    assert!(place.run(&["stats", dir]).fine().contains("after an error: write of "));
    let list = place.run(&["list"]).fine();
    let row = list.lines().find(|line| line.contains(dir)).expect("it is served");
    assert!(row.contains(" stopped,") || row.contains(" stopped "), "{row}");
    assert!(place.run(&["list", "--json"]).fine().contains("File too large"));
    // All that only reads goes on: by the kernel, and by commands through the daemon.
    assert!(rustix::fs::statvfs(dir).unwrap().f_blocks > 0);
    assert_eq!(fs::read_to_string(place.dir.join("sub/a")).unwrap(), "durable");
    for of in [format!("{image}:/sub/a"), format!("{image}@monday:/sub/a")] {
        assert_eq!(place.run(&["cat", &of]).fine(), "durable", "{of}");
    }
    assert!(place.run(&["ls", &format!("{image}:/sub")]).fine().contains('a'));
    let changed = place.run(&["diff", &format!("{dir}@monday"), dir]);
    assert_eq!(changed.code, 0, "{changed:?}");
    let mut scrub = place.command(&["scrub", dir]);
    let scrub =
        crate::common::said(scrub.env("XDG_STATE_HOME", place.path("state")).output().unwrap());
    assert!(scrub.fine().contains("nothing is damaged"));
    let refused = place.run(&["snapshot", "create", dir, "tuesday"]);
    assert!(refused.code == 1 && refused.err.contains("the volume stopped"), "{refused:?}");
    // The next mount goes on with what was durable.
    drop(file);
    place.run(&["umount", dir]);
    assert!(!place.is_mounted());
    place.mount();
    assert_eq!(fs::read_to_string(place.dir.join("sub/a")).unwrap(), "durable");
    fs::write(place.dir.join("d"), "new").unwrap();
    place.run(&["sync", dir]).fine();
    says_nothing(&["info", "--json", dir]);
    place.umount();
    place.fsck();
}
