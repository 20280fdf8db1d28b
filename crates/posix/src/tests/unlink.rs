//! Names that go: unlink and rmdir.

use super::*;

#[test]
fn unlink_and_rmdir_take_what_is_theirs() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    v.file(d, "f");
    let rmdir = |dir, name: &str| v.fs.rmdir(&root(), dir, name.as_bytes());
    assert_eq!(errno(v.unlink(ROOT, "d")), libc::EISDIR);
    assert_eq!(errno(rmdir(d, "f")), libc::ENOTDIR);
    assert_eq!(errno(rmdir(ROOT, "d")), libc::ENOTEMPTY);
    assert_eq!(errno(rmdir(ROOT, ".")), libc::EINVAL);
    assert_eq!(errno(rmdir(d, "..")), libc::ENOTEMPTY);
    assert_eq!(errno(v.unlink(ROOT, "no")), libc::ENOENT);
    assert_eq!(errno(rmdir(ROOT, "no")), libc::ENOENT);
    v.unlink(d, "f").unwrap();
    rmdir(ROOT, "d").unwrap();
    assert_eq!((v.stat(ROOT).nlink, v.stat(ROOT).size), (2, 0));
    assert_eq!(errno(v.fs.getattr(d)), libc::ENOENT);
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

#[test]
fn nothing_is_added_to_a_removed_directory() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let a = v.file(ROOT, "a");
    v.fs.remember(d, 1);
    v.fs.rmdir(&root(), ROOT, b"d").unwrap();
    assert_eq!(v.stat(d).nlink, 0);
    assert_eq!(errno(v.fs.mkdir(&root(), d, b"x", 0o755)), libc::ENOENT);
    assert_eq!(errno(v.fs.link(&root(), a, d, b"x")), libc::ENOENT);
    assert_eq!(errno(v.rename((ROOT, "a"), (d, "a"))), libc::ENOENT);
    assert_eq!(v.in_tree(), (3, 1));
    v.fs.forget(d, 1);
    assert_eq!(v.in_tree(), (2, 0));
    v.check();
}

#[test]
fn the_sticky_bit_protects_other_peoples_files() {
    let v = Volume::new();
    let tmp = v.fs.mkdir(&root(), ROOT, b"tmp", 0o1777).unwrap().inode;
    let new = NewNode { file_type: FileType::Regular, perm: 0o666, rdev: 0 };
    v.fs.mknod(&user(5, 5), tmp, b"mine", new).unwrap();
    v.fs.mknod(&user(6, 6), tmp, b"yours", new).unwrap();
    assert_eq!(errno(v.fs.unlink(&user(6, 6), tmp, b"mine")), libc::EPERM);
    let flags = RenameFlags::empty();
    let over = |who: &Caller| v.fs.rename(who, tmp, b"yours", tmp, b"mine", flags);
    assert_eq!(errno(over(&user(6, 6))), libc::EPERM);
    assert_eq!(errno(v.fs.unlink(&user(5, 5), ROOT, b"tmp")), libc::EACCES);
    v.fs.unlink(&user(5, 5), tmp, b"mine").unwrap();
    v.check();
}

#[test]
fn an_unlink_of_an_unheld_file_is_one_step() {
    let v = Volume::new();
    v.file(ROOT, "a");
    let before = v.fs.core.store.latest();
    v.unlink(ROOT, "a").unwrap();
    assert_eq!(v.fs.core.store.latest(), before.next());
}

#[test]
fn a_full_volume_can_be_emptied() {
    let v = Volume::with(8 << 20, 4096, options());
    let mut count = 0;
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
    let name = |i: u32| format!("{i}{}", "x".repeat(200));
    let full = loop {
        match v.fs.mknod(&root(), ROOT, name(count).as_bytes(), new) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000, "8 MiB never got full");
    };
    assert_eq!(full.errno(), libc::ENOSPC);
    // What exists says so, and can be opened, also when nothing can be made.
    let exists = v.fs.mknod(&root(), ROOT, name(0).as_bytes(), new);
    assert_eq!(errno(exists), libc::EEXIST);
    v.fs.create(&root(), ROOT, name(0).as_bytes(), 0o600, OpenFlags::READ, false).unwrap();
    for i in 0..count {
        v.unlink(ROOT, &name(i)).unwrap_or_else(|error| panic!("unlink {i} of {count}: {error}"));
    }
    assert_eq!(v.in_tree(), (1, 0));
    v.file(ROOT, "again");
    v.check();
}
