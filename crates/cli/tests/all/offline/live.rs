//! `cp` and `rm` of volumes that are mounted: by their daemons, while programs use them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{picture, tree};
use crate::common::{Nobody, Said, TestMount, can_mount, said, signal, wait_for};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_tree_is_copied_into_a_volume_in_use_and_out_again() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let source = place.root.path().join("source");
    tree(&source);
    let at = |name: &str| place.dir.join(name);
    // What the kernel believes from now on: that there is nothing, and what is in a file.
    assert!(!at("source").exists() && names(&place.dir).is_empty());
    fs::write(at("old"), "old").unwrap();
    fs::hard_link(at("old"), at("older")).unwrap();
    let mut open = fs::File::open(at("old")).unwrap();
    assert_eq!(fs::metadata(at("old")).unwrap().nlink(), 2);
    place.run(&["cp", "-a", &place.path("source"), &place.inside("/")]).fine();
    assert_eq!(picture(&source), picture(&at("source")));
    assert_eq!(names(&place.dir), ["old", "older", "source"]);
    assert!(fs::metadata(at("source/sparse")).unwrap().blocks() * 512 < 1 << 20);
    // Over what is there, which programs may have open.
    fs::write(place.path("new"), "new content").unwrap();
    place.run(&["cp", "--sync", &place.path("new"), &place.inside("/old")]).fine();
    let mut was = String::new();
    open.read_to_string(&mut was).unwrap();
    assert_eq!(
        (was.as_str(), fs::read_to_string(at("old")).unwrap().as_str()),
        ("old", "new content")
    );
    assert_eq!(fs::metadata(at("older")).unwrap().nlink(), 1);
    drop(open);
    // Once more over all of it: names stay, links lead where they lead.
    fs::remove_file(source.join("link")).unwrap();
    symlink("large", source.join("link")).unwrap();
    fs::write(source.join("dir/below/small"), "other").unwrap();
    place.run(&["cp", "-a", &place.path("source"), &place.inside("/")]).fine();
    assert_eq!(picture(&source), picture(&at("source")));
    // Out again: of the volume, by the directory of its mount, and of a snapshot.
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    fs::write(at("source/empty"), "not any more").unwrap();
    let out = |from: &str, to: &str| place.run(&["cp", "-a", from, &place.path(to)]);
    out(&place.inside("/source"), "back").fine();
    assert_eq!(picture(&at("source")), picture(Path::new(&place.path("back"))));
    out(&format!("{}@s:/source", place.dir()), "snap").fine();
    assert_eq!(picture(&source), picture(Path::new(&place.path("snap"))));
    out(&format!("{}:/source", place.dir()), "again").fine();
    assert_eq!(picture(&at("source")), picture(Path::new(&place.path("again"))));
    // Between branches, of which one is not mounted, and within one.
    place.run(&["fork", place.dir(), "other"]).fine();
    place.run(&["rm", "-r", &format!("{}:other:/source", place.image())]).fine();
    assert_eq!(place.run(&["ls", &format!("{}:other:/", place.image())]).fine(), "old\nolder\n");
    place
        .run(&[
            "cp",
            "-a",
            &format!("{}@s:/source", place.image()),
            &format!("{}:other:/copy", place.image()),
        ])
        .fine();
    place.run(&["cp", "-a", &format!("{}:other:/copy", place.image()), &place.inside("/")]).fine();
    assert_eq!(picture(&source), picture(&at("copy")));
    place.run(&["cp", "-a", &place.inside("/copy"), &place.inside("/source")]).fine();
    assert_eq!(picture(&source), picture(&at("source/copy")));
    // Never into itself, on any side.
    for (from, to) in [
        (place.inside("/source"), place.inside("/source/dir")),
        (place.inside("/source"), place.inside("/source/copy/new")),
        (place.inside("/"), place.inside("/copy")),
        (place.path("source"), place.path("source/dir/deep")),
    ] {
        let said = place.run(&["cp", "-r", &from, &to]);
        assert_eq!(said.code, 1, "{from} {to}");
        assert!(said.err.contains("cannot be copied into itself"), "{said:?}");
    }
    place.run(&["cp", &place.inside("/old"), &place.inside("/old")]).fails(1, "same file");
    // Without a slash it would be a file of the host, which was not meant.
    let [astray, new] = [format!("{}:old", place.image()), place.path("new")];
    for words in [["cp", &new, &astray], ["cp", "-", &astray], ["cp", &astray, &new]] {
        place.run(&words).fails(1, &format!("write {}:/old", place.image()));
    }
    assert!(!Path::new(&astray).exists());
    for (head, name) in [
        (format!("{}:main", place.image()), "old"),
        (format!("{}@s", place.image()), "old"),
        (place.dir().to_owned(), "x"),
    ] {
        let text = format!("{head}:{name}");
        place.run(&["cp", &new, &text]).fails(1, &format!("write {head}:/{name}; for a file"));
        assert!(!Path::new(&text).exists(), "{text}");
    }
    // A caller who means it says so.
    place.run(&["cp", &new, &format!("/{astray}")]).fine();
    fs::remove_file(&astray).unwrap();
    place
        .run(&["cp", "-r", &place.path("source"), &format!("{}@s:/x", place.image())])
        .fails(1, "never changes");
    // To another volume, at rest and in use, and what all of that has left is sound.
    let second = place.path("second.img");
    place.run(&["mkfs", "-q", "--size", "64M", &second]).fine();
    place.run(&["cp", "-a", &place.inside("/copy"), &format!("{second}:/")]).fine();
    let dir = place.path("second");
    fs::create_dir(&dir).unwrap();
    place.run(&["mount", &second, &dir]).fine();
    let done = place.run(&["cp", "-a", &place.inside("/copy"), &format!("{second}:/two")]);
    let same = [
        picture(Path::new(&dir).join("copy").as_path()),
        picture(Path::new(&dir).join("two").as_path()),
    ];
    place.run(&["umount", &dir]).fine();
    done.fine();
    assert!(same.iter().all(|it| *it == picture(&source)));
    place.run(&["fsck", "-n", "-d", &second]).fine();
    place.umount();
    place.fsck();
    // What was copied was durable, and nothing else was made.
    assert_eq!(place.run(&["ls", place.image()]).fine(), "copy\nold\nolder\nsource\n");
}

#[test]
fn what_is_removed_of_a_volume_in_use_is_gone_for_programs_as_well() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let at = |name: &str| place.dir.join(name);
    for dir in ["a/b/c", "keep", "d"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    for n in 0..300 {
        fs::write(at("a/b").join(format!("f{n}")), "x").unwrap();
    }
    fs::write(at("keep/file"), "kept").unwrap();
    symlink("../keep", at("a/link")).unwrap();
    symlink("keep", at("to-keep")).unwrap();
    fs::hard_link(at("keep/file"), at("a/b/c/hard")).unwrap();
    assert_eq!(fs::metadata(at("keep/file")).unwrap().nlink(), 2);
    let open = fs::File::open(at("a/b/f7")).unwrap();
    let rm = |args: &[&str]| place.run(&[&["rm"], args].concat());
    // What is refused changes nothing.
    for (path, words) in [
        (place.inside("/a"), "-r removes it"),
        (place.inside("/"), "is the root of the branch"),
        (place.inside("/a/.."), "ends in . or .."),
        (place.inside("/none"), "No such file"),
    ] {
        let said = rm(&[&path]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
    }
    let root = place.dir();
    rm(&["-r", root]).fails(1, "is the root of the branch, which stays");
    place.run(&["ln", "-s", "d", root]).fails(1, "/d is there; -f replaces it");
    place.run(&["ln", "-s", "keep/new", root]).fine();
    place.run(&["mv", at("new").to_str().unwrap(), at("a").to_str().unwrap()]).fine();
    place.run(&["mv", at("a/new").to_str().unwrap(), root]).fine();
    place.run(&["rm", at("new").to_str().unwrap()]).fine();
    // Plain paths in the mount, and what lies in it named as if it were the mount.
    assert_eq!(place.run(&["cat", at("keep/file").to_str().unwrap()]).fine(), "kept");
    assert_eq!(place.run(&["ls", at("keep").to_str().unwrap()]).fine(), "file\n");
    place.run(&["sync", at("typo").to_str().unwrap()]).fails(1, "typo: No such file");
    let below = format!("lies in the mount {root}; name that");
    for words in [&["snapshot", "list"][..], &["stats"], &["info"], &["restart"]] {
        let said = place.run(&[words, &[at("keep").to_str().unwrap()]].concat());
        said.fails(1, &below);
    }
    // In a mount it need not be named.
    place.run(&["snapshot", "create", root, "s"]).fine();
    let here =
        |words: &[&str]| said(place.command(words).current_dir(at("keep")).output().unwrap());
    assert!(here(&["snapshot", "list", ":main"]).fine().contains("s "));
    assert_eq!(here(&["cat", "@s:/keep/file"]).fine(), "kept");
    place.run(&["snapshot", "delete", root, "@s"]).fine();
    rm(&["-r", &place.path("none")]).fails(1, "is in no volume");
    rm(&["-f", &place.inside("/none"), &place.inside("/a/none/x")]).fine();
    assert_eq!(names(&place.dir), ["a", "d", "keep", "to-keep"]);
    // While others work beside it, and in it.
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&ends);
        let writer = scope.spawn(|| {
            let mut count = 0;
            while count == 0 || !ends.load(Ordering::Relaxed) {
                fs::write(at("d").join(format!("n{count}")), "x").unwrap();
                count += 1;
            }
            count
        });
        let said = rm(&["-r", &place.inside("/a"), &format!("{}/to-keep", place.dir())]);
        drop(stop);
        let count = writer.join().unwrap();
        said.fine();
        assert!(count > 0 && names(&at("d")).len() == count);
    });
    assert_eq!(names(&place.dir), ["d", "keep"]);
    for gone in ["a", "a/b", "a/b/f7", "a/link", "to-keep"] {
        assert!(!at(gone).exists() && at(gone).symlink_metadata().is_err(), "{gone}");
    }
    assert_eq!(fs::metadata(at("keep/file")).unwrap().nlink(), 1);
    let mut byte = [0];
    open.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"x");
    // What was gone can be made anew.
    fs::create_dir(at("a")).unwrap();
    fs::write(at("a/b"), "anew").unwrap();
    assert_eq!(place.run(&["cat", &place.inside("/a/b")]).fine(), "anew");
    // A mount that may only be read, and a snapshot.
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    rm(&["-r", &format!("{}@s:/a", place.image())]).fails(1, "never changes");
    drop(open);
    place.umount();
    // At rest it is the same.
    let said = rm(&["-r", &place.inside("/d"), &place.inside("/none"), &place.inside("/a")]);
    assert_eq!((said.code, said.err.contains("/none")), (1, true), "{said:?}");
    assert_eq!(place.run(&["ls", place.image()]).fine(), "keep\n");
    place.fsck();
    place.run(&["mount", "-o", "ro", place.image(), place.dir()]).fine();
    rm(&["-r", &place.inside("/keep")]).fails(1, "read-only");
    place.run(&["cp", &place.path("none"), &place.inside("/x")]).fails(1, "read-only");
    place.umount();
}

/// Ends a writer, also when its test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is copied before the pipe that a copy stands in, and what comes behind it.
const BEFORE: [&str; 5] = ["a0", "a1", "a2", "a3", "a4"];
const BEHIND: [&str; 5] = ["z0", "z1", "z2", "z3", "z4"];

/// A copy that reads from a pipe, which has not ended.
struct Stopped {
    child: Child,
    pipe: fs::File,
}

impl Stopped {
    /// It has some of what comes through the pipe when this returns, and all that comes before.
    fn start(place: &TestMount, from: &dyn Fn(&str) -> String, to: &str) -> Stopped {
        let gate = place.path("gate");
        if !Path::new(&gate).exists() {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, &*gate, mode).unwrap();
        }
        let [before, behind] = [BEFORE, BEHIND].map(|names| names.map(from));
        let mut command = place.command(&["cp", "--sync"]);
        let child = command.args(before).arg(&gate).args(behind).arg(to);
        let child = child.stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = None;
        let mut how = fs::File::options();
        how.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        wait_for("nobody reads the pipe", || {
            pipe = how.open(&gate).ok();
            pipe.is_some()
        });
        let mut pipe = pipe.unwrap();
        // More than it holds.
        let mut left = 1 << 20;
        wait_for("the pipe is not read", || {
            left -= pipe.write(&vec![7; left]).unwrap_or(0);
            left == 0
        });
        Stopped { child, pipe }
    }

    /// Its pipe ends.
    fn go_on(self) -> Said {
        drop(self.pipe);
        said(self.child.wait_with_output().unwrap())
    }

    fn end(self, by: &str) {
        signal(self.child.id(), by);
        said(self.child.wait_with_output().unwrap());
    }
}

/// A copy is ended in the middle, in each direction, and its volume is unmounted meanwhile.
#[test]
fn a_copy_that_is_ended_leaves_whole_files_only() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let content: Vec<u8> = (0..6_000_u32).map(|n| (n >> 3) as u8).collect();
    let source = place.root.path().join("source");
    for dir in [&source, &place.dir.join("all")] {
        fs::create_dir(dir).unwrap();
        BEFORE.iter().chain(&BEHIND).for_each(|name| fs::write(dir.join(name), &content).unwrap());
    }
    let expect_whole = |dir: &Path, what: &str| {
        assert_eq!(names(dir), BEFORE, "{what}");
        BEFORE.iter().for_each(|name| assert!(fs::read(dir.join(name)).unwrap() == content));
    };
    let into = |name: &str| {
        fs::create_dir(place.dir.join(name)).unwrap();
        let from = |name: &str| place.path(&format!("source/{name}"));
        Stopped::start(&place, &from, &place.inside(&format!("/{name}")))
    };
    for ended in ["INT", "KILL"] {
        let stopped = into(ended);
        expect_whole(&place.dir.join(ended), "in its midst");
        stopped.end(ended);
        expect_whole(&place.dir.join(ended), ended);
    }
    let stopped = into("unmounted");
    let umount = place.command(&["umount", place.dir()]).spawn();
    wait_for("it stays mounted", || !place.is_mounted());
    let gone = stopped.go_on();
    assert!(umount.unwrap().wait().unwrap().success());
    assert!(gone.code == 1 && gone.err.contains("unmounted"), "{gone:?}");
    place.fsck();
    place.mount();
    // The mount goes before the daemon ends the copy: what the pipe held, and some behind it, may still come, whole.
    let came = place.dir.join("unmounted");
    let order = [&BEFORE[..], &["gate"], &BEHIND].concat();
    let there = names(&came);
    assert!(there.len() >= BEFORE.len() && there == order[..there.len()], "{there:?}");
    for name in there {
        let expected = if name == "gate" { &vec![7; 1 << 20] } else { &content };
        assert!(fs::read(came.join(&name)).unwrap() == *expected, "{name}");
    }
    // Out of it.
    for ended in ["INT", "KILL"] {
        let out = source.with_file_name(format!("out-{ended}"));
        fs::create_dir(&out).unwrap();
        let from = |name: &str| place.inside(&format!("/all/{name}"));
        Stopped::start(&place, &from, out.to_str().unwrap()).end(ended);
        expect_whole(&out, ended);
    }
    // One that goes on takes all.
    let going = into("whole").go_on();
    going.fine();
    assert_eq!(names(&place.dir.join("whole")), order);
    place.umount();
    place.fsck();
}

#[test]
fn who_may_not_write_the_image_copies_nothing_into_it() {
    let place = TestMount::with_volume();
    let Some(nobody) = Nobody::at(&place) else { return };
    fs::set_permissions(&place.image, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    place.run(&["mount", "-o", "allow_other", place.image(), place.dir()]).fine();
    fs::write(place.dir.join("file"), "text").unwrap();
    let image = place.image();
    let said = nobody.run(&["cp", "/etc/hostname", &format!("{image}:/x")]);
    assert_ne!(said.code, 0, "{said:?}");
    let said = nobody.run(&["rm", &format!("{image}:/file")]);
    assert_ne!(said.code, 0, "{said:?}");
    assert_eq!(names(&place.dir), ["file"]);
    // Nor does a daemon open a file of the host for any user: what a user may not read is not copied.
    fs::write(place.path("secret"), "x").unwrap();
    fs::set_permissions(place.path("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    place.umount();
    if !nobody_owns(&place, &nobody) {
        return;
    }
    let said = nobody.run(&["cp", &place.path("secret"), &place.inside("/x")]);
    assert!(said.code == 1 && said.err.contains("ermission denied"), "{said:?}");
    // What a user copies is the user's.
    let said = nobody.sh(&format!(
        "echo mine > {dir}/host && {program} cp {dir}/host {image}:/copy && cat {mnt}/copy && echo more >> {mnt}/copy",
        dir = place.path("own"),
        program = nobody.program(),
        mnt = place.dir(),
    ));
    assert_eq!(said.fine(), "mine\n");
    nobody.run(&["umount", place.dir()]).fine();
    place.fsck();
}

/// A volume of `nobody`, mounted, and a directory; false where that is not allowed.
fn nobody_owns(place: &TestMount, nobody: &Nobody) -> bool {
    fs::remove_file(&place.image).unwrap();
    let own = place.path("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(crate::common::NOBODY), None).unwrap();
    nobody.mounts(place)
}

/// Threads that write through a mount while trees come and go beside them see what they have written, and the volume is sound.
#[test]
fn copies_and_removals_beside_writers_disturb_nobody() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let source = place.root.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..40).for_each(|n| fs::write(source.join(format!("f{n}")), vec![n; 3000]).unwrap());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&ends);
        for number in 0..2 {
            let (dir, ends) = (&place.dir, &ends);
            scope.spawn(move || {
                let mut round = 0_u64;
                while !ends.load(Ordering::Relaxed) {
                    // In the directory that is removed and copied, too: it may be gone at any time.
                    let own = dir.join(format!("own-{number}"));
                    let text = format!("{round}");
                    fs::write(&own, &text).unwrap();
                    assert_eq!(fs::read_to_string(&own).unwrap(), text);
                    if let Ok(mut file) = fs::File::create(dir.join(format!("tree/w{number}"))) {
                        file.write_all(b"x").unwrap();
                    }
                    round += 1;
                }
            });
        }
        for _ in 0..4 {
            place.run(&["cp", "-r", &place.path("source"), &place.inside("/tree")]).fine();
            for n in 0..40_u8 {
                let at = place.dir.join(format!("tree/f{n}"));
                assert_eq!(fs::read(at).unwrap(), vec![n; 3000], "{n}");
            }
            // Others may put names there until the end.
            while place.run(&["rm", "-rf", &place.inside("/tree")]).code != 0 {}
            assert!(!place.dir.join("tree/f3").exists());
        }
        drop(stop);
    });
    place.umount();
    place.fsck();
}

/// What is at the destination is not followed below what the user has named, and no copy is more than its original was.
#[test]
fn a_copy_goes_through_no_link_and_gives_no_rights() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestMount::with_volume();
    let at = |name: &str| place.root.path().join(name);
    for dir in ["source/dir", "source/more", "elsewhere", "to"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("source/dir/file"), "new").unwrap();
    fs::write(at("source/file"), "new").unwrap();
    fs::write(at("elsewhere/kept"), "kept").unwrap();
    fs::write(at("source/program"), "x").unwrap();
    fs::set_permissions(at("source/program"), fs::Permissions::from_mode(0o6755)).unwrap();
    // On the host, and in a volume: links in the place of a directory and of a file.
    fs::create_dir(at("to/source")).unwrap();
    symlink("../../elsewhere", at("to/source/dir")).unwrap();
    symlink("../../elsewhere/kept", at("to/source/file")).unwrap();
    place.run(&["cp", "-r", &place.path("to"), &place.inside("/")]).fine();
    place.run(&["cp", "-r", &place.path("elsewhere"), &place.inside("/")]).fine();
    for to in [place.path("to"), place.inside("/to")] {
        let said = place.run(&["cp", "-r", &place.path("source"), &to]);
        assert!(said.code == 1 && said.err.contains("source/dir"), "{to}: {said:?}");
    }
    place.run(&["cp", "-r", &place.inside("/to"), &place.path("back")]).fine();
    for to in ["to/source", "back/source"] {
        assert!(fs::symlink_metadata(at(to).join("file")).unwrap().is_file(), "{to}");
        assert!(fs::symlink_metadata(at(to).join("dir")).unwrap().is_symlink(), "{to}");
        let mode = fs::metadata(at(to).join("program")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o755, "{to}");
    }
    assert_eq!(
        (names(&at("elsewhere")), fs::read(at("elsewhere/kept")).unwrap()),
        (vec!["kept".into()], b"kept".to_vec())
    );
    assert_eq!(place.run(&["ls", "-R", &place.inside("/elsewhere")]).fine(), "kept\n");
    // A second name of a file whose first one could not be copied is a file of its own.
    fs::write(at("source/a"), "right").unwrap();
    fs::hard_link(at("source/a"), at("source/b")).unwrap();
    fs::create_dir_all(at("links/source/a")).unwrap();
    place.run(&["cp", "-r", &place.path("links"), &place.inside("/")]).fine();
    for to in [place.path("links"), place.inside("/links")] {
        assert_eq!(place.run(&["cp", "-a", &place.path("source"), &to]).code, 1, "{to}");
    }
    assert_eq!(fs::read(at("links/source/b")).unwrap(), b"right");
    assert_eq!(place.run(&["cat", &place.inside("/links/source/b")]).fine(), "right");
    place.fsck();
}
