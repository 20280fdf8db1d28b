//! Branches and snapshots by number, and the longest entries of lists.

use holdfast::Volume;
use holdfast_control::REPLY_MAX;

use super::*;

/// The longest name there is in a message: it is no text.
fn long(n: u8) -> Name {
    Name([vec![b'A' + n], vec![0xff; 254]].concat())
}

/// A snapshot was chosen from a list, and by now another one has its name.
#[test]
fn a_snapshot_that_was_chosen_by_its_number_is_deleted_or_none() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let fs = volume.engine().unwrap();
    let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
    let open = Open { fs: &fs, is_mounted: true, most: REPLY_MAX, give_head: &none };
    let name = Name(b"auto".to_vec());
    let first = fs.snapshot(&name.0).unwrap();
    fs.delete_snapshot(&b"main"[..], first).unwrap();
    let second = fs.snapshot(&name.0).unwrap();
    let delete = |number| {
        let name = name.clone();
        answer(
            &open,
            &Ask::DeleteSnapshot { branch: None, name: name.into(), number: Some(number) },
        )
    };
    assert!(matches!(delete(first), Reply::Refused { .. }));
    assert_eq!(fs.snapshots().unwrap().len(), 1);
    assert!(matches!(delete(second), Reply::Done { .. }));
    assert!(fs.snapshots().unwrap().is_empty());
    // A branch as well; and what is refused has a number.
    let first = fs.fork(b"work", None).unwrap();
    fs.delete_branch(first).unwrap();
    let second = fs.fork(b"work", None).unwrap();
    let delete = |number| {
        let name = Name(b"work".to_vec()).into();
        answer(&open, &Ask::DeleteBranch { name, number: Some(number) })
    };
    let enoent = Some(Errno::NOENT.raw_os_error());
    assert!(matches!(delete(first), Reply::Refused { errno, .. } if errno == enoent));
    assert!(matches!(delete(second), Reply::Done { .. }));
    assert!(matches!(delete(second), Reply::Refused { errno, .. } if errno == enoent));
    let (branch, name) = (None, Name(b"none".to_vec()).into());
    let none = answer(&open, &Ask::Snapshot { branch, name });
    assert!(matches!(none, Reply::Refused { errno, .. } if errno == enoent));
    drop(fs);
    volume.close().unwrap();
}

/// Another branch, and another snapshot, have the names of what is meant, which has others.
#[test]
fn what_is_meant_by_its_number_is_found_whatever_its_name_is() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let fs = volume.engine().unwrap();
    let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
    let open = Open { fs: &fs, is_mounted: true, most: REPLY_MAX, give_head: &none };
    let name = |text: &str| Name(text.into());
    let [x, y] = [b"x", b"y"].map(|name| fs.fork(name, None).unwrap());
    let [of_x, of_y] = [x, y].map(|branch| fs.snapshot_of(branch, b"s").unwrap());
    let one = fs.snapshot_of(x, b"one").unwrap();
    fs.rename_branch(x, b"z").unwrap();
    fs.rename_branch(y, b"x").unwrap();
    fs.rename_snapshot(x, of_x, b"t").unwrap();
    fs.rename_snapshot(x, one, b"s").unwrap();
    let done = |ask: Ask| match answer(&open, &ask) {
        Reply::Done { number, .. } => number,
        other => panic!("{ask:?}: {other:?}"),
    };
    let branch = Some(Which::Number(x));
    let snapshots = |branch: u64| {
        let all = fs.snapshots_of(branch).unwrap();
        all.into_iter().map(|it| (it.number, it.holds.len())).collect::<Vec<_>>()
    };
    let taken = done(Ask::Take { branch: branch.clone(), name: name("taken") }).unwrap();
    done(Ask::Hold { branch: branch.clone(), name: of_x.into(), tag: name("a"), held: true });
    assert_eq!(snapshots(x), [(of_x, 1), (one, 0), (taken, 0)]);
    assert_eq!(snapshots(y), [(of_y, 0)]);
    done(Ask::Hold { branch: branch.clone(), name: of_x.into(), tag: name("a"), held: false });
    let list = |ask: Ask| match answer(&open, &ask) {
        Reply::Snapshots { branch, list, .. } => (branch, list),
        other => panic!("{other:?}"),
    };
    let (of, all) = list(Ask::Snapshots { branch: branch.clone(), after: 0 });
    assert_eq!((of.text().into_owned(), all.len()), ("z".into(), 3));
    let (_, found) = list(Ask::Snapshot { branch: branch.clone(), name: of_x.into() });
    assert_eq!((found.len(), found[0].number, &found[0].name), (1, of_x, &name("t")));
    let Reply::Branches { list, .. } = answer(&open, &Ask::Branch { branch: x.into() }) else {
        panic!()
    };
    assert_eq!((list.len(), list[0].number, &list[0].name), (1, x, &name("z")));
    let from = Some(of_x.into());
    let fork = done(Ask::Fork { branch: branch.clone(), snapshot: from, name: name("f") });
    assert_eq!(fs.find_branch(fork.unwrap()).unwrap().parent, Some(of_x));
    done(Ask::DeleteBranch { name: fork.unwrap().into(), number: None });
    done(Ask::LimitBranch { name: x.into(), blocks: Some(4096) });
    assert_eq!([x, y].map(|it| fs.find_branch(it).unwrap().limit), [Some(4096), None]);
    let new_name = name("u");
    done(Ask::RenameSnapshot { branch: branch.clone(), name: of_x.into(), new_name });
    assert_eq!(fs.find_snapshot(x, b"u").unwrap().number, of_x);
    done(Ask::DeleteSnapshot { branch: branch.clone(), name: of_x.into(), number: None });
    assert_eq!(snapshots(x), [(one, 0), (taken, 0)]);
    done(Ask::RenameBranch { name: x.into(), new_name: name("w") });
    done(Ask::DeleteBranch { name: x.into(), number: None });
    assert_eq!(fs.find_branch(b"x").unwrap().number, y);
    let enoent = Some(Errno::NOENT.raw_os_error());
    for gone in [
        Ask::Take { branch: branch.clone(), name: name("taken") },
        Ask::Snapshots { branch: branch.clone(), after: 0 },
        Ask::Snapshot { branch: branch.clone(), name: one.into() },
        // A snapshot of another branch.
        Ask::Hold { branch: None, name: of_y.into(), tag: name("a"), held: true },
        // And a number of a snapshot is none of a branch.
        Ask::Branch { branch: of_y.into() },
        Ask::DeleteBranch { name: x.into(), number: None },
    ] {
        let answer = answer(&open, &gone);
        let is_said = matches!(&answer, Reply::Refused { errno, .. } if *errno == enoent);
        assert!(is_said, "{gone:?}: {answer:?}");
    }
    drop(fs);
    volume.close().unwrap();
}

/// While a fork is looked at, a snapshot without a name lies between it and what it has grown out of. A removal of what is left of
/// killed commands finds a fork by its snapshot, and would remove that alone.
#[test]
fn a_fork_that_is_looked_at_is_still_one_of_its_snapshot() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let fs = volume.engine().unwrap();
    let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
    let open = Open { fs: &fs, is_mounted: true, most: REPLY_MAX, give_head: &none };
    fs.snapshot(b"s").unwrap();
    fs.fork(b"fork", Some(b"s")).unwrap();
    let expect_fork = |what: &str| {
        let ask = Ask::Snapshot { branch: None, name: Name(b"s".to_vec()).into() };
        let Reply::Snapshots { list, .. } = answer(&open, &ask) else { panic!("{what}") };
        assert_eq!(list[0].forks, [Name(b"fork".to_vec())], "{what}");
        let Reply::Branches { list, .. } = answer(&open, &Ask::Branches { after: 0 }) else {
            panic!("{what}")
        };
        assert_eq!(list[1].origin.as_ref().map(|it| it.name.clone()), Some(Name(b"s".to_vec())));
    };
    expect_fork("before");
    let branch = volume.branch("fork").unwrap();
    branch.open().unwrap().write("/file", b"x").unwrap();
    let view = branch.view().unwrap();
    expect_fork("meanwhile");
    view.close().unwrap();
    expect_fork("behind");
    drop(fs);
    volume.close().unwrap();
}

#[test]
fn the_longest_entries_fit_their_messages() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let fs = volume.engine().unwrap();
    let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
    let open = Open { fs: &fs, is_mounted: true, most: REPLY_MAX, give_head: &none };
    let done = |ask: Ask| {
        let reply = answer(&open, &ask);
        let bytes = serde_json::to_vec(&reply).unwrap().len();
        assert!(bytes <= REPLY_MAX, "{bytes} bytes: {ask:?}");
        reply
    };
    let change = |ask| assert!(matches!(done(ask), Reply::Done { .. }));
    let branch = Some(Which::Name(long(0)));
    change(Ask::Fork { branch: None, snapshot: None, name: long(0) });
    for n in 0..6 {
        change(Ask::Take { branch: branch.clone(), name: long(n) });
        for fork in 0..if n < 2 { 12 } else { 0 } {
            let name = long(1 + n * 16 + fork);
            change(Ask::Fork { branch: branch.clone(), snapshot: Some(long(n).into()), name });
        }
    }
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let ask = Ask::Snapshots { branch: branch.clone(), after };
        let Reply::Snapshots { list, more, .. } = done(ask) else { panic!() };
        after = list.last().unwrap().number;
        assert!(list.iter().all(|it| it.more_forks != it.forks.is_empty()));
        seen.extend(list.into_iter().map(|it| it.name).filter(|name| !name.0.is_empty()));
        if !more {
            break;
        }
    }
    assert_eq!(seen, (0..6).map(long).collect::<Vec<_>>());
    let (mut after, mut count) = (0, 0);
    loop {
        let Reply::Branches { list, more, .. } = done(Ask::Branches { after }) else { panic!() };
        after = list.last().unwrap().number;
        count += list.len();
        if !more {
            break;
        }
    }
    assert_eq!(count, 26);
    done(Ask::Snapshot { branch, name: long(1).into() });
    done(Ask::Branch { branch: long(0).into() });
    drop(fs);
    volume.close().unwrap();
}
