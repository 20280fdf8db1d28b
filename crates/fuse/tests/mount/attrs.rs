//! Attributes, permissions, extended attributes and space through the kernel.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::{Mount, can_mount, options, volume, wait_for};
use holdfast_fuse::{FuseOptions, Opens, Report, RequestKind, Session};
use holdfast_posix::{Atime, FileSystem, MountOptions};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Timespec, Timestamps, XattrFlags, copy_file_range, fallocate,
    getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

/// Runs a shell command as an ordinary user.
fn as_user(script: &str, path: &Path) -> bool {
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .uid(54321)
        .gid(54321)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Lets an ordinary user come as far as the mount.
fn open_to_all(mount: &Mount) {
    fs::set_permissions(mount.dir.path(), Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn attributes_are_kept_to_the_nanosecond() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6741)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    // A new owner takes the set-id bits away.
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2741);
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1_234_567_890, tv_nsec: 987_654_321 },
        // Before 1970.
        last_modification: Timespec { tv_sec: -5, tv_nsec: 250_000_000 },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let check = |mount: &Mount| {
        let meta = fs::metadata(mount.path("f")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12, 34));
        assert_eq!(meta.mode() & 0o777, 0o741);
        assert_eq!((meta.atime(), meta.atime_nsec()), (1_234_567_890, 987_654_321));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 250_000_000));
    };
    check(&mount);
    let mount = mount.remount();
    check(&mount);
}

#[test]
fn times_of_a_directory_follow_its_names() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    let mtime = || {
        let meta = fs::metadata(&dir).unwrap();
        (meta.mtime(), meta.mtime_nsec(), meta.size())
    };
    let mut last = mtime();
    let mut step = |what: &str, action: &dyn Fn()| {
        std::thread::sleep(std::time::Duration::from_millis(15));
        action();
        let now = mtime();
        assert!(now.0 > last.0 || now.1 > last.1, "{what}");
        last = now;
    };
    step("create", &|| fs::write(dir.join("a"), b"").unwrap());
    step("rename", &|| fs::rename(dir.join("a"), dir.join("b")).unwrap());
    step("link", &|| fs::hard_link(dir.join("b"), dir.join("c")).unwrap());
    step("unlink", &|| fs::remove_file(dir.join("c")).unwrap());
    step("mkdir", &|| fs::create_dir(dir.join("e")).unwrap());
    step("rmdir", &|| fs::remove_dir(dir.join("e")).unwrap());
}

/// Whatever the kernel has in memory: programs that go by the time of the last access take what looks unused away.
#[test]
fn access_times_move_as_the_option_says() {
    if !can_mount() {
        return;
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (strict, never) in [(false, false), (true, false), (false, true)] {
        let atime = match (strict, never) {
            (true, _) => Atime::Always,
            (_, true) => Atime::Never,
            _ => Atime::Relative,
        };
        let mount = Mount::with(volume(256), MountOptions { atime, ..options() }, |fuse| {
            fuse.opens = Opens::Server;
            (fuse.strictatime, fuse.noatime) = (strict, never);
        });
        let (file, dir) = (mount.path("d/f"), mount.path("d"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, vec![7; 20_000]).unwrap();
        let read = || assert_eq!(fs::read(&file).unwrap().len(), 20_000);
        let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        let lists = || [RequestKind::ReadDir, RequestKind::ReadDirPlus].map(|it| mount.count(it));
        let accessed = |path: &Path| fs::metadata(path).unwrap().accessed().unwrap();
        for look in [&read as &dyn Fn(), &list] {
            look();
            look();
        }
        for (path, look) in [(&file, &read as &dyn Fn()), (&dir, &list)] {
            // As `touch -d` does it: the kernel keeps all that it has.
            File::open(path).unwrap().set_times(FileTimes::new().set_accessed(long_ago)).unwrap();
            assert_eq!(accessed(path), long_ago);
            let before = lists();
            look();
            match never {
                true => assert_eq!(accessed(path), long_ago),
                // What the kernel has of a listing moves nothing but with `strictatime`: no message comes that would.
                false if path == &dir && !strict && lists() == before => {
                    assert_eq!(accessed(path), long_ago);
                }
                // The kernel tells of the end of a file behind the program's back.
                false => wait_for("the access time stays", || accessed(path) > long_ago),
            }
            if strict {
                let before = accessed(path);
                look();
                wait_for("the access time stays", || accessed(path) > before);
            }
        }
        // The question leaves no trace.
        File::open(&file).unwrap().set_times(FileTimes::new().set_accessed(long_ago)).unwrap();
        let mut how = OpenOptions::new();
        let quiet = how.read(true).custom_flags(libc::O_NOATIME).open(&file).unwrap();
        assert_eq!(std::io::read_to_string(quiet).unwrap().len(), 20_000);
        assert_eq!(accessed(&file), long_ago);
    }
}

#[test]
fn the_kernel_keeps_strangers_out() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("secret");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(!as_user("cat \"$1\"", &path));
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(as_user("cat \"$1\" > /dev/null", &path));
    assert!(!as_user("echo y >> \"$1\"", &path));
    assert!(!as_user("touch \"$1\".new", &path));
    open_to_all(&mount);
    assert!(as_user("touch \"$1\".new && chmod 600 \"$1\".new", &path));
    let meta = fs::metadata(mount.path("secret.new")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (54321, 54321, 0o600));
    assert!(!as_user("chmod 777 \"$1\"", &path));
}

#[test]
fn a_write_by_a_stranger_takes_set_id_bits_away_and_the_kernel_hears_of_it() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("program");
    let arm = || {
        fs::write(&path, b"#!/bin/true\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
    };
    let bits = || fs::metadata(&path).unwrap().mode() & 0o7777;
    arm();
    assert!(as_user("echo evil >> \"$1\"", &path));
    assert_eq!(bits(), 0o777, "write");
    arm();
    assert!(as_user(": > \"$1\"", &path));
    assert_eq!(bits(), 0o777, "open with O_TRUNC");
    arm();
    assert!(as_user("truncate -s 3 \"$1\"", &path));
    assert_eq!(bits(), 0o777, "truncate");
    arm();
    assert!(as_user("fallocate -l 100000 \"$1\"", &path));
    assert_eq!(bits(), 0o777, "fallocate");
    // Root may write and keep them.
    arm();
    fs::write(&path, b"#!/bin/false\n").unwrap();
    assert_eq!(bits(), 0o6777);
}

/// Otherwise any user that may write into a program would get the rights that it was given.
#[test]
fn every_write_takes_file_capabilities_away() {
    if !can_mount() {
        return;
    }
    // Revision 2: CAP_NET_RAW, permitted.
    let mut some = vec![0; 20];
    (some[3], some[5]) = (2, 0x20);
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = Mount::opened_by(opens);
        let path = mount.path("f");
        fs::write(&path, vec![1; 8192]).unwrap();
        for (how, flags) in [("buffered", 0), ("direct", libc::O_DIRECT)] {
            let file = OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
            // The second time the kernel remembers that there were none.
            for round in 0..2 {
                setxattr(&path, "security.capability", &some, XattrFlags::empty()).unwrap();
                file.write_all_at(&[2; 4096], 0).unwrap();
                let left = getxattr(&path, "security.capability", &mut [0; 64][..]);
                assert_eq!(left, Err(Errno::NODATA), "{opens}, {how}, round {round}");
            }
        }
    }
}

/// With `noxattr` neither the kernel nor programs ask for attributes; those of our own can still be read.
#[test]
fn without_extended_attributes_a_file_takes_fewer_messages() {
    if !can_mount() {
        return;
    }
    let device = volume(64);
    let mount = Mount::with(device.clone(), options(), |fuse| {
        fuse.noxattr = true;
        fuse.report = Some(Report::new(|| Some(vec![b'r'; 40_000])));
    });
    let make = |name: &str| {
        fs::write(mount.path(name), vec![1; 4096]).unwrap();
        fs::set_permissions(mount.path(name), Permissions::from_mode(0o600)).unwrap();
        OpenOptions::new().write(true).open(mount.path(name)).unwrap().write_all_at(b"2", 0)
    };
    make("first").unwrap();
    // It was told once.
    let messages = mount.messages(|| (0..10).for_each(|n| make(&format!("f{n}")).unwrap()));
    assert!(messages.iter().all(|(kind, _)| !kind.ends_with("xattr")), "{messages:?}");
    let path = mount.path("first");
    let none = XattrFlags::empty();
    for _ in 0..2 {
        assert_eq!(setxattr(&path, "user.a", b"1", none), Err(Errno::OPNOTSUPP));
        assert_eq!(getxattr_query(&path, "user.a"), Err(Errno::OPNOTSUPP));
        assert_eq!(listxattr_query(&path), Err(Errno::OPNOTSUPP));
        assert_eq!(removexattr(&path, "user.a"), Err(Errno::OPNOTSUPP));
    }
    setxattr(mount.dir.path(), "system.holdfast.remount", b"noatime", none).unwrap();
    let ask = |path: &Path, name: &str| {
        holdfast_fuse::attribute(File::open(path).unwrap(), name.as_bytes())
    };
    // Longer than one piece, also while others ask.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    match ask(mount.dir.path(), "system.holdfast.report") {
                        Ok(report) => assert_eq!(report, vec![b'r'; 40_000]),
                        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                    }
                }
            });
        }
    });
    assert_eq!(ask(mount.dir.path(), "system.holdfast.sync").unwrap(), b"");
    assert!(mount.fs().is_durable());
    File::open(&path).unwrap().sync_all().unwrap();
    let cost = String::from_utf8(ask(&path, "holdfast.fsync").unwrap()).unwrap();
    assert!(cost.starts_with("what fsync\n"), "{cost}");
    let refused = ask(&path, "user.a").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
}

/// Where the kernel does not know that files have capabilities, whatever changes a file still takes them away.
#[test]
fn capabilities_go_also_where_the_kernel_asks_for_no_attributes() {
    if !can_mount() {
        return;
    }
    let mut some = vec![0; 20];
    (some[3], some[5]) = (2, 0x20);
    let device = volume(64);
    let names = ["left", "read", "written", "truncated", "opened", "owned", "punched", "copied"];
    let mount = Mount::of(device.clone());
    for name in names {
        fs::write(mount.path(name), vec![1; 8192]).unwrap();
        setxattr(mount.path(name), "security.capability", &some, XattrFlags::empty()).unwrap();
    }
    mount.leave();
    let mount = Mount::with(device.clone(), options(), |fuse| fuse.noxattr = true);
    let open =
        |name: &str| OpenOptions::new().read(true).write(true).open(mount.path(name)).unwrap();
    assert_eq!(fs::read(mount.path("read")).unwrap().len(), 8192);
    open("written").write_all_at(b"2", 0).unwrap();
    open("truncated").set_len(1).unwrap();
    drop(fs::File::create(mount.path("opened")).unwrap());
    std::os::unix::fs::chown(mount.path("owned"), Some(1), None).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(open("punched"), punch, 0, 4096).unwrap();
    let (from, to) = (open("read"), open("copied"));
    assert_eq!(copy_file_range(from, None, to, None, 100).unwrap(), 100);
    mount.leave();
    let mount = Mount::of(device);
    for name in names {
        let found = getxattr(mount.path(name), "security.capability", &mut [0; 64][..]);
        let expected = if ["left", "read"].contains(&name) { Ok(20) } else { Err(Errno::NODATA) };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn extended_attributes_come_in_all_sizes() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("f");
    fs::write(&path, b"x").unwrap();
    let none = XattrFlags::empty();
    let long = vec![7; 20_000];
    setxattr(&path, "user.empty", b"", none).unwrap();
    setxattr(&path, "user.small", b"value", none).unwrap();
    setxattr(&path, "trusted.long", &long, none).unwrap();
    assert_eq!(setxattr(&path, "user.small", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.absent", b"", XattrFlags::REPLACE), Err(Errno::NODATA));

    let mut buffer = vec![0; 65536];
    assert_eq!(getxattr_query(&path, "user.small"), Ok(5));
    assert_eq!(getxattr(&path, "user.small", &mut buffer[..4]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.small", &mut buffer[..5]), Ok(5));
    assert_eq!(&buffer[..5], b"value");
    assert_eq!(getxattr(&path, "user.empty", &mut buffer[..]), Ok(0));
    assert_eq!(getxattr(&path, "user.absent", &mut buffer[..]), Err(Errno::NODATA));

    let mount = mount.remount();
    let path = mount.path("f");
    assert_eq!(getxattr(&path, "trusted.long", &mut buffer[..]), Ok(20_000));
    assert!(buffer[..20_000] == long[..]);
    let size = listxattr_query(&path).unwrap();
    assert_eq!(listxattr(&path, &mut buffer[..]), Ok(size));
    let mut names: Vec<&[u8]> =
        buffer[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!(names, [&b"trusted.long"[..], b"user.empty", b"user.small"]);
    removexattr(&path, "user.empty").unwrap();
    assert_eq!(removexattr(&path, "user.empty"), Err(Errno::NODATA));
}

#[test]
fn access_control_lists_let_in_whom_they_name() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let path = mount.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(!as_user("cat \"$1\"", &path));
    // Version 2; owner rw-, user 54321 r--, group ---, mask r--, other ---.
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 4, 54321),
        (4, 0, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&perm.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    // The mask shows in the group bits, and the kernel has noticed.
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert!(as_user("cat \"$1\" > /dev/null", &path));
    assert!(!as_user("echo y >> \"$1\"", &path));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(!as_user("cat \"$1\"", &path));

    // A list to hand down takes the place of the umask.
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    let mut down = list.clone();
    down[4 + 8 * 3 + 2] = 6; // mask rw-
    down[4 + 8 + 2] = 6; // user rw-
    setxattr(&dir, "system.posix_acl_default", &down, XattrFlags::empty()).unwrap();
    let script = "umask 077; : > \"$1\"/made";
    assert!(Command::new("sh").args(["-c", script, "sh"]).arg(&dir).status().unwrap().success());
    assert_eq!(fs::metadata(dir.join("made")).unwrap().mode() & 0o777, 0o660);
    assert!(as_user("echo y >> \"$1\"", &dir.join("made")));
    let plain = mount.path("plain");
    assert!(
        Command::new("sh")
            .args(["-c", "umask 027; : > \"$1\"", "sh"])
            .arg(&plain)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o777, 0o640);
}

/// Nothing then checks which user lists a directory, or searches one whose names the kernel remembers.
#[test]
fn without_the_kernels_checks_no_other_user_comes_in() {
    if !can_mount() {
        return;
    }
    let alone = |fuse: &mut FuseOptions| {
        (fuse.default_permissions, fuse.allow_other) = (false, false);
    };
    let mount = Mount::with(volume(64), options(), alone);
    open_to_all(&mount);
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), b"x").unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    // The kernel remembers all of it.
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(fs::read(dir.join("f")).unwrap(), b"x");
    for script in ["ls \"$1\"", "cat \"$1/f\"", "stat \"$1/f\"", ": > \"$1/new\"", "rm \"$1/f\""] {
        assert!(!as_user(script, &dir), "{script}");
    }
    let filesystem = Arc::new(FileSystem::mount(volume(64), options()).unwrap());
    let fuse =
        FuseOptions { default_permissions: false, allow_other: true, ..FuseOptions::default() };
    let place = tempfile::tempdir().unwrap();
    let mounted = holdfast_fuse::mount(place.path(), &fuse).unwrap();
    let why = Session::start(Arc::clone(&filesystem), mounted, &fuse).unwrap_err().to_string();
    assert!(why.contains("nodefault_permissions"), "{why}");
    assert_eq!(Arc::strong_count(&filesystem), 1, "it was let go");
}

#[test]
fn statfs_and_flags_are_plausible() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let space = rustix::fs::statvfs(mount.dir.path()).unwrap();
    assert_eq!(space.f_frsize, 4096);
    assert_eq!(space.f_namemax, 255);
    assert!(space.f_blocks * 4096 > 200 << 20 && space.f_blocks * 4096 <= 256 << 20);
    assert!(space.f_bavail <= space.f_bfree && space.f_bfree <= space.f_blocks);
    assert!(space.f_ffree > 1000 && space.f_files > space.f_ffree);
    fs::write(mount.path("f"), vec![1; 10 << 20]).unwrap();
    let after = rustix::fs::statvfs(mount.dir.path()).unwrap();
    assert!(after.f_bavail + 2560 <= space.f_bavail);
    let lsattr = Command::new("lsattr").arg(mount.path("f")).output();
    if let Ok(output) = lsattr {
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.starts_with(b"-----"), "{output:?}");
    }
}
