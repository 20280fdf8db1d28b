//! Inodes without a name: they live as long as they are needed, and never longer.

use super::*;

#[test]
fn an_open_file_outlives_its_name() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let one = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    let two = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    v.fs.remember(a, 3);
    v.unlink(ROOT, "a").unwrap();
    drop(one);
    v.fs.forget(a, 2);
    drop(two);
    assert_eq!((v.stat(a).nlink, v.in_tree()), (0, (2, 1)));
    let three = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    v.fs.forget(a, 1);
    assert_eq!(v.in_tree(), (2, 1));
    drop(three);
    assert_eq!(v.in_tree(), (1, 0));
    assert_eq!(errno(v.fs.open(&root(), a, OpenFlags::READ)), libc::ENOENT);
    v.check();
}

/// When an fsync completes, its file may be closed and its blocks freed: no other reference holds it.
#[test]
fn an_fsync_that_is_told_has_let_its_file_go() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let file = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    v.unlink(ROOT, "a").unwrap();
    assert!(!v.fs.is_durable());
    let weak = Arc::downgrade(&file);
    let (tell, hear) = std::sync::mpsc::channel();
    v.fs.fsync_then(file, false, move |done| {
        tell.send((done.map(drop), weak.upgrade().is_none())).unwrap();
    });
    let (done, is_gone) = hear.try_recv().unwrap();
    done.unwrap();
    assert!(is_gone);
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

#[test]
fn forgetting_a_named_inode_keeps_it() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    v.fs.remember(a, 1);
    v.fs.forget(a, 1);
    v.fs.forget(a, 1);
    v.fs.forget(InodeNo(999), 1);
    assert_eq!(v.find(ROOT, "a").unwrap(), a);
    v.check();
}

#[test]
fn a_mount_collects_what_a_crash_left() {
    let v = Volume::new();
    let mut handles = Vec::new();
    for i in 0..200 {
        let name = format!("f{i}");
        let f = v.file(ROOT, &name);
        v.fs.setxattr(&root(), f, b"user.x", &[7; 30000], XattrFlags::empty()).unwrap();
        handles.push(v.fs.open(&root(), f, OpenFlags::READ).unwrap());
        v.unlink(ROOT, &name).unwrap();
    }
    let d = v.dir(ROOT, "d");
    v.fs.remember(d, 1);
    v.fs.rmdir(&root(), ROOT, b"d").unwrap();
    assert_eq!(v.in_tree(), (202, 201));
    let v = v.crash_after_sync();
    assert_eq!(v.in_tree(), (1, 0));
    // A handle that outlives its volume does no harm.
    drop(handles);
    v.check();
}

#[test]
fn leaving_a_volume_leaves_no_orphans() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let file = v.fs.open(&root(), a, OpenFlags::READ).unwrap();
    v.unlink(ROOT, "a").unwrap();
    v.fs.unmount().unwrap();
    drop(file);
    let set = MountOptions { read_only: true, ..options() };
    let fs = FileSystem::mount(v.device.clone(), set).unwrap();
    let v = Volume { device: v.device, fs };
    assert_eq!(v.in_tree(), (1, 0));
}

#[test]
fn a_named_inode_listed_as_an_orphan_is_not_removed() {
    use holdfast_format::Key;
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    let mut transaction = holdfast_store::Transaction::new();
    transaction.put(Key::orphan(a), Vec::new());
    transaction.put(Key::orphan(InodeNo(5000)), Vec::new());
    let need = holdfast_store::Need::Grow { changes: 2, blocks: 0 };
    let store = &v.fs.core.store;
    let mut reservation = store.reserve(need).unwrap();
    store.apply(transaction, &mut reservation).unwrap();
    drop(reservation);
    let v = v.crash_after_sync();
    assert_eq!(v.find(ROOT, "a").unwrap(), a);
    assert_eq!(v.stat(a).nlink, 1);
    assert_eq!(v.in_tree(), (2, 1));
}

#[test]
fn an_inode_found_before_it_was_removed_cannot_be_opened_after() {
    for dirty in [false, true] {
        let v = Volume::new();
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let (attr, file) = v.fs.create(&root(), ROOT, b"a", 0o644, flags, true).unwrap();
        if dirty {
            v.fs.write(&root(), &file, 0, b"bytes", WriteHow::default()).unwrap();
        }
        drop(file);
        let found = v.fs.core.inode(attr.inode).unwrap();
        v.unlink(ROOT, "a").unwrap();
        let late = v.fs.open_inode(&root(), found, OpenFlags::READ);
        assert_eq!(errno(late), libc::ENOENT, "dirty {dirty}");
        assert_eq!(v.in_tree(), (1, 0));
    }
}
