//! Extended attributes and access control lists.

use super::*;

const NONE: XattrFlags = XattrFlags::empty();

/// An access control list: tag, permission, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

#[test]
fn values_of_every_length() {
    for node_size in [4096, 16384] {
        let v = Volume::with(32 << 20, node_size, options());
        let max = v.fs.core.store.value_max();
        let a = v.file(ROOT, "a");
        let lengths = [0, 1, 5, max - 20, max - 10, max, max + 1, 2 * max, 65536];
        let value =
            |len: usize, salt: usize| (0..len).map(|i| (i + salt) as u8).collect::<Vec<u8>>();
        for len in lengths {
            let name = format!("user.{len}");
            v.fs.setxattr(&root(), a, name.as_bytes(), &value(len, 1), NONE).unwrap();
            assert_eq!(v.fs.getxattr(&root(), a, name.as_bytes()).unwrap(), value(len, 1));
        }
        // Each length replaces each other one.
        for old in lengths {
            for new in lengths {
                v.fs.setxattr(&root(), a, b"user.x", &value(old, 2), NONE).unwrap();
                let before = v.fs.core.store.latest();
                v.fs.setxattr(&root(), a, b"user.x", &value(new, 3), NONE).unwrap();
                assert_eq!(v.fs.core.store.latest(), before.next(), "one step");
                assert_eq!(v.fs.getxattr(&root(), a, b"user.x").unwrap(), value(new, 3));
            }
        }
        let v = v.remount();
        for len in lengths {
            let name = format!("user.{len}");
            assert_eq!(v.fs.getxattr(&root(), a, name.as_bytes()).unwrap(), value(len, 1));
        }
        assert_eq!(v.fs.listxattr(&root(), a).unwrap().len(), lengths.len() + 1);
        let too_big = v.fs.setxattr(&root(), a, b"user.big", &[0; 65537], NONE);
        assert_eq!(errno(too_big), libc::E2BIG);
        for len in lengths {
            v.fs.removexattr(&root(), a, format!("user.{len}").as_bytes()).unwrap();
        }
        v.fs.removexattr(&root(), a, b"user.x").unwrap();
        assert!(v.fs.listxattr(&root(), a).unwrap().is_empty());
        assert_eq!(xattr_items(&v), 0);
        v.fs.setxattr(&root(), a, b"user.big", &[1; 65536], NONE).unwrap();
        v.fs.setxattr(&root(), a, b"user.more", &[1; 65536], NONE).unwrap();
        v.unlink(ROOT, "a").unwrap();
        assert_eq!(xattr_items(&v), 0, "they go with the file");
        v.check();
    }
}

/// Items of attributes in the whole tree.
fn xattr_items(v: &Volume) -> usize {
    use holdfast_format::{ItemKind, Key};
    use std::ops::ControlFlow;
    let mut count = 0;
    let store = &v.fs.core.store;
    store
        .scan(&Key::MIN, &Key::MAX, |key, _| {
            count += usize::from(matches!(key.kind, ItemKind::Xattr | ItemKind::XattrPiece));
            ControlFlow::Continue(())
        })
        .unwrap();
    count
}

#[test]
fn flags_say_what_must_exist() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let set = |flags| v.fs.setxattr(&root(), a, b"user.x", b"v", flags);
    assert_eq!(errno(set(XattrFlags::REPLACE)), libc::ENODATA);
    set(XattrFlags::CREATE).unwrap();
    assert_eq!(errno(set(XattrFlags::CREATE)), libc::EEXIST);
    set(XattrFlags::REPLACE).unwrap();
    assert_eq!(errno(v.fs.removexattr(&root(), a, b"user.y")), libc::ENODATA);
    assert_eq!(errno(v.fs.getxattr(&root(), a, b"user.y")), libc::ENODATA);
}

#[test]
fn name_spaces_have_their_rules() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let link = v.fs.symlink(&root(), ROOT, b"l", b"t").unwrap().inode;
    v.fs.setattr(&root(), a, None, SetAttr { perm: Some(0o666), ..SetAttr::default() }).unwrap();
    let me = user(5, 5);
    let set =
        |who: &Caller, inode, name: &str| v.fs.setxattr(who, inode, name.as_bytes(), b"v", NONE);
    let get = |who: &Caller, inode, name: &str| v.fs.getxattr(who, inode, name.as_bytes());
    set(&me, a, "user.mine").unwrap();
    assert_eq!(errno(set(&me, a, "trusted.x")), libc::EPERM);
    assert_eq!(errno(set(&me, a, "security.x")), libc::EPERM);
    set(&root(), a, "trusted.x").unwrap();
    set(&root(), a, "security.x").unwrap();
    assert_eq!(errno(get(&me, a, "trusted.x")), libc::ENODATA);
    assert_eq!(get(&me, a, "security.x").unwrap(), b"v");
    assert_eq!(errno(set(&root(), a, "user.")), libc::EINVAL);
    assert_eq!(errno(set(&root(), a, "system.other")), libc::EOPNOTSUPP);
    assert_eq!(errno(set(&root(), a, "plain")), libc::EOPNOTSUPP);
    assert_eq!(errno(set(&root(), link, "user.x")), libc::EPERM);
    assert_eq!(errno(get(&root(), link, "user.x")), libc::ENODATA);
    set(&root(), link, "trusted.x").unwrap();
    let long = format!("user.{}", "n".repeat(251));
    assert_eq!(errno(set(&root(), a, &long)), libc::ERANGE);
    set(&root(), a, &long[..255]).unwrap();
    let names = |who: &Caller| v.fs.listxattr(who, a).unwrap();
    assert_eq!(names(&me).len(), 3);
    assert_eq!(names(&root()).len(), 4);
}

#[test]
fn an_access_list_and_the_bits_are_one() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let acl = list(&[(1, 6, !0), (2, 7, 5), (4, 4, !0), (0x10, 6, !0), (0x20, 0, !0)]);
    v.fs.setxattr(&root(), a, acl::ACCESS, &acl, NONE).unwrap();
    assert_eq!(v.stat(a).perm, 0o660);
    v.fs.access(&user(5, 9), a, Access::WRITE).unwrap();
    assert_eq!(errno(v.fs.access(&user(6, 9), a, Access::READ)), libc::EACCES);
    // chmod changes the mask.
    v.fs.setattr(&root(), a, None, SetAttr { perm: Some(0o640), ..SetAttr::default() }).unwrap();
    assert_eq!(errno(v.fs.access(&user(5, 9), a, Access::WRITE)), libc::EACCES);
    let masked = list(&[(1, 6, !0), (2, 7, 5), (4, 4, !0), (0x10, 4, !0), (0x20, 0, !0)]);
    assert_eq!(v.fs.getxattr(&root(), a, acl::ACCESS).unwrap(), masked);
    // A list that says no more than the bits is not kept.
    let plain = list(&[(1, 7, !0), (4, 5, !0), (0x20, 1, !0)]);
    v.fs.setxattr(&root(), a, acl::ACCESS, &plain, NONE).unwrap();
    assert_eq!(v.stat(a).perm, 0o751);
    assert_eq!(errno(v.fs.getxattr(&root(), a, acl::ACCESS)), libc::ENODATA);
    assert_eq!(errno(v.fs.setxattr(&root(), a, acl::ACCESS, b"nonsense", NONE)), libc::EOPNOTSUPP);
    assert_eq!(errno(v.fs.setxattr(&root(), a, acl::DEFAULT, &plain, NONE)), libc::EACCES);
    assert_eq!(errno(v.fs.setxattr(&user(5, 5), a, acl::ACCESS, &plain, NONE)), libc::EPERM);
}

#[test]
fn a_default_list_is_inherited() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let default = list(&[(1, 7, !0), (2, 7, 5), (4, 5, !0), (0x10, 7, !0), (0x20, 5, !0)]);
    v.fs.setxattr(&root(), d, acl::DEFAULT, &default, NONE).unwrap();
    let f = v.file(d, "f");
    assert_eq!(v.stat(f).perm, 0o644);
    let inherited = list(&[(1, 6, !0), (2, 7, 5), (4, 5, !0), (0x10, 4, !0), (0x20, 4, !0)]);
    assert_eq!(v.fs.getxattr(&root(), f, acl::ACCESS).unwrap(), inherited);
    assert_eq!(errno(v.fs.getxattr(&root(), f, acl::DEFAULT)), libc::ENODATA);
    let s = v.dir(d, "s");
    assert_eq!(v.fs.getxattr(&root(), s, acl::DEFAULT).unwrap(), default);
    let (t, _file) = v.fs.tmpfile(&root(), d, 0o600, OpenFlags::WRITE).unwrap();
    assert!(v.fs.getxattr(&root(), t.inode, acl::ACCESS).is_ok());
    let v = v.remount();
    assert_eq!(v.fs.getxattr(&root(), f, acl::ACCESS).unwrap(), inherited);
    v.check();
}

#[test]
fn a_list_set_from_outside_the_group_takes_set_gid_away() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let change = SetAttr { uid: Some(5), gid: Some(9), perm: Some(0o2755), ..SetAttr::default() };
    v.fs.setattr(&root(), a, None, change).unwrap();
    v.fs.setattr(&root(), a, None, SetAttr { perm: Some(0o2755), ..SetAttr::default() }).unwrap();
    let plain = list(&[(1, 7, !0), (4, 5, !0), (0x20, 5, !0)]);
    v.fs.setxattr(&user(5, 9), a, acl::ACCESS, &plain, NONE).unwrap();
    assert_eq!(v.stat(a).perm, 0o2755);
    v.fs.setxattr(&user(5, 5), a, acl::ACCESS, &plain, NONE).unwrap();
    assert_eq!(v.stat(a).perm, 0o755);
}
