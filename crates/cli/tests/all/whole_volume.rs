//! What commands promise of the volume holds for all of its branches and mounts.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use holdfast::Volume;

use crate::common::{TestMount, can_mount, signal, wait_until_ended};

const BYTES: usize = 30_000;
/// Maps a file of so many bytes, stores into it, and keeps the mapping until its input ends.
const MAPS: &str = "import mmap, os, sys\n\
    file = os.open(sys.argv[1], os.O_RDWR)\n\
    pages = mmap.mmap(file, 30000)\n\
    pages[20000:20006] = b'mapped'\n\
    print('stored', flush=True)\n\
    sys.stdin.read()\n";

/// `main`, the fork `work` and the snapshot `monday`, each mounted. Nothing is written in the background.
struct Several {
    place: TestMount,
    work: String,
    monday: String,
    daemon: u32,
}

impl Several {
    fn new() -> Several {
        let place = TestMount::with_volume();
        place.run(&["mount", "-o", "commit=0", place.image(), place.dir()]).fine();
        fs::write(place.dir.join("mapped"), vec![b'.'; BYTES]).unwrap();
        place.run(&["snapshot", "create", place.dir(), "monday"]).fine();
        place.run(&["fork", place.dir(), "work"]).fine();
        let (work, monday) = (place.path("work"), place.path("monday"));
        for (dir, of) in [(&work, ":work"), (&monday, "@monday")] {
            fs::create_dir(dir).unwrap();
            let of = format!("{}{of}", place.image());
            place.run(&["mount", "-o", "commit=0", &of, dir]).fine();
        }
        let daemon = place.daemon();
        Several { place, work, monday, daemon }
    }

    fn dirs(&self) -> [&str; 3] {
        [self.place.dir(), &self.work, &self.monday]
    }

    /// New files in both branches, each as a program writes it that says nothing of durability.
    fn write(&self) {
        for dir in &self.dirs()[..2] {
            fs::write(Path::new(dir).join("new"), vec![b'x'; BYTES]).unwrap();
        }
    }

    /// A program that has stored into a mapping of the fork's file.
    fn map(&self) -> Child {
        let mut python = Command::new("python3");
        python.args(["-c", MAPS]).arg(Path::new(&self.work).join("mapped"));
        let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        python.stdout.as_mut().unwrap().read_exact(&mut [0; 7]).unwrap();
        python
    }

    /// As a kill leaves it.
    fn die(&self) {
        signal(self.daemon, "KILL");
        wait_until_ended(self.daemon);
        for dir in self.dirs() {
            let _ = Command::new("umount").args(["-l", dir]).stderr(Stdio::null()).status();
        }
    }

    /// What a file of the volume at rest holds.
    fn read(&self, path: &str) -> String {
        self.place.run(&["cat", &format!("{}{path}", self.place.image())]).fine()
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        for dir in self.dirs() {
            let _ = Command::new("umount").args(["-l", dir]).stderr(Stdio::null()).status();
        }
    }
}

/// What makes the volume durable.
type Act = fn(&Several);

const ACTS: [(&str, Act); 8] = [
    ("a sync by main", |it| drop(it.place.run(&["sync", it.place.dir()]).fine())),
    ("a sync by the fork", |it| drop(it.place.run(&["sync", &it.work]).fine())),
    ("a sync by the snapshot", |it| drop(it.place.run(&["sync", &it.monday]).fine())),
    ("an unmount of main", |it| drop(it.place.run(&["umount", it.place.dir()]).fine())),
    ("an unmount of the fork", |it| drop(it.place.run(&["umount", &it.work]).fine())),
    ("an unmount of the snapshot", |it| drop(it.place.run(&["umount", &it.monday]).fine())),
    ("a sync of the library", |it| Volume::open(it.place.image()).unwrap().sync().unwrap()),
    ("the end", |it| drop(it.place.run(&["umount", it.place.image()]).fine())),
];

#[test]
fn whatever_makes_the_volume_durable_does_so_with_all_branches() {
    if !can_mount() {
        return;
    }
    for (what, act) in ACTS {
        let it = Several::new();
        it.write();
        act(&it);
        match what {
            "the end" => wait_until_ended(it.daemon),
            _ => it.die(),
        }
        for path in [":/new", ":work:/new"] {
            assert!(it.read(path) == "x".repeat(BYTES), "{what}: {path}");
        }
        it.place.fsck();
    }
}

/// Pages of a mapping in another mount that the kernel still holds back.
#[test]
fn a_sync_by_one_mount_takes_the_mapped_pages_of_the_others() {
    if !can_mount() {
        return;
    }
    let it = Several::new();
    let mut python = it.map();
    it.place.run(&["sync", it.place.dir()]).fine();
    it.die();
    drop(python.stdin.take());
    python.wait().unwrap();
    assert!(it.read(":work:/mapped")[20_000..].starts_with("mapped"));
}

/// A mount that another one hides is in the lists, and no command comes to it by its path.
#[test]
fn a_sync_takes_the_mapped_pages_of_a_mount_that_is_hidden() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["mount", "-o", "commit=0", place.image(), place.dir()]).fine();
    fs::write(place.dir.join("mapped"), vec![b'.'; BYTES]).unwrap();
    place.run(&["fork", place.dir(), "work"]).fine();
    let above = place.path("above");
    let (work, monday) = (format!("{above}/work"), place.path("monday"));
    fs::create_dir_all(&work).unwrap();
    let of = format!("{}:work", place.image());
    place.run(&["mount", "-o", "commit=0", &of, &work]).fine();
    let daemon = place.daemon();
    let it = Several { place, work, monday, daemon };
    let mut python = it.map();
    let hidden = Command::new("mount").args(["-t", "tmpfs", "none", &above]).status();
    let is_hidden = hidden.unwrap().success();
    if !is_hidden {
        holdfast_base::skip::skipped(format_args!("nothing can be mounted here"));
    }
    it.place.run(&["sync", it.place.dir()]).fine();
    if is_hidden {
        assert!(Command::new("umount").args(["-l", &above]).status().unwrap().success());
    }
    it.die();
    drop(python.stdin.take());
    python.wait().unwrap();
    assert!(it.read(":work:/mapped")[20_000..].starts_with("mapped"));
}

/// What looks at another branch than that of the mount by which it is asked has each write that had returned, and what a fork or a
/// snapshot of that holds is durable.
#[test]
fn what_looks_at_another_branch_has_all_of_it() {
    if !can_mount() {
        return;
    }
    let it = Several::new();
    it.write();
    let (place, of_work) = (&it.place, format!("{}:work", it.place.dir()));
    let at = |of: &str| format!("{}{of}", place.image());
    let whole = "x".repeat(BYTES);
    assert!(place.run(&["cat", &at(":work:/new")]).fine() == whole);
    place.run(&["cp", &at(":work:/new"), &place.path("copy")]).fine();
    assert!(fs::read_to_string(place.path("copy")).unwrap() == whole);
    assert!(place.run(&["export", "--tar", &at(":work")]).out.contains(&whole), "an archive");
    assert!(place.run(&["send", &at(":work")]).out.contains("xxxxxxxx"), "a stream");
    place.run(&["snapshot", "create", &of_work, "taken"]).fine();
    place.run(&["fork", place.dir(), "--from", "work", "grown"]).fine();
    it.die();
    for path in [":work@taken:/new", ":grown:/new", ":work:/new"] {
        assert!(it.read(path) == whole, "{path}");
    }
}

/// What is counted of the volume is of all branches.
#[test]
fn what_is_counted_is_of_all_branches() {
    let place = TestMount::with_volume();
    let source = place.path("files");
    fs::create_dir(&source).unwrap();
    for n in 0..20 {
        fs::write(Path::new(&source).join(n.to_string()), vec![1; 5000]).unwrap();
    }
    place.run(&["fork", place.image(), "work"]).fine();
    place.run(&["cp", "-r", &source, &place.inside("work:/")]).fine();
    place.run(&["cp", &format!("{source}/7"), &place.inside("/")]).fine();
    let said = place.run(&["fsck", "-n", "-v", place.image()]).fine();
    assert!(said.contains("clean, 21 files, 3 directories in 2 branches"), "{said}");
    assert!(said.contains("24 inodes, 22 names, 21 extents"), "{said}");
    let info = || place.run(&["info", "--json", place.image()]).fine();
    assert_eq!(crate::common::number(&info(), "inodes"), 24);
    if can_mount() {
        place.mount();
        fs::write(place.dir.join("one-more"), "1").unwrap();
        assert_eq!(crate::common::number(&info(), "inodes"), 25);
        place.umount();
    }
    place.run(&["branch", "delete", place.image(), "work"]).fine();
    let said = place.run(&["fsck", "-n", place.image()]).fine();
    assert!(said.contains("clean, 2 files, 1 directory\n"), "{said}");
}
