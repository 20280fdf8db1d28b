//! New names: mknod, mkdir, symlink, create, tmpfile, link, lookup.

use super::*;

#[test]
fn a_new_file_is_empty_and_its_parent_knows() {
    let v = Volume::new();
    let before = v.stat(ROOT);
    let a = v.file(ROOT, "a");
    let attr = v.stat(a);
    assert_eq!((attr.size, attr.nlink, attr.perm, attr.blocks), (0, 1, 0o644, 0));
    assert_eq!(attr.file_type, FileType::Regular);
    let after = v.stat(ROOT);
    assert_eq!((after.size, after.nlink), (1, 2));
    assert!(after.mtime >= before.mtime && after.mtime == after.ctime);
    assert_eq!(v.find(ROOT, "a").unwrap(), a);
    v.check();
}

#[test]
fn a_directory_links_its_parent() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    assert_eq!((v.stat(d).nlink, v.stat(ROOT).nlink), (2, 3));
    assert_eq!(v.find(d, "..").unwrap(), ROOT);
    assert_eq!(v.find(d, ".").unwrap(), d);
    assert_eq!(v.find(ROOT, "..").unwrap(), ROOT);
    v.check();
}

#[test]
fn names_that_cannot_be() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let long = "x".repeat(256);
    let make = |dir, name: &str| v.fs.mkdir(&root(), dir, name.as_bytes(), 0o755);
    assert_eq!(errno(make(ROOT, "a")), libc::EEXIST);
    assert_eq!(errno(make(ROOT, ".")), libc::EEXIST);
    assert_eq!(errno(make(ROOT, "..")), libc::EEXIST);
    assert_eq!(errno(make(ROOT, "")), libc::ENOENT);
    let create = |name: &str, exclusive| {
        v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, OpenFlags::READ, exclusive).map(drop)
    };
    assert_eq!(
        (errno(create(".", false)), errno(create("..", false))),
        (libc::EISDIR, libc::EISDIR)
    );
    assert_eq!((errno(create(".", true)), errno(create("", false))), (libc::EEXIST, libc::ENOENT));
    assert_eq!(errno(make(ROOT, "a/b")), libc::EINVAL);
    assert_eq!(errno(make(ROOT, "a\0b")), libc::EINVAL);
    assert_eq!(errno(make(ROOT, &long)), libc::ENAMETOOLONG);
    assert_eq!(errno(make(a, "b")), libc::ENOTDIR);
    assert_eq!(errno(make(InodeNo(12345), "b")), libc::ENOENT);
    assert_eq!(errno(v.find(ROOT, "no")), libc::ENOENT);
    assert_eq!(errno(v.find(ROOT, &long)), libc::ENAMETOOLONG);
    assert_eq!(errno(v.find(a, "x")), libc::ENOTDIR);
    make(ROOT, &long[..255]).unwrap();
    v.check();
}

#[test]
fn special_files_keep_their_numbers() {
    let v = Volume::new();
    for (name, file_type, rdev) in [
        ("null", FileType::CharDevice, 0x103),
        ("disk", FileType::BlockDevice, 0x800),
        ("pipe", FileType::Fifo, 0),
        ("sock", FileType::Socket, 0),
    ] {
        let new = NewNode { file_type, perm: 0o600, rdev };
        let attr = v.fs.mknod(&root(), ROOT, name.as_bytes(), new).unwrap();
        assert_eq!((attr.file_type, attr.rdev), (file_type, rdev));
        assert_eq!(errno(v.fs.open(&root(), attr.inode, OpenFlags::READ)), libc::EINVAL);
    }
    // The number of what is no device means nothing, and is not kept.
    for (name, file_type) in [("file", FileType::Regular), ("pipe2", FileType::Fifo)] {
        let new = NewNode { file_type, perm: 0o600, rdev: 7 };
        assert_eq!(v.fs.mknod(&root(), ROOT, name.as_bytes(), new).unwrap().rdev, 0);
    }
    let device = NewNode { file_type: FileType::CharDevice, perm: 0, rdev: 1 };
    v.fs.setattr(&root(), ROOT, None, SetAttr { perm: Some(0o777), ..SetAttr::default() }).unwrap();
    assert_eq!(errno(v.fs.mknod(&user(5, 5), ROOT, b"dev", device)), libc::EPERM);
    let v = v.remount();
    assert_eq!(v.stat(v.find(ROOT, "disk").unwrap()).rdev, 0x800);
    v.check();
}

#[test]
fn a_symbolic_link_keeps_its_target() {
    let v = Volume::new();
    for len in [1, 60, 900, 1024, 1025, 4095] {
        let target = vec![b't'; len];
        let name = format!("link{len}");
        let attr = v.fs.symlink(&root(), ROOT, name.as_bytes(), &target).unwrap();
        assert_eq!((attr.size, attr.perm), (len as u64, 0o777));
        assert_eq!(v.fs.readlink(attr.inode).unwrap(), target);
    }
    assert_eq!(errno(v.fs.symlink(&root(), ROOT, b"l", &[b't'; 4096])), libc::ENAMETOOLONG);
    assert_eq!(errno(v.fs.symlink(&root(), ROOT, b"l", b"")), libc::ENOENT);
    assert_eq!(errno(v.fs.symlink(&root(), ROOT, b"link1", b"x")), libc::EEXIST);
    assert_eq!(errno(v.fs.readlink(ROOT)), libc::EINVAL);
    let v = v.remount();
    let link = v.find(ROOT, "link4095").unwrap();
    assert_eq!(v.fs.readlink(link).unwrap(), vec![b't'; 4095]);
    v.check();
    for len in [1, 60, 900, 1024, 1025, 4095] {
        v.unlink(ROOT, &format!("link{len}")).unwrap();
    }
    assert_eq!(v.in_tree(), (1, 0));
}

#[test]
fn create_opens_what_exists_unless_exclusive() {
    let v = Volume::new();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (attr, file) = v.fs.create(&root(), ROOT, b"f", 0o600, flags, true).unwrap();
    assert_eq!((file.inode(), file.flags()), (attr.inode, flags));
    assert_eq!(errno(v.fs.create(&root(), ROOT, b"f", 0o600, flags, true)), libc::EEXIST);
    let (again, _) = v.fs.create(&root(), ROOT, b"f", 0o777, flags, false).unwrap();
    assert_eq!((again.inode, again.perm), (attr.inode, 0o600));
    v.dir(ROOT, "d");
    assert_eq!(errno(v.fs.create(&root(), ROOT, b"d", 0o600, flags, false)), libc::EISDIR);
    v.check();
}

#[test]
fn a_handle_may_do_more_than_the_new_file_permits() {
    let v = Volume::new();
    let d = v.fs.mkdir(&root(), ROOT, b"d", 0o777).unwrap().inode;
    let me = user(5, 5);
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (attr, _file) = v.fs.create(&me, d, b"f", 0o000, flags, true).unwrap();
    assert_eq!((attr.uid, attr.gid), (5, 5));
    assert_eq!(errno(v.fs.open(&me, attr.inode, OpenFlags::READ)), libc::EACCES);
    assert_eq!(errno(v.fs.create(&me, d, b"f", 0o777, flags, false)), libc::EACCES);
}

#[test]
fn hard_links_count() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let a = v.file(ROOT, "a");
    assert_eq!(v.fs.link(&root(), a, d, b"b").unwrap().nlink, 2);
    assert_eq!(v.find(d, "b").unwrap(), a);
    assert_eq!(errno(v.fs.link(&root(), a, d, b"b")), libc::EEXIST);
    assert_eq!(errno(v.fs.link(&root(), d, ROOT, b"e")), libc::EPERM);
    assert_eq!(errno(v.fs.link(&root(), a, a, b"e")), libc::ENOTDIR);
    v.unlink(ROOT, "a").unwrap();
    let v = v.remount();
    assert_eq!(v.stat(v.find(d, "b").unwrap()).nlink, 1);
    v.check();
}

#[test]
fn an_unnamed_file_gets_a_name_or_vanishes() {
    let v = Volume::new();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (attr, file) = v.fs.tmpfile(&root(), ROOT, 0o600, flags).unwrap();
    assert_eq!((attr.nlink, v.in_tree()), (0, (2, 1)));
    let linked = v.fs.link(&root(), attr.inode, ROOT, b"named").unwrap();
    assert_eq!((linked.nlink, v.in_tree()), (1, (2, 0)));
    drop(file);
    assert_eq!(v.in_tree(), (2, 0));
    let (attr, file) = v.fs.tmpfile(&root(), ROOT, 0o600, flags).unwrap();
    drop(file);
    assert_eq!(v.in_tree(), (2, 0));
    assert_eq!(errno(v.fs.link(&root(), attr.inode, ROOT, b"late")), libc::ENOENT);
    assert_eq!(errno(v.fs.getattr(attr.inode)), libc::ENOENT);
    v.check();
}

#[test]
fn a_file_that_lost_its_name_gets_no_new_one() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let file = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    v.unlink(ROOT, "a").unwrap();
    assert_eq!(errno(v.fs.link(&root(), a, ROOT, b"b")), libc::ENOENT);
    drop(file);
    v.check();
}

#[test]
fn a_set_gid_directory_hands_its_group_down() {
    let v = Volume::new();
    let d = v.fs.mkdir(&root(), ROOT, b"d", 0o777).unwrap().inode;
    let change = SetAttr { gid: Some(42), perm: Some(0o2777), ..SetAttr::default() };
    v.fs.setattr(&root(), d, None, change).unwrap();
    let me = user(5, 5);
    let (file, _) = v.fs.create(&me, d, b"f", 0o2755, OpenFlags::WRITE, true).unwrap();
    assert_eq!((file.gid, file.perm), (42, 0o755), "a program for a group one is not in");
    let sub = v.fs.mkdir(&me, d, b"s", 0o755).unwrap();
    assert_eq!((sub.gid, sub.perm), (42, 0o2755));
}

#[test]
fn everything_is_there_after_a_remount() {
    let v = Volume::new();
    let mut dirs = vec![ROOT];
    for i in 0..2000 {
        let parent = dirs[i % dirs.len()];
        if i % 100 == 0 {
            dirs.push(v.dir(parent, &format!("dir{i}")));
        } else {
            v.file(parent, &format!("file{i}"));
        }
    }
    let listings: Vec<_> = dirs.iter().map(|&d| v.ls(d)).collect();
    let stats: Vec<_> = dirs.iter().map(|&d| v.stat(d)).collect();
    let v = v.remount();
    v.check();
    for ((&dir, listing), stat) in dirs.iter().zip(&listings).zip(&stats) {
        assert_eq!(&v.ls(dir), listing);
        let seen = v.stat(dir);
        assert_eq!((seen.mtime, seen.ctime, seen.nlink), (stat.mtime, stat.ctime, stat.nlink));
    }
}

#[test]
fn names_with_one_hash_live_side_by_side() {
    let v = Volume::new();
    v.fs.core.hash_mask.store(0, std::sync::atomic::Ordering::Relaxed);
    let d = v.dir(ROOT, "d");
    let made: Vec<_> = (0..255).map(|i| (format!("n{i}"), v.file(d, &format!("n{i}")))).collect();
    for (name, inode) in &made {
        assert_eq!(v.find(d, name).unwrap(), *inode);
    }
    v.file(d, "last");
    let full = v.fs.mkdir(&root(), d, b"one more", 0o755);
    assert_eq!(errno(full), libc::ENOSPC);
    assert_eq!(errno(v.find(d, "one more")), libc::ENOENT);
    for i in [0, 100, 254] {
        v.unlink(d, &format!("n{i}")).unwrap();
    }
    // The gaps are filled, and a rename within one hash keeps both names apart.
    v.rename((d, "n1"), (d, "m1")).unwrap();
    assert_eq!(v.find(d, "m1").unwrap(), made[1].1);
    assert_eq!(errno(v.find(d, "n1")), libc::ENOENT);
    v.rename((d, "n2"), (d, "n3")).unwrap();
    assert_eq!(v.find(d, "n3").unwrap(), made[2].1);
    assert_eq!(v.ls(d).len(), 252);
    v.check();
}
