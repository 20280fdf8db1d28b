//! The rename matrix.

use super::*;

fn with(flags: RenameFlags, v: &Volume, from: &str, to: &str) -> Result<()> {
    v.rename_with((ROOT, from), (ROOT, to), flags)
}

#[test]
fn every_kind_over_every_kind() {
    // Source, target, errno of a rename without flags.
    let table = [
        ("file", "none", 0),
        ("file", "file", 0),
        ("file", "link", 0),
        ("file", "empty", libc::EISDIR),
        ("file", "full", libc::EISDIR),
        ("empty", "none", 0),
        ("empty", "file", libc::ENOTDIR),
        ("empty", "empty", 0),
        ("empty", "full", libc::ENOTEMPTY),
        ("full", "none", 0),
        ("full", "file", libc::ENOTDIR),
        ("full", "empty", 0),
        ("full", "full", libc::ENOTEMPTY),
        ("link", "file", 0),
        ("link", "empty", libc::EISDIR),
        ("none", "file", libc::ENOENT),
        ("none", "none", libc::ENOENT),
    ];
    let make = |v: &Volume, dir, name: &str, kind: &str| match kind {
        "file" => Some(v.file(dir, name)),
        "link" => Some(v.fs.symlink(&root(), dir, name.as_bytes(), b"t").unwrap().inode),
        "empty" => Some(v.dir(dir, name)),
        "full" => {
            let made = v.dir(dir, name);
            v.file(made, "inside");
            Some(made)
        }
        _ => None,
    };
    for across in [false, true] {
        for (source, target, expected) in table {
            for flags in [
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
                RenameFlags::WHITEOUT,
            ] {
                let case = format!("{source} to {target}, across {across}, {flags:?}");
                let v = Volume::new();
                let from = v.dir(ROOT, "from");
                let to = if across { v.dir(ROOT, "to") } else { from };
                let old = make(&v, from, "a", source);
                let replaced = make(&v, to, "b", target);
                let expected = match (flags, source, target) {
                    (_, "none", _) => libc::ENOENT,
                    (RenameFlags::EXCHANGE, _, "none") => libc::ENOENT,
                    (RenameFlags::EXCHANGE, ..) => 0,
                    (RenameFlags::NOREPLACE, _, "none") => 0,
                    (RenameFlags::NOREPLACE, ..) => libc::EEXIST,
                    _ => expected,
                };
                let result = v.rename_with((from, "a"), (to, "b"), flags);
                let seen = result.map_or_else(|error| error.errno(), |()| 0);
                assert_eq!(seen, expected, "{case}");
                let (mut a, mut b) = (old, replaced);
                if expected == 0 {
                    (a, b) = (if flags == RenameFlags::EXCHANGE { b } else { None }, old);
                }
                assert_eq!(v.find(to, "b").ok(), b, "{case}");
                if expected == 0 && flags == RenameFlags::WHITEOUT {
                    let whiteout = v.stat(v.find(from, "a").unwrap());
                    assert_eq!((whiteout.file_type, whiteout.rdev), (FileType::CharDevice, 0));
                } else {
                    assert_eq!(v.find(from, "a").ok(), a, "{case}");
                }
                v.check();
                let v = v.remount();
                assert_eq!(v.find(to, "b").ok(), b, "{case}, after a remount");
                v.check();
            }
        }
    }
}

#[test]
fn two_names_of_one_file_stay_as_they_are() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    v.fs.link(&root(), a, ROOT, b"b").unwrap();
    with(RenameFlags::empty(), &v, "a", "b").unwrap();
    with(RenameFlags::empty(), &v, "a", "a").unwrap();
    assert_eq!(errno(with(RenameFlags::NOREPLACE, &v, "a", "b")), libc::EEXIST);
    assert_eq!((v.ls(ROOT), v.stat(a).nlink), (vec!["a".into(), "b".into()], 2));
    v.check();
}

#[test]
fn no_directory_moves_into_itself() {
    let v = Volume::new();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a, "b");
    let c = v.dir(b, "c");
    for (dir, name) in [(a, "x"), (b, "x"), (c, "x"), (a, "b")] {
        assert_eq!(errno(v.rename((ROOT, "a"), (dir, name))), libc::EINVAL);
    }
    assert_eq!(errno(v.rename((b, "c"), (ROOT, "a"))), libc::ENOTEMPTY);
    assert_eq!(errno(v.rename((a, "b"), (ROOT, "a"))), libc::ENOTEMPTY);
    let exchange = RenameFlags::EXCHANGE;
    assert_eq!(errno(v.rename_with((ROOT, "a"), (b, "c"), exchange)), libc::EINVAL);
    assert_eq!(errno(v.rename_with((b, "c"), (ROOT, "a"), exchange)), libc::EINVAL);
    v.rename((b, "c"), (ROOT, "c")).unwrap();
    assert_eq!(v.find(c, "..").unwrap(), ROOT);
    v.rename((ROOT, "a"), (c, "a")).unwrap();
    assert_eq!(v.find(a, "..").unwrap(), c);
    v.check();
}

#[test]
fn flags_and_names_that_make_no_sense() {
    let v = Volume::new();
    v.file(ROOT, "a");
    v.file(ROOT, "b");
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(errno(with(both, &v, "a", "b")), libc::EINVAL);
    let both = RenameFlags::EXCHANGE | RenameFlags::WHITEOUT;
    assert_eq!(errno(with(both, &v, "a", "b")), libc::EINVAL);
    for (from, to) in [(".", "x"), ("..", "x"), ("a", "."), ("a", "..")] {
        assert_eq!(errno(with(RenameFlags::empty(), &v, from, to)), libc::EBUSY);
    }
    let long = "x".repeat(256);
    assert_eq!(errno(with(RenameFlags::empty(), &v, "a", &long)), libc::ENAMETOOLONG);
    v.check();
}

#[test]
fn a_rename_is_one_step_and_sets_ctime() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let a = v.file(ROOT, "a");
    v.file(d, "b");
    let (before, stat) = (v.fs.core.store.latest(), v.stat(a));
    v.rename((ROOT, "a"), (d, "b")).unwrap();
    assert_eq!(v.fs.core.store.latest(), before.next());
    assert!(v.stat(a).ctime > stat.ctime);
    assert_eq!(v.stat(a).mtime, stat.mtime);
    assert_eq!(v.in_tree(), (3, 0));
}

#[test]
fn a_replaced_file_exists_as_long_as_its_handle() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let b = v.file(ROOT, "b");
    let file = v.fs.open(&root(), b, OpenFlags::READ).unwrap();
    v.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!((v.stat(b).nlink, v.stat(a).nlink, v.in_tree()), (0, 1, (3, 1)));
    drop(file);
    assert_eq!(v.in_tree(), (2, 0));
    v.check();
}

#[test]
fn moving_a_directory_needs_the_right_to_write_it() {
    let v = Volume::new();
    let open = v.fs.mkdir(&root(), ROOT, b"open", 0o777).unwrap().inode;
    let other = v.fs.mkdir(&root(), ROOT, b"other", 0o777).unwrap().inode;
    v.dir(open, "d");
    let me = user(5, 5);
    let flags = RenameFlags::empty();
    assert_eq!(errno(v.fs.rename(&me, open, b"d", other, b"d", flags)), libc::EACCES);
    v.fs.rename(&me, open, b"d", open, b"e", flags).unwrap();
    assert_eq!(errno(v.fs.rename(&me, open, b"e", ROOT, b"e", flags)), libc::EACCES);
    v.check();
}
