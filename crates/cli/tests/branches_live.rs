//! Commands for branches and snapshots on a volume that is mounted and in use.
//!
//! A program of its own: one of its tests makes a mount namespace, which keeps the mounts of all others for a moment.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod failed_deletion;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Nobody, TestMount, can_mount, wait_for};

const ESTALE: Option<i32> = Some(116);

/// A process that writes until it is dropped.
struct Writer(Child);

impl Writer {
    /// Appends numbers from 1 on to two files in turn, one write each.
    fn start(dir: &Path, name: &str) -> Writer {
        let script = format!(
            "i=0; while :; do i=$((i+1)); printf '%07d\\n' $i >&3; printf '%07d\\n' $i >&4; done \
             3>>{name}.a 4>>{name}.b"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(dir).stdin(Stdio::null());
        Writer(shell.spawn().unwrap())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many numbers are in a file, which has nothing but them.
fn count(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() % 8, 0, "a write is there as a whole: {}", path.display());
    for (at, line) in bytes.chunks(8).enumerate() {
        assert_eq!(line, format!("{:07}\n", at + 1).as_bytes(), "{}", path.display());
    }
    bytes.len() as u64 / 8
}

#[test]
fn a_snapshot_under_writing_processes_is_one_moment_of_all_of_them() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let names = ["x", "y", "z"];
    let writers: Vec<Writer> = names.map(|name| Writer::start(&place.dir, name)).into();
    let length = |name: &str| fs::metadata(place.dir.join(name)).map_or(0, |found| found.len()) / 8;
    let mut before = Vec::new();
    for round in 0..6 {
        // Writers move on between two snapshots.
        let last: Vec<u64> = before.last().cloned().unwrap_or(vec![0; 3]);
        wait_for("the writers write", || {
            names.iter().zip(&last).all(|(name, last)| length(&format!("{name}.b")) > last + 20)
        });
        fs::write(place.dir.join("mark"), round.to_string()).unwrap();
        before.push(names.map(|name| length(&format!("{name}.b"))).to_vec());
        let what = if round % 2 == 0 { place.dir() } else { place.image() };
        place.run(&["snapshot", "create", what, &format!("s{round}")]).fine();
        if round == 3 {
            place.run(&["snapshot", "delete", what, "s1"]).fine();
        }
    }
    drop(writers);
    place.umount();
    place.fsck();
    for round in [0, 2, 3, 4, 5] {
        place.run(&["mount", &format!("{}@s{round}", place.image()), place.dir()]).fine();
        assert_eq!(fs::read_to_string(place.dir.join("mark")).unwrap(), round.to_string());
        for (name, before) in names.iter().zip(&before[round]) {
            let [a, b] = ["a", "b"].map(|end| count(&place.dir.join(format!("{name}.{end}"))));
            assert!(b >= *before, "what had returned is in it: {b} of {before}");
            assert!(a == b || a == b + 1, "no write is there without those before it: {a}, {b}");
        }
        place.umount();
    }
}

#[test]
fn a_daemon_without_a_mount_is_asked_as_one_with_mounts() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["mount", "--linger", place.image(), place.dir()]).fine();
    fs::write(place.dir.join("file"), "one").unwrap();
    place.run(&["umount", place.dir()]).fine();
    place.run(&["snapshot", "create", place.image(), "one"]).fine();
    place.run(&["fork", "--from", "@one", place.image(), "work"]).fine();
    place.run(&["snapshot", "rollback", "--keep", "two", place.image(), "one"]).fine();
    let snapshots = place.run(&["snapshot", "list", place.image()]).fine();
    assert!(snapshots.contains("one") && snapshots.contains("two"), "{snapshots}");
    let work = format!("{}:work", place.image());
    place.run(&["snapshot", "create", &work, "of-work"]).fine();
    place.run(&["snapshot", "create", place.image(), "one"]).fails(1, "exists");
    place.run(&["umount", place.image()]).fine();
    place.run(&["branch", "delete", place.image(), "work"]).fine();
    place.fsck();
}

/// Everything that a kernel can remember of a tree, and what it must not believe after a rollback.
fn roll_back_under_programs(options: &str) {
    let place = TestMount::with_volume();
    place.run(&["mount", "-o", options, place.image(), place.dir()]).fine();
    let at = |name: &str| place.dir.join(name);
    fs::create_dir_all(at("dir/inner")).unwrap();
    for name in ["same", "changed", "removed", "old-name", "dir/inner/deep", "replaced"] {
        fs::write(at(name), format!("{name} one")).unwrap();
    }
    std::os::unix::fs::symlink("one", at("link")).unwrap();
    place.run(&["snapshot", "create", place.dir(), "one"]).fine();

    fs::write(at("changed"), "changed two, and longer").unwrap();
    let mut unlinked = File::open(at("removed")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    assert!(!at("removed").exists(), "the kernel knows that it is missing");
    fs::rename(at("old-name"), at("new-name")).unwrap();
    fs::rename(at("dir/inner"), at("moved")).unwrap();
    fs::remove_file(at("replaced")).unwrap();
    fs::write(at("replaced"), "replaced two").unwrap();
    fs::remove_file(at("link")).unwrap();
    std::os::unix::fs::symlink("two", at("link")).unwrap();
    let new = OpenOptions::new().read(true).write(true).create_new(true).open(at("new")).unwrap();
    (&new).write_all(b"new two").unwrap();
    fs::create_dir(at("new-dir")).unwrap();
    fs::write(at("new-dir/file"), "x").unwrap();
    let [same, changed, replaced] = ["same", "changed", "replaced"].map(|name| {
        let mut file = OpenOptions::new().read(true).write(true).open(at(name)).unwrap();
        file.read_to_end(&mut Vec::new()).unwrap();
        file
    });
    // What the kernel holds now: names, attributes, pages, lists of directories.
    let names = || {
        let mut names: Vec<String> = fs::read_dir(&place.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert!(names().contains(&"new-dir".into()));
    fs::read(at("moved/deep")).unwrap();
    fs::read(at("new-dir/file")).unwrap();
    fs::read_link(at("link")).unwrap();

    place.run(&["snapshot", "rollback", "--keep", "two", place.dir(), "one"]).fine();

    let present = ["changed", "dir", "link", "old-name", "removed", "replaced", "same"];
    assert_eq!(names(), present);
    for name in ["same", "changed", "removed", "old-name", "dir/inner/deep", "replaced"] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), format!("{name} one"));
        assert_eq!(fs::metadata(at(name)).unwrap().len(), name.len() as u64 + 4);
    }
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("one"));
    for name in ["new", "new-name", "moved", "moved/deep", "new-dir", "new-dir/file"] {
        let error = fs::symlink_metadata(at(name)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}");
    }
    // Open files go on with what the snapshot has of them.
    let text = |file: &File| {
        let mut bytes = vec![0; 100];
        let length = file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!((text(&same), text(&changed)), ("same one".into(), "changed one".into()));
    assert_eq!(changed.metadata().unwrap().len(), 11);
    let mut all = String::new();
    unlinked.read_to_string(&mut all).unwrap();
    assert_eq!(all, "removed one");
    same.write_at(b"same!", 0).unwrap();
    assert_eq!(fs::read_to_string(at("same")).unwrap(), "same!one");
    // What is not there is stale, also when others have been made since.
    for round in 0..20 {
        fs::write(at(&format!("later-{round}")), "never seen through an old handle").unwrap();
    }
    for gone in [&new, &replaced] {
        assert_eq!(gone.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), ESTALE);
        assert_eq!(gone.write_at(b"lost", 0).unwrap_err().raw_os_error(), ESTALE);
        assert_eq!(gone.metadata().unwrap_err().raw_os_error(), ESTALE);
        assert_eq!(gone.sync_all().unwrap_err().raw_os_error(), ESTALE);
    }
    drop((same, changed, replaced, new, unlinked));
    fs::remove_file(at("removed")).unwrap();

    // And forward again.
    place.run(&["snapshot", "rollback", "--discard", place.dir(), "two"]).fine();
    assert_eq!(fs::read_to_string(at("changed")).unwrap(), "changed two, and longer");
    assert_eq!(fs::read_to_string(at("moved/deep")).unwrap(), "dir/inner/deep one");
    assert_eq!(fs::read_to_string(at("new")).unwrap(), "new two");
    assert!(!at("later-0").exists() && !at("removed").exists());
    place.umount();
    place.fsck();
}

#[test]
fn a_rollback_leaves_the_kernel_nothing_that_was() {
    if can_mount() {
        roll_back_under_programs("rw");
    }
}

#[test]
fn a_rollback_of_a_mount_without_attributes_and_with_direct_requests_is_the_same() {
    if can_mount() {
        roll_back_under_programs("noxattr,transport=device,threads=2");
    }
}

#[test]
fn every_command_works_on_a_mount_and_the_mounted_branch_stays() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let (dir, image) = (place.dir(), place.image());
    place.mount();
    fs::write(place.dir.join("file"), "one").unwrap();
    assert_eq!(place.run(&["snapshot", "create", dir, "s"]).fine(), "main@s\n");
    place.run(&["snapshot", "create", dir, "s"]).fails(1, "`s` exists");
    fs::write(place.dir.join("file"), "two").unwrap();
    // Not durable yet: a fork has it all the same.
    place.run(&["fork", dir, "work"]).fine();
    place.run(&["fork", image, "--from", "main@s", "old"]).fine();
    // Of a branch that is not mounted.
    let work = format!("{dir}:work");
    place.run(&["snapshot", "create", &work, "w"]).fine();
    place.run(&["snapshot", "rollback", "--keep", "k", &format!("{image}:work"), "w"]).fine();
    let list = place.run(&["snapshot", "list", &work]).fine();
    assert_eq!(list.lines().count(), 3, "{list}");
    place.run(&["snapshot", "rename", &work, "w", "v"]).fine();
    place.run(&["snapshot", "hold", &work, "v"]).fine();
    place.run(&["branch", "delete", dir, "work"]).fails(1, "held");
    place.run(&["snapshot", "unhold", &work, "v"]).fine();
    place.run(&["branch", "rename", dir, "work", "play"]).fine();
    place.run(&["branch", "limit", dir, "play", "8M"]).fine();
    let json = place.run(&["branch", "list", "--json", dir]).fine();
    assert!(json.contains("\"limit_bytes\":8388608"), "{json}");
    assert_eq!(json.matches("\"mounted\":true").count(), 1, "{json}");
    place.run(&["branch", "delete", dir, "main"]).fails(1, "");
    place.run(&["branch", "delete", dir, "old"]).fine();
    let stats = place.run(&["stats", dir]).fine();
    assert!(stats.contains("main; the volume has 2 branches, "), "{stats}");
    place.umount();

    place.run(&["mount", &format!("{image}:play"), dir]).fine();
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "two");
    place.run(&["branch", "delete", dir, ":play"]).fails(1, "`play` is mounted or in use");
    place.run(&["branch", "rename", dir, "play", "stage"]).fine();
    assert!(place.run(&["stats", dir]).fine().contains("stage; the volume has"));
    assert_eq!(place.run(&["snapshot", "create", dir, "x"]).fine(), "stage@x\n");
    // Whatever is mounted, the volume means its first branch.
    assert_eq!(place.run(&["snapshot", "create", image, "x"]).fine(), "main@x\n");
    place.umount();
    place.fsck();
}

#[test]
fn a_long_list_comes_in_parts_and_is_whole() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let name = |n: usize| format!("{n:03}{}", "\"".repeat(252));
    for n in 0..40 {
        place.run(&["snapshot", "create", place.dir(), &name(n)]).fine();
    }
    let list = place.run(&["snapshot", "list", place.dir()]).fine();
    let names: Vec<&str> =
        list.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, (0..40).map(name).collect::<Vec<_>>());
    let json = place.run(&["snapshot", "show", "--json", place.dir(), &name(39)]).fine();
    assert!(json.contains("\"holds\":[]"), "{json}");
    place.umount();
}

#[test]
fn only_the_user_of_the_mount_and_root_command_it() {
    let place = TestMount::with_volume();
    let Some(nobody) = Nobody::at(&place) else { return };
    place.mount();
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    let words = "only root and the user who has mounted";
    for asked in ["create", "rollback", "delete", "hold", "show"] {
        nobody.run(&["snapshot", asked, place.dir(), "s"]).fails(1, words);
    }
    nobody.run(&["snapshot", "list", place.dir()]).fails(1, words);
    nobody.run(&["fork", place.dir(), "x"]).fails(1, words);
    nobody.run(&["branch", "list", place.dir()]).fails(1, words);
    let list = place.run(&["snapshot", "list", place.dir()]).fine();
    assert_eq!(list.lines().count(), 2, "{list}");
    place.umount();
}

#[test]
fn a_user_commands_a_mount_of_its_own() {
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    if nobody.mounts(&place) {
        nobody.run(&["snapshot", "create", place.dir(), "mine"]).fine();
        nobody.run(&["snapshot", "rollback", "--discard", place.dir(), "mine"]).fine();
        nobody.run(&["umount", place.dir()]).fine();
    }
}

/// A program that asks a directory without our help: `take` is what it wants to be done, as it is sent.
const ASKS: &str = "import fcntl, os, struct, sys\n\
    what = b'system.holdfast.control ' + sys.argv[2].encode()\n\
    dir = os.open(sys.argv[1], os.O_RDONLY)\n\
    if len(sys.argv) > 3: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n\
    piece = bytearray(struct.pack('III', 0, 0, len(what)) + what.ljust(16000, b'\\0'))\n\
    try:\n\
    \x20   fcntl.ioctl(dir, (3 << 30) | (len(piece) << 16) | (ord('h') << 8) | 0xf5, piece)\n\
    \x20   print(piece[12:12 + struct.unpack('III', piece[:12])[0]].decode())\n\
    except OSError as error: print(error.errno)\n";

/// Which user has opened a descriptor does not matter: the one that asks is judged.
#[test]
fn a_descriptor_of_root_gives_no_rights() {
    let place = TestMount::with_volume();
    if Nobody::at(&place).is_none() {
        return;
    }
    place.mount();
    let asked = |as_nobody: bool| {
        let mut python = Command::new("python3");
        python.args(["-c", ASKS, place.dir(), r#"{"branches":{"after":0}}"#]);
        python.args(as_nobody.then_some("nobody"));
        let said = common::said(python.output().unwrap());
        assert_eq!(said.err, "");
        said.out
    };
    assert!(asked(false).contains("main"), "{}", asked(false));
    assert_eq!(asked(true), "13\n");
    place.umount();
}

/// A read-only bind mount shows, and changes nothing: not even with an ioctl, of which the kernel asks nothing.
#[test]
fn where_a_mount_is_read_only_nothing_is_changed() {
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    if !can_mount() || !can {
        holdfast_base::skip::skipped("needs unshare -m");
        return;
    }
    for options in ["rw", "noxattr"] {
        let place = TestMount::with_volume();
        place.run(&["mount", "-o", options, place.image(), place.dir()]).fine();
        place.run(&["snapshot", "create", place.dir(), "s"]).fine();
        fs::write(place.dir.join("file"), "two").unwrap();
        let there = place.path("read-only");
        fs::create_dir(&there).unwrap();
        let seen = |program: &str, args: &[&str]| {
            let script = "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && shift 2 && exec \"$@\"";
            let mut shell = Command::new("unshare");
            shell.args(["-m", "sh", "-c", script, "sh", place.dir(), &there, program]).args(args);
            common::said(shell.output().unwrap())
        };
        let words = "is mounted read-only here";
        for args in [
            &["snapshot", "create", &there, "x"][..],
            &["snapshot", "rollback", "--discard", &there, "s"],
            &["snapshot", "delete", &there, "s"],
            &["snapshot", "hold", &there, "s"],
            &["fork", &there, "x"],
            &["branch", "delete", &there, "x"],
        ] {
            seen(common::PROGRAM, args).fails(1, words);
        }
        let list = seen(common::PROGRAM, &["snapshot", "list", &there]).fine();
        assert_eq!(list.lines().count(), 2, "{list}");
        let take = r#"{"take":{"branch":null,"name":"x"}}"#;
        for asked in [take.into(), format!("{} {take}", "a".repeat(32))] {
            let said = seen("python3", &["-c", ASKS, &there, &asked]).fine();
            assert!(said.contains("refused"), "{said}");
        }
        assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "two");
        let list = place.run(&["snapshot", "list", place.dir()]).fine();
        assert_eq!(list.lines().count(), 2, "{list}");
        place.umount();
    }
}

/// A branch at its limit, as programs and `df` meet it.
#[test]
fn a_mounted_branch_keeps_to_its_limit() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let dir = place.dir();
    place.mount();
    place.run(&["branch", "limit", dir, "main", "8M"]).fine();
    let shown = rustix::fs::statvfs(dir).unwrap();
    assert_eq!(shown.f_blocks * shown.f_frsize, 8 << 20);
    assert!(shown.f_bavail * shown.f_frsize < 8 << 20);

    let file = fs::File::create(place.dir.join("file")).unwrap();
    let quota =
        |result: std::io::Result<()>| result.unwrap_err().kind() == ErrorKind::QuotaExceeded;
    let piece = vec![7; 1 << 20];
    for at in 0..7 {
        file.write_all_at(&piece, at << 20).unwrap();
    }
    assert!(quota(file.write_all_at(&piece, 7 << 20).and_then(|()| file.sync_all())));
    let rewritten = vec![8; 1 << 20];
    for at in 0..7 {
        file.write_all_at(&rewritten, at << 20).unwrap();
        file.sync_all().unwrap();
    }
    let json = place.run(&["branch", "list", "--json", dir]).fine();
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    let main = &list["branches"][0];
    let referenced = main["referenced_bytes"].as_u64().unwrap();
    assert!((7 << 20..=8 << 20).contains(&referenced), "{json}");
    assert_eq!(main["limit_bytes"].as_u64(), Some(8 << 20), "{json}");

    place.run(&["branch", "limit", dir, "main", "1M"]).fine();
    assert!(quota(fs::write(place.dir.join("new"), "x")));
    assert_eq!(rustix::fs::statvfs(dir).unwrap().f_bavail, 0);
    // Neither another branch nor the volume is full.
    place.run(&["fork", dir, "work"]).fine();
    fs::rename(place.dir.join("file"), place.dir.join("same file")).unwrap();
    fs::remove_file(place.dir.join("same file")).unwrap();
    drop(file);
    fs::write(place.dir.join("new"), "x").unwrap();
    place.umount();
    place.run(&["mount", &format!("{}:work", place.image()), dir]).fine();
    fs::write(place.dir.join("more"), &piece).unwrap();
    place.umount();
    let list = place.run(&["branch", "list", place.image()]).fine();
    assert!(list.contains("REFERENCED"), "{list}");
    place.fsck();
}
