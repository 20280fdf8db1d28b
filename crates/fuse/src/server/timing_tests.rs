//! What is counted and timed as which operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, forward};
use holdfast_posix::{DirEntry, MkfsOptions, SetAttr};

use super::{Server, fresh};
use crate::interface::{CopyRange, DirSink, FileId, Mode, Request, Write};
use crate::statistics::Operation;

const ROOT: Request = Request { uid: 0, gid: 0, pid: 0 };
const FILE: Mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
/// What the slow device takes for each call.
const DELAY: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Slow {
    inner: MemoryDevice,
    is_slow: AtomicBool,
}

impl Slow {
    fn wait(&self) {
        if self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(DELAY);
        }
    }
}

impl Device for Slow {
    forward!(inner: write, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.wait();
        self.inner.read(at, into)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.wait();
        self.inner.flush()
    }
}

/// The answer of a call that is of no interest.
fn done<T>(_: T) {}

fn counts(server: &Server) -> Vec<(Operation, u64)> {
    let operations = server.requests().operations();
    Operation::ALL.iter().map(|kind| (*kind, operations.latency(*kind).count())).collect()
}

/// How long half of the operations of a kind took, all of which waited for the device.
fn took_no_less_than_the_device(server: &Server, kind: Operation) {
    let latency = server.requests().operations().latency(kind);
    let half = latency.quantile_ns(0.5).unwrap();
    assert!(u128::from(half) >= DELAY.as_nanos(), "{kind:?}: {half} ns");
}

fn opened(server: &Server, inode: InodeNo) -> FileId {
    FileId { inode, fh: server.open(&ROOT, inode, libc::O_RDWR, false).unwrap().fh, flags: 0 }
}

#[test]
fn a_latency_is_what_the_caller_waited() {
    let slow = Arc::new(Slow { inner: MemoryDevice::new(64 << 20), is_slow: false.into() });
    let device: Arc<dyn Device> = slow.clone();
    let options = MkfsOptions {
        node_size: 4096,
        label: String::new(),
        uuid: None,
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    holdfast_posix::FileSystem::mkfs(&device, &options).unwrap();
    let fs = fresh::mount(&device);
    let server = fresh::server(&fs);
    let make = |name: String| server.mknod(&ROOT, InodeNo::ROOT, name.as_bytes(), FILE, 0).unwrap();
    let first = make("f0".into()).attr.unwrap().inode;
    (1..2000).for_each(|number| done(make(format!("f{number}"))));
    let file = opened(&server, first);
    let write = |byte: u8| {
        let bytes = &[byte; 5000];
        server
            .write(
                &ROOT,
                &Write { file, offset: 0, bytes, kill_suid_sgid: false, is_cached: false },
            )
            .unwrap();
    };
    slow.is_slow.store(true, Ordering::Relaxed);
    for byte in 0..3 {
        write(byte);
        server.fsync(file, false).unwrap();
    }
    took_no_less_than_the_device(&server, Operation::Fsync);
    server.close();
    drop(server);
    slow.is_slow.store(false, Ordering::Relaxed);
    Arc::into_inner(fs).unwrap().unmount().unwrap();

    // With a completion callback, and from a volume that is not in memory.
    let fs = fresh::mount(&device);
    let server = fresh::server(&fs);
    slow.is_slow.store(true, Ordering::Relaxed);
    server.lookup(&ROOT, InodeNo::ROOT, b"f1000").unwrap();
    took_no_less_than_the_device(&server, Operation::Lookup);
    let file = opened(&server, first);
    assert_eq!(server.read(file, 0, &mut [0; 5000]).unwrap(), 5000);
    took_no_less_than_the_device(&server, Operation::Read);
    let (tell, hear) = mpsc::channel();
    for _ in 0..3 {
        let bytes = &[7; 5000];
        server
            .write(
                &ROOT,
                &Write { file, offset: 0, bytes, kill_suid_sgid: false, is_cached: false },
            )
            .unwrap();
        let tell = tell.clone();
        server.fsync_then(file, false, move |done| tell.send(done).unwrap());
        hear.recv().unwrap().unwrap();
    }
    took_no_less_than_the_device(&server, Operation::Fsync);
    slow.is_slow.store(false, Ordering::Relaxed);
    server.close();
}

/// Its name, the kind that it is counted as, and what makes it.
type Call<'a> = (&'static str, Option<Operation>, Box<dyn FnOnce() + 'a>);

struct Names;

impl DirSink for Names {
    fn add(&mut self, _: &DirEntry<'_>, _: Option<(&holdfast_posix::Attr, Duration)>) -> bool {
        true
    }

    fn clear(&mut self) {}
}

#[test]
fn each_call_is_one_operation_of_its_kind() {
    let fs = fresh::mount(&fresh::volume());
    let server = &fresh::server(&fs);
    let root = InodeNo::ROOT;
    let file = server.mknod(&ROOT, root, b"f", FILE, 0).unwrap().attr.unwrap().inode;
    let link = server.symlink(&ROOT, root, b"s", b"f").unwrap().attr.unwrap().inode;
    let id = opened(server, file);
    let directory = Mode { mode: 0o755, umask: 0 };
    let write =
        Write { file: id, offset: 0, bytes: b"12345", kill_suid_sgid: false, is_cached: false };
    let copy = CopyRange { from: id, offset_in: 0, to: id, offset_out: 4096, len: 3 };
    let (tell, hear) = mpsc::channel();
    let (tell_too, hear_too) = mpsc::channel();
    use Operation::{
        Attributes, Create, Fsync, List, Lookup, Open, Other, Read, Remove, Rename, Stat,
    };
    let calls: Vec<Call<'_>> = vec![
        ("lookup", Some(Lookup), Box::new(|| done(server.lookup(&ROOT, root, b"f").unwrap()))),
        ("no such name", Some(Lookup), Box::new(|| done(server.lookup(&ROOT, root, b"no")))),
        ("getattr", Some(Stat), Box::new(|| done(server.getattr(file).unwrap()))),
        ("readdir", Some(List), Box::new(|| server.readdir(root, 0, false, &mut Names).unwrap())),
        ("open", Some(Open), Box::new(|| done(server.open(&ROOT, file, 0, false).unwrap()))),
        (
            "create",
            Some(Create),
            Box::new(|| {
                done(server.create(&ROOT, root, b"c", FILE, libc::O_RDWR, false).unwrap());
            }),
        ),
        (
            "tmpfile",
            Some(Create),
            Box::new(|| {
                done(server.tmpfile(&ROOT, root, FILE, libc::O_RDWR).unwrap());
            }),
        ),
        (
            "mknod",
            Some(Create),
            Box::new(|| done(server.mknod(&ROOT, root, b"n", FILE, 0).unwrap())),
        ),
        (
            "mkdir",
            Some(Create),
            Box::new(|| done(server.mkdir(&ROOT, root, b"d", directory).unwrap())),
        ),
        (
            "symlink",
            Some(Create),
            Box::new(|| done(server.symlink(&ROOT, root, b"t", b"f").unwrap())),
        ),
        ("link", Some(Create), Box::new(|| done(server.link(&ROOT, file, root, b"l").unwrap()))),
        ("unlink", Some(Remove), Box::new(|| server.unlink(&ROOT, root, b"l").unwrap())),
        ("rmdir", Some(Remove), Box::new(|| server.rmdir(&ROOT, root, b"d").unwrap())),
        (
            "rename",
            Some(Rename),
            Box::new(|| server.rename(&ROOT, (root, b"n"), (root, b"m"), 0).unwrap()),
        ),
        ("write", Some(Operation::Write), Box::new(|| done(server.write(&ROOT, &write).unwrap()))),
        ("read", Some(Read), Box::new(|| done(server.read(id, 0, &mut [0; 5]).unwrap()))),
        ("fsync", Some(Fsync), Box::new(|| server.fsync(id, false).unwrap())),
        ("fsyncdir", Some(Fsync), Box::new(|| server.fsyncdir(root).unwrap())),
        (
            "fsync_then",
            Some(Fsync),
            Box::new(|| {
                server.fsync_then(id, false, move |done| tell.send(done).unwrap());
                hear.recv().unwrap().unwrap();
            }),
        ),
        (
            "fsyncdir_then",
            Some(Fsync),
            Box::new(|| {
                server.fsyncdir_then(root, move |done| tell_too.send(done).unwrap());
                hear_too.recv().unwrap().unwrap();
            }),
        ),
        (
            "sync",
            Some(Fsync),
            Box::new(|| {
                done(server.getxattr(&ROOT, root, super::SYNC_XATTR, 64).unwrap());
            }),
        ),
        ("sync_written", None, Box::new(|| server.sync_written(file).unwrap())),
        (
            "setattr",
            Some(Attributes),
            Box::new(|| {
                let change = SetAttr { perm: Some(0o600), ..SetAttr::default() };
                done(server.setattr(&ROOT, file, None, change).unwrap());
            }),
        ),
        (
            "setxattr",
            Some(Attributes),
            Box::new(|| {
                server.setxattr(&ROOT, file, b"user.x", b"1", 0, false).unwrap();
            }),
        ),
        (
            "remount",
            None,
            Box::new(|| {
                server.setxattr(&ROOT, root, super::REMOUNT_XATTR, b"noatime", 0, false).unwrap();
            }),
        ),
        (
            "getxattr",
            Some(Other),
            Box::new(|| {
                done(server.getxattr(&ROOT, file, b"user.x", 64).unwrap());
            }),
        ),
        (
            "counters",
            None,
            Box::new(|| {
                done(server.getxattr(&ROOT, root, super::STATS_XATTR, 65536).unwrap());
            }),
        ),
        ("listxattr", Some(Other), Box::new(|| done(server.listxattr(&ROOT, file, 64).unwrap()))),
        (
            "removexattr",
            Some(Attributes),
            Box::new(|| {
                server.removexattr(&ROOT, file, b"user.x").unwrap();
            }),
        ),
        ("readlink", Some(Other), Box::new(|| done(server.readlink(link).unwrap()))),
        ("access", Some(Other), Box::new(|| server.access(&ROOT, file, libc::R_OK).unwrap())),
        ("statfs", Some(Other), Box::new(|| done(server.statfs().unwrap()))),
        ("fallocate", Some(Other), Box::new(|| server.fallocate(&ROOT, id, 0, 0, 8192).unwrap())),
        ("seek", Some(Other), Box::new(|| done(server.seek(id, 0, libc::SEEK_DATA).unwrap()))),
        ("copy_range", Some(Other), Box::new(|| done(server.copy_range(&ROOT, &copy).unwrap()))),
        ("release", None, Box::new(|| server.release(id.fh))),
    ];
    for (name, kind, call) in calls {
        let mut wanted = counts(server);
        call();
        for (of, count) in &mut wanted {
            *count += u64::from(kind == Some(*of));
        }
        assert_eq!(counts(server), wanted, "{name}");
    }
    server.close();
}
