//! Branches and snapshots through the library.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_device::{Device, MemoryDevice};

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
    snapshot.hold("mine").unwrap();
    snapshot.hold("backup").unwrap();
    assert_eq!(kind(snapshot.hold("mine")), ErrorKind::AlreadyExists);
    assert_eq!(kind(snapshot.hold("a/b")), ErrorKind::InvalidInput);
    snapshot.unhold("mine").unwrap();
    assert_eq!(kind(snapshot.unhold("mine")), ErrorKind::NotFound);
    let refused = snapshot.clone().delete().expect_err("another one holds it");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("backup"), "{refused}");
    snapshot.unhold("backup").unwrap();
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

/// Numbers of branches and snapshots are the same in many volumes.
#[test]
fn what_is_of_another_volume_takes_no_place_here() {
    let make = |content: &str| {
        let volume = Volume::in_memory(64 << 20).unwrap();
        volume.write("/file", content.as_bytes()).unwrap();
        let snapshot = volume.first_branch().unwrap().snapshot("s").unwrap();
        let fork = volume.create_branch("fork").unwrap();
        volume.write("/file", b"later").unwrap();
        (volume, snapshot, fork)
    };
    let (here, snapshot, fork) = make("here");
    let (_there, their_snapshot, their_fork) = make("there");
    let main = here.first_branch().unwrap();
    assert_eq!(kind(main.rollback_to(&their_snapshot, None)), ErrorKind::InvalidInput);
    assert_eq!(kind(main.promote(their_fork.clone(), None)), ErrorKind::InvalidInput);
    assert_eq!(kind(main.replace_by(their_fork, None)), ErrorKind::InvalidInput);
    assert_eq!(here.read("/file").unwrap(), b"later");
    // What another handle of this volume has found is of this volume.
    let view = main.view().unwrap();
    let same = view.branch("fork").unwrap();
    assert_eq!(same.name(), fork.name());
    main.replace_by(same, None).unwrap();
    assert_eq!(here.read("/file").unwrap(), b"here");
    here.write("/file", b"again").unwrap();
    main.rollback_to(&snapshot, None).unwrap();
    assert_eq!(here.read("/file").unwrap(), b"here");
    view.close().unwrap();
    here.close().unwrap();
}

#[test]
fn branches_of_a_file_are_opened_one_by_one_and_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let volume = Volume::create_new(&path, 64 << 20).unwrap();
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

#[test]
fn a_handle_goes_on_meaning_the_same_branch_and_snapshot() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    volume.write("/file", b"first").unwrap();
    let work = volume.create_branch("work").unwrap();
    let snapshot = work.snapshot("s").unwrap();
    // Another handle has renamed them, and others have their names now.
    volume.branch("work").unwrap().rename("old").unwrap();
    work.snapshot_named("s").unwrap().rename("t").unwrap();
    volume.write("/file", b"second").unwrap();
    let other = volume.create_branch("work").unwrap();
    assert_ne!(other.number(), work.number());
    work.snapshot("s").unwrap();
    assert_eq!(snapshot.open().unwrap().read("/file").unwrap(), b"first");
    let opened = work.open().unwrap();
    assert_eq!(opened.read("/file").unwrap(), b"first");
    opened.write("/file", b"third").unwrap();
    work.rollback_to(&snapshot, None).unwrap();
    assert_eq!(opened.read("/file").unwrap(), b"first");
    opened.close().unwrap();
    assert_eq!(snapshot.fork("of-snapshot").unwrap().snapshots().unwrap().len(), 0);
    volume.branch("of-snapshot").unwrap().delete().unwrap();
    let names = |branch: &holdfast::Branch| {
        let all = branch.snapshots().unwrap().into_iter();
        all.map(|of| of.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&work), names(&other)), (vec!["t".into(), "s".into()], vec![]));

    // Another handle has deleted it, and one of the same name was made.
    work.snapshot_named("t").unwrap().delete().unwrap();
    let again = work.snapshot("t").unwrap();
    assert_eq!(kind(snapshot.open()), ErrorKind::NotFound);
    assert_eq!(kind(snapshot.hold("mine")), ErrorKind::NotFound);
    assert_eq!(kind(snapshot.fork("never")), ErrorKind::NotFound);
    assert_eq!(kind(work.rollback_to(&snapshot, None)), ErrorKind::NotFound);
    assert_eq!(kind(snapshot.clone().rename("never")), ErrorKind::NotFound);
    assert_eq!(kind(snapshot.delete()), ErrorKind::NotFound);
    work.clone().delete().unwrap();
    volume.create_branch("old").unwrap().snapshot("t").unwrap();
    assert_eq!(kind(work.open()), ErrorKind::NotFound);
    assert_eq!(kind(work.snapshot("never")), ErrorKind::NotFound);
    assert_eq!(kind(work.snapshots()), ErrorKind::NotFound);
    assert_eq!(kind(work.fork("never")), ErrorKind::NotFound);
    assert_eq!(kind(work.limit(None)), ErrorKind::NotFound);
    assert_eq!(kind(again.open()), ErrorKind::NotFound);
    assert_eq!(kind(work.delete()), ErrorKind::NotFound);
    assert!(volume.branch("never").is_err());
    volume.close().unwrap();
}

/// Nodes of the trees that operations with names search and read, beside so many snapshots and as many forks.
fn searched_beside(number: usize) -> Vec<(&'static str, u64)> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    CreateOptions::new().node_size(4096).format(&device).unwrap();
    let open = || VolumeOptions::new().commit_secs(0).open_device(Arc::clone(&device)).unwrap();
    let volume = open();
    let main = volume.branch("main").unwrap();
    let base = main.snapshot("base").unwrap();
    for number in 0..number {
        main.snapshot(&format!("snapshot-{number}")).unwrap();
        base.fork(&format!("fork-{number}")).unwrap();
    }
    drop((main, base));
    volume.close().unwrap();
    let volume = open();
    let count = || {
        let counters = volume.counters().unwrap();
        let is_counted = |name: &str| ["node_hits", "nodes_read"].contains(&name);
        counters.iter().filter(|of| is_counted(of.name)).map(|of| of.value).sum::<u64>()
    };
    let mut all = Vec::new();
    let mut note = |what, work: &dyn Fn()| {
        let before = count();
        work();
        all.push((what, count() - before));
    };
    let main = volume.branch("main").unwrap();
    note("a snapshot by its name", &|| drop(main.snapshot_named("snapshot-7").unwrap()));
    note("a branch by its name", &|| drop(volume.branch("fork-7").unwrap()));
    note("a new snapshot", &|| drop(main.snapshot("new").unwrap()));
    let of = main.snapshot_named("snapshot-15").unwrap();
    note("a fork", &|| drop(of.fork("new").unwrap()));
    note("a rollback", &|| main.rollback_to(&of, Some("kept")).unwrap());
    drop((main, of));
    volume.close().unwrap();
    all
}

/// A name is found among thousands as among few: nothing lists the rest.
#[test]
fn what_has_a_name_costs_the_same_among_many() {
    let (few, many) = (searched_beside(20), searched_beside(1000));
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        // A tree that is higher takes a few nodes more. All items of branches and snapshots are in some hundred leaves.
        assert!(
            *many < 2 * few + 40,
            "{what}: {many} nodes beside a thousand, {few} beside twenty"
        );
    }
}
