//! chmod, chown, utimens, access, and access times.

use holdfast_base::Timestamp;

use super::*;

fn perm(perm: u32) -> SetAttr {
    SetAttr { perm: Some(perm), ..SetAttr::default() }
}

const OLD: Timestamp = Timestamp { secs: -7, nanos: 999_999_999 };

#[test]
fn attributes_survive_a_remount() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let change = SetAttr {
        perm: Some(0o6711),
        uid: Some(70000),
        gid: Some(80000),
        atime: Some(SetTime::At(OLD)),
        mtime: Some(SetTime::At(OLD)),
        btime: Some(OLD),
        ..SetAttr::default()
    };
    let attr = v.fs.setattr(&root(), a, None, change).unwrap();
    assert!(attr.ctime > OLD);
    let v = v.remount();
    let seen = v.stat(a);
    assert_eq!((seen.perm, seen.uid, seen.gid), (0o6711, 70000, 80000));
    assert_eq!((seen.atime, seen.mtime, seen.btime, seen.ctime), (OLD, OLD, OLD, attr.ctime));
}

#[test]
fn only_owners_change_attributes() {
    let v = Volume::new();
    let d = v.fs.mkdir(&root(), ROOT, b"d", 0o777).unwrap().inode;
    let (me, other) = (user(5, 5), user(6, 6));
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
    let f = v.fs.mknod(&me, d, b"f", new).unwrap().inode;
    let set = |who: &Caller, change| v.fs.setattr(who, f, None, change);
    let default = SetAttr::default();
    assert_eq!(errno(set(&other, perm(0o777))), libc::EPERM);
    assert_eq!(errno(set(&other, SetAttr { uid: Some(6), ..default })), libc::EPERM);
    assert_eq!(errno(set(&me, SetAttr { uid: Some(6), ..default })), libc::EPERM);
    assert_eq!(errno(set(&me, SetAttr { gid: Some(6), ..default })), libc::EPERM);
    assert_eq!(
        errno(set(&other, SetAttr { mtime: Some(SetTime::At(OLD)), ..default })),
        libc::EPERM
    );
    assert_eq!(errno(set(&other, SetAttr { mtime: Some(SetTime::Now), ..default })), libc::EACCES);
    let member = Caller { groups: vec![9], ..me.clone() };
    set(&member, SetAttr { gid: Some(9), ..default }).unwrap();
    set(&me, perm(0o666)).unwrap();
    set(&other, SetAttr { mtime: Some(SetTime::Now), ..default }).unwrap();
    // The owner is not in the file's group: no set-gid.
    assert_eq!(set(&me, perm(0o2755)).unwrap().perm, 0o755);
    assert_eq!(set(&member, perm(0o2755)).unwrap().perm, 0o2755);
    let nonsense = SetTime::At(Timestamp { secs: 0, nanos: 1_000_000_000 });
    assert_eq!(errno(set(&me, SetAttr { atime: Some(nonsense), ..default })), libc::EINVAL);
}

#[test]
fn a_new_owner_does_not_inherit_set_id_bits() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let chown = SetAttr { uid: Some(5), ..SetAttr::default() };
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1755, 0o1755)] {
        v.fs.setattr(&root(), a, None, perm(before)).unwrap();
        assert_eq!(v.fs.setattr(&root(), a, None, chown).unwrap().perm, after);
    }
    let kill = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
    v.fs.setattr(&root(), a, None, perm(0o6755)).unwrap();
    assert_eq!(v.fs.setattr(&root(), a, None, kill).unwrap().perm, 0o755);
    let d = v.dir(ROOT, "d");
    v.fs.setattr(&root(), d, None, perm(0o6755)).unwrap();
    assert_eq!(v.fs.setattr(&root(), d, None, chown).unwrap().perm, 0o6755);
}

#[test]
fn access_reads_the_right_bits() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let change = SetAttr { uid: Some(5), gid: Some(5), perm: Some(0o640), ..SetAttr::default() };
    v.fs.setattr(&root(), a, None, change).unwrap();
    let may = |who: &Caller, access| v.fs.access(who, a, access).is_ok();
    let (read, write, execute) = (Access::READ, Access::WRITE, Access::EXECUTE);
    assert!(may(&user(5, 9), read | write) && !may(&user(5, 9), execute));
    assert!(may(&user(6, 5), read) && !may(&user(6, 5), write));
    assert!(!may(&user(6, 6), read));
    assert!(may(&root(), read | write) && !may(&root(), execute));
    assert_eq!(errno(v.fs.access(&user(6, 6), a, read)), libc::EACCES);
    v.fs.setattr(&root(), a, None, perm(0o100)).unwrap();
    assert!(may(&root(), execute));
}

#[test]
fn searching_a_directory_is_a_right() {
    let v = Volume::new();
    let d = v.fs.mkdir(&root(), ROOT, b"d", 0o711).unwrap().inode;
    v.file(d, "f");
    v.fs.lookup(&user(5, 5), d, b"f").unwrap();
    assert_eq!(errno(v.fs.mkdir(&user(5, 5), d, b"x", 0o755)), libc::EACCES);
    assert_eq!(errno(v.fs.tmpfile(&user(5, 5), d, 0o600, OpenFlags::WRITE)), libc::EACCES);
    v.fs.setattr(&root(), d, None, perm(0o700)).unwrap();
    assert_eq!(errno(v.fs.lookup(&user(5, 5), d, b"f")), libc::EACCES);
}

#[test]
fn reading_a_directory_sets_its_access_time_as_asked() {
    for (policy, first, second) in
        [(Atime::Never, false, false), (Atime::Relative, true, false), (Atime::Always, true, true)]
    {
        let set = MountOptions { atime: policy, ..options() };
        let v = Volume::with(16 << 20, 4096, set.clone());
        let d = v.dir(ROOT, "d");
        v.ls(d);
        let one = v.stat(d).atime;
        assert_eq!(one > v.stat(d).ctime, first, "{policy:?}");
        v.ls(d);
        let two = v.stat(d).atime;
        assert_eq!(two > one, second, "{policy:?}");
        let v = v.remount_with(set);
        assert_eq!(v.stat(d).atime, two, "{policy:?}: lazy, but not lost");
    }
}

#[test]
fn a_read_only_volume_stays_as_it_is() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let v = v.remount_with(MountOptions { read_only: true, ..options() });
    let writes = v.device.stats().writes;
    assert_eq!(errno(v.fs.mkdir(&root(), ROOT, b"d", 0o755)), libc::EROFS);
    assert_eq!(errno(v.fs.mkdir(&root(), ROOT, b"a", 0o755)), libc::EEXIST);
    assert_eq!(errno(v.unlink(ROOT, "a")), libc::EROFS);
    assert_eq!(errno(v.rename((ROOT, "a"), (ROOT, "b"))), libc::EROFS);
    assert_eq!(errno(v.fs.setattr(&root(), a, None, perm(0))), libc::EROFS);
    assert_eq!(errno(v.fs.open(&root(), a, OpenFlags::WRITE)), libc::EROFS);
    assert_eq!(errno(v.fs.access(&root(), a, Access::WRITE)), libc::EROFS);
    v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    assert_eq!(v.ls(ROOT), ["a"]);
    v.fs.unmount().unwrap();
    assert_eq!(v.device.stats().writes, writes);
}

#[test]
fn statfs_counts_inodes() {
    let v = Volume::new();
    let before = v.fs.statfs();
    v.file(ROOT, "a");
    let after = v.fs.statfs();
    assert_eq!(before.inodes - before.inodes_free + 1, after.inodes - after.inodes_free);
    assert!(after.blocks_available <= after.blocks_free && after.blocks_free < after.blocks);
    assert!(after.inodes_free > 1000);
    assert_eq!((after.name_max, after.block_size), (255, 4096));
}
