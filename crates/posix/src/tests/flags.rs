//! Immutable and append-only files and directories.

use super::*;

const WRITE: OpenFlags = OpenFlags::WRITE;
const APPEND: OpenFlags = OpenFlags::WRITE.union(OpenFlags::APPEND);

fn set(v: &Volume, inode: InodeNo, flags: FileFlags) {
    v.fs.set_file_flags(&root(), inode, flags).unwrap();
    assert_eq!(v.fs.file_flags(inode).unwrap(), flags);
}

fn write(v: &Volume, file: &OpenFile, at: u64) -> Result<usize> {
    v.fs.write(&root(), file, at, b"bytes", WriteHow::default())
}

fn change(v: &Volume, inode: InodeNo, change: SetAttr) -> Result<Attr> {
    v.fs.setattr(&root(), inode, None, change)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(errno(result), libc::EPERM);
}

/// What changes a file or a name of it, and is not an append.
fn expect_unchangeable(v: &Volume, dir: InodeNo, name: &str) {
    let inode = v.find(dir, name).unwrap();
    let at = SetTime::At(holdfast_base::Timestamp { secs: 5, nanos: 0 });
    for open in [WRITE, OpenFlags::READ | WRITE, APPEND | OpenFlags::TRUNCATE, OpenFlags::TRUNCATE]
    {
        refused(v.fs.open(&root(), inode, open));
    }
    for attributes in [
        SetAttr { size: Some(3), ..SetAttr::default() },
        SetAttr { size: Some(300), ..SetAttr::default() },
        SetAttr { perm: Some(0o600), ..SetAttr::default() },
        SetAttr { uid: Some(5), ..SetAttr::default() },
        SetAttr { gid: Some(5), ..SetAttr::default() },
        SetAttr { mtime: Some(at), ..SetAttr::default() },
    ] {
        refused(change(v, inode, attributes));
    }
    let none = XattrFlags::empty();
    refused(v.fs.setxattr(&root(), inode, b"user.new", b"1", none));
    refused(v.fs.removexattr(&root(), inode, b"user.there"));
    refused(v.unlink(dir, name));
    refused(v.fs.link(&root(), inode, ROOT, b"link"));
    refused(v.rename((dir, name), (ROOT, "moved")));
    refused(v.rename((ROOT, "other"), (dir, name)));
    refused(v.rename_with((ROOT, "other"), (dir, name), RenameFlags::EXCHANGE));
}

#[test]
fn an_immutable_file_is_as_it_is() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.file(ROOT, "other");
    v.fs.setxattr(&root(), f, b"user.there", b"1", XattrFlags::empty()).unwrap();
    let before = v.fs.open(&root(), f, OpenFlags::READ | WRITE).unwrap();
    write(&v, &before, 0).unwrap();
    set(&v, f, FileFlags::IMMUTABLE);
    expect_unchangeable(&v, ROOT, "f");
    refused(v.fs.open(&root(), f, APPEND));
    refused(change(&v, f, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() }));
    // An open handle, too.
    refused(write(&v, &before, 0));
    for flags in [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::COLLAPSE_RANGE,
    ] {
        refused(v.fs.fallocate(&before, flags, 0, 4096));
    }
    refused(v.fs.access(&root(), f, Access::WRITE));
    // It is read, and what was written before is there.
    let mut bytes = [0; 9];
    assert_eq!(v.fs.read(&before, 0, &mut bytes).unwrap(), 5);
    drop(before);
    let v = v.remount();
    assert_eq!((v.fs.file_flags(f).unwrap(), v.stat(f).size), (FileFlags::IMMUTABLE, 5));
    set(&v, f, FileFlags::empty());
    v.unlink(ROOT, "f").unwrap();
    v.check();
}

#[test]
fn an_append_only_file_grows() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.file(ROOT, "other");
    v.fs.setxattr(&root(), f, b"user.there", b"1", XattrFlags::empty()).unwrap();
    let before = v.fs.open(&root(), f, WRITE).unwrap();
    write(&v, &before, 0).unwrap();
    set(&v, f, FileFlags::APPEND_ONLY);
    expect_unchangeable(&v, ROOT, "f");
    refused(write(&v, &before, 100));
    let appends = v.fs.open(&root(), f, APPEND).unwrap();
    write(&v, &appends, 0).unwrap();
    change(&v, f, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() }).unwrap();
    v.fs.fallocate(&appends, FallocateFlags::KEEP_SIZE, 0, 8192).unwrap();
    let punch = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
    refused(v.fs.fallocate(&appends, punch, 0, 4096));
    refused(v.fs.fallocate(&appends, FallocateFlags::COLLAPSE_RANGE, 0, 4096));
    assert_eq!(v.stat(f).size, 10);
    drop((before, appends));
    let v = v.crash_after_sync();
    assert_eq!(v.fs.file_flags(f).unwrap(), FileFlags::APPEND_ONLY);
    v.check();
}

#[test]
fn names_come_and_go_as_the_flags_of_their_directory_let_them() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let f = v.file(d, "f");
    v.dir(d, "sub");
    v.file(ROOT, "other");
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
    let expect_kept = || {
        refused(v.unlink(d, "f"));
        refused(v.fs.rmdir(&root(), d, b"sub"));
        refused(v.rename((d, "f"), (ROOT, "f")));
        refused(v.rename((d, "f"), (d, "g")));
        refused(v.rename((ROOT, "other"), (d, "f")));
        refused(v.rename((ROOT, "d"), (ROOT, "e")));
        refused(v.fs.rmdir(&root(), ROOT, b"d"));
    };
    set(&v, d, FileFlags::IMMUTABLE);
    expect_kept();
    refused(v.fs.mknod(&root(), d, b"new", new));
    refused(v.fs.mkdir(&root(), d, b"new", 0o755));
    refused(v.fs.symlink(&root(), d, b"new", b"target"));
    refused(v.fs.create(&root(), d, b"new", 0o644, WRITE, true));
    refused(v.fs.tmpfile(&root(), d, 0o644, WRITE));
    refused(v.fs.link(&root(), v.find(ROOT, "other").unwrap(), d, b"new"));
    refused(v.rename((ROOT, "other"), (d, "new")));
    // What is in it is not itself immutable.
    let file = v.fs.open(&root(), f, WRITE).unwrap();
    write(&v, &file, 0).unwrap();
    drop(file);
    set(&v, d, FileFlags::APPEND_ONLY);
    expect_kept();
    v.fs.mknod(&root(), d, b"new", new).unwrap();
    v.fs.link(&root(), f, d, b"link").unwrap();
    v.rename((ROOT, "other"), (d, "came")).unwrap();
    assert_eq!(v.ls(d), ["came", "f", "link", "new", "sub"]);
    v.check();
}

#[test]
fn only_root_sets_flags_and_only_of_files_and_directories() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    change(&v, f, SetAttr { uid: Some(5), ..SetAttr::default() }).unwrap();
    let link = v.fs.symlink(&root(), ROOT, b"link", b"f").unwrap().inode;
    let by = |caller: &Caller, inode, flags| v.fs.set_file_flags(caller, inode, flags);
    refused(by(&user(5, 5), f, FileFlags::IMMUTABLE));
    refused(by(&Caller { trusted: true, ..user(5, 5) }, f, FileFlags::APPEND_ONLY));
    by(&user(5, 5), f, FileFlags::empty()).unwrap();
    let all = FileFlags::IMMUTABLE | FileFlags::APPEND_ONLY;
    assert_eq!(errno(by(&root(), link, FileFlags::IMMUTABLE)), libc::EOPNOTSUPP);
    by(&root(), f, all).unwrap();
    refused(by(&user(5, 5), f, FileFlags::empty()));
    assert_eq!(v.fs.file_flags(f).unwrap(), all);
    v.check();
}

#[test]
fn snapshots_and_forks_keep_flags() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    set(&v, f, FileFlags::IMMUTABLE);
    v.fs.snapshot(b"s").unwrap();
    set(&v, f, FileFlags::empty());
    v.fs.fork(b"fork", Some(b"s")).unwrap();
    let fork = v.fs.open_branch(b"fork", options()).unwrap();
    assert_eq!(fork.file_flags(f).unwrap(), FileFlags::IMMUTABLE);
    refused(fork.unlink(&root(), ROOT, b"f"));
    fork.unmount().unwrap();
    v.fs.rollback(b"s", None).unwrap();
    refused(v.unlink(ROOT, "f"));
    v.check();
}

/// No message tells of a store into a mapping, and the mapping of a handle that reads and writes takes stores.
#[test]
fn what_a_kernel_has_open_to_append_is_not_mapped_to_be_written() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    set(&v, f, FileFlags::APPEND_ONLY);
    let appends = WRITE | OpenFlags::APPENDS;
    refused(v.fs.open(&root(), f, appends | OpenFlags::READ));
    refused(v.fs.create(&root(), ROOT, b"f", 0o644, appends | OpenFlags::READ, false));
    write(&v, &v.fs.open(&root(), f, appends).unwrap(), 0).unwrap();
    // The library's own handles are not mapped.
    write(&v, &v.fs.open(&root(), f, APPEND | OpenFlags::READ).unwrap(), 0).unwrap();
    assert_eq!(v.stat(f).size, 10);
    v.check();
}

/// Flags may come between the judgement of a call and what it does.
#[test]
fn attributes_are_judged_once_more_where_they_are_changed() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let now = holdfast_base::Timestamp::now();
    let inode = v.fs.core.inode(f).unwrap();
    let behind_the_judgement = |of: SetAttr| match of.size {
        Some(size) => crate::op::truncate::set_size(&v.fs.core, &inode, size, now),
        None => crate::op::attr::apply(&v.fs.core, &root(), &inode, &of, now),
    };
    let all = [
        SetAttr { size: Some(3), ..SetAttr::default() },
        SetAttr { perm: Some(0o600), ..SetAttr::default() },
        SetAttr { uid: Some(5), ..SetAttr::default() },
    ];
    for flags in [FileFlags::IMMUTABLE, FileFlags::APPEND_ONLY] {
        set(&v, f, flags);
        all.iter().for_each(|of| refused(behind_the_judgement(*of)));
        let time = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let kept = behind_the_judgement(time).is_err();
        assert_eq!(kept, flags == FileFlags::IMMUTABLE);
        let stat = v.stat(f);
        assert_eq!((stat.size, stat.perm, stat.uid), (0, 0o644, 0));
    }
    // What has written or cut the file was judged itself.
    behind_the_judgement(SetAttr { kill_suid_sgid: true, ..SetAttr::default() }).unwrap();
    set(&v, f, FileFlags::empty());
    all.iter().for_each(|of| behind_the_judgement(*of).unwrap());
    v.check();
}

/// An append takes capabilities away, as any write does; the kernel sends a call of its own for that.
#[test]
fn capabilities_go_with_an_append_and_not_with_what_is_refused() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let (name, none) = (b"security.capability", XattrFlags::empty());
    let give = || {
        set(&v, f, FileFlags::empty());
        v.fs.setxattr(&root(), f, name, b"all", none).unwrap();
    };
    let has_some = || v.fs.getxattr(&root(), f, name).is_ok();
    give();
    set(&v, f, FileFlags::IMMUTABLE);
    refused(v.fs.removexattr(&root(), f, name));
    set(&v, f, FileFlags::APPEND_ONLY);
    refused(v.fs.setxattr(&root(), f, name, b"others", none));
    v.fs.removexattr(&root(), f, name).unwrap();
    assert!(!has_some());
    give();
    let file = v.fs.open(&root(), f, WRITE | OpenFlags::APPENDS).unwrap();
    let write = |at| {
        let how = WriteHow { kill_capabilities: true, ..WriteHow::default() };
        v.fs.write(&root(), &file, at, b"bytes", how)
    };
    write(0).unwrap();
    assert!(!has_some());
    give();
    set(&v, f, FileFlags::APPEND_ONLY);
    refused(write(0));
    assert!(has_some());
    let chown = SetAttr { uid: Some(5), kill_capabilities: true, ..SetAttr::default() };
    refused(change(&v, f, chown));
    assert!(has_some());
    write(5).unwrap();
    assert!(!has_some());
    give();
    change(&v, f, chown).unwrap();
    assert!(!has_some());
    v.check();
}
