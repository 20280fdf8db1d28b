//! A volume in memory, mounted for the time of a test; with `HOLDFAST_BESIDE=50` a fork of it, beside 50 other mounted forks.
//!
//! The test process serves its own mount, so a test that touches the mount
//! must never hold what the server needs. Unmounts on every way out, also
//! when a test panics.

#[path = "beside.rs"]
mod beside;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, forward};
use holdfast_fuse::{FuseOptions, Opens, RequestKind, Requests, Transport};
use holdfast_posix::{FileSystem, MkfsOptions, MountOptions};

use beside::{Beside, Served};

/// Whether mounts are possible here; says so if not.
pub(crate) fn can_mount() -> bool {
    let possible = rustix::process::geteuid().is_root()
        && std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !possible {
        holdfast_base::skip::skipped("mounting needs root and /dev/fuse");
    }
    possible
}

/// The way that `HOLDFAST_TRANSPORT` names, so that everything can be tried on each.
pub(crate) fn transport() -> Transport {
    let word = std::env::var("HOLDFAST_TRANSPORT").unwrap_or_else(|_| "auto".into());
    word.parse().unwrap()
}

/// Which side opens files, as `HOLDFAST_OPEN` says; tests of one way say so themselves.
fn opens() -> Opens {
    std::env::var("HOLDFAST_OPEN").map_or(Opens::default(), |word| word.parse().unwrap())
}

/// An empty volume of `mib` MiB.
pub(crate) fn volume(mib: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(mib << 20));
    mkfs(&device);
    device
}

/// Opens for writing what may have to be made, with these flags.
pub(crate) fn open_to_write(path: &Path, flags: i32) -> File {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false).custom_flags(flags).open(path).unwrap()
}

/// Makes an empty volume on `device`.
pub(crate) fn mkfs(device: &Arc<dyn Device>) {
    let options = MkfsOptions {
        node_size: 16384,
        label: "test".into(),
        uuid: None,
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(device, &options).unwrap();
}

/// No background commit: nothing is durable but by what a test does.
pub(crate) fn options() -> MountOptions {
    MountOptions { commit_secs: 0, ..MountOptions::default() }
}

pub(crate) struct Mount {
    // Before `dir`: the directory must be a plain one when it is removed.
    server: Option<Served>,
    beside: Option<Beside>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) dir: tempfile::TempDir,
}

impl Mount {
    /// A fresh volume of 256 MiB, mounted for all users.
    pub(crate) fn fresh() -> Mount {
        Mount::of(volume(256))
    }

    /// As [`Mount::fresh`], with files opened by the side that the test is about.
    pub(crate) fn opened_by(opens: Opens) -> Mount {
        Mount::with(volume(256), options(), |fuse| fuse.opens = opens)
    }

    pub(crate) fn of(device: Arc<dyn Device>) -> Mount {
        Mount::with(device, options(), |_| ())
    }

    pub(crate) fn with(
        device: Arc<dyn Device>,
        options: MountOptions,
        change: impl FnOnce(&mut FuseOptions),
    ) -> Mount {
        let dir = tempfile::tempdir().unwrap();
        let requests = Arc::new(Requests::default());
        let mut fuse = FuseOptions {
            source: "memory,volume".into(),
            allow_other: true,
            transport: transport(),
            opens: opens(),
            requests: Arc::clone(&requests),
            ..FuseOptions::default()
        };
        change(&mut fuse);
        let first = FileSystem::mount(Arc::clone(&device), options).unwrap();
        let (fs, beside) = Beside::fork(first);
        let served = Served::start(fs, dir.path(), fuse);
        Mount { server: Some(served), beside, device, requests, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How many requests of this kind came so far.
    pub(crate) fn count(&self, kind: RequestKind) -> u64 {
        self.requests.get(kind)
    }

    /// The requests that `action` costs, by name.
    pub(crate) fn messages(&self, action: impl FnOnce()) -> Vec<(&'static str, u64)> {
        let drain = || {
            // Releases and forgets come when the kernel likes.
            let (mut last, mut quiet) = (self.requests.list(), 0);
            while quiet < 3 {
                std::thread::sleep(Duration::from_millis(15));
                let now = self.requests.list();
                let is_quiet = now == last && self.waiting() == 0;
                quiet = if is_quiet { quiet + 1 } else { 0 };
                last = now;
            }
            last
        };
        let before = drain();
        action();
        drain()
            .into_iter()
            .zip(before)
            .filter(|(after, before)| after.1 > before.1)
            .map(|(after, before)| (after.0.name(), after.1 - before.1))
            .collect()
    }

    /// Requests that the kernel has not got an answer to, as far as it can be asked; of forgets it wants none.
    fn waiting(&self) -> u64 {
        let line = Mount::line_of(self.dir.path());
        let minor = line.as_deref().and_then(|line| line.split(' ').nth(2)?.split(':').nth(1));
        let asked = minor.map(|minor| format!("/sys/fs/fuse/connections/{minor}/waiting"));
        let waiting = asked.and_then(|path| std::fs::read_to_string(path).ok());
        waiting.map_or(0, |count| count.trim().parse().unwrap())
    }

    /// The line of /proc/self/mountinfo.
    fn line_of(dir: &Path) -> Option<String> {
        let mounts = holdfast_base::proc::list("/proc/self/mountinfo").unwrap();
        let at = format!(" {} ", dir.display());
        mounts.lines().rfind(|line| line.contains(&at)).map(String::from)
    }

    /// The filesystem behind the mount. To be dropped before the mount ends.
    pub(crate) fn fs(&self) -> Arc<FileSystem> {
        self.server.as_ref().expect("mounted").fs()
    }

    /// Ends the mount and gives the filesystem back.
    pub(crate) fn stop(&mut self) -> Arc<FileSystem> {
        self.server.take().expect("not stopped twice").stop()
    }

    /// Waits until another program has unmounted.
    pub(crate) fn wait(&mut self) -> Arc<FileSystem> {
        self.server.take().expect("not stopped twice").wait()
    }

    /// Unmounts in good order and mounts again.
    pub(crate) fn remount(self) -> Mount {
        let device = Arc::clone(&self.device);
        self.leave();
        Mount::of(device)
    }

    /// Unmounts in good order.
    pub(crate) fn leave(mut self) {
        let fs = self.stop();
        Arc::into_inner(fs).expect("nobody else holds it").unmount().unwrap();
        if let Some(beside) = self.beside.take() {
            beside.leave();
        }
    }

    /// Forgets all that is only in memory, and mounts again.
    pub(crate) fn crash(mut self) -> Mount {
        let fs = self.stop();
        drop(Arc::into_inner(fs).expect("nobody else holds it"));
        drop(self.beside.take());
        Mount::of(Arc::clone(&self.device))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.server.take());
    }
}

/// Waits until something has come about that the kernel, or another process, does when it likes.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Deadline::after(Duration::from_secs(60));
    while !done() {
        assert!(!until.is_over(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A device whose flushes are held back when that is wanted.
#[derive(Debug)]
pub(crate) struct HeldFlush {
    inner: MemoryDevice,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    is_held: bool,
    /// Flushes since then.
    flushes: u64,
}

impl HeldFlush {
    pub(crate) fn new(len: u64) -> HeldFlush {
        let inner = MemoryDevice::new(len);
        HeldFlush { inner, held: Mutex::default(), changed: Condvar::new() }
    }

    /// From now on no flush returns.
    pub(crate) fn hold(&self) {
        *self.held.lock().unwrap() = Held { is_held: true, flushes: 0 };
    }

    /// Waits for a flush that is held.
    pub(crate) fn wait(&self) {
        let none = |held: &mut Held| held.flushes == 0;
        drop(self.changed.wait_while(self.held.lock().unwrap(), none).unwrap());
    }

    pub(crate) fn let_go(&self) {
        self.held.lock().unwrap().is_held = false;
        self.changed.notify_all();
    }

    /// Flushes since they were held.
    pub(crate) fn flushes(&self) -> u64 {
        self.held.lock().unwrap().flushes
    }
}

impl Device for HeldFlush {
    forward!(inner: read, write, discard, room, take_room, len, sector_size, reach, stats);

    fn flush(&self) -> Result<Flushed, DeviceError> {
        let mut held = self.held.lock().unwrap();
        held.flushes += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(held, |held| held.is_held).unwrap());
        self.inner.flush()
    }
}
