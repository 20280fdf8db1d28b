//! Mount options as mount(8) passes them on, remounts, and what comes right after umount(8).
//!
//! A program of its own: its tests make mount namespaces, which keep the mounts of all others until they end.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{TestMount, can_mount, number, said, signal, wait_until_ended};

/// Held by a test that makes a mount namespace, which keeps the mounts of all others for a moment, and by one that needs its own to be
/// gone when it is unmounted.
static NAMESPACES: Mutex<()> = Mutex::new(());

fn alone_with_namespaces() -> MutexGuard<'static, ()> {
    NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    if !is_root {
        holdfast_base::skip::skipped("needs root");
    }
    is_root
}

/// The words of the mount in the kernel's list.
fn words(place: &TestMount) -> Vec<String> {
    let line = place.mount_line().unwrap();
    line.split(' ').nth(3).unwrap().split(',').map(String::from).collect()
}

fn mount(place: &TestMount, options: &str) {
    place.run(&["mount", "-o", options, place.image(), place.dir()]).fine();
}

/// As mount(8) does for `mount -o remount,...`.
fn remount(place: &TestMount, options: &str) -> common::Said {
    place.run_as("mount.fuse.holdfast", &[place.image(), place.dir(), "-o", options])
}

/// Kills the daemon without a warning and mounts again.
fn crash(place: &TestMount) {
    crash_with(place, "rw");
}

/// The options are those of the next mount.
fn crash_with(place: &TestMount, options: &str) {
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    place.umount();
    place.run(&["mount", "-o", options, place.image(), place.dir()]);
    assert!(place.is_mounted());
}

#[test]
fn what_mount_8_passes_on_is_taken() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let options = "rw,nodiratime,sync,dirsync,lazytime,silent,nostrictatime,acl,user_xattr,iversion,\
        nosymfollow,context=\"a:b:c0,c1\"";
    mount(&place, options);
    let words = words(&place);
    for word in ["nodiratime", "sync", "dirsync", "nosymfollow"] {
        assert!(words.iter().any(|it| it == word), "{word} is missing: {words:?}");
    }
    fs::write(place.dir.join("file"), "content").unwrap();
    place.umount();
    place.fsck();
}

/// Lists of options, the words that the kernel shows of each, and words that it does not.
const SHOWN: [(&str, &str, &str); 20] = [
    (
        "defaults",
        "rw relatime allow_other",
        "ro nosuid nodev noexec noatime nodiratime sync dirsync nosymfollow",
    ),
    ("ro", "ro", "rw"),
    ("ro,rw", "rw", "ro"),
    ("nosuid,nodev,noexec", "nosuid nodev noexec", ""),
    ("nosuid,nodev,noexec,suid,dev,exec", "", "nosuid nodev noexec"),
    ("noatime", "noatime", "relatime"),
    ("noatime,atime", "relatime", "noatime"),
    ("strictatime", "", "relatime noatime"),
    ("strictatime,nostrictatime,norelatime", "relatime", "noatime"),
    ("noatime,relatime", "relatime", "noatime"),
    ("nodiratime", "nodiratime", ""),
    ("nodiratime,diratime", "", "nodiratime"),
    ("sync", "sync", ""),
    ("sync,async", "", "sync"),
    ("dirsync,async", "dirsync", "sync"),
    ("nosymfollow", "nosymfollow", ""),
    ("nosymfollow,symfollow", "", "nosymfollow"),
    ("user,noauto", "nosuid nodev noexec", ""),
    ("users,exec", "nosuid nodev", "noexec"),
    ("owner,x-systemd.automount,noallow_other", "nosuid nodev", "noexec allow_other"),
];

#[test]
fn the_kernel_shows_what_was_asked_for() {
    if !can_mount() || !is_root() {
        return;
    }
    let look = |place: &TestMount, options: &str, shown: &str, not_shown: &str| {
        let words = words(place);
        let is = |word: &str| words.iter().any(|it| it == word);
        for word in shown.split_whitespace() {
            assert!(is(word), "{options}: {word} is missing: {words:?}");
        }
        for word in not_shown.split_whitespace() {
            assert!(!is(word), "{options}: {word} is there: {words:?}");
        }
    };
    let place = TestMount::with_volume();
    for (options, shown, not_shown) in SHOWN {
        mount(&place, options);
        look(&place, options, shown, not_shown);
        place.umount();
    }
    // Through the helper of fuse3, for which nosuid and nodev always hold, and who mounts is alone.
    let place = TestMount::new();
    let Some(nobody) = common::Nobody::at(&place) else { return };
    if !nobody.mounts(&place) {
        return;
    }
    place.umount();
    for (options, shown, not_shown) in SHOWN {
        let mounted = nobody.run(&["mount", "-o", options, place.image(), place.dir()]);
        if options == "nosymfollow" && mounted.code != 0 {
            mounted.fails(32, "unknown option 'nosymfollow': leave it out");
            continue;
        }
        assert_eq!((mounted.code, &*mounted.err), (0, ""), "{options}");
        // The server does these, and the helper does not pass them on.
        let others = ["nosuid", "nodev", "allow_other", "nodiratime", "relatime"];
        let passed_on = |words: &str| {
            let words = words.split(' ').filter(|word| !others.contains(word));
            words.collect::<Vec<_>>().join(" ")
        };
        look(&place, &format!("{options}, by nobody"), &passed_on(shown), &passed_on(not_shown));
        place.umount();
    }
    place.fsck();
}

#[test]
fn what_another_call_does_is_refused_with_its_name() {
    let place = TestMount::with_volume();
    for (option, words) in [
        ("bind", "`mount --bind`"),
        ("rprivate", "`mount --make-...`"),
        ("offset=4096", "`losetup`"),
        ("mand", "leave it out"),
        ("allow_root", "allow_other"),
        ("usrquota", "`holdfast branch limit`"),
    ] {
        let refused = place.run(&["mount", "-o", option, place.image(), place.dir()]);
        refused.fails(1, words);
        let fake = ["-o", option, "-f", place.image(), place.dir()];
        place.run_as("mount.holdfast", &fake).fails(1, words);
        let sloppy = ["-s", "-o", option, "-f", place.image(), place.dir()];
        place.run_as("mount.holdfast", &sloppy).fine();
    }
}

#[test]
fn with_sync_every_change_is_durable_when_the_call_returns() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    mount(&place, "sync,commit=3600");
    let path = |name: &str| place.dir.join(name);
    let mut file = File::create(path("written")).unwrap();
    file.write_all(&[7; 300_000]).unwrap();
    fs::create_dir(path("dir")).unwrap();
    File::create(path("renamed-before")).unwrap();
    fs::rename(path("renamed-before"), path("dir/renamed")).unwrap();
    fs::write(path("short"), "0123456789").unwrap();
    OpenOptions::new().write(true).open(path("short")).unwrap().set_len(4).unwrap();
    let direct =
        OpenOptions::new().write(true).create_new(true).custom_flags(0o40000).open(path("direct"));
    let page = [9; 8192];
    let at = page.as_ptr().align_offset(4096);
    direct.unwrap().write_all(&page[at..][..4096]).unwrap();
    let stats = place.run(&["stats", "--json", place.dir()]).fine();
    drop(file);
    crash(&place);
    assert_eq!(fs::read(path("written")).unwrap(), vec![7; 300_000]);
    assert_eq!(fs::read(path("direct")).unwrap(), vec![9; 4096]);
    assert_eq!(fs::read_to_string(path("short")).unwrap(), "0123");
    assert!(path("dir/renamed").exists() && !path("renamed-before").exists());
    assert!(number(&stats, "fsyncs") >= 8, "{stats}");
    place.umount();
    place.fsck();
}

/// The daemon is killed right behind each answer: time alone writes nothing with this `commit`, and the volume never rests.
#[test]
fn with_handover_a_kill_takes_nothing_that_was_answered() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let path = |name: &str| place.dir.join(name);
    let write = |name: &str, byte: u8, len: usize| fs::write(path(name), vec![byte; len]).unwrap();
    let flushes = || number(&place.run(&["stats", "--json", place.dir()]).fine(), "log_flushes");
    mount(&place, "handover,commit=3600");
    let before = flushes();
    for at in 0..50 {
        write(&format!("f{at}"), 1, 5000);
    }
    write("large", 2, 3 << 20);
    assert_eq!(flushes(), before, "no change waits for a flush");
    fs::create_dir(path("d")).unwrap();
    fs::rename(path("f0"), path("d/g")).unwrap();
    crash_with(&place, "handover,commit=3600");
    assert!(!path("f0").exists());
    assert_eq!(fs::read(path("d/g")).unwrap(), vec![1; 5000]);
    assert!((1..50).all(|at| fs::read(path(&format!("f{at}"))).unwrap() == vec![1; 5000]));
    assert_eq!(fs::read(path("large")).unwrap(), vec![2; 3 << 20]);
    fs::remove_file(path("f1")).unwrap();
    crash_with(&place, "handover,commit=3600");
    assert!(!path("f1").exists());
    let file = OpenOptions::new().write(true).open(path("f2")).unwrap();
    file.set_len(7).unwrap();
    crash_with(&place, "commit=3600");
    drop(file);
    assert_eq!(fs::read(path("f2")).unwrap(), vec![1; 7]);
    place.umount();
    place.fsck();
}

#[test]
fn with_dirsync_names_are_durable_and_only_they() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // Nothing else writes.
    mount(&place, "dirsync,commit=0");
    let path = |name: &str| place.dir.join(name);
    let batches = || number(&place.run(&["stats", "--json", place.dir()]).fine(), "log_batches");
    let count = |what: &str, change: &dyn Fn(), batch: u64| {
        let before = batches();
        change();
        assert_eq!(batches() - before, batch, "{what}");
    };
    count("mkdir", &|| fs::create_dir(path("d")).unwrap(), 1);
    count("create", &|| drop(File::create(path("d/f")).unwrap()), 1);
    count("link", &|| fs::hard_link(path("d/f"), path("g")).unwrap(), 1);
    count("symlink", &|| std::os::unix::fs::symlink("x", path("s")).unwrap(), 1);
    count("rename", &|| fs::rename(path("g"), path("d/h")).unwrap(), 1);
    count("unlink", &|| fs::remove_file(path("d/f")).unwrap(), 1);
    count(
        "write",
        &|| OpenOptions::new().write(true).open(path("d/h")).unwrap().write_all(b"x").unwrap(),
        0,
    );
    crash(&place);
    assert!(path("d/h").exists() && !path("d/f").exists() && path("s").symlink_metadata().is_ok());
    place.umount();
}

#[test]
fn a_remount_to_read_only_and_back() {
    if !can_mount() || !is_root() {
        return;
    }
    let _alone = alone_with_namespaces();
    let place = TestMount::with_volume();
    mount(&place, "strictatime,nosuid,commit=3600,cache=64M");
    fs::write(place.dir.join("file"), "content").unwrap();
    let open = OpenOptions::new().append(true).open(place.dir.join("file")).unwrap();
    remount(&place, "remount,ro").fails(32, "open for writing");
    drop(open);
    // A close reaches the daemon a moment later, and only then the kernel drops the file.
    common::wait_for("it stays busy", || remount(&place, "remount,ro").code == 0);
    assert!(words(&place).contains(&"ro".to_string()));
    assert!(fs::write(place.dir.join("other"), "x").is_err());
    // Reading changes nothing, and everything is durable.
    let read = |name: &str| {
        let path = place.dir.join(name);
        let before = fs::metadata(&path).unwrap();
        match before.is_dir() {
            true => drop(fs::read_dir(&path).unwrap().count()),
            false => drop(fs::read(&path).unwrap()),
        }
        let mut again = [0; 8];
        if !before.is_dir() {
            // Not from the kernel's memory.
            let file = OpenOptions::new().read(true).custom_flags(0o40000).open(&path).unwrap();
            let _ = std::os::unix::fs::FileExt::read_at(&file, &mut again, 0);
        }
        let _ = rustix_drop_caches();
        let after = fs::metadata(&path).unwrap();
        (before.atime(), before.atime_nsec()) != (after.atime(), after.atime_nsec())
    };
    assert!(!read("."));
    // What came from fstab and says the same is not refused; what says something else is named.
    remount(&place, "rw,cache=64M,commit=3600,remount,ro,user_id=0,group_id=0").fine();
    remount(&place, "remount,rw,commit=5").fails(32, "commit=5 cannot change");
    remount(&place, "remount,rw,dirsync").fails(32, "dirsync cannot change");
    remount(&place, "remount,rw,noatime,sync").fine();
    let now = words(&place);
    for word in ["rw", "noatime", "sync", "nosuid"] {
        assert!(now.iter().any(|it| it == word), "{word} is missing: {now:?}");
    }
    fs::write(place.dir.join("other"), "x").unwrap();
    crash(&place);
    assert!(place.dir.join("other").exists(), "sync holds since the remount");
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "content");
    place.umount();
    // Opened read-only, it stays so.
    mount(&place, "ro");
    remount(&place, "remount,rw").fails(32, "was opened read-only");
    remount(&place, "remount,noexec").fine();
    assert!(
        words(&place).contains(&"noexec".to_string()) && words(&place).contains(&"ro".to_string())
    );
    place.umount();
    place
        .run(&["mount", "-o", "remount,ro", place.image(), place.dir()])
        .fails(32, "not a mounted");
    place.fsck();
}

/// Attributes that the kernel keeps are asked for anew.
fn rustix_drop_caches() -> std::io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2")
}

#[test]
fn mount_8_remounts_and_umount_8_waits_through_the_links() {
    let _alone = alone_with_namespaces();
    // mount(8) looks for its helpers in /sbin alone, so this needs a namespace with another one.
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|it| it.success());
    if !can_mount() || !is_root() || !can || fs::metadata("/sbin").is_err() {
        holdfast_base::skip::skipped("needs root and unshare -m");
        return;
    }
    let place = TestMount::with_volume();
    let links = place.root.path().join("sbin");
    fs::create_dir(&links).unwrap();
    for name in ["mount.holdfast", "mount.fuse.holdfast", "umount.fuse.holdfast"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), links.join(name)).unwrap();
    }
    let script = "set -e
        sbin=$(readlink -f /sbin)
        mkdir upper work
        mount -t tmpfs tmpfs work
        mkdir work/upper work/work
        mount -t overlay overlay -o lowerdir=$sbin,upperdir=work/upper,workdir=work/work $sbin
        cp -P sbin/* $sbin/
        mount -t holdfast -o noatime,nodiratime,lazytime volume.img mnt
        echo content >mnt/file
        mount -o remount,ro mnt
        ! touch mnt/file 2>/dev/null
        mount -o remount,rw,sync mnt
        grep -q ' rw,sync' /proc/self/mounts
        head -c 20000000 /dev/zero >mnt/much
        umount mnt
        # Nobody holds it: the lock is free at once.
        flock -n volume.img true";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script]).current_dir(place.root.path()).stdin(Stdio::null());
    let done = said(shell.output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    place.fsck();
}

#[test]
fn who_comes_right_after_umount_8_waits_for_the_daemon() {
    let _alone = alone_with_namespaces();
    if !can_mount() || !is_root() {
        return;
    }
    // Another volume is mounted whose file has another name by now: its mount may be of any volume, as far as an older kernel says.
    let other = TestMount::with_volume();
    other.mount();
    let is_told = says_connection(other.daemon());
    if is_told {
        fs::rename(&other.image, other.path("renamed.img")).unwrap();
    } else {
        other.umount();
    }
    let place = TestMount::with_volume();
    for command in [&["mount"][..], &["fsck"], &["ls"]] {
        place.mount();
        fs::write(place.dir.join("file"), vec![7; 100_000]).unwrap();
        place.run(&["sync", place.dir()]).fine();
        let daemon = place.daemon();
        // It has no time to notice that it is unmounted.
        signal(daemon, "STOP");
        // umount(8) would ask the daemon what the directory is.
        let unmount = || rustix::mount::unmount(&place.dir, rustix::mount::UnmountFlags::empty());
        // A child of another test may hold a copy of a descriptor for a moment.
        common::wait_for("it stays busy", || unmount() != Err(rustix::io::Errno::BUSY));
        assert!(!place.is_mounted());
        let dir = if command == ["mount"] { Some(place.dir()) } else { None };
        let args: Vec<&str> = command.iter().copied().chain([place.image()]).chain(dir).collect();
        let mut waiting = place.command(&args).stdout(Stdio::null()).spawn().unwrap();
        // Longer than a lock is tried again in any case.
        std::thread::sleep(Duration::from_millis(1500));
        let early = waiting.try_wait().unwrap();
        signal(daemon, "CONT");
        assert_eq!(early, None, "{command:?} did not wait");
        assert_eq!(waiting.wait().unwrap().code(), Some(0), "{command:?}");
        // The new mount may have come in time to be another one of the same daemon.
        if place.is_mounted() {
            place.umount();
        }
        wait_until_ended(daemon);
    }
    place.fsck();
    if is_told {
        other.umount();
        fs::rename(other.path("renamed.img"), &other.image).unwrap();
    }
    other.fsck();
}

/// Whether the kernel tells which connection of FUSE a descriptor has.
fn says_connection(daemon: u32) -> bool {
    let infos = fs::read_dir(format!("/proc/{daemon}/fdinfo")).unwrap();
    let infos = infos.filter_map(|info| fs::read_to_string(info.ok()?.path()).ok());
    infos.into_iter().any(|info| info.contains("fuse_connection"))
}

/// A sandbox has ended and its mounts are out of reach: the name of the volume does.
#[test]
fn a_daemon_that_is_alone_in_its_namespace_is_ended_by_the_name_of_its_volume() {
    let _alone = alone_with_namespaces();
    if !can_mount() || !is_root() {
        return;
    }
    let place = TestMount::with_volume();
    let within = |more: &str| {
        let mut shell = Command::new("unshare");
        let (program, image, dir) = (env!("CARGO_BIN_EXE_holdfast"), place.image(), place.dir());
        let mount = format!("'{program}' mount '{image}' '{dir}' && echo in >'{dir}/file'");
        shell.args(["-m", "--propagation", "private", "sh", "-c"]);
        shell.arg(format!("{mount} && echo mounted; {more}")).stdout(Stdio::piped());
        shell
    };
    let mounted = within("").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&mounted.stdout), "mounted\n");
    assert!(place.run(&["list"]).fine().contains(place.image()));
    place.run(&["umount", place.image()]).fine();
    place.fsck();
    assert_eq!(place.run(&["cat", &place.inside("/file")]).fine(), "in\n");
    // A process in the namespace may still use the mount: then the daemon stays.
    let mut there = within("exec sleep 600").spawn().unwrap();
    let mut line = String::new();
    BufReader::new(there.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let refused = place.run(&["umount", place.image()]);
    there.kill().unwrap();
    there.wait().unwrap();
    refused.fails(32, "still mounted");
    place.run(&["umount", place.image()]).fine();
    place.fsck();
}

/// What `holdfast` asks of a mount needs no extended attributes.
#[test]
fn a_mount_without_extended_attributes_answers_all_the_same() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    mount(&place, "noxattr,commit=3600");
    let path = place.dir.join("f");
    fs::write(&path, "content").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let path = path.to_str().unwrap();
    assert!(place.run(&["explain", path]).fine().contains(": fsync "));
    for json in [place.run(&["stats", "--json", place.dir()]), place.run(&["stats", place.dir()])] {
        assert!(json.fine().contains("transport"));
    }
    assert!(place.run(&["info", place.image()]).fine().contains("transport"));
    remount(&place, "remount,rw,noatime").fine();
    remount(&place, "remount,rw,xattr").fails(32, "xattr cannot change");
    fs::write(path, "newer").unwrap();
    place.run(&["sync", place.dir()]).fine();
    crash(&place);
    assert_eq!(fs::read_to_string(path).unwrap(), "newer");
    place.umount();
    place.fsck();
}
