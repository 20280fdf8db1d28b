//! `.snapshots`, as programs find it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use holdfast_fuse::{CONTROL, Control, Opens, SnapDir};
use rustix::fs::{Mode, OFlags};

use crate::common::{Mount, can_mount, options, volume, wait_for};

/// A mount that shows its snapshots, and deletes one when it is told so, as a command does it.
fn mount(snapdir: SnapDir, opens: Opens) -> Mount {
    let control = Control::new(|mount, command| {
        let branch = mount.fs().branch_name().unwrap();
        let done = mount.fs().delete_snapshot(&branch[..], command);
        done.map_or_else(|error| error.to_string(), |()| "done".into()).into_bytes()
    });
    Mount::with(volume(256), options(), |fuse| {
        fuse.snapdir = snapdir;
        fuse.opens = opens;
        fuse.control = Some(control);
    })
}

fn command(dir: &Path, snapshot: &str) -> String {
    let dir = File::open(dir).unwrap();
    let said = holdfast_fuse::attribute(dir, &[CONTROL, snapshot.as_bytes()].concat()).unwrap();
    String::from_utf8(said).unwrap()
}

fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// The number of the error; 0 if there was none.
fn errno<T>(done: std::io::Result<T>) -> i32 {
    done.err().map_or(0, |error| error.raw_os_error().unwrap())
}

/// P12, P13: each version that was is there under its name, nothing changes it, and what is done to the directory is done to
/// the snapshots.
#[test]
fn snapshots_are_taken_read_renamed_and_deleted_as_directories() {
    if !can_mount() {
        return;
    }
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = mount(SnapDir::Hidden, opens);
        let root = mount.dir.path();
        let dir = root.join(".snapshots");
        fs::create_dir(root.join("d")).unwrap();
        for version in ["one", "two", "three"] {
            fs::write(root.join("d/f"), version).unwrap();
            fs::create_dir(dir.join(version)).unwrap();
        }
        fs::write(root.join("d/f"), "live").unwrap();
        assert_eq!(names(root), ["d"], "it is not listed");
        assert_eq!(names(&dir), ["one", "three", "two"]);
        let mut inodes = BTreeSet::new();
        for version in ["one", "two", "three"] {
            let file = dir.join(version).join("d/f");
            assert_eq!(fs::read_to_string(&file).unwrap(), version);
            assert!(
                inodes.insert(fs::metadata(&file).unwrap().ino()),
                "two versions are two files"
            );
            assert_eq!(names(&dir.join(version)), ["d"]);
        }
        assert!(inodes.insert(fs::metadata(root.join("d/f")).unwrap().ino()));

        // What is in a snapshot stays as it is.
        let of_one = dir.join("one");
        let file = of_one.join("d/f");
        assert_eq!(errno(fs::write(of_one.join("new"), "x")), libc::EROFS);
        assert_eq!(errno(fs::remove_file(&file)), libc::EROFS);
        assert_eq!(errno(fs::remove_dir_all(of_one.join("d"))), libc::EROFS);
        assert_eq!(errno(fs::rename(&file, of_one.join("g"))), libc::EROFS);
        assert_eq!(errno(fs::create_dir(of_one.join("e"))), libc::EROFS);
        assert_eq!(
            errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o600))),
            libc::EROFS
        );
        assert_eq!(errno(fs::rename(&file, root.join("g"))), libc::EXDEV);
        assert_eq!(errno(fs::hard_link(&file, root.join("g"))), libc::EXDEV);
        assert_eq!(errno(fs::rename(root.join("d/f"), of_one.join("g"))), libc::EXDEV);
        assert_eq!(errno(fs::hard_link(root.join("d/f"), of_one.join("g"))), libc::EXDEV);
        assert_eq!(errno(fs::hard_link(root.join("d/f"), dir.join("g"))), libc::EXDEV);
        assert_eq!(errno(fs::hard_link(&file, of_one.join("g"))), libc::EROFS);
        assert_eq!(errno(std::os::unix::fs::symlink("x", of_one.join("s"))), libc::EROFS);
        // No byte is written, whichever side opens files.
        let wrote = File::options().write(true).open(&file).and_then(|mut to| {
            to.write_all(b"x")?;
            to.sync_all()
        });
        assert_eq!(errno(wrote), libc::EROFS);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        File::open(&file).unwrap().sync_all().unwrap();
        File::open(&of_one).unwrap().sync_all().unwrap();

        // And comes back by a copy.
        fs::copy(&file, root.join("back")).unwrap();
        assert_eq!(fs::read_to_string(root.join("back")).unwrap(), "one");

        fs::rename(dir.join("two"), dir.join("2nd")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("2nd/d/f")).unwrap(), "two");
        assert_eq!(errno(fs::metadata(dir.join("two"))), libc::ENOENT);
        assert_eq!(errno(fs::rename(dir.join("2nd"), dir.join("three"))), libc::EEXIST);
        assert_eq!(errno(fs::create_dir(dir.join("three"))), libc::EEXIST);
        assert_eq!(errno(fs::create_dir(dir.join("a:b"))), libc::EINVAL);
        assert_eq!(errno(fs::write(dir.join("file"), "x")), libc::EPERM);
        assert_eq!(errno(fs::rename(root.join("back"), dir.join("x"))), libc::EXDEV);

        // The kernel has read it, but no program has it open.
        fs::remove_dir(dir.join("three")).unwrap();
        assert_eq!(errno(fs::metadata(dir.join("three"))), libc::ENOENT);
        assert_eq!(command(root, "2nd"), "done");
        assert_eq!(errno(fs::read(dir.join("2nd/d/f"))), libc::ENOENT);
        assert_eq!(names(&dir), ["one"]);

        // The name of another one leads to that one.
        fs::create_dir(dir.join("2nd")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("2nd/d/f")).unwrap(), "live");
    }
}

/// All below a directory, with the number that its listing and its attributes say.
fn walk(dir: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let about = fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(entry.ino(), about.ino(), "{:?}", entry.path());
        found.push((entry.path(), about.ino()));
        if about.is_dir() {
            walk(&entry.path(), found);
        }
    }
}

/// Programs that keep numbers in doubles, and know a file with several names by its number, take two files of one number for one.
#[test]
fn each_file_has_a_number_of_53_bits_of_its_own() {
    if !can_mount() {
        return;
    }
    let mount = mount(SnapDir::Visible, Opens::Server);
    let root = mount.dir.path();
    fs::create_dir_all(root.join("p/q")).unwrap();
    for n in 0..20 {
        let name = |letter: char| root.join(format!("p/{letter}{n}"));
        fs::write(name('f'), format!("content {n}")).unwrap();
        fs::hard_link(name('f'), name('g')).unwrap();
    }
    for name in ["s", "t"] {
        fs::create_dir(root.join(".snapshots").join(name)).unwrap();
    }
    let mut found = vec![(root.to_owned(), fs::metadata(root).unwrap().ino())];
    walk(root, &mut found);
    // In each of the three: two directories, and two names of each file.
    assert_eq!(found.len(), 3 * 42 + 4);
    let mut files: HashMap<u64, PathBuf> = HashMap::new();
    for (path, inode) in &found {
        assert!(*inode < 1 << 53, "{path:?}: {inode}");
        // The two names of a file have one number.
        let name = path.file_name().unwrap().to_str().unwrap();
        let of = path.with_file_name(name.replacen('g', "f", 1));
        assert_eq!(files.entry(*inode).or_insert_with(|| of.clone()), &of, "{inode}");
    }
    assert_eq!(files.len(), 3 * 22 + 4);
    // Nor does any become another one.
    let mut again = vec![found[0].clone()];
    walk(root, &mut again);
    again.sort();
    found.sort();
    assert_eq!(again, found);
}

/// As an unlinked file does: what programs hold of it, and what they find from there.
fn a_snapshot_that_is_used_lives_on(opens: Opens) {
    let mount = mount(SnapDir::Hidden, opens);
    let root = mount.dir.path();
    let dir = root.join(".snapshots");
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("d/e/f"), "as it was").unwrap();
    fs::write(root.join("d/e/g"), "nobody has looked at it").unwrap();
    for name in ["open", "current", "by a command", "root", "unused"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(root.join("d/e/f"), "and as it is").unwrap();
    let left = || mount.fs().counters().deletions_left.get();
    let open = File::open(dir.join("open/d/e/f")).unwrap();
    let current = File::open(dir.join("current/d")).unwrap();
    let commanded = File::open(dir.join("by a command/d")).unwrap();
    let whole = File::open(dir.join("root")).unwrap();
    assert_eq!(fs::read_to_string(dir.join("unused/d/e/f")).unwrap(), "as it was");
    for name in ["open", "current"] {
        fs::remove_dir(dir.join(name)).unwrap();
    }
    for name in ["by a command", "root", "unused"] {
        assert_eq!(command(root, name), "done");
    }
    assert_eq!(names(&dir), [""; 0]);
    // Others come and go meanwhile.
    for n in 0..80 {
        fs::create_dir(dir.join(n.to_string())).unwrap();
        let read = fs::read_to_string(dir.join(n.to_string()).join("d/e/f"));
        assert_eq!(read.unwrap(), "and as it is");
    }
    let mut bytes = [0; 9];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"as it was");
    for (held, below) in [(&current, "e"), (&commanded, "e"), (&whole, "d/e")] {
        let at = |name: &str| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(held);
            format!("/proc/self/fd/{fd}/{below}/{name}")
        };
        assert_eq!(fs::read_to_string(at("f")).unwrap(), "as it was");
        assert_eq!(fs::read_to_string(at("g")).unwrap(), "nobody has looked at it");
        assert_eq!(names(Path::new(&at("."))), ["f", "g"]);
    }
    wait_for("what nobody uses keeps its space", || {
        mount.fs().finish_deletions().unwrap();
        left() == 4
    });
    drop((open, current, commanded, whole));
    wait_for("what nobody uses any more keeps its space", || {
        mount.fs().finish_deletions().unwrap();
        left() == 0
    });
}

#[test]
fn a_snapshot_that_is_used_lives_on_without_a_name() {
    if can_mount() {
        a_snapshot_that_is_used_lives_on(Opens::Server);
        a_snapshot_that_is_used_lives_on(Opens::Kernel);
    }
}

/// Containers lie on one as a layer, or have a part of it mounted, without an open file.
#[test]
fn a_layer_lives_on_without_a_name() {
    if !can_mount() {
        return;
    }
    let mount = mount(SnapDir::Hidden, Opens::Server);
    let root = mount.dir.path();
    let layer = root.join(".snapshots/s");
    for dir in ["base", "upper", "work", "merged", "bound"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    fs::write(root.join("base/f"), "of the layer").unwrap();
    fs::create_dir(&layer).unwrap();
    let places = tempfile::tempdir().unwrap();
    let (merged, bound) = (places.path().join("merged"), places.path().join("bound"));
    fs::create_dir(&merged).unwrap();
    fs::create_dir(&bound).unwrap();
    let run = |program: &str, words: &[&str]| {
        let done = Command::new(program).args(words).current_dir(root).output().unwrap();
        done.status.success().then_some(()).ok_or(String::from_utf8(done.stderr).unwrap())
    };
    let options = "lowerdir=.snapshots/s/base,upperdir=upper,workdir=work";
    let at = |path: &Path| path.to_str().unwrap().to_owned();
    if let Err(why) = run("mount", &["-t", "overlay", "-o", options, "o", &at(&merged)]) {
        return holdfast_base::skip::skipped(why);
    }
    run("mount", &["--bind", ".snapshots/s/base", &at(&bound)]).unwrap();
    let done = std::panic::catch_unwind(|| {
        // The directory itself would be empty for its users.
        run("mount", &["--bind", ".snapshots/s", root.join("bound").to_str().unwrap()]).unwrap();
        assert_eq!(errno(fs::remove_dir(&layer)), libc::EBUSY);
        run("umount", &[root.join("bound").to_str().unwrap()]).unwrap();
        fs::remove_dir(&layer).unwrap();
        assert_eq!(errno(fs::metadata(&layer)), libc::ENOENT);
        for dir in [&merged, &bound] {
            assert_eq!(names(dir), ["f"]);
            assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "of the layer");
        }
        fs::write(merged.join("f"), "above it").unwrap();
        assert_eq!(fs::read_to_string(merged.join("f")).unwrap(), "above it");
    });
    run("umount", &[&at(&merged)]).unwrap();
    run("umount", &[&at(&bound)]).unwrap();
    done.unwrap();
    wait_for("what nobody uses any more keeps its space", || {
        mount.fs().finish_deletions().unwrap();
        mount.fs().counters().deletions_left.get() == 0
    });
}

/// By whichever way it changes, and however the kernel has come by what it knows.
#[test]
fn a_listing_is_as_the_snapshots_are() {
    if !can_mount() {
        return;
    }
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = mount(SnapDir::Hidden, opens);
        let (root, dir) = (mount.dir.path(), mount.path(".snapshots"));
        let fs = mount.fs();
        let branch = fs.branch_number().unwrap();
        for name in ["a", "b", "c", "d"] {
            fs.snapshot(name.as_bytes()).unwrap();
        }
        let moved = || fs::metadata(&dir).unwrap().modified().unwrap();
        // A program that has it open lists it again without looking it up.
        let open = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let mut open = rustix::fs::Dir::new(open.unwrap()).unwrap();
        let mut lists = |wanted: &[&str], before: SystemTime| {
            assert_eq!(names(&dir), wanted);
            assert_eq!(fs::metadata(&dir).unwrap().size(), wanted.len() as u64);
            assert!(moved() > before, "the time of the directory has not moved");
            wait_for("the kernel has an old listing", || {
                open.rewind();
                let mut all: Vec<String> = (&mut open)
                    .map(|of| of.unwrap().file_name().to_str().unwrap().to_owned())
                    .filter(|name| name != "." && name != "..")
                    .collect();
                all.sort();
                all == wanted
            });
            moved()
        };
        let mut before = lists(&["a", "b", "c", "d"], SystemTime::UNIX_EPOCH);
        assert_eq!(command(root, "b"), "done");
        before = lists(&["a", "c", "d"], before);
        fs.rename_snapshot(branch, b"c", b"other").unwrap();
        before = lists(&["a", "d", "other"], before);
        fs.snapshot(b"e").unwrap();
        before = lists(&["a", "d", "e", "other"], before);
        fs.rollback(b"a", Some(b"kept")).unwrap();
        before = lists(&["a", "d", "e", "kept", "other"], before);
        let fork = fs.fork(b"work", None).unwrap();
        fs.snapshot_of(fork, b"of work").unwrap();
        fs.promote(branch, fork, Some(b"before"), false).unwrap();
        before = lists(&["a", "before", "d", "e", "kept", "of work", "other"], before);
        fs::rename(dir.join("a"), dir.join("z")).unwrap();
        fs::remove_dir(dir.join("d")).unwrap();
        lists(&["before", "e", "kept", "of work", "other", "z"], before);
        // A name that the kernel knew leads to what has it now.
        assert_eq!(errno(fs::metadata(dir.join("a"))), libc::ENOENT);
    }
}

/// The server hears of the end of a file behind that of the program.
#[test]
fn what_was_read_a_moment_ago_is_deleted() {
    if !can_mount() {
        return;
    }
    for opens in [Opens::Server, Opens::Kernel] {
        let mount = mount(SnapDir::Hidden, opens);
        let root = mount.dir.path();
        let dir = root.join(".snapshots");
        fs::write(root.join("f"), "it").unwrap();
        for turn in 0..100 {
            fs::create_dir(dir.join("s")).unwrap();
            assert_eq!(fs::read_to_string(dir.join("s/f")).unwrap(), "it");
            match turn % 2 {
                0 => fs::remove_dir(dir.join("s")).unwrap(),
                _ => assert_eq!(command(root, "s"), "done"),
            }
        }
    }
}

#[test]
fn it_is_listed_where_it_is_to_be_seen_and_missing_where_it_is_off() {
    if !can_mount() {
        return;
    }
    let visible = mount(SnapDir::Visible, Opens::Server);
    let root = visible.dir.path();
    for n in 0..400 {
        File::create(root.join(format!("file-{n}"))).unwrap();
    }
    fs::create_dir(root.join(".snapshots/s")).unwrap();
    let listed = names(root);
    assert_eq!(listed.len(), 401);
    assert_eq!(listed.iter().filter(|name| *name == ".snapshots").count(), 1);
    assert_eq!(names(&root.join(".snapshots/s")).len(), 400);
    // It cannot be taken away, and no other comes into its place.
    assert_eq!(errno(fs::remove_dir(root.join(".snapshots"))), libc::EBUSY);
    assert_eq!(errno(fs::rename(root.join(".snapshots"), root.join("x"))), libc::EBUSY);
    assert_eq!(errno(fs::create_dir(root.join(".snapshots"))), libc::EEXIST);
    fs::create_dir(root.join("d")).unwrap();
    assert_eq!(errno(fs::rename(root.join("d"), root.join(".snapshots"))), libc::EBUSY);
    // Elsewhere it is a name as any other.
    fs::create_dir(root.join("d/.snapshots")).unwrap();
    fs::create_dir(root.join("d/.snapshots/s")).unwrap();
    assert_eq!(names(&root.join("d/.snapshots/s")).len(), 0);

    let off = mount(SnapDir::Off, Opens::Server);
    let root = off.dir.path();
    assert_eq!(errno(fs::metadata(root.join(".snapshots"))), libc::ENOENT);
    fs::create_dir(root.join(".snapshots")).unwrap();
    fs::write(root.join(".snapshots/f"), "mine").unwrap();
    assert_eq!(names(root), [".snapshots"]);
    // A volume that has one of its own keeps it.
    File::open(root.join(".snapshots/f")).unwrap().sync_all().unwrap();
    let device = off.device.clone();
    drop(off);
    let own = Mount::of(device);
    let root = own.dir.path();
    assert_eq!(fs::read_to_string(root.join(".snapshots/f")).unwrap(), "mine");
    fs::rename(root.join(".snapshots"), root.join("moved")).unwrap();
    assert_eq!(fs::read_to_string(root.join("moved/f")).unwrap(), "mine");
}

/// Tools that go through all of it take nothing for something else.
#[test]
fn find_du_and_tar_behave() {
    if !can_mount() {
        return;
    }
    let mount = mount(SnapDir::Visible, Opens::Server);
    let root = mount.dir.path();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), [7; 100_000]).unwrap();
    fs::hard_link(root.join("d/f"), root.join("d/g")).unwrap();
    for name in ["s", "t"] {
        fs::create_dir(root.join(".snapshots").join(name)).unwrap();
    }
    let run = |program: &str, words: &[&str]| {
        let done = Command::new(program).args(words).current_dir(root).output();
        let done = match done {
            Ok(done) => done,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                holdfast_base::skip::skipped(format_args!("{program}: {error}"));
                return None;
            }
            Err(error) => panic!("{program}: {error}"),
        };
        let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && complaints.is_empty(), "{program}: {complaints}");
        Some(String::from_utf8(done.stdout).unwrap())
    };
    if let Some(found) = run("find", &[".", "-type", "f"]) {
        assert_eq!(found.lines().count(), 6, "{found}");
    }
    // Two names of a file count once, two versions of it twice.
    if let Some(used) = run("du", &["-s", "--block-size=1000", "."]) {
        let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
        assert!((300..400).contains(&used), "{used}");
    }
    if let Some(listed) = run("bash", &["-c", "tar c .snapshots | tar tv"]) {
        let links = listed.lines().filter(|line| line.starts_with('h'));
        assert_eq!(links.count(), 2, "{listed}");
        assert!(
            !listed
                .lines()
                .any(|line| line.contains("link to .snapshots/s") && line.contains("snapshots/t/")),
            "{listed}"
        );
    }
}
