//! A process that dies with a request in hand, and another one that goes on with its mount: the caller sees a pause, and what is
//! to be done once is done once.
//!
//! This process mounts and keeps the connection; those that serve it are itself, run again. Each but the last dies at
//! a write to its device: before it, so that the change is lost, or behind it, so that only the answer is.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdfast_device::{Device, DeviceError, FileDevice, OpenMode, forward};
use holdfast_fuse::{Agreed, DuplicateRequests, FuseOptions, Handed, Mounted, Session};
use holdfast_posix::{FileSystem, MountOptions};
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use rustix::process::{Signal, getpid, kill_process};

use crate::common::{can_mount, mkfs, options};

const TEST: &str = "supervised::a_request_whose_server_dies_is_carried_out_once";
/// This process serves the mount in this directory. Its standard input is the connection.
const SERVES: &str = "HOLDFAST_TEST_SERVES";
/// What the process before it agreed on with the kernel, if there was one.
const AGREED: &str = "HOLDFAST_TEST_AGREED";
/// Where it is noted which requests were carried out.
const CARRIED_OUT: &str = "HOLDFAST_TEST_CARRIED_OUT";

/// Files beside the mount: the volume, and what has a process die when it is there.
fn image(dir: &Path) -> PathBuf {
    dir.join("image")
}

fn deadly(dir: &Path, when: When) -> PathBuf {
    dir.join(format!("{when:?}"))
}

/// When a process dies.
#[derive(Clone, Copy, Debug)]
enum When {
    BeforeTheWrite,
    BehindTheWrite,
}

/// A device that ends the process.
#[derive(Debug)]
struct Deadly {
    inner: FileDevice,
    dir: PathBuf,
}

impl Deadly {
    fn die_if(&self, when: When) {
        if deadly(&self.dir, when).exists() {
            kill_process(getpid(), Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
    }
}

impl Device for Deadly {
    forward!(inner: read, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.die_if(When::BeforeTheWrite);
        self.inner.write(at, bytes)?;
        self.die_if(When::BehindTheWrite);
        Ok(())
    }
}

/// The life of a process that serves.
fn serve(dir: &Path) {
    let inner = FileDevice::open(image(dir), OpenMode::ReadWrite).unwrap();
    let device: Arc<dyn Device> = Arc::new(Deadly { inner, dir: dir.into() });
    let before = std::env::var(AGREED).ok();
    let options = MountOptions { resumed: before.is_some().into(), ..options() };
    let fs = Arc::new(FileSystem::mount(device, options).unwrap());
    let duplicate_requests = std::env::var(CARRIED_OUT).unwrap();
    let duplicate_requests: OwnedFd =
        File::options().read(true).write(true).open(duplicate_requests).unwrap().into();
    let duplicate_requests =
        DuplicateRequests::take_over(duplicate_requests, fs.recovered()).unwrap();
    let options = FuseOptions {
        handover: true,
        duplicate_requests: Some(Arc::new(duplicate_requests)),
        ..FuseOptions::default()
    };
    let handed = Handed { dir: dir.join("mnt"), device: None };
    let fuse = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mounted = (fuse, Mounted::adopt(&handed, None, 0));
    let session = match before.as_deref().and_then(|words| words.split_once(' ')) {
        None => Session::start(fs, mounted, &options),
        Some((offered, taken)) => {
            let [offered, taken] = [offered, taken].map(|it| it.parse().unwrap());
            Session::resume(fs, mounted, &options, Agreed { offered, taken })
        }
    };
    let session = session.unwrap();
    println!("serves {} {}", session.agreed().offered, session.agreed().taken);
    session.wait_ended(Duration::from_secs(600));
}

/// A mount, and the process that serves it.
struct Supervised {
    server: Child,
    /// What that prints. Kept open, or it could not.
    said: Option<Lines<BufReader<ChildStdout>>>,
    agreed: Option<String>,
    fuse: OwnedFd,
    duplicate_requests: DuplicateRequests,
    // Before `dir`, which is removed.
    _mounted: Mounted,
    dir: tempfile::TempDir,
}

impl Supervised {
    fn new() -> Supervised {
        let dir = tempfile::tempdir().unwrap();
        let device: Arc<dyn Device> =
            Arc::new(FileDevice::create(image(dir.path()), 64 << 20).unwrap());
        mkfs(&device);
        drop(device);
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let mounted = holdfast_fuse::mount(&dir.path().join("mnt"), &FuseOptions::default());
        let (fuse, _mounted) = mounted.unwrap();
        let duplicate_requests = DuplicateRequests::new().unwrap();
        let mut new = Supervised {
            server: Command::new("true").spawn().unwrap(),
            said: None,
            agreed: None,
            fuse,
            duplicate_requests,
            _mounted,
            dir,
        };
        new.start();
        new
    }

    /// Starts the next process, and returns when it serves.
    fn start(&mut self) {
        self.server.wait().unwrap();
        let (pid, duplicate_requests) =
            (std::process::id(), self.duplicate_requests.as_fd().as_raw_fd());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", TEST, "--nocapture"])
            .env(SERVES, self.dir.path())
            .env(CARRIED_OUT, format!("/proc/{pid}/fd/{duplicate_requests}"))
            .stdin(self.fuse.try_clone().unwrap())
            .stdout(Stdio::piped());
        if let Some(agreed) = &self.agreed {
            command.env(AGREED, agreed);
        }
        self.server = command.spawn().unwrap();
        let mut said = BufReader::new(self.server.stdout.take().unwrap()).lines();
        let agreed = said.find_map(|line| line.unwrap().strip_prefix("serves ").map(str::to_owned));
        self.agreed = Some(agreed.expect("it does not serve"));
        self.said = Some(said);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }

    /// Does `what`, whose server dies meanwhile.
    #[track_caller]
    fn beside_a_death<T: Send + 'static>(
        &mut self,
        when: When,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let deadly = deadly(self.dir.path(), when);
        File::create(&deadly).unwrap();
        let doing = std::thread::spawn(what);
        let status = self.server.wait().unwrap();
        assert!(!status.success() && status.code().is_none(), "{status}");
        fs::remove_file(&deadly).unwrap();
        self.start();
        doing.join().unwrap()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A call, and what must be true behind it.
struct Case {
    name: &'static str,
    prepare: fn(&Path),
    call: fn(&Path) -> io::Result<()>,
    holds: fn(&Path) -> bool,
}

fn put(path: PathBuf, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

fn has(path: PathBuf, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == bytes)
}

/// Each of these fails, or does something else, when it is done twice.
const CASES: &[Case] = &[
    Case {
        name: "mkdir",
        prepare: |_| {},
        call: |at| fs::create_dir(at.join("made")),
        holds: |at| at.join("made").is_dir(),
    },
    Case {
        name: "create",
        prepare: |_| {},
        call: |at| File::create_new(at.join("made")).map(drop),
        holds: |at| has(at.join("made"), b""),
    },
    Case {
        name: "symlink",
        prepare: |_| {},
        call: |at| symlink("to", at.join("made")),
        holds: |at| fs::read_link(at.join("made")).is_ok_and(|to| to == Path::new("to")),
    },
    Case {
        name: "link",
        prepare: |at| put(at.join("file"), b"1"),
        call: |at| fs::hard_link(at.join("file"), at.join("made")),
        holds: |at| at.join("made").metadata().is_ok_and(|it| it.nlink() == 2),
    },
    Case {
        name: "unlink",
        prepare: |at| put(at.join("file"), b"1"),
        call: |at| fs::remove_file(at.join("file")),
        holds: |at| !at.join("file").exists(),
    },
    Case {
        name: "rmdir",
        prepare: |at| fs::create_dir(at.join("dir")).unwrap(),
        call: |at| fs::remove_dir(at.join("dir")),
        holds: |at| !at.join("dir").exists(),
    },
    Case {
        name: "rename",
        prepare: |at| put(at.join("old"), b"1"),
        call: |at| fs::rename(at.join("old"), at.join("new")),
        holds: |at| has(at.join("new"), b"1") && !at.join("old").exists(),
    },
    Case {
        name: "exchange",
        prepare: |at| {
            put(at.join("one"), b"1");
            put(at.join("two"), b"2");
        },
        call: |at| {
            let (one, two) = (at.join("one"), at.join("two"));
            Ok(renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE)?)
        },
        holds: |at| has(at.join("one"), b"2") && has(at.join("two"), b"1"),
    },
    Case {
        name: "setxattr",
        prepare: |at| put(at.join("file"), b"1"),
        call: |at| Ok(rustix::fs::setxattr(at.join("file"), "user.x", b"1", XattrFlags::CREATE)?),
        holds: |at| rustix::fs::getxattr(at.join("file"), "user.x", &mut [0; 8]) == Ok(1),
    },
    Case {
        name: "removexattr",
        prepare: |at| {
            put(at.join("file"), b"1");
            rustix::fs::setxattr(at.join("file"), "user.x", b"1", XattrFlags::empty()).unwrap();
        },
        call: |at| Ok(rustix::fs::removexattr(at.join("file"), "user.x")?),
        holds: |at| rustix::fs::getxattr(at.join("file"), "user.x", &mut [0; 8]).is_err(),
    },
    Case {
        name: "append",
        prepare: |at| put(at.join("file"), b"1"),
        call: |at| {
            let file = File::options().append(true).open(at.join("file"))?;
            io::Write::write_all(&mut &file, b"2")
        },
        holds: |at| has(at.join("file"), b"12"),
    },
];

#[test]
fn a_request_whose_server_dies_is_carried_out_once() {
    if let Some(dir) = std::env::var_os(SERVES) {
        return serve(Path::new(&dir));
    }
    if !can_mount() {
        return;
    }
    if !holdfast_base::skip::kernel_is(6, 9) {
        holdfast_base::skip::skipped("Linux 6.9, which sends requests again");
        return;
    }
    let mut mount = Supervised::new();
    // A file that is open over all deaths, and one that has no name any more.
    put(mount.path("open"), b"is open");
    let open = File::options().read(true).write(true).open(mount.path("open")).unwrap();
    put(mount.path("gone"), b"is gone");
    let gone = File::options().read(true).write(true).open(mount.path("gone")).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    for when in [When::BeforeTheWrite, When::BehindTheWrite] {
        for case in CASES {
            let name = format!("{} {when:?}", case.name);
            let at = mount.path(&name);
            fs::create_dir(&at).unwrap();
            (case.prepare)(&at);
            let there = at.clone();
            let done = mount.beside_a_death(when, move || (case.call)(&there));
            assert!(done.is_ok(), "{name}: {done:?}");
            assert!(
                (case.holds)(&at),
                "{name}: {:?}",
                fs::read_dir(&at).map(Iterator::collect::<Vec<_>>)
            );
            let mut bytes = [0; 7];
            for (file, wanted) in [(&open, b"is open"), (&gone, b"is gone")] {
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(&bytes, wanted, "{name}");
            }
        }
    }
    gone.write_all_at(b"still", 0).unwrap();
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
}
