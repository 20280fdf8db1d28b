//! A branch whose process has died, under a kernel that goes on: what the kernel may know stays.

use super::*;

impl Volume {
    /// The process dies behind what was made durable, and another one goes on.
    fn resume(self) -> Volume {
        let core = &self.fs.core;
        core.store.sync(core.store.latest(), InodeNo::ROOT).unwrap();
        self.resume_without_sync()
    }

    fn resume_without_sync(self) -> Volume {
        drop(self.fs);
        let options = MountOptions { resumed: 1, ..options() };
        Volume { fs: FileSystem::mount(self.device.clone(), options).unwrap(), device: self.device }
    }
}

#[test]
fn a_file_without_a_name_lives_until_the_kernel_forgets_it() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    v.fs.remember(a, 3);
    v.unlink(ROOT, "a").unwrap();
    let v = v.resume().resume();
    assert_eq!((v.stat(a).nlink, v.in_tree()), (0, (2, 1)));
    // As it is read by a request: that ends, and the file stays.
    drop(v.fs.lend(a, OpenFlags::READ).unwrap());
    assert_eq!(v.in_tree(), (2, 1));
    assert!(v.fs.forget(a, 3));
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

#[test]
fn a_file_that_was_known_before_outlives_its_name() {
    let v = Volume::new();
    let (a, b) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    v.fs.remember(a, 2);
    let v = v.resume();
    v.unlink(ROOT, "a").unwrap();
    // The kernel never knew it, which cannot be told.
    v.unlink(ROOT, "b").unwrap();
    assert_eq!((v.stat(a).nlink, v.stat(b).nlink, v.in_tree()), (0, 0, (3, 2)));
    assert!(v.fs.forget(a, 2));
    assert_eq!(v.in_tree(), (2, 1));
    // What is made now is counted.
    let c = v.file(ROOT, "c");
    v.fs.remember(c, 1);
    v.unlink(ROOT, "c").unwrap();
    assert!(v.fs.forget(c, 1));
    assert_eq!(v.in_tree(), (2, 1));
    let v = v.remount();
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

/// The kernel gives back what it got before and since, while one more answer is on its way to it.
#[test]
fn a_reference_that_is_on_its_way_is_not_taken_back() {
    let v = Volume::new();
    let a = v.file(ROOT, "a");
    v.fs.remember(a, 1);
    let v = v.resume();
    v.fs.remember(a, 1);
    assert!(!v.fs.forget(a, 1));
    v.unlink(ROOT, "a").unwrap();
    assert_eq!(v.in_tree(), (2, 1));
    assert!(v.fs.forget(a, 1));
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

#[test]
fn what_is_dropped_from_memory_is_known_all_the_same() {
    let few = MountOptions { inode_cache: 4, ..options() };
    let v = Volume::with(64 << 20, 4096, few);
    let files: Vec<_> = (0..100).map(|i| v.file(ROOT, &format!("f{i}"))).collect();
    let v = v.resume();
    files.iter().for_each(|file| assert_eq!(v.stat(*file).nlink, 1));
    for i in 0..100 {
        v.unlink(ROOT, &format!("f{i}")).unwrap();
    }
    assert_eq!(v.in_tree(), (101, 100));
    assert!(files.iter().all(|file| v.fs.forget(*file, 1)));
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}

#[test]
fn a_file_that_never_had_a_name_gets_one() {
    let v = Volume::new();
    let (made, file) = v.fs.tmpfile(&root(), ROOT, 0o644, OpenFlags::WRITE).unwrap();
    v.fs.remember(made.inode, 1);
    drop(file);
    let v = v.resume();
    v.fs.link(&root(), made.inode, ROOT, b"named").unwrap();
    assert_eq!((v.find(ROOT, "named").unwrap(), v.in_tree()), (made.inode, (2, 0)));
    v.check();
}

/// The kernel may have met an inode whose maker's request was never answered.
#[test]
fn no_inode_gets_the_number_of_one_that_was_lost() {
    let v = Volume::new();
    v.dir(ROOT, "kept");
    let core = &v.fs.core;
    core.store.sync(core.store.latest(), InodeNo::ROOT).unwrap();
    let recovered = core.store.latest();
    let lost: Vec<_> = (0..10).map(|i| v.file(ROOT, &format!("lost{i}"))).collect();
    let v = v.resume_without_sync();
    assert_eq!((v.fs.recovered(), v.ls(ROOT)), (recovered, vec!["kept".into()]));
    let made = v.file(ROOT, "made");
    assert!(lost.iter().all(|lost| *lost < made), "{made} {lost:?}");
    assert_eq!(errno(v.fs.getattr(lost[3])), libc::ENOENT);
    v.check();
}

/// A request is done when the change is there that it asks for: not with the data that has to come before.
#[test]
fn the_number_that_is_told_is_that_of_the_change_that_was_asked_for() {
    use std::cell::Cell;
    use std::rc::Rc;

    let v = Volume::new();
    v.file(ROOT, "old");
    let new = v.file(ROOT, "new");
    let file = v.fs.open(&root(), new, OpenFlags::WRITE).unwrap();
    v.fs.write(&root(), &file, 0, &[7; 100_000], WriteHow::default()).unwrap();
    let latest = || v.fs.core.store.latest();
    let (before, told) = (latest(), Rc::new(Cell::new(None)));
    let tell = Rc::clone(&told);
    holdfast_base::applied::watch(
        move |lsn| tell.set(Some(lsn)),
        || v.rename((ROOT, "new"), (ROOT, "old")).unwrap(),
    );
    assert!(latest().0 >= before.0 + 2, "its data comes with what replaces another (P4)");
    assert_eq!(told.get(), Some(latest()));
}
