//! Callers of root's daemon who mean harm: none of them holds it up, has it touch what is another's, or learns of others.
//!
//! A program of its own: a caller locks the directory in which every daemon of the machine makes its socket.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::many::{CALLER, Many};
use common::{NOBODY, Nobody, said, signal, wait_for, wait_until_ended};

/// A program of `nobody` that has done its worst, and keeps at it until it is dropped.
struct Caller {
    child: Child,
    /// Where it has mounted something.
    dirs: Vec<String>,
}

impl Caller {
    fn start(what: &str, socket: &Path, rest: &[&str]) -> Caller {
        let mut python = Command::new("python3");
        python.args(["-c", CALLER, what]).arg(socket).args(rest);
        let python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let dirs = rest.iter().filter(|it| Path::new(it).is_dir()).map(|it| (*it).to_owned());
        let mut caller = Caller { child: python.unwrap(), dirs: dirs.collect() };
        let mut ready = [0; 6];
        let heard = caller.child.stdout.as_mut().unwrap().read_exact(&mut ready);
        heard.unwrap_or_else(|error| panic!("`{what}` was never ready: {error}"));
        caller
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It could not end while it waits for itself.
        for dir in &self.dirs {
            let _ = Command::new("umount").args(["-f", "-l", dir]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a daemon answers to the last of `questions` of `nobody`.
fn ask(many: &Many, questions: &[&str]) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", CALLER, "ask"]).arg(many.socket()).args(questions);
    let said = said(python.output().unwrap());
    assert_eq!(said.err, "");
    said.out
}

/// A volume of root that `nobody` may read, with these branches.
fn readable(branches: &[&str]) -> Many {
    let many = Many::new(branches);
    fs::set_permissions(&many.place.image, fs::Permissions::from_mode(0o644)).unwrap();
    many
}

/// A directory of `nobody`.
fn own_dir(many: &Many, name: &str) -> PathBuf {
    let dir = many.dir(name);
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    dir
}

/// Whether `nobody` may mount; if not, that is said.
fn can_mount_as(nobody: &Nobody, many: &Many) -> bool {
    let dir = own_dir(many, "try");
    let what = format!("{}:work", many.place.image());
    let tried = nobody.run(&["mount", "-o", "ro", &what, dir.to_str().unwrap()]);
    if tried.code != 0 {
        holdfast_base::skip::skipped(&tried.err);
        return false;
    }
    nobody.run(&["umount", dir.to_str().unwrap()]).fine();
    true
}

fn mounted_at(dir: &Path) -> usize {
    let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
    mounts.lines().filter(|line| line.split(' ').nth(1) == dir.to_str()).count()
}

#[test]
fn a_mount_whose_directory_was_renamed_is_unmounted_there_and_nothing_in_its_place() {
    let many = readable(&["work", "third"]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let main = many.mount("", "main");
    if !can_mount_as(&nobody, &many) {
        return;
    }
    let daemon = many.pid(&main);
    // The user's own mount, and one that root has made in a directory of the user.
    let (of_user, of_root) = (own_dir(&many, "a"), own_dir(&many, "b"));
    let points =
        [&of_user, &of_root].map(|dir| own_dir(&many, &format!("{}/point", dir.display())));
    let [work, third] = ["work", "third"].map(|name| format!("{}:{name}", many.place.image()));
    nobody.run(&["mount", "-o", "ro", &work, points[0].to_str().unwrap()]).fine();
    many.place.run(&["mount", &third, points[1].to_str().unwrap()]).fine();
    // What is not to be touched.
    let victims = many.dir("victims");
    let victim = many.dir("victims/point");
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&victim).status();
    assert!(tmpfs.unwrap().success());
    for dir in [&of_user, &of_root] {
        fs::rename(dir, dir.with_extension("moved")).unwrap();
        symlink(&victims, dir).unwrap();
    }
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    assert_eq!(mounted_at(&victim), 1);
    for dir in [&of_user, &of_root] {
        let left = mounted_at(&dir.with_extension("moved").join("point"));
        assert_eq!(left, 0, "{} is dead and still there", dir.display());
    }
    many.place.fsck();
}

#[test]
fn descriptors_that_answer_nothing_keep_no_daemon_from_answering_and_ending() {
    let many = readable(&["work"]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let main = many.mount("", "main");
    if !can_mount_as(&nobody, &many) {
        return;
    }
    let (image, daemon) = (many.place.image(), many.pid(&main));
    let [blocks, mute] = ["blocks", "mute"].map(|name| own_dir(&many, name));
    let socket = many.socket();
    let callers = [
        Caller::start("blocks", &socket, &[image, "work", blocks.to_str().unwrap()]),
        Caller::start("mute", &socket, &[image, mute.to_str().unwrap()]),
    ];
    // Others are served meanwhile; the branch is free again when the kernel has said nothing.
    let served = |line: &&String| !line.contains(" silent ");
    assert_eq!(many.list().iter().filter(served).count(), 1);
    let work = many.dir("work");
    many.place.run(&["mount", &format!("{image}:work"), work.to_str().unwrap()]).fine();
    many.place.run(&["umount", work.to_str().unwrap()]).fine();
    signal(daemon, "TERM");
    wait_until_ended(daemon);
    assert_eq!(mounted_at(&main), 0);
    many.place.fsck();
    drop(callers);
}

#[test]
fn who_may_only_read_a_volume_keeps_nobody_from_it_who_may_write_it() {
    let many = readable(&["work"]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let main = many.mount("", "main");
    if !can_mount_as(&nobody, &many) {
        return;
    }
    let (image, daemon) = (many.place.image(), many.pid(&main));
    let work = format!("{image}:work");
    let (own, of_root) = (own_dir(&many, "own"), many.dir("root"));
    // A mount of the reader gives way, and so do those that are never made.
    nobody.run(&["mount", "-o", "ro", &work, own.to_str().unwrap()]).fine();
    let mount = || many.place.run(&["mount", &work, of_root.to_str().unwrap()]);
    mount().fine();
    assert_eq!((mounted_at(&own), mounted_at(&of_root)), (0, 1));
    fs::write(of_root.join("file"), "written").unwrap();
    let refused = nobody.run(&["mount", "-o", "ro", &work, own.to_str().unwrap()]);
    refused.fails(32, "another user has mounted this branch already; mount a snapshot");
    many.place.run(&["umount", of_root.to_str().unwrap()]).fine();
    let joins = Caller::start("joins", &many.socket(), &[image, "work"]);
    mount().fine();
    many.place.run(&["umount", of_root.to_str().unwrap()]).fine();
    // Nor do they keep the volume open.
    many.place.run(&["umount", main.to_str().unwrap()]).fine();
    wait_until_ended(daemon);
    drop(joins);
    many.place.fsck();
}

/// What the kernel says of a process that may end: its rights, whether it gets no others and its system calls are filtered, its user,
/// session and priority.
fn rights(process: u32) -> Option<(u64, bool, [String; 3])> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).ok();
    let (status, stat) = (read("status")?, read("stat")?);
    let value = |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim());
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let rights = u64::from_str_radix(value("CapPrm:")?, 16).ok()?;
    let (session, nice) = (fields.get(3)?, fields.get(16)?);
    let user = value("Uid:")?.split_whitespace().next()?;
    let rest = [user, session, nice].map(String::from);
    Some((rights, value("NoNewPrivs:")? == "1" && value("Seccomp:")? == "2", rest))
}

/// The processes that any thread of this one has started and that run `holdfast door`.
fn doors(daemon: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let children: Vec<u32> =
        lists.collect::<String>().split_whitespace().map(|it| it.parse().unwrap()).collect();
    let words = |child: &u32| fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
    children.into_iter().filter(|it| words(it).starts_with(b"holdfast\0door\0")).collect()
}

#[test]
fn a_daemon_has_no_right_that_it_does_not_need_and_a_door_has_none() {
    let many = readable(&[]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let main = many.mount("", "main");
    let daemon = many.pid(&main);
    // So many that doors open for long.
    let silent = Caller::start("hold", &many.socket(), &["100"]);
    let mut of_door = None;
    wait_for("no door opens, or it keeps rights", || {
        let all = doors(daemon).into_iter().filter_map(rights);
        // It is the caller by then.
        of_door = { all }.find(|it| it.0 == 0);
        of_door.is_some()
    });
    let (of_door, of_daemon) = (of_door.unwrap(), rights(daemon).unwrap());
    assert!(of_door.1 && of_daemon.1, "they may get new rights, or make all system calls");
    let ([user, session, nice], [.., of_daemon_too, _]) = (&of_door.2, &of_daemon.2);
    assert_ne!(session, of_daemon_too, "they share a session");
    assert_eq!((user.as_str(), nice.as_str()), ("65534", "19"));
    // It mounts, and neither loads modules nor makes devices, changes the network or owns files.
    for (right, has) in [(21, true), (16, false), (27, false), (12, false), (0, false)] {
        assert_eq!(of_daemon.0 >> right & 1 == 1, has, "{right}: {of_daemon:?}");
    }
    drop((silent, nobody));
}

#[test]
fn who_says_nothing_takes_the_place_of_nobody_else() {
    let many = readable(&["work"]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let lock = fs::metadata("/run/holdfast").is_ok().then(|| {
        // Before the daemon makes its socket there.
        Caller::start("lock", &many.socket(), &[])
    });
    let mut mount = Command::new("timeout");
    mount.args(["100", common::PROGRAM, "mount", many.place.image(), many.place.dir()]);
    said(mount.stdin(Stdio::null()).output().unwrap()).fine();
    drop(lock);
    assert!(many.socket().exists(), "others can join");
    for held in ["8", "100"] {
        let silent = Caller::start("hold", &many.socket(), &[held]);
        assert_eq!(many.list().len(), 1, "root is answered beside {held} who say nothing");
        if held == "8" {
            // And others of the same user.
            let said = ask(&many, &[r#""list""#]);
            assert!(said.contains(r#""mounts":[]"#), "{said}");
        }
        drop(silent);
    }
    drop(nobody);
}

#[test]
fn a_stranger_hears_of_no_mount_of_others_and_takes_no_more_than_the_daemon_has() {
    let many = readable(&["work", "third"]);
    let Some(nobody) = Nobody::at(&many.place) else { return };
    let main = many.mount("", "of root");
    let (image, daemon) = (many.place.image(), many.pid(&main));
    let said = ask(&many, &[r#""list""#]);
    assert!(
        said.contains(r#""mounts":[]"#) && !said.contains(many.place.root.path().to_str().unwrap()),
        "{said}"
    );
    let join = |options: &str, linger: bool| {
        let rest = format!(r#""branch":"work","snapshot":null,"linger":{linger}"#);
        let question = format!(r#"{{"join":{{"dir":"/","options":["ro{options}"],{rest}}}}}"#);
        ask(&many, &[&format!("{question}|{image}+O_RDONLY")])
    };
    assert_eq!(join("", false), "\"mount\"\n");
    for more in [",threads=64", ",dirty_bytes=300M", ",spin=10000", ",transport=rings"] {
        let said = join(more, false);
        assert!(said.contains("refused") && said.contains("allows"), "{more}: {said}");
    }
    let said = join("", true);
    assert!(said.contains("--linger: only root"), "{said}");
    if !can_mount_as(&nobody, &many) {
        return;
    }
    let own = own_dir(&many, "own");
    let third = format!("{image}:third");
    nobody.run(&["mount", "-o", "ro", &third, own.to_str().unwrap()]).fine();
    let list = nobody.run(&["list"]).fine();
    let (is_own, is_other) = (list.contains(own.to_str().unwrap()), list.contains("of root"));
    assert!(is_own && !is_other, "{list}");
    assert_eq!(many.list().len(), 2);
    // What root does not see in its way is said, and not waited for.
    let kept = many.place.run(&["umount", "--timeout", "9", image]);
    kept.fails(32, &format!("still mounted at {} (user {NOBODY})", own.display()));
    nobody.run(&["umount", own.to_str().unwrap()]).fine();
    wait_until_ended(daemon);
    many.place.fsck();
}

#[test]
fn root_finds_the_daemon_of_a_user() {
    let place = common::TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    if !nobody.mounts(&place) {
        return;
    }
    let many = Many { place };
    let image = many.place.image();
    let work = own_dir(&many, "work");
    nobody.run(&["fork", many.place.dir(), "work"]).fine();
    nobody.run(&["mount", &format!("{image}:work"), work.to_str().unwrap()]).fine();
    assert_eq!(many.list().len(), 2);
    // The daemon goes on for the other mount.
    many.place.run(&["umount", "--timeout", "100", work.to_str().unwrap()]).fine();
    assert_eq!(many.list().len(), 1);
    // One that lingers is ended.
    many.place.umount();
    nobody.run(&["mount", "--linger", image, many.place.dir()]).fine();
    let daemon = many.place.daemon();
    many.place.umount();
    many.place.run(&["umount", image]).fine();
    wait_until_ended(daemon);
}

#[test]
fn a_daemon_in_another_pid_namespace_has_no_number() {
    let can = Command::new("unshare").args(["-p", "-f", "true"]).status();
    if !common::can_mount() || !can.is_ok_and(|status| status.success()) {
        return holdfast_base::skip::skipped("needs unshare -p");
    }
    let many = Many::new(&[]);
    many.place.mount();
    let there = |args: &[&str]| {
        let mut command = Command::new("unshare");
        said(command.args(["-p", "-f", common::PROGRAM]).args(args).output().unwrap()).fine()
    };
    let list = there(&["list"]);
    let row = list.lines().find(|line| line.starts_with(many.place.image())).unwrap();
    assert!(row.contains(" ? "), "{list}");
    assert!(there(&["list", "--json"]).contains("\"pid\":null"));
    many.place.umount();
}

#[test]
fn a_mount_stays_when_the_command_that_mounts_was_killed() {
    if !common::can_mount() {
        return;
    }
    let many = Many::new(&[]);
    let (image, dir) = (many.place.image(), many.place.dir());
    // As the command starts it, but without a reader.
    let mut daemon = many.place.command(&["mount", "--detached", "--", image, dir]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = daemon.stdout(writer).spawn().unwrap();
    wait_for("it is never mounted", || {
        let ended = daemon.try_wait().unwrap();
        assert!(ended.is_none(), "the daemon has ended: {ended:?}");
        many.list().len() == 1
    });
    fs::write(many.place.dir.join("file"), "kept").unwrap();
    many.place.umount();
    assert!(daemon.wait().unwrap().success());
    many.place.fsck();
}
