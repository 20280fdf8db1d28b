//! What a kernel hears of rollbacks, and when.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, OpenFlags, RenameFlags, SetAttr, Told, XattrFlags};
use parking_lot::Mutex;

use super::fresh;
use super::new_head::{Mount, PATIENCE};
use crate::interface::{Controlled, FileId, Kernel, Mode, Request, Write};
use crate::options::Control;

/// A kernel that writes down what it is told.
struct Listener {
    takes_all_names: bool,
    heard: Mutex<Vec<String>>,
}

impl Kernel for Listener {
    fn attr_changed(&self, inode: u64) {
        self.heard.lock().push(format!("attributes {inode}"));
    }

    fn content_changed(&self, inode: u64) {
        self.heard.lock().push(format!("inode {inode}"));
    }

    fn bytes_changed(&self, _: u64, _: u64, _: u64) {}

    fn grown(&self, inode: u64, size: u64, last: u8) {
        self.heard.lock().push(format!("grown {inode} {size} {last}"));
    }

    fn name_changed(&self, parent: u64, name: &[u8]) {
        self.heard.lock().push(format!("{parent}/{}", String::from_utf8_lossy(name)));
    }

    fn unwanted(&self, _: &[u64]) {}

    fn takes_all_names(&self) -> bool {
        self.takes_all_names
    }

    fn all_names_changed(&self) {
        self.heard.lock().push("all names".into());
    }
}

/// What a kernel hears of a rollback that takes a new file away and brings an old name back; `far`: and much else.
fn heard(takes_all_names: bool, far: bool) -> Vec<String> {
    let fs = fresh::mount(&fresh::volume());
    let mut server = fresh::server(&fs);
    let kernel = Arc::new(Listener { takes_all_names, heard: Mutex::default() });
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    server.options.control = Some(Control::new(|mount, command| {
        match command {
            b"take" => mount.fs().snapshot(b"s").map(drop).unwrap(),
            _ => assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All),
        }
        b"done".to_vec()
    }));
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let make = |name: &[u8]| {
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let entry = server.mknod(&root, InodeNo::ROOT, name, mode, 0).unwrap();
        entry.attr.unwrap().inode
    };
    let old = make(b"old");
    assert_eq!(server.control(&root, b"take"), Ok(b"done".to_vec()));
    fs.rename(
        &Caller::root(),
        InodeNo::ROOT,
        b"old",
        InodeNo::ROOT,
        b"moved",
        RenameFlags::empty(),
    )
    .unwrap();
    let new = make(b"new");
    if far {
        // More leaves than are compared.
        for n in 0..150_u8 {
            let name = format!("user.{n}");
            let flags = XattrFlags::empty();
            let value = vec![n; 64 << 10];
            fs.setxattr(&Caller::root(), new, name.as_bytes(), &value, flags).unwrap();
        }
    }
    assert_eq!(server.control(&root, b"go back"), Ok(b"done".to_vec()));
    let heard = kernel.heard.lock().clone();
    for inode in [old, new] {
        let wanted = format!("inode {}", inode.0);
        assert!(heard.contains(&wanted), "{wanted}: {heard:?}");
    }
    server.close();
    heard
}

/// Which inodes a kernel hears of behind a rollback, of many files that it remembers. The last is changed, the first open.
fn heard_of_many(kernel_opens: bool) -> (Vec<u64>, Vec<u64>) {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    let kernel = Arc::new(Listener { takes_all_names: true, heard: Mutex::default() });
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    if kernel_opens {
        server.set_kernel_opens();
    }
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
    let mut files = Vec::new();
    for n in 0..500 {
        let made = server.mknod(&root, InodeNo::ROOT, format!("{n}").as_bytes(), mode, 0);
        files.push(made.unwrap().attr.unwrap().inode);
    }
    let opened = fs.lend(files[0], OpenFlags::READ).unwrap();
    fs.snapshot(b"s").unwrap();
    let to = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    fs.setattr(&Caller::root(), files[499], None, to).unwrap();
    let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
    assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
    let said = kernel.heard.lock().clone();
    let heard = said.iter().filter_map(|word| word.strip_prefix("inode ")?.parse().ok());
    drop(opened);
    server.close();
    (files.into_iter().map(|inode| inode.0).collect(), heard.collect())
}

/// What costs a notice each is bounded by what has changed, not by what the kernel remembers.
#[test]
fn a_kernel_hears_of_inodes_that_have_changed_or_are_open() {
    let (files, heard) = heard_of_many(false);
    assert!(heard.contains(&files[0]) && heard.contains(&files[499]), "{heard:?}");
    assert_eq!(heard.len(), 2, "{heard:?}");
}

/// Where no list says which files are open, any may have been mapped and stored into.
#[test]
fn a_kernel_that_opens_files_hears_of_all() {
    let (files, heard) = heard_of_many(true);
    assert!(files.iter().all(|file| heard.contains(file)), "{} of 500", heard.len());
}

/// A mapping of an open file ends where the kernel believes that the file ends; it hears of that while what is stored into the
/// mapping is still void, or it would put a byte over one that a program has just stored.
#[test]
fn a_kernel_hears_that_a_file_has_grown_before_its_pages_count_again() {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    let kernel = Arc::new(Listener { takes_all_names: true, heard: Mutex::default() });
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
    let made = server.create(&root, InodeNo::ROOT, b"f", mode, libc::O_RDWR, false).unwrap();
    let (inode, opened) = (made.0.attr.unwrap().inode, made.1);
    let file = FileId { inode, fh: opened.fh, flags: libc::O_RDWR };
    let write =
        Write { file, offset: 0, bytes: &[7; 9000], kill_suid_sgid: false, is_cached: false };
    server.write(&root, &write).unwrap();
    fs.snapshot(b"s").unwrap();
    let to = SetAttr { size: Some(10), ..SetAttr::default() };
    fs.setattr(&Caller::root(), inode, None, to).unwrap();
    let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
    assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
    let heard = kernel.heard.lock().clone();
    let of_file: Vec<_> = heard.iter().filter(|it| it.contains(&format!(" {inode}"))).collect();
    assert_eq!(of_file, [&format!("grown {inode} 9000 7"), &format!("inode {inode}")]);
    server.release(opened.fh);
    server.close();
}

/// What the kernel has in memory of a file is not kept by an open that comes before it has heard.
#[test]
fn a_file_that_is_opened_before_the_kernel_has_heard_keeps_no_pages() {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    let kernel = Arc::new(Stuck(Mutex::default()));
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
    let made = server.mknod(&root, InodeNo::ROOT, b"f", mode, 0).unwrap();
    let inode = made.attr.unwrap().inode;
    let opened = || server.open(&root, inode, libc::O_RDONLY, false).unwrap().keep_cache;
    assert!(opened());
    fs.snapshot(b"s").unwrap();
    let to = SetAttr { size: Some(10), ..SetAttr::default() };
    fs.setattr(&Caller::root(), inode, None, to).unwrap();
    let waits = kernel.0.lock();
    let roll_back = |patience| {
        let mount = Mount { server: &server, fs: &fs, may_change: true, patience };
        mount.roll_back(b"s", None).unwrap()
    };
    assert_eq!(roll_back(Duration::ZERO), Told::NotYet);
    assert!(!opened());
    drop(waits);
    assert!(server.notices.drain_within(PATIENCE));
    assert!(opened());
    server.close();
}

/// What is remembered of files over a rollback goes when the kernel forgets them.
#[test]
fn nothing_is_remembered_of_files_that_the_kernel_has_forgotten() {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
    fs.snapshot(b"s").unwrap();
    let kernel = Arc::new(Listener { takes_all_names: true, heard: Mutex::default() });
    server.set_kernel(kernel).unwrap();
    let mut files = Vec::new();
    for n in 0..100 {
        let made = server.mknod(&root, InodeNo::ROOT, format!("{n}").as_bytes(), mode, 0);
        files.push(made.unwrap().attr.unwrap().inode);
    }
    server.lookup(&root, InodeNo::ROOT, b"7").unwrap();
    let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
    assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
    assert_eq!(server.rolled_back.len(), 100);
    files.iter().for_each(|inode| server.forget(*inode, 1));
    assert_eq!(server.rolled_back.len(), 1, "one is referred to twice");
    server.forget(files[7], 1);
    assert_eq!(server.rolled_back.len(), 0);
    server.close();
}

/// With a name the kernel drops the pages of its file.
#[test]
fn a_kernel_hears_of_names_that_lead_elsewhere_and_of_no_others() {
    for takes_all_names in [true, false] {
        let mut heard = heard(takes_all_names, false);
        heard.retain(|word| word.contains('/') || word == "all names");
        heard.sort();
        assert_eq!(heard, ["1/moved", "1/new", "1/old"]);
    }
}

#[test]
fn a_kernel_hears_that_all_names_are_void_if_too_much_differs() {
    let heard = heard(true, true);
    assert_eq!(heard.iter().filter(|word| *word == "all names").count(), 1, "{heard:?}");
    assert!(!heard.iter().any(|word| word.contains('/')), "{heard:?}");
}

#[test]
fn an_older_kernel_hears_each_name_that_was_and_each_that_is() {
    let heard = heard(false, true);
    for name in ["1/old", "1/moved", "1/new"] {
        assert!(heard.iter().any(|word| word == name), "{name}: {heard:?}");
    }
}

/// What it costs is bounded by what the kernel knows, not by what has changed.
#[test]
fn a_kernel_hears_no_name_in_directories_that_it_does_not_know() {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    let kernel = Arc::new(Listener { takes_all_names: true, heard: Mutex::default() });
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    let caller = Caller::root();
    let dirs = [b"known", b"other"].map(|name| {
        let dir = fs.mkdir(&caller, InodeNo::ROOT, name, 0o755).unwrap().inode;
        fs.mkdir(&caller, dir, b"below", 0o755).unwrap();
        dir
    });
    fs.remember(dirs[0], 1);
    fs.snapshot(b"s").unwrap();
    for dir in dirs {
        fs.mkdir(&caller, dir, b"new", 0o755).unwrap();
    }
    let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
    assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
    let heard = kernel.heard.lock().clone();
    let names: Vec<_> = heard.iter().filter(|word| word.contains('/')).collect();
    assert_eq!(names, [&format!("{}/new", dirs[0].0)]);
    fs.forget(dirs[0], 1);
    server.close();
}

/// P13: two rollbacks at once, of files that are longer again, come one after the other.
#[test]
fn rollbacks_at_once_do_not_wait_for_each_other() {
    let fs = fresh::mount(&fresh::volume());
    let mut server = fresh::server(&fs);
    let kernel = Arc::new(Listener { takes_all_names: true, heard: Mutex::default() });
    server.set_kernel(kernel).unwrap();
    server.options.control = Some(Control::new(|mount, _| {
        let _ = mount.roll_back(b"s", None).unwrap();
        b"done".to_vec()
    }));
    let root = Request { uid: 0, gid: 0, pid: 0 };
    let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
    let made = (0..20u8).map(|n| {
        let made = server.create(&root, InodeNo::ROOT, &[b'a' + n], mode, libc::O_RDWR, false);
        let (entry, opened) = made.unwrap();
        FileId { inode: entry.attr.unwrap().inode, fh: opened.fh, flags: libc::O_RDWR }
    });
    let files: Vec<_> = made.collect();
    for &file in &files {
        let write =
            Write { file, offset: 0, bytes: &[7; 9000], kill_suid_sgid: false, is_cached: false };
        server.write(&root, &write).unwrap();
    }
    fs.snapshot(b"s").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..30 {
                    for file in &files {
                        let to = SetAttr { size: Some(0), ..SetAttr::default() };
                        fs.setattr(&Caller::root(), file.inode, None, to).unwrap();
                    }
                    assert_eq!(server.control(&root, b"go back"), Ok(b"done".to_vec()));
                }
            });
        }
    });
    for file in &files {
        assert_eq!(fs.getattr(file.inode).unwrap().size, 9000);
    }
    files.iter().for_each(|file| server.release(file.fh));
    server.close();
}

/// A kernel that waits for a program in the middle of a page.
struct Stuck(Mutex<()>);

impl Kernel for Stuck {
    fn attr_changed(&self, _: u64) {}

    fn content_changed(&self, _: u64) {
        drop(self.0.lock());
    }

    fn bytes_changed(&self, _: u64, _: u64, _: u64) {}

    fn grown(&self, _: u64, _: u64, _: u8) {}

    fn name_changed(&self, _: u64, _: &[u8]) {}

    fn unwanted(&self, _: &[u64]) {}

    fn takes_all_names(&self) -> bool {
        true
    }

    fn all_names_changed(&self) {}
}

#[test]
fn a_rollback_says_whether_the_kernel_knows_of_it() {
    let fs = fresh::mount(&fresh::volume());
    let server = fresh::server(&fs);
    fs.remember(InodeNo::ROOT, 1);
    fs.snapshot(b"s").unwrap();
    let roll_back = |patience| {
        fs.mkdir(&Caller::root(), InodeNo::ROOT, b"d", 0o755).unwrap();
        let mount = Mount { server: &server, fs: &fs, may_change: true, patience };
        mount.roll_back(b"s", None).unwrap()
    };
    assert_eq!(roll_back(Duration::ZERO), Told::All, "nobody has to be told");
    let kernel = Arc::new(Stuck(Mutex::default()));
    server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    let waits = kernel.0.lock();
    assert_eq!(roll_back(Duration::ZERO), Told::NotYet);
    drop(waits);
    assert_eq!(roll_back(PATIENCE), Told::All);
    server.close();
}

/// What was read before a rollback may be of the head that is gone.
#[test]
fn the_kernel_does_not_keep_what_was_found_before_a_rollback() {
    let fs = fresh::mount(&fresh::volume());
    let ttl = Duration::from_secs(1);
    let mut server = fresh::server(&fs);
    server.options.ttl = ttl;
    fs.snapshot(b"s").unwrap();
    let before = fs.turns();
    let attr = fs.getattr(InodeNo::ROOT).unwrap();
    assert_ne!(server.entry(&fs, before, attr).ttl, Duration::ZERO);
    fs.rollback(b"s", None).unwrap();
    assert_eq!(server.entry(&fs, before, attr).ttl, Duration::ZERO);
    assert_ne!(server.entry(&fs, fs.turns(), attr).ttl, Duration::ZERO);
    server.close();
}
