//! What each way to make something durable costs through the kernel, and how it is reported.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_fuse::{Opens, RequestKind};
use holdfast_posix::MountOptions;
use rustix::fs::XattrFlags;

use crate::common::{Mount, can_mount, mkfs, open_to_write, options};

/// Flushes and log batches that `action` cost; everything else that must not happen does not.
#[track_caller]
fn cost(mount: &Mount, action: impl FnOnce()) -> (u64, u64) {
    let read = || {
        let list = mount.fs().counters().list();
        let value = |name: &str| list.iter().find(|it| it.name == name).unwrap().value;
        let quiet = ["commits", "checkpoints", "log_full", "log_too_large"].map(value);
        (mount.device.stats().flushes, value("log_batches"), quiet)
    };
    let before = read();
    action();
    let after = read();
    assert_eq!(after.2, before.2, "no commit, no checkpoint, no fallback");
    (after.0 - before.0, after.1 - before.1)
}

fn sync_all(dir: &Path) {
    rustix::fs::getxattr(dir, "system.holdfast.sync", &mut [0; 0][..]).unwrap();
}

/// The lines that the mount says of the last fsync of `path`.
fn told(path: &Path) -> rustix::io::Result<String> {
    let mut value = vec![0; 65536];
    let length = rustix::fs::getxattr(path, "holdfast.fsync", &mut value[..])?;
    Ok(String::from_utf8(value[..length].to_vec()).unwrap())
}

#[test]
fn every_way_to_be_durable_costs_one_flush() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    fs::create_dir(mount.path("d")).unwrap();
    sync_all(mount.dir.path());
    // Little data goes into the log, more of it to its place before.
    for (round, size) in [100, 4096, 300_000].into_iter().enumerate() {
        let bytes = vec![round as u8 + 1; size];
        let file = open_to_write(&mount.path("f"), 0);
        let full = cost(&mount, || {
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
        });
        assert_eq!(full, (1, 1), "fsync, {size} bytes");
        let data = cost(&mount, || {
            file.write_all_at(&bytes, 1 << 20).unwrap();
            file.sync_data().unwrap();
        });
        assert_eq!(data, (1, 1), "fdatasync, {size} bytes");
        assert_eq!(cost(&mount, || file.sync_all().unwrap()), (0, 0), "it is clean");
    }
    for (name, flags) in [("O_SYNC", libc::O_SYNC), ("O_DSYNC", libc::O_DSYNC)] {
        for direct in [0, libc::O_DIRECT] {
            let file = open_to_write(&mount.path(name), flags | direct);
            let fsyncs = mount.count(RequestKind::Fsync);
            // Two calls of one handle: each is durable when it returns.
            for at in [0, 65536] {
                let write = cost(&mount, || file.write_all_at(&[7; 8192], at).unwrap());
                assert_eq!(write, (1, 1), "{name}, {direct:#o}");
            }
            // Without page cache the kernel leaves it to the write.
            let asked = if direct == 0 { 2 } else { 0 };
            assert_eq!(mount.count(RequestKind::Fsync) - fsyncs, asked, "{name}, {direct:#o}");
        }
    }
    for dir in [mount.path("d"), mount.dir.path().to_path_buf()] {
        let asked = mount.count(RequestKind::FsyncDir);
        fs::write(dir.join("new"), b"in the log with its name").unwrap();
        let handle = File::open(&dir).unwrap();
        assert_eq!(cost(&mount, || handle.sync_all().unwrap()), (1, 1), "{dir:?}");
        assert_eq!(cost(&mount, || handle.sync_all().unwrap()), (0, 0), "{dir:?} is clean");
        assert_eq!(mount.count(RequestKind::FsyncDir) - asked, 2);
    }
    fs::write(mount.path("d/more"), vec![1; 100_000]).unwrap();
    fs::rename(mount.path("d/new"), mount.path("d/moved")).unwrap();
    assert_eq!(cost(&mount, || sync_all(mount.dir.path())), (1, 1));
    assert_eq!(cost(&mount, || sync_all(&mount.path("d"))), (0, 0), "all of it is clean");
    let list = mount.fs().counters().list();
    let value = |name: &str| list.iter().find(|it| it.name == name).unwrap().value;
    assert!(value("clean_fsyncs") >= 6 && value("fsyncs") > value("clean_fsyncs"));
    drop(list);
    let mount = mount.crash();
    assert!(mount.path("d/moved").exists() && !mount.path("d/new").exists());
    assert_eq!(fs::read(mount.path("d/more")).unwrap(), vec![1; 100_000]);
}

#[test]
fn the_last_fsync_of_a_file_can_be_asked_for() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    let mut file = File::create(mount.path("f")).unwrap();
    assert_eq!(told(&mount.path("f")), Err(rustix::io::Errno::NODATA));
    file.write_all(b"x").unwrap();
    file.sync_all().unwrap();
    let text = told(&mount.path("f")).unwrap();
    assert!(text.starts_with("what fsync\n"), "{text}");
    assert!(text.contains("\nclean false\nbatch "), "{text}");
    assert!(text.contains("\nled true\n") && text.contains("\nflushes 1\n"), "{text}");
    assert!(text.contains("\nsays batch "), "{text}");
    file.sync_all().unwrap();
    let text = told(&mount.path("f")).unwrap();
    assert!(text.contains("\nclean true\n") && text.contains("nothing was undurable"), "{text}");

    let direct = open_to_write(&mount.path("g"), libc::O_SYNC | libc::O_DIRECT);
    direct.write_all_at(&[1; 4096], 0).unwrap();
    let text = told(&mount.path("g")).unwrap();
    assert!(text.starts_with("what synchronous write\n"), "{text}");
    assert_eq!(told(mount.dir.path()), Err(rustix::io::Errno::NODATA));
    sync_all(&mount.path("g"));
    let text = told(mount.dir.path()).unwrap();
    assert!(text.starts_with("what sync of the whole volume\ninode 1\n"), "{text}");

    // It is no attribute: not listed, not to be changed.
    let mut names = vec![0; 4096];
    assert_eq!(rustix::fs::listxattr(mount.path("f"), &mut names[..]), Ok(0));
    let set = rustix::fs::setxattr(mount.path("f"), "holdfast.fsync", b"1", XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::PERM));
}

/// A device that refuses long writes when it is told to.
#[derive(Debug)]
struct Refusing {
    inner: MemoryDevice,
    refuses: Arc<AtomicBool>,
}

impl Device for Refusing {
    forward!(inner: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.len() >= 65536 && self.refuses.load(Ordering::SeqCst) {
            let source = io::Error::from_raw_os_error(libc::EIO);
            return Err(DeviceError::Io { call: "write", at, len: bytes.len() as u64, source });
        }
        self.inner.write(at, bytes)
    }
}

/// A mount of such a device, which obeys until told otherwise.
fn refusing(opens: Opens) -> (Mount, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(false));
    let inner = MemoryDevice::new(128 << 20);
    let device: Arc<dyn Device> = Arc::new(Refusing { inner, refuses: Arc::clone(&refuses) });
    mkfs(&device);
    let few = MountOptions { inode_cache: 4, ..options() };
    (Mount::with(device, few, |fuse| fuse.opens = opens), refuses)
}

/// A kernel that opens files itself has no handles that could each remember which errors they have got.
#[test]
fn where_the_kernel_opens_files_fsyncs_report_what_failed_until_it_is_written_again() {
    if !can_mount() {
        return;
    }
    let (mount, refuses) = refusing(Opens::Kernel);
    let handles = [open_to_write(&mount.path("f"), 0), open_to_write(&mount.path("f"), 0)];
    refuses.store(true, Ordering::SeqCst);
    handles[0].write_all_at(&[1; 1 << 20], 0).unwrap();
    assert_eq!(handles[1].sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    refuses.store(false, Ordering::SeqCst);
    // The server has room for few files, and the kernel has it open.
    (0..200).for_each(|n| drop(File::create(mount.path(&n.to_string())).unwrap()));
    handles[0].sync_all().expect_err("what was lost was not written again");
    handles[0].write_all_at(&[2; 1 << 20], 0).unwrap();
    handles[0].sync_all().unwrap();
    drop(handles);
    let mount = mount.crash();
    assert!(fs::read(mount.path("f")).unwrap() == vec![2; 1 << 20]);
}

#[test]
fn a_failed_fsync_is_reported_to_each_handle_until_it_is_made_good() {
    // P1, P7.
    if !can_mount() {
        return;
    }
    let (mount, refuses) = refusing(Opens::Server);
    let handles = [open_to_write(&mount.path("f"), 0), open_to_write(&mount.path("f"), 0)];
    handles[0].write_all_at(b"before", 0).unwrap();
    handles[0].sync_all().unwrap();
    refuses.store(true, Ordering::SeqCst);
    handles[0].write_all_at(&[1; 1 << 20], 0).unwrap();
    for (number, handle) in handles.iter().enumerate() {
        let error = handle.sync_all().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "handle {number}");
        let text = told(&mount.path("f")).unwrap();
        assert!(text.contains("\nerror 5\nsays it failed: "), "{text}");
    }
    refuses.store(false, Ordering::SeqCst);
    // Both got the error. But the bytes are still gone, also for a handle that was opened later.
    for handle in handles.iter().chain([&open_to_write(&mount.path("f"), 0)]) {
        assert_eq!(handle.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    // The volume goes on: what the device refused was data of one file.
    handles[1].write_all_at(&[2; 1 << 20], 0).unwrap();
    for handle in &handles {
        handle.sync_all().unwrap();
    }
    let dir = File::open(mount.dir.path()).unwrap();
    fs::write(mount.path("other"), b"x").unwrap();
    dir.sync_all().unwrap();
    drop((handles, dir));
    let mount = mount.crash();
    assert!(fs::read(mount.path("f")).unwrap() == vec![2; 1 << 20]);
    assert!(mount.path("other").exists());
}
