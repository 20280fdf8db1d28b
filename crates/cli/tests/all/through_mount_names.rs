//! A handle of a branch or snapshot means a number, also through a mount: whatever has its name by then is neither shown nor changed.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::chown;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast::{Branch, Volume, VolumeOptions};

use crate::common::{NOBODY, Nobody, TestMount, can_mount};

/// A volume that is mounted with these options, and what the library opens of it.
fn mounted(options: &str) -> Option<(TestMount, Volume)> {
    if !can_mount() {
        return None;
    }
    let place = TestMount::with_volume();
    place.run(&["mount", "-o", options, place.image(), place.dir()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    assert_eq!(volume.mounted_at(), Some(place.dir.as_path()));
    Some((place, volume))
}

fn snapshots_of(branch: &Branch) -> Vec<String> {
    branch.snapshots().unwrap().iter().map(|it| it.name().to_owned()).collect()
}

/// Without `snapdir` anybody who may write the root can make such a directory, and in later mounts it hides that of the snapshots.
#[test]
fn a_directory_of_the_volume_is_not_taken_for_a_snapshot() {
    let Some((place, volume)) = mounted("snapdir=off") else { return };
    volume.create_dir_all(".snapshots/monday").unwrap();
    volume.write(".snapshots/monday/file", "of the directory").unwrap();
    volume.write("file", "of the snapshot").unwrap();
    let monday = volume.branch_here().unwrap().snapshot("monday").unwrap();
    let expect_refused = |monday: &holdfast::Snapshot| {
        let refused = monday.open().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("@monday DIR` shows it"), "{said}");
        let refused = VolumeOptions::new().snapshot("monday").open(&place.image).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
        assert!(refused.to_string().contains("does not show this snapshot"), "{refused}");
    };
    expect_refused(&monday);
    drop((volume, monday));
    place.umount();
    place.mount();
    let volume = Volume::open(&place.image).unwrap();
    let monday = volume.branch_here().unwrap().snapshot_named("monday").unwrap();
    expect_refused(&monday);
    // Where it is moved away, the snapshot is there.
    volume.rename(".snapshots", "other").unwrap();
    for opened in [monday.open(), VolumeOptions::new().snapshot("monday").open(&place.image)] {
        assert_eq!(opened.unwrap().read("file").unwrap(), b"of the snapshot");
    }
    drop((volume, monday));
    place.umount();
}

/// Where it is mounted itself: the mount says its name of now.
#[test]
fn a_mount_of_a_snapshot_is_known_by_its_number() {
    let Some((place, volume)) = mounted("snapdir=off") else { return };
    let main = volume.branch_here().unwrap();
    volume.write("file", "x").unwrap();
    let [x, y] = ["x", "y"].map(|name| main.snapshot(name).unwrap());
    let there = place.path("there");
    fs::create_dir(&there).unwrap();
    place.run(&["mount", &format!("{}@x", place.image()), &there]).fine();
    for [from, to] in [["x", "z"], ["y", "x"]] {
        place.run(&["snapshot", "rename", place.dir(), from, to]).fine();
    }
    let opened = x.open().unwrap();
    assert_eq!(opened.mounted_at(), Some(Path::new(&there)));
    let refused = y.open().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    // A branch out of it, which is asked of that mount.
    let refused = opened.create_branch("fork").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    drop((main, volume, opened, x, y));
    place.run(&["umount", &there]).fine();
    place.umount();
}

/// Where there are no attributes it is asked another way.
#[test]
fn a_snapshot_is_known_in_a_mount_without_attributes() {
    let Some((place, volume)) = mounted("noxattr") else { return };
    volume.write("file", "before").unwrap();
    let monday = volume.branch_here().unwrap().snapshot("monday").unwrap();
    volume.write("file", "after").unwrap();
    assert_eq!(monday.open().unwrap().read("file").unwrap(), b"before");
    drop((volume, monday));
    place.umount();
}

/// What a user may not read is the volume's matter, and not the daemon's, which obeys root and the user who has mounted.
#[test]
fn a_root_directory_that_may_not_be_read_is_told_as_that() {
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    for path in [place.root.path(), place.dir.as_path()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let of_root = ["mkfs", "-q", "--size", "64M", "--owner", "0:0", "--mode", "0700"];
    nobody.run(&[&of_root[..], &[place.image()]].concat()).fine();
    let mounted = nobody.run(&["mount", place.image(), place.dir()]);
    if mounted.code != 0 {
        holdfast_base::skip::skipped(&mounted.err);
        return;
    }
    let said = nobody.run(&["snapshot", "list", place.dir()]);
    let umounted = nobody.run(&["umount", place.dir()]);
    // Who may open the volume's file hears it from the daemon all the same.
    said.fine();
    umounted.fine();
    // As the library says it.
    place.run(&["mount", "-o", "allow_other", place.image(), place.dir()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    let main = volume.branch_here().unwrap();
    let by_another = std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            // Of this thread alone, and its capabilities go.
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).unwrap();
            main.snapshots()
        });
        asks.join().unwrap()
    });
    let refused = by_another.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("may not be read by this user"), "{refused}");
    drop((main, volume));
    place.umount();
}

/// Two branches have changed their names.
#[test]
fn a_branch_that_has_the_name_of_another_one_by_now_is_let_alone() {
    let Some((place, volume)) = mounted("snapdir=hidden") else { return };
    let main = volume.branch_here().unwrap();
    volume.write("file", "x").unwrap();
    let x = main.fork("x").unwrap();
    volume.write("file", "y").unwrap();
    let y = main.fork("y").unwrap();
    for [from, to] in [["x", "z"], ["y", "x"]] {
        place.run(&["branch", "rename", place.image(), from, to]).fine();
    }
    x.snapshot("s").unwrap();
    assert_eq!((snapshots_of(&x), snapshots_of(&y)), (vec!["s".into()], Vec::new()));
    let y_of_name = volume.branch("x").unwrap();
    assert_eq!(y_of_name.number(), y.number());
    let fork = x.fork("fork").unwrap();
    x.limit(Some(4096)).unwrap();
    let listed = place.run(&["branch", "list", "--json", place.image()]).fine();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let limit_of = |name: &str| {
        let all = listed["branches"].as_array().or(listed.as_array()).unwrap();
        all.iter().find(|it| it["name"] == name).unwrap()["limit_bytes"].clone()
    };
    assert_eq!(
        (limit_of("z"), limit_of("x")),
        (serde_json::json!(4096 << 12), serde_json::Value::Null)
    );
    // Where the branch is mounted, whatever its name is.
    let there = place.path("there");
    fs::create_dir(&there).unwrap();
    place.run(&["mount", &format!("{}:x", place.image()), &there]).fine();
    assert_eq!(x.open().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(y.open().unwrap().read("file").unwrap(), b"y");
    place.run(&["umount", &there]).fine();
    place.run(&["mount", &format!("{}:fork", place.image()), &there]).fine();
    assert_eq!(fork.open().unwrap().read("file").unwrap(), b"x");
    place.run(&["umount", &there]).fine();
    fork.delete().unwrap();
    let mut renamed = x.clone();
    renamed.rename("w").unwrap();
    assert_eq!(volume.branch("x").unwrap().number(), y.number());
    assert_eq!(volume.branch("w").unwrap().number(), x.number());
    x.delete().unwrap();
    assert_eq!(volume.branch("x").unwrap().number(), y.number());
    assert_eq!(renamed.snapshots().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(renamed.limit(None).unwrap_err().kind(), ErrorKind::NotFound);
    drop((main, volume, y, y_of_name, renamed));
    place.umount();
}

/// Two snapshots have changed their names.
#[test]
fn a_snapshot_that_has_the_name_of_another_one_by_now_is_let_alone() {
    let Some((place, volume)) = mounted("snapdir=hidden") else { return };
    let main = volume.branch_here().unwrap();
    volume.write("file", "x").unwrap();
    let x = main.snapshot("x").unwrap();
    let opened = x.open().unwrap();
    volume.write("file", "y").unwrap();
    let y = main.snapshot("y").unwrap();
    for [from, to] in [["x", "z"], ["y", "x"]] {
        place.run(&["snapshot", "rename", place.image(), from, to]).fine();
    }
    // What was opened before goes on to be the same.
    assert_eq!(opened.read("file").unwrap(), b"x");
    let forks = [opened.create_branch("of-opened").unwrap(), x.fork("of-x").unwrap()];
    let there = place.path("there");
    fs::create_dir(&there).unwrap();
    for fork in forks {
        let name = fork.name();
        place.run(&["mount", &format!("{}:{name}", place.image()), &there]).fine();
        assert_eq!(fork.open().unwrap().read("file").unwrap(), b"x", "{name}");
        place.run(&["umount", &there]).fine();
        fork.delete().unwrap();
    }
    opened.close().unwrap();
    assert_eq!(x.open().unwrap().read("file").unwrap(), b"x");
    assert_eq!(y.open().unwrap().read("file").unwrap(), b"y");
    x.hold("mine").unwrap();
    assert_eq!(x.clone().delete().unwrap_err().kind(), ErrorKind::ResourceBusy);
    x.unhold("mine").unwrap();
    let mut renamed = x.clone();
    renamed.rename("w").unwrap();
    assert_eq!(snapshots_of(&main), ["w", "x"]);
    x.delete().unwrap();
    assert_eq!(snapshots_of(&main), ["x"]);
    assert_eq!(renamed.hold("mine").unwrap_err().kind(), ErrorKind::NotFound);
    y.delete().unwrap();
    drop((main, volume, renamed));
    place.umount();
}

/// One thread has two branches change their names again and again, another one takes snapshots of one of them.
#[test]
fn names_that_change_meanwhile_lead_to_no_other_branch() {
    let Some((place, volume)) = mounted("snapdir=hidden") else { return };
    let main = volume.branch_here().unwrap();
    let [x, y] = ["x", "y"].map(|name| main.fork(name).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut x, mut y) = (x.clone(), y.clone());
            while !is_over.load(Ordering::Relaxed) {
                x.rename("between").unwrap();
                y.rename("x").unwrap();
                x.rename("y").unwrap();
                y.rename("between").unwrap();
                x.rename("x").unwrap();
                y.rename("y").unwrap();
            }
        });
        let taken: Vec<_> = (0..100).map(|n| x.snapshot(&format!("s{n}"))).collect();
        is_over.store(true, Ordering::Relaxed);
        taken.into_iter().for_each(|taken| drop(taken.unwrap()));
    });
    assert_eq!((snapshots_of(&x).len(), snapshots_of(&y).len()), (100, 0));
    drop((main, volume, x, y));
    place.umount();
}
