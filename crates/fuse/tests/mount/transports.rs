//! The ways on which requests come, and what came with our own.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use holdfast_fuse::{RequestKind, Session, Transport};
use holdfast_posix::FileSystem;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use crate::common::{Mount, can_mount, options, transport, volume};

/// Whether the kernel offers rings.
fn has_rings() -> bool {
    fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|on| on.trim() == "Y")
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let open = || {
        let flags = OFlags::TMPFILE.bits() as i32;
        fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(mount.dir.path())
    };
    let mut file = open().unwrap();
    file.write_all(b"given a name late").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let through = format!("/proc/self/fd/{}", file.as_raw_fd());
    let (through, name) = (Path::new(&through), mount.path("named"));
    linkat(CWD, through, CWD, &name, AtFlags::SYMLINK_FOLLOW).unwrap();
    file.sync_all().unwrap();
    drop(open().unwrap());
    assert_eq!(mount.count(RequestKind::TmpFile), 2);
    drop(file);
    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"given a name late");
}

#[test]
fn the_time_of_birth_is_told_and_stays() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    fs::write(mount.path("f"), b"1").unwrap();
    let born = fs::metadata(mount.path("f")).unwrap().created().unwrap();
    let mount = mount.remount();
    fs::write(mount.path("f"), b"2").unwrap();
    let metadata = fs::metadata(mount.path("f")).unwrap();
    assert_eq!(metadata.created().unwrap(), born);
    assert!(metadata.modified().unwrap() > born);
}

/// The same volume through one way and then the other.
#[test]
fn both_ways_lead_to_the_same_files() {
    if !can_mount() {
        return;
    }
    if !has_rings() {
        holdfast_base::skip::skipped("the kernel offers no rings");
        return;
    }
    let device = volume(64);
    let large: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    for (from, to) in [(Transport::Device, Transport::Rings), (Transport::Rings, Transport::Device)]
    {
        let mount = Mount::with(device.clone(), options(), |fuse| fuse.transport = from);
        fs::create_dir_all(mount.path("dir")).unwrap();
        fs::write(mount.path("dir/large"), &large).unwrap();
        for number in 0..300 {
            fs::write(mount.path(&format!("dir/{number}")), format!("{number}")).unwrap();
        }
        mount.leave();
        let mount = Mount::with(device.clone(), options(), |fuse| fuse.transport = to);
        assert!(fs::read(mount.path("dir/large")).unwrap() == large);
        assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 301);
        for number in 0..300 {
            let name = mount.path(&format!("dir/{number}"));
            assert_eq!(fs::read_to_string(&name).unwrap(), format!("{number}"));
            fs::remove_file(name).unwrap();
        }
        mount.leave();
    }
}

/// More callers that wait than a processor has threads: all come to their end.
#[test]
fn many_fsyncs_at_once_all_return() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let name = mount.path(&format!("f{thread}"));
            scope.spawn(move || {
                let mut file = fs::File::create(name).unwrap();
                for _ in 0..20 {
                    file.write_all(&[thread; 100]).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    assert_eq!(mount.count(RequestKind::Fsync), 64 * 20);
}

#[test]
fn rings_that_are_wanted_and_not_offered_are_missed() {
    if !can_mount() || has_rings() || transport() == Transport::Rings {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fuse = holdfast_fuse::FuseOptions { transport: Transport::Rings, ..Default::default() };
    let filesystem = Arc::new(FileSystem::mount(volume(64), options()).unwrap());
    let mounted = holdfast_fuse::mount(dir.path(), &fuse).unwrap();
    let why = Session::start(filesystem.clone(), mounted, &fuse).unwrap_err().to_string();
    assert!(why.contains("enable_uring"), "{why}");
    assert_eq!(Arc::strong_count(&filesystem), 1, "it was let go");
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left mounted");
}
