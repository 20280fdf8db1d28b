//! From mount to unmount, and what an operation costs in messages.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Mount, can_mount, options, volume, wait_for};
use holdfast_fuse::{FuseOptions, Opens, RequestKind, Session};
use holdfast_posix::FileSystem;

fn mounts_line(mount: &Mount) -> Option<String> {
    let point = mount.dir.path().to_str().unwrap().to_owned();
    holdfast_base::proc::list("/proc/mounts")
        .unwrap()
        .lines()
        .find(|line| line.split(' ').nth(1) == Some(&point))
        .map(String::from)
}

#[test]
fn the_mount_table_shows_type_source_and_options() {
    if !can_mount() {
        return;
    }
    let mount = Mount::with(volume(64), options(), |fuse| {
        fuse.read_only = true;
        fuse.nosuid = true;
        fuse.noatime = true;
    });
    let line = mounts_line(&mount).unwrap();
    let fields: Vec<&str> = line.split(' ').collect();
    assert_eq!(fields[0], "memory,volume");
    assert_eq!(fields[2], "fuse.holdfast");
    let flags: Vec<&str> = fields[3].split(',').collect();
    for flag in ["ro", "nosuid", "noatime", "default_permissions", "allow_other"] {
        assert!(flags.contains(&flag), "{flag} in {line}");
    }
    assert!(!flags.contains(&"nodev"), "{line}");
    let error = fs::write(mount.path("f"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

/// As another program does it. A child of another test that does not run its own code yet may keep it busy for a moment.
fn umount(dir: &std::path::Path) {
    let umount = || Command::new("umount").arg(dir).status().unwrap().success();
    wait_for("it cannot be unmounted", umount);
}

/// A stop that takes so long waits for something.
const WAITS: Duration = Duration::from_secs(60);

#[test]
fn somebody_else_may_unmount() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::fresh();
    fs::write(mount.path("f"), b"kept").unwrap();
    umount(mount.dir.path());
    let fs = mount.wait();
    Arc::into_inner(fs).expect("let go").unmount().unwrap();
    assert!(mounts_line(&mount).is_none());
    let mount = Mount::of(Arc::clone(&mount.device));
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"kept");
}

#[test]
fn stopping_does_not_wait_for_open_files() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::fresh();
    let mut open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mount.path("f"))
        .unwrap();
    open.write_all(b"durable").unwrap();
    open.sync_all().unwrap();
    let gone = File::create(mount.path("gone")).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    let start = Instant::now();
    let fs = mount.stop();
    let took = start.elapsed();
    assert!(took < WAITS, "{took:?}");
    Arc::into_inner(fs).expect("let go").unmount().unwrap();
    assert!(mounts_line(&mount).is_none());
    // What is left in other hands says so instead of hanging.
    assert!(open.write_all(b"more").is_err());
    assert!(gone.sync_all().is_err());
    let mount = Mount::of(Arc::clone(&mount.device));
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"durable");
}

#[test]
fn a_mount_that_was_detached_serves_on_until_stopped() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::fresh();
    let mut open = File::create(mount.path("f")).unwrap();
    assert!(Command::new("umount").arg("-l").arg(mount.dir.path()).status().unwrap().success());
    open.write_all(b"still here").unwrap();
    open.sync_all().unwrap();
    let start = Instant::now();
    let fs = mount.stop();
    let took = start.elapsed();
    assert!(took < WAITS, "{took:?}");
    Arc::into_inner(fs).expect("let go").unmount().unwrap();
    assert!(open.write_all(b"no more").is_err());
    drop(open);
    let mount = Mount::of(Arc::clone(&mount.device));
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"still here");
}

#[test]
fn stopping_amid_heavy_use_loses_nothing_that_was_promised() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::fresh();
    fs::write(mount.path("mark"), b"").unwrap();
    let promised = std::sync::Mutex::new(Vec::new());
    let fs = std::thread::scope(|scope| {
        for worker in 0..4 {
            let (promised, dir) = (&promised, mount.dir.path().to_owned());
            scope.spawn(move || {
                for n in 0.. {
                    let name = format!("w{worker}-{n}");
                    let file =
                        OpenOptions::new().write(true).create_new(true).open(dir.join(&name));
                    let done = file.and_then(|mut file| {
                        file.write_all(name.as_bytes())?;
                        file.sync_all()
                    });
                    match done {
                        // After the unmount the names go to the plain directory below.
                        Ok(()) if fs::symlink_metadata(dir.join("mark")).is_ok() => {
                            promised.lock().unwrap().push(name);
                        }
                        _ => break,
                    }
                }
            });
        }
        wait_for("too little is promised", || promised.lock().unwrap().len() > 20);
        mount.stop()
    });
    drop(Arc::into_inner(fs).expect("let go"));
    let again = Mount::of(Arc::clone(&mount.device));
    let promised = promised.into_inner().unwrap();
    assert!(promised.len() > 20, "{}", promised.len());
    for name in &promised {
        assert_eq!(fs::read(again.path(name)).unwrap(), name.as_bytes(), "{name}");
    }
}

#[test]
fn a_mount_over_another_leaves_that_one_alone() {
    if !can_mount() {
        return;
    }
    let lower = Mount::fresh();
    fs::write(lower.path("lower"), b"").unwrap();
    let fs = Arc::new(FileSystem::mount(volume(64), options()).unwrap());
    let fuse = FuseOptions::default();
    let mounted = holdfast_fuse::mount(lower.dir.path(), &fuse).unwrap();
    let session = Session::start(fs, mounted, &fuse).unwrap();
    assert!(!lower.path("lower").exists());
    // Unmounted from outside: the server must not unmount once more.
    umount(lower.dir.path());
    assert!(session.wait_ended(Duration::from_secs(120)));
    session.finish().unwrap();
    assert!(lower.path("lower").exists());
}

#[test]
fn what_cannot_be_mounted_on_is_refused() {
    if !can_mount() {
        return;
    }
    let place = tempfile::NamedTempFile::new().unwrap();
    for path in [place.path(), std::path::Path::new("/nowhere/at/all")] {
        assert!(holdfast_fuse::mount(path, &FuseOptions::default()).is_err(), "{path:?}");
    }
}

#[test]
fn operations_cost_no_message_too_many() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    // The first close is answered with "no closes wanted"; the first opendir likewise.
    drop(File::create(mount.path("warm")).unwrap());
    assert_eq!(fs::read_dir(mount.dir.path()).unwrap().count(), 1);
    assert_eq!(mount.count(RequestKind::Flush), 1);
    let fsyncs = mount.fs().counters().fsyncs.get() + 1;

    let create = mount.messages(|| {
        for n in 0..10 {
            drop(File::create(mount.path(&format!("c{n}"))).unwrap());
        }
    });
    let count = |list: &[(&str, u64)], name| {
        list.iter().find(|(kind, _)| *kind == name).map_or(0, |(_, count)| *count)
    };
    for kind in ["lookup", "create", "release"] {
        assert_eq!(count(&create, kind), 10, "{create:?}");
    }
    // The kernel reads the directory's mode again after each change of it.
    assert!(count(&create, "getattr") <= 10, "{create:?}");
    assert_eq!(create.len(), 4, "{create:?}");

    // Written before: the kernel cuts a write short at a page that it would have to load first.
    let page = vec![1; 4096];
    let write = mount.messages(|| {
        let mut file = File::create(mount.path("w")).unwrap();
        for _ in 0..10 {
            file.write_all(&page).unwrap();
        }
        file.sync_all().unwrap();
    });
    assert_eq!(count(&write, "write"), 10);
    assert_eq!(count(&write, "fsync"), 1);
    assert_eq!(count(&write, "flush"), 0);
    // At most one look for file capabilities for each inode, none for each write.
    assert!(count(&write, "getxattr") <= 1, "{write:?}");

    // In the kernel's memory: attributes, names, absent names, pages, targets, directories.
    std::os::unix::fs::symlink("w", mount.path("s")).unwrap();
    fs::read_link(mount.path("s")).unwrap();
    fs::read(mount.path("w")).unwrap();
    assert!(!mount.path("absent").exists());
    fs::read_dir(mount.dir.path()).unwrap().count();
    // The access time has moved, of which the kernel has heard.
    mount.messages(|| ());
    fs::metadata(mount.path("w")).unwrap();
    let cached = mount.messages(|| {
        for _ in 0..10 {
            assert!(!mount.path("absent").exists());
            fs::read_link(mount.path("s")).unwrap();
            fs::symlink_metadata(mount.path("w")).unwrap();
        }
    });
    assert_eq!(cached, []);
    let opened = mount.messages(|| {
        let mut bytes = Vec::new();
        File::open(mount.path("w")).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 40960);
    });
    assert_eq!(count(&opened, "open"), 1);
    assert_eq!(count(&opened, "read"), 0, "{opened:?}");

    let listed = mount.messages(|| {
        fs::read_dir(mount.dir.path()).unwrap().count();
    });
    assert_eq!(count(&listed, "opendir") + count(&listed, "releasedir"), 0);

    let removed = mount.messages(|| {
        let before = mount.count(RequestKind::Forget);
        fs::remove_file(mount.path("c1")).unwrap();
        wait_for("nothing is forgotten", || mount.count(RequestKind::Forget) > before);
    });
    assert_eq!(count(&removed, "unlink"), 1);
    assert_eq!(count(&removed, "forget"), 1);

    // The numbers can be read through the mount, too.
    let mut text = vec![0; 65536];
    let length = rustix::fs::getxattr(mount.dir.path(), "holdfast.stats", &mut text[..]).unwrap();
    let text = std::str::from_utf8(&text[..length]).unwrap();
    assert!(text.contains("fuse_unlink 1\n"), "{text}");
    assert!(text.lines().any(|line| line == format!("fsyncs {fsyncs}")), "{text}");
}

#[test]
fn removed_files_give_their_space_back_while_mounted() {
    if !can_mount() {
        return;
    }
    // Unlinked files are freed when the kernel forgets them: space comes back while mounted.
    let mount = Mount::of(volume(64));
    let free = |mount: &Mount| rustix::fs::statvfs(mount.dir.path()).unwrap().f_bfree;
    for round in 0..6 {
        let path = mount.path(&format!("big{round}"));
        fs::write(&path, vec![1; 20 << 20]).unwrap_or_else(|e| panic!("round {round}: {e}"));
        for _ in 0..100 {
            fs::metadata(&path).unwrap();
            fs::read_dir(mount.dir.path()).unwrap().count();
        }
        fs::remove_file(&path).unwrap();
        File::open(mount.dir.path()).unwrap().sync_all().unwrap();
    }
    wait_for("space does not come back", || {
        File::open(mount.dir.path()).unwrap().sync_all().unwrap();
        free(&mount) > 8000
    });
}
