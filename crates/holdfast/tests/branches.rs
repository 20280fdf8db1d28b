//! Branches and snapshots through the library.

use std::io::{self, ErrorKind};

use holdfast::{Volume, VolumeOptions};

fn kind<T: std::fmt::Debug>(done: io::Result<T>) -> ErrorKind {
    done.expect_err("it should have failed").kind()
}

#[test]
fn what_fails_says_why() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    assert_eq!(kind(volume.branch("other")), ErrorKind::NotFound);
    let main = volume.branch("main").unwrap();
    assert_eq!(kind(main.open()), ErrorKind::ResourceBusy);
    let snapshot = main.snapshot("s").unwrap();
    assert_eq!(kind(main.snapshot("s")), ErrorKind::AlreadyExists);
    assert_eq!(kind(main.snapshot("")), ErrorKind::InvalidInput);
    assert_eq!(kind(main.snapshot_named("t")), ErrorKind::NotFound);
    snapshot.hold().unwrap();
    assert_eq!(kind(snapshot.clone().delete()), ErrorKind::ResourceBusy);
    snapshot.unhold().unwrap();
    let fork = snapshot.fork("fork").unwrap();
    fork.snapshot("t").unwrap().fork("third").unwrap();
    let refused = fork.clone().delete().expect_err("it has a fork");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("third"), "{refused}");
    assert_eq!(kind(main.delete()), ErrorKind::ResourceBusy, "it is open");
    let open = snapshot.open().unwrap();
    assert_eq!(kind(open.write("/file", b"x")), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(kind(snapshot.clone().delete()), ErrorKind::ResourceBusy);
    open.close().unwrap();
    volume.branch("third").unwrap().delete().unwrap();
    fork.delete().unwrap();
    snapshot.delete().unwrap();
    assert_eq!(volume.branches().unwrap().len(), 1);
    volume.close().unwrap();
}

#[test]
fn branches_of_a_file_are_opened_one_by_one_and_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let volume = Volume::create(&path, 64 << 20).unwrap();
    volume.write("/file", b"of main").unwrap();
    let mut work = volume.create_branch("work").unwrap();
    work.rename("trial").unwrap();
    let trial = work.open().unwrap();
    trial.write("/file", b"of trial").unwrap();
    // It is open there, and a snapshot has what was written.
    let mut snapshot = work.snapshot("now").unwrap();
    snapshot.rename("then").unwrap();
    trial.write("/file", b"later").unwrap();
    // The device is released with the last.
    volume.close().unwrap();
    assert_eq!(trial.read("/file").unwrap(), b"later");
    trial.close().unwrap();

    let options = VolumeOptions::new().branch("trial");
    let trial = options.open(&path).unwrap();
    assert_eq!(trial.read("/file").unwrap(), b"later");
    trial.branch("trial").unwrap().limit(Some(1000)).unwrap();
    trial.close().unwrap();
    let then = options.clone().snapshot("then").open(&path).unwrap();
    assert_eq!(then.read("/file").unwrap(), b"of trial");
    assert_eq!(kind(then.create_dir("/d")), ErrorKind::ReadOnlyFilesystem);
    // Forked out of the snapshot.
    let fork = then.create_branch("fork").unwrap().open().unwrap();
    then.close().unwrap();
    fork.write("/file", b"of fork").unwrap();
    fork.close().unwrap();
    let volume = Volume::open(&path).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"of main");
    let names: Vec<String> =
        volume.branches().unwrap().iter().map(|branch| branch.name().to_owned()).collect();
    assert_eq!(names, ["main", "trial", "fork"]);
    volume.close().unwrap();
}
