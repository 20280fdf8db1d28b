//! What calls find that were under way when their branch was rolled back.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::heads_differ::HeadsDiffer;

/// How long a thread gets that must not wait.
const PATIENCE: Duration = Duration::from_secs(100);

fn create(v: &Volume, name: &str) -> Arc<OpenFile> {
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, flags, false).unwrap().1
}

#[test]
fn a_call_that_has_an_inode_in_hand_goes_on_with_it_if_both_heads_have_it() {
    let v = Volume::new();
    let both = v.file(ROOT, "both");
    v.fs.snapshot(b"s").unwrap();
    let new = v.file(ROOT, "new");
    v.fs.setattr(&root(), both, None, SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
    let core = &v.fs.core;
    // As a call that waits for the state, which the rollback has locked.
    let (both, new) = (core.inode(both).unwrap(), core.inode(new).unwrap());
    v.fs.rollback(b"s", None).unwrap();
    both.state.read().expect_alive().unwrap();
    assert_eq!(both.state.read().attr.mode & 0o777, 0o644);
    assert!(Arc::ptr_eq(&both, &core.inode(both.no).unwrap()), "there is one inode of a number");
    assert_eq!(errno(new.state.read().expect_alive()), libc::ESTALE);
    assert!(matches!(core.inode(new.no), Err(FsError::NotFound)));
    drop((both, new));
    v.check();
}

#[test]
fn what_was_lost_of_the_head_that_was_is_no_error_of_the_next() {
    let v = Volume::new();
    let file = create(&v, "f");
    v.fs.snapshot(b"s").unwrap();
    file.inode.errors.record_error("the device refused");
    file.inode.lost.add(std::iter::once(0..100));
    v.fs.core.data.losses.add("the device refused");
    v.fs.rollback(b"s", None).unwrap();
    v.fs.sync().unwrap();
    v.fs.fsync(&file, false).unwrap();
    v.fs.fsync(&create(&v, "f"), false).unwrap();
    file.inode.errors.record_error("and again");
    assert_eq!(errno(v.fs.fsync(&file, false)), libc::EIO);
    v.fs.fsync(&file, false).unwrap();
}

#[test]
fn a_write_that_wanted_to_come_before_a_rollback_does_not_come_behind() {
    let v = Volume::new();
    let file = create(&v, "f");
    let how = |turn| WriteHow { turn: Some(turn), ..WriteHow::default() };
    v.fs.write(&root(), &file, 0, b"one", how(0)).unwrap();
    v.fs.snapshot(b"s").unwrap();
    assert_eq!(v.fs.turns(), 0);
    v.fs.rollback(b"s", None).unwrap();
    assert!(matches!(v.fs.write(&root(), &file, 0, b"two", how(0)), Err(FsError::Turned)));
    v.fs.write(&root(), &file, 1, b"2", how(v.fs.turns())).unwrap();
    let mut bytes = [0; 9];
    assert_eq!(v.fs.read(&file, 0, &mut bytes).unwrap(), 3);
    assert_eq!(&bytes[..3], b"o2e");
}

#[test]
fn a_file_made_without_a_name_may_get_one_in_the_snapshot_that_has_it_so() {
    let v = Volume::new();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (attr, file) = v.fs.tmpfile(&root(), ROOT, 0o644, flags).unwrap();
    v.fs.snapshot(b"s").unwrap();
    let unlinked = create(&v, "f");
    v.fs.snapshot(b"named").unwrap();
    v.unlink(ROOT, "f").unwrap();
    v.fs.rollback(b"named", Some(b"was")).unwrap();
    v.fs.rollback(b"s", None).unwrap();
    v.fs.link(&root(), attr.inode, ROOT, b"name").unwrap();
    assert!(v.fs.link(&root(), unlinked.inode(), ROOT, b"f").is_err());
    assert_eq!(v.ls(ROOT), ["name"]);
    drop((file, unlinked));
    v.check();
}

/// However many readers there are, each with other inodes, a rollback waits for those that are being read and no others.
#[test]
fn no_inode_is_read_beside_a_rollback() {
    let v = Volume::with(64 << 20, 4096, MountOptions { inode_cache: 1, ..options() });
    let (first, second) = (v.file(ROOT, "first"), v.file(ROOT, "second"));
    let core = &v.fs.core;
    let held = core.inode(first).unwrap();
    let _ = core.inode(ROOT).unwrap();
    let (done, told) = channel();
    std::thread::scope(|scope| {
        let loads = core.inodes.stop_loads();
        assert!(core.inodes.peek(second).is_none(), "the table keeps one");
        scope.spawn(move || {
            // What is in memory is there.
            done.send(core.inode(held.no).unwrap().no).unwrap();
            done.send(core.inode(second).unwrap().no).unwrap();
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(first));
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err(), "it waits");
        drop(loads);
        assert_eq!(told.recv_timeout(PATIENCE), Ok(second));
    });
}

/// The thread that commits has all branches in hand: it waits for none that stands still.
#[test]
fn a_branch_that_stands_still_keeps_no_other_from_being_written() {
    let v = Volume::new();
    let file = create(&v, "f");
    let fork = v.fs.fork(b"work", None).map(|_| v.fs.open_branch(b"work", options()).unwrap());
    let fork = fork.unwrap();
    let flags = OpenFlags::WRITE;
    let other = fork.create(&root(), ROOT, b"other", 0o644, flags, false).unwrap().1;
    for (fs, file) in [(&v.fs, &file), (&fork, &other)] {
        fs.write(&root(), file, 0, &[1; 9000], WriteHow::default()).unwrap();
    }
    let (done, told) = channel();
    std::thread::scope(|scope| {
        let still = v.fs.core.gate.close();
        let volume = &v.fs.volume.volume;
        scope.spawn(move || {
            crate::committer::tick_of_test(volume).unwrap();
            done.send(()).unwrap();
        });
        let waited = told.recv_timeout(PATIENCE);
        drop(still);
        assert_eq!(waited, Ok(()), "it waits with all branches in hand");
    });
    assert_eq!((fork.dirty_bytes(), v.fs.dirty_bytes() > 0), (0, true));
    drop((file, other));
    fork.unmount().unwrap();
    v.fs.unmount().unwrap();
}

/// What a rollback has told: which inodes, how far they differ, and names.
#[derive(Default)]
struct Heard {
    known: Vec<Affected>,
    names: Vec<NameIn>,
}

fn told(v: &Volume) -> Arc<Mutex<Heard>> {
    let told = Arc::<Mutex<Heard>>::default();
    let all = Arc::clone(&told);
    v.fs.watch_rollback(move |turned| {
        let names = turned.names.expect("these heads are near each other").to_vec();
        *all.lock() = Heard { known: turned.known.to_vec(), names };
    });
    told
}

/// What can be seen of an inode.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    attr: Attr,
    bytes: Vec<u8>,
    value: Vec<u8>,
    names: Vec<(String, InodeNo)>,
}

/// It, unless it is gone.
fn shown(v: &Volume, no: InodeNo) -> Option<Shown> {
    let attr = v.fs.getattr(no).ok()?;
    let mut bytes = vec![0; 100_000];
    let mut names = Vec::new();
    let length = match attr.file_type {
        FileType::Directory => {
            let inode = |name: &str| v.fs.lookup(&root(), no, name.as_bytes()).unwrap().inode;
            names = v.ls(no).into_iter().map(|name| (name.clone(), inode(&name))).collect();
            0
        }
        _ => {
            let file = v.fs.lend(no, OpenFlags::READ | OpenFlags::NOATIME).unwrap();
            v.fs.read(&file, 0, &mut bytes).unwrap()
        }
    };
    bytes.truncate(length);
    let value = v.fs.getxattr(&root(), no, b"user.x").unwrap_or_default();
    Some(Shown { attr, bytes, value, names })
}

/// P13: what is not said to differ is the same, whatever was done to what, and over more than one snapshot.
#[test]
fn what_a_rollback_says_is_the_same_is_the_same() {
    let v = Volume::new();
    let told = told(&v);
    let dir = v.fs.mkdir(&root(), ROOT, b"dir", 0o755).unwrap().inode;
    let mut all: Vec<InodeNo> = (0..1500).map(|n| v.file(ROOT, &format!("file-{n}"))).collect();
    all.extend([ROOT, dir]);
    all.iter().for_each(|no| v.fs.remember(*no, 1));
    let write = |n: usize, bytes: &[u8]| {
        let file = v.fs.lend(all[n], OpenFlags::WRITE).unwrap();
        v.fs.write(&root(), &file, 0, bytes, WriteHow::default()).unwrap();
    };
    (0..1500).step_by(100).for_each(|n| write(n, &[1; 9000]));
    let show = || all.iter().map(|no| shown(&v, *no)).collect::<Vec<_>>();
    let rename = |from: &str, to: &str| {
        let flags = RenameFlags::empty();
        v.fs.rename(&root(), ROOT, from.as_bytes(), ROOT, to.as_bytes(), flags).unwrap();
    };
    v.fs.snapshot(b"one").unwrap();
    write(0, b"otherwise");
    v.fs.snapshot(b"two").unwrap();
    write(300, &[2; 50_000]);
    v.fs.setxattr(&root(), all[600], b"user.x", b"value", XattrFlags::empty()).unwrap();
    rename("file-900", "renamed");
    rename("file-1000", "file-1001");
    v.file(dir, "new");
    v.unlink(ROOT, "file-1200").unwrap();
    let before = show();
    let judge = |before: &[Option<Shown>], most: usize| {
        let after = show();
        let told = told.lock();
        let mut differ = 0;
        for (at, no) in all.iter().enumerate() {
            let (was, is) = (&before[at], &after[at]);
            let of = told.known.iter().find(|of| of.inode == *no).unwrap();
            let mut may_be = was.clone();
            match (of.differs, &mut may_be, is) {
                (Differs::Anywhere, ..) => differ += 1,
                (Differs::InAccessTime, Some(was), Some(is)) => was.attr.atime = is.attr.atime,
                _ => {}
            }
            assert!(of.differs == Differs::Anywhere || may_be == *is, "{no}: {is:?}");
            let names = |of: &Option<Shown>| -> HashSet<_> {
                of.iter().flat_map(|it| it.names.clone()).collect()
            };
            for (name, _) in names(was).symmetric_difference(&names(is)) {
                let name = (*no, name.clone().into_bytes().into_boxed_slice());
                assert!(told.names.contains(&name), "{name:?}: {:?}", told.names);
            }
        }
        assert!(differ <= most, "{differ} of {}", all.len());
        assert!(told.names.len() <= most, "{:?}", told.names);
        after
    };
    // Two files with other bytes, one with an attribute, those renamed and removed, one that takes the place of another, and both
    // directories.
    v.fs.rollback(b"two", Some(b"was")).unwrap();
    let at_two = judge(&before, 8);
    // Nothing has changed but access times.
    v.fs.rollback(b"two", None).unwrap();
    judge(&at_two, 0);
    let in_access_time = |of: &&Affected| of.differs == Differs::InAccessTime;
    assert!(told.lock().known.iter().filter(in_access_time).count() > 0);
    write(1400, b"once more");
    let before = show();
    v.fs.rollback(b"one", None).unwrap();
    let at_one = judge(&before, 2);
    // It has not grown out of that one.
    v.fs.rollback(b"was", None).unwrap();
    judge(&at_one, 9);
    // Not written yet, and an access time that only memory has.
    v.fs.rollback(b"two", None).unwrap();
    write(700, b"delayed");
    let before = show();
    v.fs.rollback(b"two", None).unwrap();
    judge(&before, 1);
}

/// Programs wait for a comparison: it reads nothing, and ends where all could as well be told.
#[test]
fn heads_that_are_not_in_memory_or_far_apart_are_not_compared() {
    let v = Volume::new();
    let start = v.fs.snapshot(b"start").unwrap();
    v.file(ROOT, "f");
    v.fs.sync().unwrap();
    let names = |v: &Volume| {
        let pin = v.fs.core.store.store().pin_number(start).unwrap();
        let heads = HeadsDiffer::between(&v.fs.core.store, &pin).unwrap();
        heads.map(|heads| heads.names.len())
    };
    assert_eq!(names(&v), Some(1));
    let v = v.remount();
    assert_eq!(names(&v), None);
    let _kept = HeadsDiffer::warm(&v.fs.core.store, start).unwrap();
    assert_eq!(names(&v), Some(1));
    let dir = v.dir(ROOT, "dir");
    for n in 0..40_000 {
        v.file(dir, &n.to_string());
    }
    assert_eq!(names(&v), None);
}
