//! The library reaches a volume that is mounted through its mount: the same calls, answers and errors as on a volume of its own, and nothing
//! outside of it.

use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use holdfast::{
    Attributes, Dir, FileTimes, FileType, Metadata, NewSize, OpenOptions, Permissions, RenameFlags,
    Volume, VolumeOptions, XattrFlags,
};

use crate::common::{NOBODY, Nobody, TestMount, can_mount, signal, wait_for, wait_until_ended};

/// A volume that is mounted, and what the library opens of it.
fn mounted() -> Option<(TestMount, Volume)> {
    if !can_mount() {
        return None;
    }
    let place = TestMount::with_volume();
    place.mount();
    let volume = Volume::open(&place.image).unwrap();
    assert_eq!(volume.mounted_at(), Some(place.dir.as_path()));
    Some((place, volume))
}

/// What calls have answered: values, or the numbers of errors.
struct Said(Vec<String>);

impl Said {
    fn add<T: std::fmt::Debug>(&mut self, what: &str, answer: io::Result<T>) {
        let answer = answer.map_err(|error| error.raw_os_error().ok_or(error.kind()));
        self.0.push(format!("{what}: {answer:?}"));
    }
}

fn about(found: Metadata) -> (FileType, u32, u64, u32, u32, u32, u64) {
    let (kind, mode, len) = (found.file_type(), found.mode(), found.len());
    // What a directory has as its size and links is the same on both ways, too.
    (kind, mode, len, found.nlink(), found.uid(), found.gid(), found.rdev())
}

fn names(dir: &Dir, path: &str) -> io::Result<Vec<String>> {
    let all = dir.read_dir(path)?;
    let one = |entry: holdfast::DirEntry| {
        let kind = entry.file_type();
        assert_eq!(entry.metadata().unwrap().file_type(), kind);
        assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
        format!("{} {kind:?}", entry.path().display())
    };
    let mut all = all.map(|entry| entry.map(one)).collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

fn make_things(v: &Dir, said: &mut Said) {
    said.add("mkdir", v.create_dir("/d"));
    said.add("mkdir again", v.create_dir("d/"));
    said.add("mkdir of nothing", v.create_dir(""));
    said.add("mkdir of the root", v.create_dir("/"));
    said.add("mkdir of ..", v.create_dir("d/.."));
    said.add("mkdir with a mode", v.create_dir_with_mode("d/open", 0o1777));
    said.add("mkdir below nothing", v.create_dir("x/y"));
    said.add("all of it", v.create_dir_all("/d/e/f/g"));
    said.add("all of it again", v.create_dir_all("d/e/f/g/"));
    said.add("write", v.write("/d/file", "some text"));
    said.add("all of it over a file", v.create_dir_all("d/file/x"));
    said.add("below a file", v.write("d/file/x", ""));
    said.add("a directory as a file", v.write("d/e", ""));
    said.add("a new file with a slash", v.write("d/new/", ""));
    said.add("symlink", v.symlink("/d/file", "link"));
    said.add("symlink again", v.symlink("x", "link"));
    said.add("symlink with a slash", v.symlink("x", "link2/"));
    said.add("symlink upwards", v.symlink("../../../../d/e", "d/e/f/up"));
    said.add("symlink that leads nowhere", v.symlink("/d/later", "nowhere"));
    said.add("loop", v.symlink("loop", "loop"));
    said.add("pipe", v.create_node("d/pipe", FileType::Fifo, 0o666, 0));
    said.add("device", v.create_node("d/null", FileType::CharDevice, 0o666, 0x103));
    said.add("node with a slash", v.create_node("d/n/", FileType::Regular, 0o600, 0));
    said.add("node", v.create_node("d/n", FileType::Regular, 0o6666, 0));
    said.add("hard link", v.hard_link("d/file", "d/other"));
    said.add("hard link of a link", v.hard_link("link", "link3"));
    said.add("hard link of a directory", v.hard_link("d/e", "d/e2"));
    said.add("hard link of a file with a slash", v.hard_link("d/file/", "d/e2"));
    said.add("hard link to what is there", v.hard_link("d/file", "d/n"));
    said.add("a long name", v.create_dir("x".repeat(256)));
    said.add("a 0", v.create_dir("a\0b"));
}

fn open_things(v: &Dir, said: &mut Said) {
    let options = OpenOptions::new;
    let open = |path: &str, how: &OpenOptions| v.open_with(path, how).map(drop);
    said.add("read", v.read_to_string("link"));
    said.add("read a directory", v.read("/d"));
    said.add("read a missing one", v.read("/missing"));
    said.add("read through a loop", v.read("/loop"));
    said.add("read the root", v.read("/"));
    said.add("a file with a slash", v.read("d/file/"));
    said.add("not followed", open("link", &options().read(true).follow(false)));
    said.add("nothing asked", open("link", &options()));
    said.add("new, and there", open("link", &options().write(true).create_new(true)));
    said.add("new at a dead link", open("nowhere", &options().write(true).create_new(true)));
    said.add("not there yet", v.exists("d/later"));
    said.add("made by a dead link", v.write("nowhere", "later"));
    said.add("there", v.read_to_string("d/later"));
    let strict = options().write(true).create(true).mode(0o666);
    said.add("mode and no umask", open("d/all", &strict));
    said.add("which mode", v.metadata("d/all").map(about));
    said.add("without a name", options().write(true).read(true).tmpfile(v, "/d").map(drop));
    let named = options().write(true).read(true).mode(0o622).tmpfile(v, "/d").and_then(|file| {
        file.write_all_at(b"found", 0)?;
        v.link_file(&file, "d/named")?;
        v.metadata("d/named").map(about)
    });
    said.add("named later", named);
    said.add("handle", v.open_dir("d/e").and_then(|e| names(&e, "..")));
    said.add("handle of a file", v.open_dir("d/file").map(drop));
    let inner = v.open_dir("d/e/f").unwrap();
    said.add("absolute from a handle", inner.read("/d/file"));
    said.add("above a handle", inner.read("../../file"));
    said.add("far above a handle", inner.read("../../../../../../../d/file"));
    said.add("by a link upwards", inner.metadata("up").map(about));
    said.add("a link that leads out of a handle", names(&inner, "up"));
    said.add("missing above a handle", inner.read("../../x"));
    said.add("made above a handle", inner.write("../../from-below", "x"));
    said.add("many dots", v.read(format!("{}d/file", "d/../".repeat(2000))));
    said.add("a long way", inner.read(format!("{}../../file", "./".repeat(3000))));
}

fn use_files(v: &Dir, said: &mut Said) {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let mut file = options.open(v, "d/data").unwrap();
    said.add("write", file.write(b"0123456789"));
    said.add("seek", file.seek(SeekFrom::End(-4)));
    let mut text = String::new();
    said.add("read on", file.read_to_string(&mut text).map(|_| text));
    said.add("seek before the start", file.seek(SeekFrom::Current(-100)));
    said.add("far", file.write_at(b"end", 1 << 20));
    said.add("data", file.seek_data(1));
    said.add("hole", file.seek_hole(0));
    said.add("data beyond", file.seek_data(1 << 30));
    said.add("hole beyond", file.seek_hole(1 << 30));
    said.add("punch", file.punch_hole(0, 4096));
    said.add("zero", file.zero_range(8192, 4096));
    said.add("room", file.allocate_keep_size(2 << 20, 4096));
    said.add("room and size", file.allocate(2 << 20, 4096));
    said.add("length", file.metadata().map(|it| it.len()));
    said.add("cut", file.set_len(100));
    said.add("sync", file.sync_all().and_then(|()| file.sync_data()));
    said.add("xattr", file.set_xattr("user.a", b"1").and_then(|()| file.xattr("user.a")));
    said.add("no xattr", file.xattr("user.none"));
    let append = OpenOptions::new().append(true).open(v, "d/data").unwrap();
    said.add("append", (&append).write(b"tail").and_then(|_| (&append).stream_position()));
    said.add("read what is for writing", append.read_at(&mut [0; 4], 0));
    let read = v.open_file("d/data").unwrap();
    said.add("write what is for reading", read.write_at(b"x", 0));
    said.add("cut what is for reading", read.set_len(1));
    said.add("exact", read.read_exact_at(&mut [0; 200], 0));
    said.add("length", v.metadata("d/data").map(about));
    said.add("truncate", v.truncate("d/data", 7));
    said.add("truncate a directory", v.truncate("d", 7));
    said.add("copy", v.copy("d/data", "d/copy"));
    said.add("copy over itself", v.copy("d/data", "d/data"));
    said.add("copied", v.read("d/copy"));
}

fn attributes_of_things(v: &Dir, said: &mut Said) {
    let at = |secs| SystemTime::UNIX_EPOCH + Duration::new(secs, 123_456_789);
    let times = FileTimes::new().set_accessed(at(7)).set_modified(at(8));
    said.add("times", v.set_times("d/file", times));
    said.add("times of a link", v.set_times("link", times));
    said.add("which", v.metadata("d/file").map(|it| (it.accessed(), it.modified())));
    said.add("which of a link", v.symlink_metadata("link").map(|it| it.modified()));
    said.add("mode", v.set_permissions("link", Permissions::from_mode(0o4710)));
    said.add("owner", v.chown("d/other", Some(7), None));
    said.add("which", v.metadata("d/file").map(about));
    said.add("owner of a link", v.chown("link", Some(8), Some(9)));
    said.add("which of a link", v.symlink_metadata("link").map(about));
    let all = Attributes::new().owner(3, 4).permissions(Permissions::from_mode(0o2755));
    said.add("all", v.set_attributes("d/n", all.times(times)));
    said.add("which", v.metadata("d/n").map(|it| (about(it), it.modified())));
    said.add("attribute", v.set_xattr("d/file", "user.x", b"value", XattrFlags::CREATE));
    said.add("again", v.set_xattr("d/file", "user.x", b"value", XattrFlags::CREATE));
    said.add("which", v.xattr("d/file", "user.x"));
    said.add("all", v.xattrs("d/file"));
    said.add("of a link", v.set_xattr("link", "trusted.x", b"of a link", XattrFlags::empty()));
    said.add("of a link", v.xattr("link", "trusted.x"));
    said.add("remove", v.remove_xattr("d/file", "user.x"));
    said.add("remove again", v.remove_xattr("d/file", "user.x"));
    said.add("none", v.xattr("d/file", "user.x"));
    said.add("long", v.set_xattr("d/file", "user.long", &[b'x'; 3000], XattrFlags::empty()));
    said.add("long", v.xattr("d/file", "user.long").map(|value| value.len()));
}

fn names_of_things(v: &Dir, said: &mut Said) {
    said.add("root", names(v, "/"));
    said.add("d", names(v, "d"));
    said.add("of a file", names(v, "d/file"));
    said.add("link", v.read_link("link"));
    said.add("no link", v.read_link("d/file"));
    said.add("device", v.symlink_metadata("d/null").map(about));
    said.add("real", v.canonicalize("link"));
    said.add("real above", v.open_dir("d/e/f").and_then(|f| f.canonicalize("up/../other")));
    said.add("real root", v.canonicalize("/.."));
    said.add("real none", v.canonicalize("d/none"));
    let mut all: Vec<_> = v.walk("/d").unwrap().map(|it| it.unwrap().path()).collect();
    all.sort();
    said.add("walk", Ok(all));
    said.add("rename", v.rename("d/other", "d/renamed"));
    said.add("rename nothing", v.rename("d/other", "d/renamed"));
    said.add("rename a file with a slash", v.rename("d/renamed/", "d/x"));
    said.add("rename the root", v.rename("/", "d/x"));
    said.add("rename into itself", v.rename("d", "d/e/d"));
    let swap = |flags| v.rename_with("d/renamed", v, "d/file", flags);
    said.add("no replacing", swap(RenameFlags::NOREPLACE));
    said.add("swap", swap(RenameFlags::EXCHANGE));
    let e = v.open_dir("d/e").unwrap();
    said.add("to another", v.rename_with("d/named", &e, "../e/named", RenameFlags::empty()));
    said.add("e", names(&e, "."));
    said.add("not empty", v.remove_dir("d/e"));
    said.add("no directory", v.remove_dir("d/n"));
    said.add("no file", v.remove_file("d/e"));
    said.add("file with a slash", v.remove_file("d/n/"));
    said.add("file", v.remove_file("d/n"));
    said.add("directory", v.remove_dir("d/open/"));
    said.add("dots", v.remove_dir("d/."));
    said.add("all of a link", v.remove_dir_all("link"));
    said.add("all of the root", v.remove_dir_all("/"));
    said.add("sync", e.sync_all());
    said.add("all", v.remove_dir_all("d"));
    said.add("gone", names(v, "/"));
    said.add("in what is gone", e.write("x", ""));
    said.add("real of what is gone", e.canonicalize("."));
}

#[test]
fn calls_answer_as_those_of_a_volume_of_its_own() {
    let Some((place, through)) = mounted() else { return };
    let own = Volume::in_memory(64 << 20).unwrap();
    assert_eq!(own.mounted_at(), None);
    for part in [make_things, open_things, use_files, attributes_of_things, names_of_things] {
        let [mut here, mut there] = [Said(Vec::new()), Said(Vec::new())];
        part(&own, &mut here);
        part(&through, &mut there);
        let differ = here.0.iter().zip(&there.0).filter(|(a, b)| a != b).collect::<Vec<_>>();
        assert!(differ.is_empty(), "itself and through the mount: {differ:#?}");
        assert_eq!(here.0.len(), there.0.len());
    }
    through.close().unwrap();
    place.umount();
    place.fsck();
}

#[test]
fn nothing_leads_out_of_the_volume() {
    let Some((place, volume)) = mounted() else { return };
    let outside = place.path("outside");
    fs::write(&outside, "secret").unwrap();
    // Each of them means a path of the volume, where nothing of this name is.
    symlink(&outside, place.dir.join("absolute")).unwrap();
    symlink("../outside", place.dir.join("up")).unwrap();
    symlink("/proc/self/root", place.dir.join("magic")).unwrap();
    fs::create_dir_all(place.dir.join("a/b")).unwrap();
    symlink("../../../outside", place.dir.join("a/b/up")).unwrap();
    let b = volume.open_dir("a/b").unwrap();
    let missing = |read: io::Result<Vec<u8>>| {
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    };
    for path in ["absolute", "up", "../outside", "a/b/up", "magic/etc/hostname", &outside] {
        missing(volume.read(path));
        missing(b.read(path));
    }
    for path in ["up", "../../../outside", "../../absolute", "/../../outside"] {
        missing(b.read(path));
    }
    // What is written there is in the volume.
    b.write("../../../outside", "inside").unwrap();
    assert_eq!(fs::read_to_string(place.dir.join("outside")).unwrap(), "inside");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    // A directory of the host may be mounted over one of the volume: it is not the volume, and is not gone into.
    let over = place.dir.join("a/over");
    fs::create_dir(&over).unwrap();
    let can = Command::new("mount").arg("--bind").arg(place.root.path()).arg(&over).status();
    assert!(can.unwrap().success());
    let tried = [
        volume.read("a/over/outside").map(drop),
        b.read("../over/outside").map(drop),
        volume.write("a/over/new", "x"),
        volume.read_dir("a/over").map(drop),
        volume.walk("a").and_then(|mut walk| walk.try_for_each(|entry| entry.map(drop))),
    ];
    let removed = volume.remove_dir_all("a").map_err(|error| error.raw_os_error());
    assert!(Command::new("umount").arg(&over).status().unwrap().success());
    for answer in tried {
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(libc::EXDEV));
    }
    assert_eq!(removed, Err(Some(libc::EXDEV)));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    // And no device or pipe is opened.
    volume.create_node("null", FileType::CharDevice, 0o666, 0x103).unwrap();
    volume.create_node("pipe", FileType::Fifo, 0o666, 0).unwrap();
    for path in ["null", "pipe"] {
        assert!(volume.read(path).is_err(), "{path}");
        assert!(volume.write(path, "x").is_err(), "{path}");
    }
}

#[test]
fn what_an_fsync_has_made_durable_survives_the_daemon() {
    let Some((place, volume)) = mounted() else { return };
    let mut file = volume.create("file").unwrap();
    file.write_all(b"durable").unwrap();
    file.sync_all().unwrap();
    volume.create_dir("dir").unwrap();
    volume.open_dir("/").unwrap().sync_all().unwrap();
    for n in 0..100 {
        volume.write(format!("dir/{n}"), "synced").unwrap();
    }
    volume.sync().unwrap();
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    // The mount has no daemon any more, and the kernel says so.
    for answer in [volume.read("file").map(drop), file.sync_all()] {
        let number = answer.unwrap_err().raw_os_error();
        assert!(matches!(number, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{number:?}");
    }
    drop(file);
    volume.close().unwrap();
    place.umount();
    let own = Volume::open(&place.image).unwrap();
    assert_eq!(own.mounted_at(), None);
    assert_eq!(own.read("file").unwrap(), b"durable");
    assert_eq!(own.read_dir("dir").unwrap().count(), 100);
}

#[test]
fn several_programs_see_the_same_and_keep_each_other_out() {
    let Some((place, one)) = mounted() else { return };
    let two = Volume::open(&place.image).unwrap();
    one.write("file", "from one").unwrap();
    assert_eq!(two.read("file").unwrap(), b"from one");
    assert_eq!(place.run(&["cat", &place.inside("/file")]).fine(), "from one");
    let [mine, other] = [&one, &two].map(|volume| volume.open_file("file").unwrap());
    mine.try_lock().unwrap();
    let by_another = |how: &str| {
        let path = place.dir.join("file");
        let tried = Command::new("flock").args([how, "-n"]).arg(path).arg("true").status();
        tried.unwrap().success()
    };
    assert!(!by_another("-s") && !by_another("-x"));
    assert!(matches!(other.try_lock_shared(), Err(fs::TryLockError::WouldBlock)));
    let for_a_moment = other.try_lock_for(Duration::from_millis(5));
    assert!(matches!(for_a_moment, Err(fs::TryLockError::WouldBlock)));
    let clone = mine.try_clone().unwrap();
    drop(mine);
    assert!(!by_another("-x"));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.lock());
        clone.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    assert!(!by_another("-x"));
    // A program that closes its volume leaves the mount to the others, and its handles say so.
    two.close().unwrap();
    assert_eq!(other.read_at(&mut [0; 1], 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
    drop(other);
    // A child of another test may hold a copy of it for a moment.
    wait_for("it stays locked", || by_another("-x"));
    assert_eq!(one.read("file").unwrap(), b"from one");
    assert!(one.statfs().unwrap().blocks > 0);
    drop((clone, one));
    place.umount();
}

#[test]
fn branches_and_snapshots_are_reached_where_they_are_mounted() {
    let Some((place, volume)) = mounted() else { return };
    volume.write("file", "before").unwrap();
    volume.create_dir("/.snapshots/monday").unwrap();
    volume.write("file", "after").unwrap();
    place.run(&["fork", place.image(), "work"]).fine();
    // The same by name, and by number.
    let number = holdfast_format::item::lineage::MAIN;
    for options in [VolumeOptions::new().branch("main"), VolumeOptions::new().number(number)] {
        let same = options.open(&place.image).unwrap();
        assert_eq!(same.read("file").unwrap(), b"after");
    }
    let monday = VolumeOptions::new().snapshot("monday").open(&place.image).unwrap();
    assert_eq!(monday.read("file").unwrap(), b"before");
    assert_eq!(monday.read("/../../file").unwrap(), b"before");
    assert_eq!(names(&monday, "/").unwrap(), ["/file Regular"]);
    let root = monday.open_dir("/").unwrap();
    assert_eq!(root.read("../../file").unwrap(), b"before");
    assert_eq!(monday.write("file", "x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    monday.sync().unwrap();
    drop((monday, root));
    for options in [
        VolumeOptions::new().branch("work"),
        VolumeOptions::new().branch("none"),
        VolumeOptions::new().snapshot("tuesday"),
        VolumeOptions::new().caller(4711, 4711, &[]),
        VolumeOptions::new().through_mount(false),
    ] {
        let refused = options.open(&place.image).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("in use by") && said.contains("holdfast "), "{said}");
    }
    let work = place.path("work");
    fs::create_dir(&work).unwrap();
    let branch = format!("{}:work", place.image());
    place.run(&["mount", &branch, &work]).fine();
    let other = VolumeOptions::new().branch("work").open(&place.image).unwrap();
    assert_eq!(other.mounted_at(), Some(Path::new(&work)));
    other.write("only-here", "x").unwrap();
    assert!(!volume.exists("only-here").unwrap());
    other.close().unwrap();
    place.run(&["umount", &work]).fine();
}

fn names_of(volume: &Volume, branch: &str) -> (Vec<String>, Vec<String>) {
    let branches = volume.branches().unwrap().iter().map(|it| it.name().to_owned()).collect();
    let snapshots = volume.branch(branch).unwrap().snapshots().unwrap();
    (branches, snapshots.iter().map(|it| it.name().to_owned()).collect())
}

#[test]
fn the_daemon_is_asked_for_branches_and_snapshots() {
    let Some((place, volume)) = mounted() else { return };
    volume.write("file", "before").unwrap();
    let main = volume.branch_here().unwrap();
    assert_eq!((main.name(), main.number()), ("main", volume.first_branch().unwrap().number()));
    let mut before = main.snapshot("before").unwrap();
    volume.write("file", "after").unwrap();
    let age = SystemTime::now().duration_since(before.created()).unwrap();
    assert!(age < Duration::from_secs(3600) && before.inodes() == 2 && before.lsn() > 0);
    // A snapshot is opened where the mount shows it, and asks the same daemon.
    let was = before.open().unwrap();
    assert_eq!(
        (was.read("file").unwrap(), was.mounted_at()),
        (b"before".into(), Some(&*place.dir))
    );
    assert_eq!(was.branch_here().unwrap().number(), main.number());
    let old = was.create_branch("old").unwrap().number();
    was.close().unwrap();
    let old = volume.branches().unwrap().into_iter().find(|it| it.number() == old).unwrap();
    assert_eq!(old.name(), "old");
    // A branch where it is mounted.
    let fork = main.fork("work").unwrap();
    let refused = fork.open().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let command = format!("`holdfast mount {}:work DIR`", place.image());
    assert!(refused.to_string().contains(&command), "{refused}");
    let work = place.path("work");
    fs::create_dir(&work).unwrap();
    place.run(&["mount", &format!("{}:work", place.image()), &work]).fine();
    let there = fork.open().unwrap();
    assert_eq!(there.mounted_at(), Some(Path::new(&work)));
    assert_eq!(there.read("file").unwrap(), b"after");
    assert_eq!(there.branch_here().unwrap().number(), fork.number());
    let busy = fork.clone().delete().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
    there.close().unwrap();
    place.run(&["umount", &work]).fine();
    // What all of it has come to, as a command sees it.
    place.run(&["mount", &format!("{}:old", place.image()), &work]).fine();
    assert_eq!(old.open().unwrap().read("file").unwrap(), b"before");
    place.run(&["umount", &work]).fine();
    let listed = place.run(&["snapshot", "list", place.image()]).fine();
    assert!(listed.contains("before"), "{listed}");
    // Handles mean what they meant, whatever it is called by now.
    place.run(&["branch", "rename", place.image(), "work", "later"]).fine();
    let second = main.fork("work").unwrap();
    assert_ne!(fork.number(), second.number());
    fork.snapshot("of-the-first").unwrap();
    assert_eq!(names_of(&volume, "later").1, ["of-the-first"]);
    assert_eq!(names_of(&volume, "work").1, [""; 0]);
    before.hold("mine").unwrap();
    assert_eq!(before.clone().delete().unwrap_err().kind(), ErrorKind::ResourceBusy);
    before.unhold("mine").unwrap();
    before.rename("monday").unwrap();
    assert_eq!(names_of(&volume, "main").1, ["monday"]);
    assert_eq!(before.fork("old").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(main.snapshot("monday").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(main.snapshot("a/b").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(main.snapshot_named("none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(volume.branch("none").unwrap_err().kind(), ErrorKind::NotFound);
    second.limit(Some(1 << 20)).unwrap();
    let shown = place.run(&["branch", "list", "--json", place.image()]).fine();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let all = shown["branches"].as_array().unwrap();
    let limited: Vec<_> = all.iter().filter(|it| !it["limit_bytes"].is_null()).collect();
    assert_eq!((limited.len(), &limited[0]["name"]), (1, &serde_json::json!("work")));
    assert_eq!(limited[0]["limit_bytes"], serde_json::json!(1_u64 << 32));
    second.delete().unwrap();
    let gone = fork.clone();
    fork.delete().unwrap();
    assert_eq!(gone.snapshot("x").unwrap_err().kind(), ErrorKind::NotFound);
    let gone = before.clone();
    before.delete().unwrap();
    assert_eq!(gone.delete().unwrap_err().kind(), ErrorKind::NotFound);
    old.delete().unwrap();
    assert_eq!(names_of(&volume, "main"), (vec!["main".to_owned()], Vec::new()));
    volume.close().unwrap();
    assert_eq!(main.snapshot("x").unwrap_err().raw_os_error(), Some(libc::EBADF));
    place.umount();
}

#[test]
fn a_mounted_branch_goes_back_and_becomes_its_fork() {
    let Some((place, volume)) = mounted() else { return };
    volume.write("file", "before").unwrap();
    let main = volume.branch_here().unwrap();
    let before = main.snapshot("before").unwrap();
    volume.write("file", "after").unwrap();
    volume.write("new", "new").unwrap();
    let (file, new) = (volume.open_file("file").unwrap(), volume.open_file("new").unwrap());
    let seen = || fs::read_to_string(place.dir.join("file")).unwrap();
    assert_eq!(seen(), "after");
    main.rollback_to(&before, Some("kept")).unwrap();
    // At once, for this program and for others.
    assert_eq!((volume.read("file").unwrap(), &*seen()), (b"before".into(), "before"));
    assert!(!volume.exists("new").unwrap() && !place.dir.join("new").exists());
    let mut bytes = [0; 6];
    assert_eq!((&file).read(&mut bytes).unwrap(), 6);
    assert_eq!(&bytes, b"before");
    assert_eq!((&new).read(&mut bytes).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    drop((file, new));
    assert_eq!(names_of(&volume, "main").1, ["before", "kept"]);
    let of_fork = main.fork("fork").unwrap().snapshot("inside").unwrap();
    let refused = main.rollback_to(&of_fork, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    main.rollback_to(&before, None).unwrap();
    assert_eq!(names_of(&volume, "main").1, ["before", "kept"]);
    let refused = main.rollback_to(&before, Some("kept")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");

    // A fork that is mounted is not promoted; one whose branch has changed neither, unless that is wanted.
    let kept = main.snapshot_named("kept").unwrap();
    let fork = kept.fork("attempt").unwrap();
    volume.write("other", "meanwhile").unwrap();
    let refused = main.promote(fork.clone(), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    assert_eq!(seen(), "before");
    let there = place.path("attempt");
    fs::create_dir(&there).unwrap();
    place.run(&["mount", &format!("{}:attempt", place.image()), &there]).fine();
    let refused = main.replace_by(fork.clone(), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    place.run(&["umount", &there]).fine();
    main.replace_by(fork, Some("replaced")).unwrap();
    assert_eq!((volume.read("file").unwrap(), &*seen()), (b"after".into(), "after"));
    let unchanged = main.fork("unchanged").unwrap();
    main.promote(unchanged.clone(), None).unwrap();
    assert_eq!(main.promote(unchanged, None).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(volume.branch_here().unwrap().number(), main.number());

    let read_only = VolumeOptions::new().read_only(true).open(&place.image).unwrap();
    let of_reader = read_only.branch("main").unwrap();
    let before = of_reader.snapshot_named("before").unwrap();
    let refused = of_reader.rollback_to(&before, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    drop((read_only, of_reader, before, kept, of_fork));
    volume.close().unwrap();
    place.umount();
}

#[test]
fn who_may_not_change_a_volume_may_not_change_its_branches() {
    let Some((place, volume)) = mounted() else { return };
    volume.branch_here().unwrap().snapshot("s").unwrap();
    let read_only = VolumeOptions::new().read_only(true).open(&place.image).unwrap();
    let main = read_only.branch("main").unwrap();
    assert_eq!(main.snapshots().unwrap().len(), 1);
    for refused in [
        main.snapshot("t").map(drop),
        main.fork("f").map(drop),
        main.snapshot_named("s").unwrap().delete(),
        main.snapshot_named("s").unwrap().open().unwrap().create_branch("f").map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    }
    drop((read_only, main, volume));
    // The kernel says it of a mount that is read-only in one place.
    place.umount();
    place.run(&["mount", "-o", "ro", place.image(), place.dir()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    let main = volume.branch("main").unwrap();
    let refused = main.snapshot("t").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    assert_eq!(names_of(&volume, "main").1, ["s"]);
}

#[test]
fn a_daemon_obeys_root_and_who_has_mounted() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("needs root to become another user");
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["mount", "-o", "allow_other", place.image(), place.dir()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    let main = volume.branch_here().unwrap();
    let ask = || [main.snapshots().map(drop), main.snapshot("s").map(drop)];
    std::thread::scope(|scope| {
        let by_another = scope.spawn(|| {
            // Of this thread alone, and its capabilities go.
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).unwrap();
            ask()
        });
        for refused in by_another.join().unwrap() {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            let said = refused.to_string();
            assert!(said.contains("only root and the user who has mounted"), "{said}");
        }
    });
    ask().into_iter().for_each(|done| done.unwrap());
    drop((main, volume));
    place.umount();
}

#[test]
fn what_takes_the_volume_itself_says_what_does_it() {
    let Some((place, volume)) = mounted() else { return };
    volume.write("file", "x").unwrap();
    let file = volume.open_file("file").unwrap();
    let main = volume.branch_here().unwrap();
    let was = main.snapshot("was").unwrap();
    let refused = [
        ("holdfast cp", main.view().map(drop)),
        ("opened", was.view().map(drop)),
        ("holdfast diff", was.diff_to_branch(&main).map(drop)),
        ("holdfast sync", volume.commit()),
        ("holdfast trim", volume.trim(4096, |_| true).map(drop)),
        ("holdfast resize", volume.resize(NewSize::More(1 << 20)).map(drop)),
        ("holdfast tune", volume.set_identity(None, Some("label"))),
        ("holdfast stats", volume.counters().map(drop)),
        ("holdfast explain", file.sync_all_with_receipt().map(drop)),
        ("daemon", volume.engine().map(drop)),
    ];
    for (words, answer) in refused {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{words}");
        let said = error.to_string();
        assert!(said.contains(words) && said.contains(place.dir()), "{said}");
    }
    // What no system call does, or FUSE does not pass on.
    let data = volume.create("data").unwrap();
    data.set_len(1 << 20).unwrap();
    let born = FileTimes::new().set_created(SystemTime::UNIX_EPOCH);
    for answer in
        [data.collapse_range(0, 4096), data.insert_range(0, 4096), volume.set_times("data", born)]
    {
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    let is_told = volume.metadata("data").unwrap().created() != SystemTime::UNIX_EPOCH;
    assert_eq!(is_told, holdfast_base::skip::kernel_is(6, 6));
    let info = volume.info().unwrap();
    assert_eq!(info.size, 64 << 20);
    let told = place.run(&["info", place.image()]).fine();
    let uuid: String = info.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(told.replace('-', "").contains(&uuid), "{uuid}: {told}");
    // Nothing is written through what was opened to be read only.
    let read_only = VolumeOptions::new().read_only(true).open(&place.image).unwrap();
    assert_eq!(read_only.read("file").unwrap(), b"x");
    let refused = [
        read_only.write("file", "y"),
        read_only.create_dir("d"),
        read_only.remove_file("file"),
        read_only.rename("file", "g"),
        read_only.truncate("file", 0),
        read_only.set_permissions("file", Permissions::from_mode(0)),
        read_only.set_xattr("file", "user.x", b"", XattrFlags::empty()),
        read_only.symlink("x", "y"),
        read_only.hard_link("file", "g"),
    ];
    for answer in refused {
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    assert_eq!(volume.read("file").unwrap(), b"x");
}

#[test]
fn a_place_where_the_mount_is_read_only_comes_last() {
    let Some((place, volume)) = mounted() else { return };
    let also = place.path("also");
    fs::create_dir(&also).unwrap();
    let mount =
        |args: &[&str]| assert!(Command::new("mount").args(args).status().unwrap().success());
    mount(&["--bind", place.dir(), &also]);
    mount(&["-o", "remount,bind,ro", &also]);
    let found = Volume::open(&place.image).unwrap();
    let read_only = VolumeOptions::new().read_only(true).open(&place.image).unwrap();
    let dirs = [&found, &read_only].map(|volume| volume.mounted_at().unwrap().to_path_buf());
    drop((found, read_only));
    assert!(Command::new("umount").arg(&also).status().unwrap().success());
    assert_eq!(dirs, [place.dir.clone(), also.into()]);
    volume.close().unwrap();
}

/// Both have the same device number.
#[test]
fn a_part_of_a_volume_that_lies_over_its_mount_is_not_taken_for_the_volume() {
    let Some((place, volume)) = mounted() else { return };
    if !rustix::process::geteuid().is_root() {
        holdfast_base::skip::skipped("needs root to mount a part of a volume");
        return;
    }
    volume.write("file", "of the volume").unwrap();
    volume.create_dir("part").unwrap();
    volume.write("part/file", "of the part").unwrap();
    volume.close().unwrap();
    let part = place.path("mnt/part");
    let bound = Command::new("mount").args(["--bind", &part, place.dir()]).status().unwrap();
    assert!(bound.success());
    let opened = Volume::open(&place.image).map(|volume| volume.read_to_string("file"));
    assert!(Command::new("umount").arg(place.dir()).status().unwrap().success());
    let refused = opened.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("something else over it"), "{refused}");
    place.umount();
}

/// Such a thread has other descriptors than those of the process that /proc/self shows.
#[test]
fn a_thread_with_descriptors_of_its_own_reaches_its_files() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    std::thread::scope(|scope| {
        let its_own = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).unwrap();
            // They have numbers that the others do not have.
            let before: Vec<_> = (0..64).map(|_| fs::File::open(&place.image).unwrap()).collect();
            let volume = Volume::open(&place.image).unwrap();
            volume.write("file", "text").unwrap();
            volume.set_permissions("file", Permissions::from_mode(0o640)).unwrap();
            volume.set_xattr("file", "user.name", b"value", XattrFlags::empty()).unwrap();
            assert_eq!(volume.xattr("file", "user.name").unwrap(), b"value");
            assert_eq!(volume.metadata("file").unwrap().mode() & 0o777, 0o640);
            volume.branch_here().unwrap().snapshot("s").unwrap();
            volume.close().unwrap();
            drop(before);
        });
        its_own.join().unwrap();
    });
    place.umount();
}

#[test]
fn a_mount_without_attributes_is_found_as_well() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["mount", "-o", "noxattr", place.image(), place.dir()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    assert_eq!(volume.mounted_at(), Some(place.dir.as_path()));
    volume.write("file", "x").unwrap();
    volume.sync().unwrap();
    let refused = volume.xattr("file", "user.x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
}

#[test]
fn a_mount_that_lets_this_user_not_in_is_said() {
    let place = TestMount::new();
    let Some(nobody) = Nobody::at(&place) else { return };
    if !nobody.mounts(&place) {
        return;
    }
    let said = Volume::open(&place.image).unwrap_err();
    let umounted = nobody.run(&["umount", place.dir()]);
    assert_eq!(said.kind(), ErrorKind::ResourceBusy);
    let said = said.to_string();
    assert!(said.contains("does not let this process in") && said.contains(place.dir()), "{said}");
    umounted.fine();
}

/// A mount has the file that it was mounted with, whatever stands at that path by now.
#[test]
fn a_file_that_took_the_place_of_a_mounted_one_is_opened_itself() {
    let Some((place, volume)) = mounted() else { return };
    volume.close().unwrap();
    fs::rename(&place.image, place.path("moved")).unwrap();
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    let volume = Volume::open(&place.image).unwrap();
    assert_eq!(volume.mounted_at(), None);
    volume.write("here", "x").unwrap();
    volume.close().unwrap();
    assert!(!place.dir.join("here").exists());
    let moved = Volume::open(place.path("moved"));
    assert!(moved.is_err() || moved.unwrap().mounted_at() == Some(place.dir.as_path()));
    place.umount();
    let volume = Volume::open(&place.image).unwrap();
    assert_eq!(volume.read("here").unwrap(), b"x");
}

/// Two openings of one mount are of the same files.
#[test]
fn a_copy_onto_itself_is_refused_by_any_two_openings() {
    let Some((place, volume)) = mounted() else { return };
    let other = Volume::open(&place.image).unwrap();
    volume.write("f", "content").unwrap();
    let copied = volume.copy_to("/f", &other, "/f");
    assert_eq!(copied.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(volume.read("f").unwrap(), b"content");
}
