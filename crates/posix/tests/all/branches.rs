//! Branches and snapshots through the calls of files: what a snapshot shows, forks, rollback, deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::MemoryDevice;
use holdfast_posix::{
    Attr, Caller, FallocateFlags, FileSystem, FileType, FsError, MountOptions, OpenFlags,
    RenameFlags, XattrFlags,
};

use crate::common::{self, create, mount, new_volume, open, quiet, read, set_size, write_all};

const ROOT: InodeNo = InodeNo::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

/// What a name leads to: attributes without access time, content or target, attributes by name.
#[derive(Debug, PartialEq)]
struct Seen {
    attr: (InodeNo, FileType, u32, u32, u64),
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything that a branch or snapshot shows.
fn dump(fs: &FileSystem) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![(String::new(), ROOT)];
    while let Some((path, no)) = todo.pop() {
        let attr: Attr = fs.getattr(no).expect("getattr");
        let mut content = Vec::new();
        match attr.file_type {
            FileType::Regular => {
                let flags = OpenFlags::READ | OpenFlags::NOATIME;
                let file = fs.open(&Caller::root(), no, flags).expect("open");
                content = read(fs, &file, 0, attr.size as usize).expect("read");
            }
            FileType::Directory => {
                let add = &mut |entry: &holdfast_posix::DirEntry<'_>| {
                    let name = String::from_utf8_lossy(entry.name);
                    if name != "." && name != ".." {
                        todo.push((format!("{path}/{name}"), entry.inode));
                    }
                    true
                };
                fs.readdir(no, 0, &mut |entry| add(&entry)).expect("readdir");
            }
            _ => content = fs.readlink(no).expect("readlink"),
        }
        let names = fs.listxattr(&Caller::root(), no).expect("listxattr");
        let value = |name: Vec<u8>| {
            let value = fs.getxattr(&Caller::root(), no, &name).expect("getxattr");
            (name, value)
        };
        let xattrs = names.into_iter().map(value).collect();
        let attr = (no, attr.file_type, attr.perm, attr.nlink, attr.size);
        seen.insert(path, Seen { attr, content, xattrs });
    }
    seen
}

fn shown(fs: &FileSystem, snapshot: &[u8]) -> BTreeMap<String, Seen> {
    let branch = fs.branch_name().expect("a name");
    let snapshot = fs.open_snapshot(&branch, snapshot, quiet()).expect("it opens");
    let seen = dump(&snapshot);
    snapshot.unmount().expect("unmount");
    seen
}

fn free(fs: &FileSystem) -> u64 {
    fs.commit().expect("commit");
    fs.checkpoint().expect("checkpoint");
    fs.statfs().blocks_free
}

fn volume() -> (Arc<MemoryDevice>, FileSystem) {
    let device = new_volume(64 << 20, 4096);
    let fs = mount(&device, &quiet());
    (device, fs)
}

/// One change of many kinds, for each number another.
fn change(fs: &FileSystem, round: u8) {
    let root = Caller::root();
    let file = create(fs, "file");
    let at = u64::from(round) * 3000;
    match round % 11 {
        0 => write_all(fs, &file, at, &[round; 9000]),
        1 => write_all(fs, &file, fs.getattr(file.inode()).expect("it works").size, &[round; 5000]),
        2 => write_all(fs, &file, 100, &[round; 200]),
        3 => {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fs.fallocate(&file, how, 4096, 8192).expect("it works");
        }
        4 => set_size(fs, &file, 6000).expect("it works"),
        5 => {
            write_all(fs, &create(fs, "other"), 0, &[round; 50]);
            let flags = RenameFlags::empty();
            fs.rename(&root, ROOT, b"other", ROOT, format!("r{round}").as_bytes(), flags)
                .expect("it works");
        }
        6 => {
            fs.setxattr(&root, ROOT, b"user.a", &[round; 40], XattrFlags::empty())
                .expect("it works");
            // The second time they exist.
            let _ = fs.mkdir(&root, ROOT, format!("d{round}").as_bytes(), 0o755);
            let _ = fs.symlink(&root, ROOT, format!("l{round}").as_bytes(), b"to");
        }
        7 => fs.unlink(&root, ROOT, b"file").expect("it works"),
        8 => write_all(fs, &file, 1 << 20, &[round; 10]),
        9 => {
            fs.fallocate(&file, FallocateFlags::empty(), 0, 40_000).expect("it works");
            write_all(fs, &file, 20_000, &[round; 4096]);
        }
        _ => fs.fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, 20_000).expect("it works"),
    }
}

#[test]
fn a_snapshot_shows_what_was_whatever_is_done_later() {
    let (device, fs) = volume();
    let mut copies = Vec::new();
    for round in 0..33 {
        change(&fs, round);
        if round % 2 == 0 {
            fs.sync().expect("it works");
        }
        let name = format!("s{round}").into_bytes();
        fs.snapshot(&name).expect("it works");
        copies.push((name, dump(&fs)));
        for (name, copy) in &copies {
            assert_eq!(shown(&fs, name), *copy, "after {round}");
        }
    }
    // A crash, and then the end.
    drop(fs);
    let fs = mount(&device, &quiet());
    for (name, copy) in &copies {
        assert_eq!(shown(&fs, name), *copy);
    }
    fs.unmount().expect("it works");
    let fs = mount(&device, &quiet());
    for (name, copy) in &copies {
        assert_eq!(shown(&fs, name), *copy);
    }
    assert_eq!(fs.snapshots().expect("it works").len(), copies.len());
    fs.unmount().expect("it works");
}

#[test]
fn forks_change_apart_from_each_other() {
    let (device, fs) = volume();
    for round in 0..7 {
        change(&fs, round);
    }
    fs.snapshot(b"base").expect("it works");
    let base = dump(&fs);
    fs.fork(b"left", Some(b"base")).expect("it works");
    fs.fork(b"right", None).expect("it works");
    let left = fs.open_branch(b"left", quiet()).expect("it works");
    let right = fs.open_branch(b"right", quiet()).expect("it works");
    assert_eq!((dump(&left), &dump(&right)), (base, &dump(&fs)));
    for round in 0..22 {
        let others = (dump(&fs), dump(&right));
        change(&left, round + 100);
        assert_eq!((dump(&fs), dump(&right)), others, "{round}");
        let others = (dump(&left), dump(&fs));
        change(&right, round + 50);
        assert_eq!((dump(&left), dump(&fs)), others, "{round}");
        let others = (dump(&left), dump(&right));
        change(&fs, round + 7);
        assert_eq!((dump(&left), dump(&right)), others, "{round}");
    }
    let all = [dump(&fs), dump(&left), dump(&right)];
    left.sync().expect("it works");
    fs.sync().expect("it works");
    right.sync().expect("it works");
    drop((fs, left, right));
    let fs = mount(&device, &quiet());
    let left = fs.open_branch(b"left", quiet()).expect("it works");
    let right = MountOptions { branch: Some(b"right".into()), ..quiet() };
    let right = fs.open_branch(b"right", right).expect("it works");
    assert_eq!([dump(&fs), dump(&left), dump(&right)], all);
    fs.unmount().expect("it works");
    left.unmount().expect("it works");
    assert_eq!(dump(&right), all[2]);
    right.unmount().expect("it works");
    let only = MountOptions { branch: Some(b"left".into()), ..quiet() };
    let left = mount(&device, &only);
    assert_eq!(dump(&left), all[1]);
    left.unmount().expect("it works");
}

#[test]
fn a_snapshot_is_only_read() {
    let (_, fs) = volume();
    write_all(&fs, &create(&fs, "file"), 0, b"text");
    fs.snapshot(b"s").expect("it works");
    let snapshot = fs.open_snapshot(b"main", b"s", quiet()).expect("it works");
    let errno = |done: Result<(), FsError>| done.expect_err("it is only read").errno();
    let made = snapshot.mkdir(&Caller::root(), ROOT, b"d", 0o755).map(drop);
    assert_eq!(errno(made), libc_erofs());
    assert_eq!(errno(snapshot.snapshot(b"t").map(drop)), libc_erofs());
    assert_eq!(errno(snapshot.rollback(b"s", None)), libc_erofs());
    let attr = snapshot.lookup(&Caller::root(), ROOT, b"file").expect("it works");
    let opened = snapshot.open(&Caller::root(), attr.inode, RW).map(drop);
    assert_eq!(errno(opened), libc_erofs());
    // While it is open it stays.
    assert!(matches!(fs.delete_snapshot(b"main", b"s"), Err(FsError::InUse(_))));
    assert_eq!(snapshot.fork(b"f", None).map(drop).err().map(|error| error.to_string()), None);
    assert_eq!(snapshot.snapshot_name().expect("it works"), Some(b"s".to_vec()));
    snapshot.unmount().expect("it works");
    assert_eq!(fs.branches().expect("it works").len(), 2);
    fs.unmount().expect("it works");
}

fn libc_erofs() -> i32 {
    FsError::Store(holdfast_posix::StoreError::ReadOnly).errno()
}

#[test]
fn a_rollback_shows_the_snapshot_and_open_files_follow() {
    let (device, fs) = volume();
    write_all(&fs, &create(&fs, "kept"), 0, &[1; 9000]);
    write_all(&fs, &create(&fs, "gone"), 0, &[2; 9000]);
    fs.snapshot(b"s").expect("it works");
    let before = dump(&fs);
    let kept = open(&fs, "kept", RW);
    write_all(&fs, &kept, 0, &[3; 20_000]);
    fs.sync().expect("it works");
    let new = create(&fs, "new");
    write_all(&fs, &new, 0, &[4; 5000]);
    // Delayed, and cached.
    write_all(&fs, &kept, 4096, &[5; 100]);
    fs.unlink(&Caller::root(), ROOT, b"gone").expect("it works");
    let old = dump(&fs);
    fs.rollback(b"s", Some(b"old")).expect("it works");
    assert_eq!(dump(&fs), before);
    assert_eq!(shown(&fs, b"old"), old);
    assert_eq!(shown(&fs, b"s"), before);
    assert_eq!(read(&fs, &kept, 0, 99_999).expect("it works"), [1; 9000]);
    assert!(matches!(read(&fs, &new, 0, 10), Err(FsError::Stale)));
    assert!(matches!(common::write(&fs, &new, 0, b"x"), Err(FsError::Stale)));
    assert!(matches!(fs.fsync(&new, false), Err(FsError::Stale)));
    drop(new);
    write_all(&fs, &kept, 100, &[6; 10]);
    let now = dump(&fs);
    assert_ne!(now, before);
    fs.sync().expect("it works");
    drop((kept, fs));
    let fs = mount(&device, &quiet());
    assert_eq!(dump(&fs), now);
    assert_eq!(shown(&fs, b"old"), old);
    // Back to what was left.
    fs.rollback(b"old", None).expect("it works");
    assert_eq!(dump(&fs), old);
    fs.unmount().expect("it works");
}

/// Removes all that is in the root; directories are empty.
fn empty(fs: &FileSystem) {
    for (path, seen) in dump(fs).iter().filter(|(path, _)| !path.is_empty()) {
        let name = &path.as_bytes()[1..];
        match seen.attr.1 {
            FileType::Directory => fs.rmdir(&Caller::root(), ROOT, name).expect("it works"),
            _ => fs.unlink(&Caller::root(), ROOT, name).expect("it works"),
        }
    }
    fs.removexattr(&Caller::root(), ROOT, b"user.a").expect("it works");
}

#[test]
fn deleting_in_any_order_gives_all_space_back() {
    let orders: [[usize; 4]; 6] =
        [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [1, 3, 2, 0], [0, 3, 1, 2]];
    for order in orders {
        let (device, fs) = volume();
        let start = free(&fs);
        let mut copies = Vec::new();
        for at in 0..4 {
            write_all(&fs, &create(&fs, &format!("large{at}")), 0, &vec![at as u8; 1 << 20]);
            for round in 0..11 {
                change(&fs, round * 7);
            }
            fs.snapshot(format!("s{at}").as_bytes()).expect("it works");
            copies.push(dump(&fs));
        }
        fs.fork(b"fork", Some(b"s1")).expect("it works");
        let fork = fs.open_branch(b"fork", quiet()).expect("it works");
        write_all(&fork, &create(&fork, "in the fork"), 0, &vec![9; 1 << 20]);
        assert!(fs.delete_branch(b"fork").is_err(), "it is open");
        fork.unmount().expect("it works");
        fs.delete_branch(b"fork").expect("it works");
        empty(&fs);
        let mut left: Vec<usize> = order.to_vec();
        for at in order {
            fs.delete_snapshot(b"main", format!("s{at}").as_bytes()).expect("it works");
            left.retain(|other| *other != at);
            for at in &left {
                assert_eq!(shown(&fs, format!("s{at}").as_bytes()), copies[*at], "{order:?}");
            }
            let now = dump(&fs);
            free(&fs);
            assert_eq!(dump(&fs), now);
        }
        assert!(fs.snapshots().expect("it works").is_empty());
        let end = free(&fs);
        // The trees need not have the nodes that they had, and there is a counter more.
        assert!(start.abs_diff(end) < 8, "{start} free at the start, {end} at the end: {order:?}");
        fs.unmount().expect("it works");
        let fs = mount(&device, &quiet());
        fs.unmount().expect("it works");
    }
}
