//! A daemon that was killed and cannot end: one of its threads waits in the kernel for pages of a file, and those wait
//! for an answer of the daemon.
//!
//! The daemon here is a few lines that answer what it takes to read a file, then leave a read without an answer, and
//! make the kernel forget the pages of that file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_wire::abi::{Attr, AttrOut, EntryOut, OpenOut, OutHeader, opcode};
use holdfast_wire::init::{self, Dialect, Wanted, flag};
use holdfast_wire::{Op, Request, reply};
use rustix::mount::MountFlags;
use zerocopy::IntoBytes;

use crate::common::{TestMount, can_mount, wait_for};

/// The process that finds the name of an image and of a directory in these is the daemon.
const IMAGE: &str = "HOLDFAST_TEST_IMAGE";
const DIR: &str = "HOLDFAST_TEST_DIR";
const FILE: u64 = 2;

fn attr(ino: u64) -> Attr {
    let (mode, size) = if ino == FILE { (0o100644, 1 << 20) } else { (0o40755, 0) };
    Attr { ino, mode, size, nlink: 1, blksize: 4096, ..Attr::default() }
}

/// Locks the image and serves the mount until it is killed.
fn daemon(image: &Path, dir: &Path) -> ! {
    let image_file = File::options().read(true).write(true).open(image).unwrap();
    image_file.try_lock().unwrap();
    let fuse = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let words = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", fuse.as_raw_fd());
    let words = std::ffi::CStr::from_bytes_with_nul(words.as_bytes()).unwrap();
    rustix::mount::mount(image, dir, "fuse.holdfast", MountFlags::empty(), Some(words)).unwrap();
    let mut buffer = vec![0; 2 << 20];
    loop {
        let len = (&fuse).read(&mut buffer).unwrap();
        let request = Request::decode(&buffer[..len], Dialect::default()).unwrap();
        let header = request.header;
        let answer = |error: i32, body: &[u8]| {
            let head: OutHeader = reply::header(header.unique, error, body.len());
            (&fuse).write_all(&[head.as_bytes(), body].concat()).unwrap();
        };
        let entry = EntryOut {
            nodeid: FILE,
            entry_valid: 1 << 20,
            attr_valid: 1 << 20,
            attr: attr(FILE),
            ..EntryOut::default()
        };
        match request.op {
            Op::Init(given) => {
                let wanted =
                    Wanted { flags: flag::ASYNC_READ, max_write: 1 << 20, max_background: 8 };
                answer(0, init::answer(&given, &wanted).unwrap().as_bytes());
            }
            Op::Read(_) => {
                (&fuse).write_all(&reply::content_changed(FILE)).unwrap();
                panic!("the kernel does not wait for the page that is being read");
            }
            _ => match header.opcode {
                opcode::LOOKUP => answer(0, entry.as_bytes()),
                opcode::GETATTR => {
                    let out = AttrOut {
                        attr_valid: 1 << 20,
                        attr: attr(header.nodeid),
                        ..AttrOut::default()
                    };
                    answer(0, out.as_bytes());
                }
                opcode::OPEN => answer(0, OpenOut::default().as_bytes()),
                opcode::FORGET | opcode::BATCH_FORGET => {}
                _ => answer(38, &[]),
            },
        }
    }
}

/// The daemon, and a program that reads. Whatever happens, the connection is ended.
struct Stuck {
    daemon: Child,
    reader: Child,
    dir: PathBuf,
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ =
            Command::new("umount").args(["-f", "-l"]).arg(&self.dir).stderr(Stdio::null()).status();
        for child in [&mut self.daemon, &mut self.reader] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Stuck {
    /// Returns when a thread of the daemon waits for the page.
    fn at(place: &TestMount, test: &str) -> Stuck {
        let daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("dying::{test}"), "--nocapture"])
            .env(IMAGE, place.image())
            .env(DIR, place.dir())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the daemon does not mount", || place.is_mounted());
        let reader = Command::new("cat")
            .arg(place.dir.join("f"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stuck = Stuck { daemon, reader, dir: place.dir.clone() };
        wait_for("the daemon does not wait for the kernel", || stuck.states().contains(&'D'));
        stuck
    }

    /// What its threads do: `S` sleep, `D` wait and cannot be woken.
    fn states(&self) -> Vec<char> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.daemon.id())).into_iter().flatten();
        let stats =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.filter_map(|stat| stat.rsplit(") ").next()?.chars().next()).collect()
    }

    /// Kills it, which does not end it.
    fn kill(&mut self) {
        self.daemon.kill().unwrap();
        let id = self.daemon.id();
        wait_for("the daemon's first thread does not end", || {
            fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") Z ")
        });
        assert!(self.daemon.try_wait().unwrap().is_none() && self.states().contains(&'D'));
    }

    #[track_caller]
    fn ends(&mut self) {
        wait_for("the daemon does not end", || self.daemon.try_wait().unwrap().is_some());
        wait_for("its client does not end", || self.reader.try_wait().unwrap().is_some());
    }
}

/// True in the process that is the daemon, which never returns; and where nothing can be mounted.
fn is_elsewhere() -> bool {
    let name = |name: &str| std::env::var_os(name);
    if let (Some(image), Some(dir)) = (name(IMAGE), name(DIR)) {
        daemon(as_path(&image), as_path(&dir));
    }
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("root");
        return true;
    }
    !can_mount()
}

fn as_path(name: &OsStr) -> &Path {
    Path::new(name)
}

#[test]
fn umount_dead_takes_away_the_mount_of_a_dying_daemon_and_no_other() {
    if is_elsewhere() {
        return;
    }
    let place = TestMount::with_volume();
    let test = "umount_dead_takes_away_the_mount_of_a_dying_daemon_and_no_other";
    let mut stuck = Stuck::at(&place, test);
    let umount = ["umount", "--dead", "--timeout", "2", place.dir()];
    place.run(&umount).fine();
    assert!(place.is_mounted(), "it does not answer, but it lives");
    stuck.kill();
    place.run(&umount).fine();
    assert!(!place.is_mounted());
    stuck.ends();
}

#[test]
fn umount_takes_away_what_a_dying_daemon_serves() {
    if is_elsewhere() {
        return;
    }
    let place = TestMount::with_volume();
    let mut stuck = Stuck::at(&place, "umount_takes_away_what_a_dying_daemon_serves");
    stuck.kill();
    place.run(&["umount", "--timeout", "100", place.dir()]).fine();
    assert!(!place.is_mounted());
    stuck.ends();
    place.fsck();
}

#[test]
fn the_volume_of_a_dying_daemon_can_be_mounted_elsewhere() {
    if is_elsewhere() {
        return;
    }
    let place = TestMount::with_volume();
    let mut stuck = Stuck::at(&place, "the_volume_of_a_dying_daemon_can_be_mounted_elsewhere");
    stuck.kill();
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    place.run(&["mount", place.image(), &other]).fine();
    stuck.ends();
    // The name of the volume means all its mounts, the dead one too.
    place.run(&["umount", place.image()]).fine();
    place.run(&["mount", place.image(), place.dir()]).fine();
    place.umount();
}
