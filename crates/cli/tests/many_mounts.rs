//! One daemon, many mounts of a volume: which join, which are refused, what a crash leaves, and when it ends.
//!
//! A program of its own: its tests make mount namespaces, which keep the mounts of all others until they end.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::many::{CALLER, Many};
use common::{NOBODY, Nobody, TestMount, can_mount, number, said, signal, wait_until_ended};

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

#[test]
fn each_mount_has_its_own_branch_and_the_last_umount_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    let (place, image) = (&many.place, many.place.image());
    place.run(&["snapshot", "create", image, "monday"]).fine();
    let [main, work] = [many.mount("", "a"), many.mount(":work", "b")];
    let snapshots = [many.mount("@monday", "c"), many.mount("@monday", "d")];
    let daemon = many.pid(&main);
    assert_eq!([&work, &snapshots[0]].map(|dir| many.pid(dir)), [daemon; 2]);
    // P14: what is done in one shows in no other.
    fs::write(main.join("of main"), "main").unwrap();
    fs::write(work.join("of work"), "work").unwrap();
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!((names(&main), names(&work)), (vec!["of main".into()], vec!["of work".into()]));
    assert!(names(&snapshots[0]).is_empty() && fs::write(snapshots[1].join("x"), "").is_err());
    // What cannot be is said.
    let other = many.dir("other");
    let other = other.to_str().unwrap();
    let already = format!("is mounted at {} already", work.display());
    place.run(&["mount", &format!("{image}:work"), other]).fails(32, &already);
    place.run(&["mount", &format!("{image}:none"), other]).fails(32, "there is no branch `none`");
    place.run(&["fork", &format!("{image}:work"), "third"]).fine();
    let third = format!("{image}:third");
    place.run(&["mount", "-o", "ro,commit=77", &third, other]).fails(32, "commit=77: this holds");
    place.run(&["branch", "delete", image, "work"]).fails(1, "`work` is mounted or in use");
    assert_eq!(place.run(&["snapshot", "create", image, "x"]).fine(), "main@x\n");
    assert_eq!(many.list().len(), 4, "{:?}", many.list());
    // Its own options.
    place.run(&["mount", "-o", "ro,noexec,commit=5", &third, other]).fine();
    assert!(fs::write(Path::new(other).join("x"), "").is_err());
    let list = many.list();
    assert!(
        list.iter().any(|line| line.contains("third") && line.contains("ro,noexec")),
        "{list:?}"
    );
    let json = place.run(&["list", "--json"]).fine();
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    let volumes = all["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|it| it["volume"] == image).unwrap();
    assert_eq!((&volume["pid"], volume["mounts"].as_array().unwrap().len()), (&daemon.into(), 5));
    assert!(volume["memory_bytes"].as_u64().unwrap() > 1 << 20, "{volume}");
    assert!(volume["mounts"].as_array().unwrap().iter().any(|it| it["snapshot"] == "monday"));
    // One goes, and can come back at once, elsewhere.
    place.run(&["umount", work.to_str().unwrap()]).fine();
    place.run(&["umount", other]).fine();
    place.run(&["mount", &format!("{image}:work"), other]).fine();
    assert_eq!(names(Path::new(other)), ["of work"]);
    place.run(&["umount", image]).fine();
    wait_until_ended(daemon);
    assert!(many.list().is_empty() && !many.socket().exists());
    place.fsck();
}

#[test]
fn a_rollback_that_another_mount_is_asked_for_is_told_to_the_kernel() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    let place = &many.place;
    let [main, work] = [many.mount("", "a"), many.mount(":work", "b")];
    fs::write(work.join("file"), "one").unwrap();
    let of_work = format!("{}:work", main.display());
    place.run(&["snapshot", "create", &of_work, "s"]).fine();
    fs::write(work.join("file"), "twice as long").unwrap();
    fs::write(work.join("new"), "").unwrap();
    let open = File::open(work.join("file")).unwrap();
    // The kernel knows all of it.
    assert_eq!(fs::read(work.join("file")).unwrap(), b"twice as long");
    let done = place.run(&["snapshot", "rollback", "--discard", &of_work, "s"]).fine();
    assert!(done.contains("work is as work@s"), "{done}");
    assert!(!work.join("new").exists());
    assert_eq!(fs::read(work.join("file")).unwrap(), b"one");
    assert_eq!(open.metadata().unwrap().len(), 3);
    drop(open);
    // And one that is not mounted.
    place.run(&["umount", work.to_str().unwrap()]).fine();
    place.run(&["snapshot", "rollback", "--discard", &of_work, "s"]).fine();
    place.run(&["umount", place.image()]).fine();
    place.fsck();
}

#[test]
fn a_daemon_that_lingers_takes_a_mount_later_and_ends_when_it_is_told() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    let (place, image) = (&many.place, many.place.image());
    place.run(&["mount", "--linger", image, place.dir()]).fine();
    let daemon = place.daemon();
    fs::write(place.dir.join("file"), "kept").unwrap();
    place.umount();
    assert!(many.list()[0].contains("(lingers)"), "{:?}", many.list());
    assert_eq!(place.run(&["ls", image]).fine(), "file\n");
    place.mount();
    assert_eq!(place.daemon(), daemon);
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "kept");
    place.run(&["umount", image]).fine();
    wait_until_ended(daemon);
    place.run(&["umount", image]).fails(32, "not a mounted");
    place.run(&["mount", "--linger", &format!("{image}:work"), place.dir()]).fine();
    let daemon = place.daemon();
    place.umount();
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    place.fsck();
}

/// Writes numbered files until told to stop, each made durable; returns how many were.
fn writes(dir: &Path, name: &str, stop: &AtomicBool) -> u32 {
    for n in 0.. {
        let write = || {
            let mut file = File::create(dir.join(format!("{name}-{n}")))?;
            file.write_all(format!("{name} {n}").as_bytes())?;
            file.sync_all()
        };
        if stop.load(Ordering::Relaxed) || write().is_err() {
            return n;
        }
    }
    unreachable!("a volume has an end")
}

#[test]
fn a_killed_daemon_of_many_mounts_loses_nothing_that_was_synced_and_mixes_nothing() {
    if !can_mount() {
        return;
    }
    let names = ["main", "b1", "b2", "b3", "b4"];
    let many = Many::new(&names[1..]);
    let place = &many.place;
    let mount = |name: &&str| many.mount(&format!(":{name}"), name);
    let dirs: Vec<PathBuf> = names.iter().map(mount).collect();
    let (daemon, stop) = (many.pid(&dirs[0]), AtomicBool::new(false));
    let synced: Vec<u32> = std::thread::scope(|scope| {
        let start = |(dir, name): (&PathBuf, &&'static str)| {
            let (dir, name, stop) = (dir.clone(), *name, &stop);
            scope.spawn(move || writes(&dir, name, stop))
        };
        let writers: Vec<_> = dirs.iter().zip(&names).map(start).collect();
        // The second file of each is there when the first was synced.
        common::wait_for("a writer syncs nothing", || {
            dirs.iter().zip(&names).all(|(dir, name)| dir.join(format!("{name}-1")).exists())
        });
        signal(daemon, "KILL");
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    wait_until_ended(daemon);
    // Its control socket is still there, without a listener.
    assert!(!is_root() || many.socket().exists());
    for dir in &dirs[1..] {
        place.run(&["umount", dir.to_str().unwrap()]).fine();
    }
    for (name, dir) in names.iter().zip(&dirs).skip(1) {
        let what = format!("{}:{name}", place.image());
        let mounted = place.run(&["mount", &what, dir.to_str().unwrap()]);
        assert_eq!((mounted.code, mounted.err.as_str()), (0, ""), "{mounted:?}");
    }
    // The dead mount of one goes while a daemon serves others.
    place.run(&["umount", dirs[0].to_str().unwrap()]).fine();
    mount(&"main");
    for ((name, dir), synced) in names.iter().zip(&dirs).zip(&synced) {
        assert!(*synced > 0, "{name}: nothing was synced before the kill");
        for n in 0..*synced {
            let content = fs::read_to_string(dir.join(format!("{name}-{n}")));
            assert_eq!(content.unwrap(), format!("{name} {n}"), "{name}");
        }
        for entry in fs::read_dir(dir).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            assert!(file.starts_with(&format!("{name}-")), "{file} in {name}");
        }
    }
    place.run(&["umount", place.image()]).fine();
    place.fsck();
}

#[test]
fn of_mounts_at_the_same_moment_one_becomes_the_daemon_and_the_others_join() {
    if !can_mount() {
        return;
    }
    let names = ["b1", "b2", "b3", "b4", "b5"];
    let many = Many::new(&names);
    let place = &many.place;
    for _ in 0..3 {
        let start = |name: &&str| {
            let (what, dir) = (format!("{}:{name}", place.image()), many.dir(name));
            let mut mount = place.command(&["mount", &what, dir.to_str().unwrap()]);
            (mount.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), dir)
        };
        let mounts: Vec<_> = names.iter().map(start).collect();
        let mut daemons = Vec::new();
        for (mount, dir) in mounts {
            said(mount.wait_with_output().unwrap()).fine();
            daemons.push(many.pid(&dir));
        }
        assert_eq!(daemons, [daemons[0]; 5]);
        place.run(&["umount", place.image()]).fine();
    }
    place.fsck();
}

#[test]
fn a_user_joins_the_own_daemon_through_the_helper_and_sigterm_unmounts_all() {
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    if !nobody.mounts(&place) {
        return;
    }
    let many = Many { place };
    let image = many.place.image();
    let work = many.dir("work");
    chown(&work, Some(NOBODY), Some(NOBODY)).unwrap();
    nobody.run(&["fork", many.place.dir(), "work"]).fine();
    nobody.run(&["mount", &format!("{image}:work"), work.to_str().unwrap()]).fine();
    nobody.sh(&format!("echo mine > {0}/file && sync {0}/file", work.display())).fine();
    let list = nobody.run(&["list"]).fine();
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(many.list().len() == 2, "root sees it as well: {:?}", many.list());
    let json = nobody.run(&["list", "--json"]).fine();
    let daemon = u32::try_from(number(&json, "pid")).unwrap();
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(image), "{mounts}");
    assert_eq!(nobody.run(&["cat", &format!("{image}:work:/file")]).fine(), "mine\n");
}

#[test]
fn who_may_not_open_the_volume_does_not_join_and_who_may_read_it_only_reads() {
    let many = Many::new(&["work", "third"]);
    let (place, image) = (&many.place, many.place.image());
    let Some(nobody) = Nobody::at(place) else { return };
    let main = many.mount("", "a");
    let daemon = many.pid(&main);
    let dir = many.dir("of nobody");
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let dir = dir.to_str().unwrap();
    let mode = |bits| fs::set_permissions(image, fs::Permissions::from_mode(bits)).unwrap();
    let (work, socket) = (format!("{image}:work"), many.socket());
    mode(0o600);
    nobody.run(&["mount", &work, dir]).fails(32, "ermission denied");
    let asks = |questions: &[String]| {
        let mut python = Command::new("python3");
        python.args(["-c", CALLER, "ask"]).arg(&socket).args(questions);
        let said = said(python.output().unwrap());
        assert_eq!(said.err, "");
        said.out
    };
    let join = |opens: &str| {
        let lists = r#""options":["ro"],"branch":"work","snapshot":null,"linger":false"#;
        format!(r#"{{"join":{{"dir":"{dir}",{lists}}}}}{opens}"#)
    };
    // A descriptor that only names the volume, one of another file, none.
    for opens in [format!("|{image}+O_PATH"), "|/dev/null+O_RDONLY".into(), String::new()] {
        let said = asks(&[join(&opens)]);
        assert!(said.contains("nothing proves"), "{opens}: {said}");
    }
    let said = asks(&[r#""end""#.into()]);
    assert!(said.contains("only root"), "{said}");
    assert_eq!(asks(&["nonsense".into()]), "closed\n");
    mode(0o644);
    nobody.run(&["mount", &work, dir]).fails(32, "ermission denied");
    // What is no mount is not served, and the branch is free again.
    let proof = format!("|{image}+O_RDONLY");
    for (opens, words) in [
        ("|/dev/null+O_RDWR", "this is no mount"),
        ("|/dev/fuse+O_RDWR", "refused"),
        ("", "this is no mount"),
    ] {
        let is_open_to_all = fs::metadata("/dev/fuse").unwrap().mode() & 0o006 == 0o006;
        if opens.contains("fuse") && !is_open_to_all {
            continue;
        }
        let mounted = format!(r#"{{"mounted":{{"dir":"{dir}","device":"0:1"}}}}{opens}"#);
        let said = asks(&[join(&proof), mounted]);
        assert!(said.contains(words), "{opens}: {said}");
    }
    let mounted = nobody.run(&["mount", "-o", "ro", &work, dir]);
    if mounted.code != 0 {
        return holdfast_base::skip::skipped(&mounted.err);
    }
    assert_eq!(many.pid(Path::new(dir)), daemon);
    nobody.run(&["snapshot", "create", dir, "x"]).fails(1, "read-only");
    nobody.run(&["stats", dir]).fine();
    nobody.run(&["umount", dir]).fine();
    mode(0o666);
    nobody.run(&["mount", &work, dir]).fine();
    nobody.sh(&format!("ls '{dir}'")).fine();
    nobody.run(&["snapshot", "create", dir, "x"]).fine();
    // Root's mount goes, the daemon stays for the user.
    place.run(&["umount", main.to_str().unwrap()]).fine();
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(image), "{mounts}");
    place.fsck();
}

#[test]
fn a_socket_that_answers_nothing_is_no_daemon() {
    if !can_mount() || !is_root() {
        return;
    }
    let many = Many::new(&[]);
    let socket = many.socket();
    fs::create_dir_all("/run/holdfast").unwrap();
    fs::set_permissions("/run/holdfast", fs::Permissions::from_mode(0o755)).unwrap();
    let mute = UnixListener::bind(&socket).unwrap();
    many.place.mount();
    // It was replaced by that of the new daemon.
    assert_eq!(many.list().len(), 1);
    drop(mute);
    many.place.umount();
    assert!(!socket.exists());
}

/// The volume is free when `umount` has returned, or it names the holder.
#[test]
fn umount_says_which_process_has_a_mount_in_its_own_namespace() {
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    if !can_mount() || !can {
        return holdfast_base::skip::skipped("needs unshare -m");
    }
    let place = TestMount::with_volume();
    for goes_on in [true, false] {
        place.mount();
        let daemon = place.daemon();
        fs::write(place.dir.join("file"), "there").unwrap();
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", "echo; read x"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut other = shell.spawn().unwrap();
        std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let umount = |seconds| {
            said(place.command(&["umount", "--timeout", seconds, place.dir()]).output().unwrap())
        };
        let words = format!("process {} (sh) has it in a mount namespace of its own", other.id());
        if goes_on {
            let done = umount("1");
            assert_eq!(done.code, 32, "{done:?}");
            let told: Vec<&str> = done.err.lines().filter(|line| line.contains(&words)).collect();
            assert!(told.len() == 2 && told[1].contains("in use until that ends"), "{done:?}");
        }
        let ends = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(other.stdin.take());
            other.wait().unwrap();
        });
        if !goes_on {
            let done = umount("60");
            assert_eq!(done.code, 0, "{done:?}");
            let open = OpenOptions::new().read(true).write(true).open(&place.image);
            assert!(open.is_ok());
        }
        ends.join().unwrap();
        wait_until_ended(daemon);
        assert_eq!(place.run(&["cat", &format!("{}:/file", place.image())]).fine(), "there");
    }
    place.fsck();
}

#[test]
fn a_mount_in_another_namespace_is_ended_with_the_daemon() {
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    if !can_mount() || !can {
        return holdfast_base::skip::skipped("needs unshare -m");
    }
    let many = Many::new(&["work"]);
    let main = many.mount("", "a");
    let (daemon, work) = (many.pid(&main), many.dir("b"));
    let script = "\"$0\" mount \"$1:work\" \"$2\" && echo there > \"$2/file\" && sync \"$2/file\" && echo && read x; cat \"$2/file\"";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script, common::PROGRAM, many.place.image()]).arg(&work);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut other = shell.spawn().unwrap();
    let mut said_one = [0];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut said_one).unwrap();
    assert!(!work.join("file").exists(), "it is mounted in that namespace only");
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    let done = said(other.wait_with_output().unwrap());
    assert!(done.code != 0 && done.out.is_empty(), "{done:?}");
    let file = format!("{}:work:/file", many.place.image());
    assert_eq!(many.place.run(&["cat", &file]).fine(), "there\n");
    let open = OpenOptions::new().read(true).write(true).open(&many.place.image);
    assert!(open.is_ok());
    many.place.fsck();
}
