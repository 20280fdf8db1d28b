//! `diff`, `send`, `receive`, `export`, `import`, `ls` and `cat` on a volume that is mounted: by its daemon, as at rest.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Nobody, Said, TestMount, can_mount, said, signal, wait_for, wait_until_ended};

/// A mounted volume with a snapshot `a`, and much that has become of it in the branch.
fn changed() -> TestMount {
    let place = TestMount::with_volume();
    place.mount();
    let at = |name: &str| place.dir.join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/text"), "one\ntwo\nthree\n").unwrap();
    fs::write(at("dir/gone"), "x\n").unwrap();
    fs::write(at("large"), vec![7; 300_000]).unwrap();
    fs::write(at("moved"), "as it was\n").unwrap();
    place.run(&["snapshot", "create", place.dir(), "a"]).fine();
    fs::rename(at("dir"), at("folder")).unwrap();
    fs::write(at("folder/text"), "one\n2\nthree\n").unwrap();
    fs::remove_file(at("folder/gone")).unwrap();
    fs::rename(at("moved"), at("folder/moved")).unwrap();
    fs::write(at("new"), "new\n").unwrap();
    place
}

fn to_file(place: &TestMount, args: &[&str], file: &str) -> Said {
    let out = File::create(place.path(file)).unwrap();
    said(place.command(args).stdout(out).stderr(Stdio::piped()).output().unwrap())
}

fn from_file(place: &TestMount, args: &[&str], file: &str) -> Said {
    let input = File::open(place.path(file)).unwrap();
    said(place.command(args).stdin(input).output().unwrap())
}

fn read(place: &TestMount, file: &str) -> Vec<u8> {
    fs::read(place.path(file)).unwrap()
}

/// Names of snapshots and branches, those of them that have no name left out.
fn names(place: &TestMount) -> (Vec<String>, Vec<String>) {
    let list = |what: &str, all: &str| -> Vec<String> {
        let said = place.run(&[what, "list", "--json", place.image()]).fine();
        let list: serde_json::Value = serde_json::from_str(&said).unwrap();
        list[all]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| of["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut snapshots = list("snapshot", "snapshots");
    snapshots.retain(|name| !name.is_empty());
    (list("branch", "branches"), snapshots)
}

#[test]
fn a_difference_is_told_live_as_at_rest() {
    if !can_mount() {
        return;
    }
    let place = changed();
    let (image, dir) = (place.image(), place.dir());
    let all: [&[&str]; 7] =
        [&[], &["--ranges"], &["--stat"], &["--name-only"], &["-0"], &["--json"], &["--patch"]];
    let of = |how: &[&str], places: &[&str]| place.run(&[&["diff"], how, places].concat()).fine();
    let at = |place: &str| format!("{place}@a");
    let live: Vec<String> = all.iter().map(|how| of(how, &[&at(dir), dir])).collect();
    let lines = "\
removed     dir/gone
renamed     dir/ -> folder/
renamed     moved -> folder/moved
changed     folder/text
created     new
";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&live[0]), sorted(lines));
    // However it is named.
    for places in [
        &[dir, "@a"][..],
        &[image, "@a"],
        &[image, "main@a", "main"],
        &[&at(image), image],
        &[&at(image), &format!("{image}:main")],
        &[&at(dir), image],
        &[image, &at(dir), dir],
    ] {
        assert_eq!(of(&[], places), live[0], "{places:?}");
    }
    // The other way round, and nothing at all.
    assert!(of(&[], &[dir, &at(dir)]).contains("renamed     folder/ -> dir/\n"));
    assert_eq!(of(&[], &[dir, dir]), "");
    let said = place.run(&["diff", "-q", dir, "@a"]);
    assert_eq!((said.code, &said.out[..], &said.err[..]), (1, "", ""));
    place.run(&["diff", &at(dir), dir, dir]).fails(2, "three are named");
    place.run(&["diff", dir, "@b"]).fails(2, "there is no snapshot `b`");
    let shown = format!("{dir}:main@SNAPSHOT, or {dir}:main @SNAPSHOT");
    place.run(&["diff", &format!("{dir}:main")]).fails(2, &shown);
    place.run(&["diff", &place.path(""), "@a"]).fails(2, "is not a mounted Holdfast volume");
    // Nothing is left of what it looked at, and it looked at nothing twice.
    assert_eq!(names(&place), (vec!["main".into()], vec!["a".into()]));
    place.umount();
    let rest: Vec<String> = all.iter().map(|how| of(how, &[&at(image), image])).collect();
    assert_eq!(live, rest);
    place.fsck();
}

/// Ends a writer, also when its test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each write that had returned is in it, those that programs have done by a mapping too.
#[test]
fn what_had_been_written_is_compared_and_exported() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("mapped"), vec![b'.'; 8192]).unwrap();
    place.run(&["snapshot", "create", place.dir(), "a"]).fine();
    let script = "import mmap, os, sys\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        pages = mmap.mmap(file, 8192)\n\
        pages[4096:4100] = b'mine'\n\
        print('stored', flush=True)\n\
        sys.stdin.read()\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(place.dir.join("mapped"));
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdout.as_mut().unwrap().read_exact(&mut [0; 7]).unwrap();
    let at = format!("{}@a", place.dir());
    let ranges = place.run(&["diff", "--ranges", &at, place.dir()]);
    let shown = place.run(&["cat", &place.inside("/mapped")]);
    drop(python.stdin.take());
    python.wait().unwrap();
    assert!(ranges.fine().contains("bytes 4096 to 8191 (4096)"));
    assert!(shown.fine()[4096..].starts_with("mine"));
    // Beside a program that writes, one moment.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let mut files = ["x", "y"].map(|name| File::create(place.dir.join(name)).unwrap());
            let mut n = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                for file in &mut files {
                    // In one call.
                    file.write_all(format!("{n:07}\n").as_bytes()).unwrap();
                }
            }
        });
        let length = |name: &str| fs::metadata(place.dir.join(name)).map_or(0, |it| it.len());
        let mut before = 0;
        for _ in 0..3 {
            wait_for("the writer writes", || length("y") > before);
            before = length("y");
            to_file(&place, &["export", place.dir(), "--tar"], "now.tar").fine();
            let tar = |name: &str| {
                let mut tar = Command::new("tar");
                let out = tar.args(["-xOf", &place.path("now.tar"), name]).output().unwrap();
                String::from_utf8(out.stdout).unwrap()
            };
            let (x, y) = (tar("x"), tar("y"));
            assert!(y.len() as u64 >= before, "{} of {before}", y.len());
            assert!(x.len() == y.len() || x.len() == y.len() + 8, "{} {}", x.len(), y.len());
            assert!(x.starts_with(&y));
        }
    });
    place.umount();
    place.fsck();
}

#[test]
fn files_are_listed_and_read_through_the_daemon() {
    if !can_mount() {
        return;
    }
    let place = changed();
    let (image, live) = (place.image(), ["/", "@a:/"]);
    let shown = |of: &str| place.run(&["ls", "-lR", &format!("{image}{of}")]).fine();
    let cat = |of: &str| place.run(&["cat", &format!("{image}{of}")]).fine();
    let now: Vec<String> = live.map(|of| shown(of.trim_start_matches('/'))).into();
    assert_eq!(cat(":/folder/text"), "one\n2\nthree\n");
    assert_eq!(cat("@a:/dir/text"), "one\ntwo\nthree\n");
    assert_eq!(cat(":/large").len(), 300_000);
    place.run(&["cat", &place.inside("/none")]).fails(1, "/none");
    place.umount();
    let rest: Vec<String> = live.map(|of| shown(of.trim_start_matches('/'))).into();
    assert_eq!(now, rest);
}

#[test]
fn streams_and_archives_are_the_same_bytes_and_what_comes_is_seen_by_programs() {
    if !can_mount() {
        return;
    }
    let (from, to) = (changed(), TestMount::with_volume());
    let (dir, image) = (from.dir(), from.image());
    from.run(&["snapshot", "create", dir, "b"]).fine();
    let at = |snapshot: &str| format!("{image}@{snapshot}");
    let commands: [(&[&str], &str); 5] = [
        (&["send", &at("a")], "whole"),
        (&["send", &format!("{dir}@b"), "-i", "@a"], "increment"),
        (&["export", dir, "--tar"], "tar"),
        (&["export", &at("a"), "--oci-layer"], "base"),
        (&["export", &at("b"), "--oci-layer", "-i", "@a"], "layer"),
    ];
    for (args, file) in commands {
        to_file(&from, args, file).fine();
    }
    // A branch as it is.
    to_file(&from, &["send", dir], "now").fine();
    assert_eq!(names(&from).1, ["a", "b"], "what was taken for it is gone");
    from.umount();
    let rest = |args: &[&str], file: &str| {
        to_file(&from, args, "again").fine();
        assert!(read(&from, file) == read(&from, "again"), "{file}");
    };
    rest(&["send", &at("a")], "whole");
    rest(&["send", &at("b"), "-i", "@a"], "increment");
    rest(&["export", image, "--tar"], "tar");
    rest(&["export", &at("b"), "--oci-layer", "-i", "@a"], "layer");
    from.fsck();

    // Into a volume that is mounted, whose programs look at it.
    to.mount();
    for file in ["whole", "increment", "now", "tar", "base", "layer"] {
        fs::rename(from.path(file), to.path(file)).unwrap();
    }
    assert!(fs::read(to.dir.join("moved")).is_err(), "the kernel knows that it is missing");
    // A program writes while it comes.
    let mut receive = Waiting::start(&to, &["receive", to.dir()]);
    let whole = read(&to, "whole");
    let (first, rest) = whole.split_at(whole.len() / 2);
    receive.0.stdin.as_mut().unwrap().write_all(first).unwrap();
    wait_for("the fork is made", || names(&to).0.iter().any(|it| it.starts_with(".receiving-")));
    fs::write(to.dir.join("meanwhile"), "mine").unwrap();
    receive.0.stdin.as_mut().unwrap().write_all(rest).unwrap();
    let said = receive.end();
    assert_eq!((said.code, &said.out[..]), (0, "main@a\n"), "{}", said.err);
    let kept = said.err.split_whitespace().find(|word| word.starts_with("before-receive-"));
    let kept = kept.unwrap_or_else(|| panic!("{}", said.err));
    let kept = format!("{}@{kept}:/meanwhile", to.image());
    assert_eq!(to.run(&["cat", &kept]).fine(), "mine");
    assert!(!to.dir.join("meanwhile").exists());
    assert_eq!(fs::read(to.dir.join("moved")).unwrap(), b"as it was\n");
    let text = File::open(to.dir.join("dir/text")).unwrap();
    assert_eq!(from_file(&to, &["receive", to.image()], "increment").fine(), "main@b\n");
    assert!(!to.dir.join("moved").exists() && !to.dir.join("dir").exists());
    // Open files go on with what there is of them.
    let mut bytes = [0; 64];
    let length = std::os::unix::fs::FileExt::read_at(&text, &mut bytes, 0).unwrap();
    assert_eq!(&bytes[..length], b"one\n2\nthree\n");
    drop(text);
    assert_eq!(fs::read(to.dir.join("folder/moved")).unwrap(), b"as it was\n");
    assert_eq!(to.run(&["diff", to.dir(), "@b"]).fine(), "");
    let again = from_file(&to, &["receive", to.dir()], "increment");
    assert!(again.code == 0 && again.err.contains("is here already"), "{again:?}");
    // What was done here is kept.
    fs::write(to.dir.join("own"), "own").unwrap();
    let into = ["receive", "--branch", "other", to.dir()];
    assert!(from_file(&to, &into, "now").fine().starts_with("other@sent-"));
    assert_eq!(fs::read(to.dir.join("own")).unwrap(), b"own");
    // Archives.
    to.run(&["fork", to.dir(), "before"]).fine();
    from_file(&to, &["import", to.dir(), "--tar"], "tar").fine();
    assert_eq!(fs::read(to.dir.join("own")).unwrap(), b"own");
    let layers = ["base", "layer"].map(|name| to.path(name));
    to.run(&["import", to.dir(), "--oci-layer", &layers[0], &layers[1]]).fine();
    assert_eq!(fs::read(to.dir.join("folder/text")).unwrap(), b"one\n2\nthree\n");
    let (branches, snapshots) = names(&to);
    assert_eq!(branches, ["main", "other", "before"]);
    assert!(["a", "b", "layer-1", "layer-2"].iter().all(|it| snapshots.contains(&(*it).into())));
    // One that is not whole changes nothing.
    let bytes = read(&to, "tar");
    fs::write(to.path("cut"), &bytes[..bytes.len() - 2000]).unwrap();
    fs::remove_file(to.dir.join("new")).unwrap();
    from_file(&to, &["import", to.dir(), "--tar"], "cut").fails(1, "in the middle of");
    assert!(!to.dir.join("new").exists());
    from_file(&to, &["import", &format!("{}@a", to.dir()), "--tar"], "tar").fails(2, "");
    assert_eq!(names(&to), (branches, snapshots));
    to.umount();
    to.fsck();
}

/// A command with an idle pipe, until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(place: &TestMount, args: &[&str]) -> Waiting {
        let mut command = place.command(args);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Waiting(pipes.spawn().unwrap())
    }

    /// Kills it, and how it has ended.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// What it says at its end, when its pipes are read.
    fn end(mut self) -> Said {
        drop(self.0.stdin.take());
        let (mut out, mut err) = (Vec::new(), String::new());
        self.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        Said { code, out: String::from_utf8_lossy(&out).into_owned(), err }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many threads of a daemon are at work for commands.
fn at_work(daemon: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
    let names = threads.map(|it| fs::read_to_string(it.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "work").count()
}

/// A volume that is mounted, with more in it than pipes hold, and a stream of that.
fn large() -> TestMount {
    let place = TestMount::with_volume();
    place.mount();
    for n in 0..8 {
        fs::write(place.dir.join(format!("file-{n}")), vec![n; 1 << 20]).unwrap();
    }
    place.run(&["snapshot", "create", place.dir(), "a"]).fine();
    to_file(&place, &["send", &format!("{}@a", place.dir())], "stream").fine();
    to_file(&place, &["export", place.dir(), "--tar"], "tar").fine();
    place
}

#[test]
fn who_reads_nothing_harms_nobody_and_a_killed_command_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let place = large();
    let (dir, daemon) = (place.dir(), place.daemon());
    let at = format!("{dir}@a");
    let mut mute: Vec<Waiting> = [
        &["send", &at][..],
        &["send", dir],
        &["export", dir, "--tar"],
        &["cat", &place.inside("/file-1")],
    ]
    .map(|args| Waiting::start(&place, args))
    .into();
    // And one that says nothing.
    let mut half = Waiting::start(&place, &["import", dir, "--tar"]);
    half.0.stdin.as_mut().unwrap().write_all(&read(&place, "tar")[..3 << 20]).unwrap();
    wait_for("all are at work", || at_work(daemon) == 5);
    wait_for("a snapshot is sent", || names(&place).1.len() == 2);
    // Everything goes on beside them, for each of them.
    fs::write(place.dir.join("beside"), "x").unwrap();
    File::open(place.dir.join("beside")).unwrap().sync_all().unwrap();
    place.run(&["snapshot", "create", dir, "b"]).fine();
    let told = place.run(&["diff", &at, dir]).fine();
    assert_eq!(told, "created     beside\n");
    to_file(&place, &["export", &at, "--tar"], "again").fine();
    place.run(&["snapshot", "rollback", "--discard", dir, "b"]).fine();
    place.run(&["snapshot", "delete", dir, "b"]).fine();
    // What was taken to be sent counts for no rule: the newest of the others stays.
    let sent = names(&place).1.into_iter().find(|name| name.starts_with("sent-")).unwrap();
    place.run(&["prune", dir, "--all-names", "--keep", "1s:1s"]).fine();
    place.run(&["snapshot", "delete", dir, &sent]).fails(1, "is mounted or in use");
    assert_eq!(mute.remove(1).end().code, 0);
    let (branches, _) = names(&place);
    assert!(branches.iter().any(|name| name.starts_with("importing-")), "{branches:?}");
    mute.push(half);
    mute.into_iter().for_each(Waiting::kill);
    wait_for("their work ends", || at_work(daemon) == 0);
    assert_eq!(names(&place), (vec!["main".into()], vec!["a".into()]));
    assert_eq!(fs::read(place.dir.join("file-7")).unwrap(), vec![7; 1 << 20]);
    place.umount();
    wait_until_ended(daemon);
    place.fsck();
}

/// A program that has a page of a file in memory, and stores into it when it is told to.
struct Mapping(Child);

impl Mapping {
    fn of(file: &Path) -> Mapping {
        let script = "import mmap, os, sys\n\
            file = os.open(sys.argv[1], os.O_RDWR)\n\
            pages = mmap.mmap(file, 4096)\n\
            print('m', end='', flush=True)\n\
            for line in sys.stdin:\n\
            \x20   pages[:4] = line[:4].encode()\n\
            \x20   print('s', end='', flush=True)\n";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut mapping = Mapping(python.spawn().unwrap());
        mapping.hear("m");
        mapping
    }

    fn hear(&mut self, what: &str) {
        let mut said = [0];
        self.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(said, what.as_bytes());
    }

    fn store(&mut self, text: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{text}").unwrap();
        self.hear("s");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel alone knows of it, and it is not lost for that.
#[test]
fn what_a_program_stores_into_a_mapping_while_an_archive_comes_is_a_change() {
    if !can_mount() {
        return;
    }
    let place = large();
    let (dir, daemon) = (place.dir(), place.daemon());
    let file = place.dir.join("file-7");
    let mut mapping = Mapping::of(&file);
    mapping.store("before");
    let tar = read(&place, "tar");
    let begin = || {
        let mut half = Waiting::start(&place, &["import", dir, "--tar"]);
        half.0.stdin.as_mut().unwrap().write_all(&tar[..3 << 20]).unwrap();
        wait_for("it is imported", || names(&place).0.len() == 2);
        half
    };
    let end = |mut half: Waiting| {
        half.0.stdin.as_mut().unwrap().write_all(&tar[3 << 20..]).unwrap();
        half.end()
    };
    let half = begin();
    mapping.store("mine");
    end(half).fails(1, "has changed");
    assert!(fs::read(&file).unwrap().starts_with(b"mine"));
    assert!(place.run(&["cat", &place.inside("/file-7")]).fine().starts_with("mine"));
    // What was stored before is no change.
    mapping.store("more");
    end(begin()).fine();
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);
    drop(mapping);
    // A stream keeps it.
    place.run(&["snapshot", "rollback", "--discard", dir, "a"]).fine();
    fs::write(place.dir.join("file-6"), vec![1; 1 << 20]).unwrap();
    place.run(&["snapshot", "create", dir, "b"]).fine();
    let (whole, more) = (format!("{dir}@a"), format!("{dir}@b"));
    to_file(&place, &["send", &whole], "whole").fine();
    to_file(&place, &["send", &more, "-i", "@a"], "more").fine();
    let copy = TestMount::with_volume();
    copy.mount();
    let into = ["receive", copy.dir()];
    fs::rename(place.path("whole"), copy.path("whole")).unwrap();
    from_file(&copy, &into, "whole").fine();
    let mut mapping = Mapping::of(&copy.dir.join("file-7"));
    let bytes = read(&place, "more");
    let mut half = Waiting::start(&copy, &into);
    half.0.stdin.as_mut().unwrap().write_all(&bytes[..bytes.len() / 2]).unwrap();
    wait_for("it is received", || names(&copy).0.len() == 2);
    mapping.store("mine");
    half.0.stdin.as_mut().unwrap().write_all(&bytes[bytes.len() / 2..]).unwrap();
    let received = half.end();
    assert!(received.code == 0 && received.err.contains("is kept as its"), "{received:?}");
    let snapshots = names(&copy).1;
    let kept = snapshots.iter().find(|name| name.starts_with("before-receive-")).unwrap();
    let kept = format!("{}@{kept}:/file-7", copy.image());
    assert!(copy.run(&["cat", &kept]).fine().starts_with("mine"));
    assert_eq!(fs::read(copy.dir.join("file-7")).unwrap(), vec![7; 1 << 20]);
    drop(mapping);
    copy.umount();
    copy.fsck();
    assert_eq!(at_work(daemon), 0);
    place.umount();
    place.fsck();
}

/// Work that is about no tree is asked for by a directory as well, whose source may be another volume by now.
#[test]
fn a_mount_is_no_name_of_a_volume_that_its_daemon_does_not_serve() {
    if !can_mount() {
        return;
    }
    let (place, other) = (TestMount::with_volume(), changed());
    place.mount();
    let at = format!("{}@a", other.dir());
    to_file(&other, &["send", &at], "stream").fine();
    fs::rename(other.path("stream"), place.path("stream")).unwrap();
    // Where the source of the one was is the other.
    let away = place.path("away");
    fs::rename(place.image(), &away).unwrap();
    other.umount();
    fs::rename(other.image(), place.image()).unwrap();
    other.run(&["mount", place.image(), other.dir()]).fine();
    let not_served = "does not serve that mount";
    from_file(&place, &["receive", "--branch", "in", place.dir()], "stream").fails(1, not_served);
    place.run(&["receive", "--resume-token", place.dir()]).fails(1, not_served);
    place.run(&["diff", place.dir(), "@a"]).fails(2, not_served);
    let branches = place.run(&["branch", "list", "--json", other.dir()]).fine();
    assert!(!branches.contains("receiving") && !branches.contains("\"in\""), "{branches}");
    // More than a daemon reads of a question.
    let long = format!("{}stream", place.path(&"./".repeat(200)));
    let layers = vec![&long[..]; 200];
    let import = [&["import", other.dir(), "--oci-layer"][..], &layers].concat();
    place.run(&import).fails(1, "name fewer files");
    other.umount();
    fs::rename(place.image(), other.image()).unwrap();
    fs::rename(&away, place.image()).unwrap();
    place.umount();
    place.fsck();
    other.fsck();
}

/// With its last mount the volume is closed: what is at work for commands ends, and they say why.
#[test]
fn the_end_of_the_last_mount_ends_all_work_and_a_receive_goes_on_later() {
    if !can_mount() {
        return;
    }
    let place = large();
    let to = TestMount::with_volume();
    to.mount();
    let (daemon, dir) = (to.daemon(), to.dir());
    fs::rename(place.path("stream"), to.path("stream")).unwrap();
    fs::write(to.dir.join("own"), vec![1; 4 << 20]).unwrap();
    let bytes = read(&to, "stream");
    // Two mounts: the end of one is no matter.
    to.run(&["fork", dir, "second"]).fine();
    let second = to.path("second");
    fs::create_dir(&second).unwrap();
    to.run(&["mount", &format!("{}:second", to.image()), &second]).fine();
    let mute = Waiting::start(&to, &["export", &second, "--tar"]);
    let mut half = Waiting::start(&to, &["receive", "--branch", "in", dir]);
    half.0.stdin.as_mut().unwrap().write_all(&bytes[..bytes.len() / 2]).unwrap();
    wait_for("both are at work", || at_work(daemon) == 2);
    to.run(&["umount", &second]).fine();
    assert_eq!(at_work(daemon), 2);
    to.umount();
    wait_until_ended(daemon);
    let said = mute.end();
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("before this was done"), "{}", said.err);
    half.end().fails(1, "the volume was unmounted before this was done");
    to.fsck();
    // It goes on where it was, mounted or not.
    to.mount();
    let token = to.run(&["receive", "--resume-token", dir]).fine();
    assert_eq!(token, {
        to.umount();
        let token = to.run(&["receive", "--resume-token", to.image()]).fine();
        to.mount();
        token
    });
    let rest = to_file(&place, &["send", "--resume", token.trim(), place.dir()], "rest");
    rest.fine();
    fs::rename(place.path("rest"), to.path("rest")).unwrap();
    assert!(read(&to, "rest").len() < bytes.len() * 3 / 4, "only the rest is sent");
    let into = ["receive", "--branch", "in", dir];
    assert_eq!(from_file(&to, &into, "rest").fine(), "in@a\n");
    assert_eq!(names(&to).0, ["main", "second", "in"]);
    to.umount();
    to.fsck();
    place.umount();
}

#[test]
fn a_daemon_that_is_killed_is_said_and_leaves_what_a_crash_may() {
    if !can_mount() {
        return;
    }
    let place = large();
    let daemon = place.daemon();
    let mut half = Waiting::start(&place, &["import", place.dir(), "--tar"]);
    half.0.stdin.as_mut().unwrap().write_all(&read(&place, "tar")[..5 << 20]).unwrap();
    let mut mute = Waiting::start(&place, &["export", place.dir(), "--tar"]);
    // Both have begun: their places are given before that.
    mute.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    wait_for("it is imported", || names(&place).0.len() == 2);
    assert_eq!(at_work(daemon), 2);
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    for waiting in [half, mute] {
        let said = waiting.end();
        assert_eq!(said.code, 1);
        assert!(said.err.contains(&format!("its daemon (process {daemon})")), "{}", said.err);
    }
    place.run(&["diff", place.dir(), "@a"]).fails(2, "run: holdfast umount");
    place.run(&["umount", place.dir()]).fine();
    place.mount();
    assert_eq!(place.run(&["diff", place.dir(), "@a"]).fine(), "");
    let (branches, _) = names(&place);
    let left: Vec<&String> = branches.iter().filter(|it| it.starts_with("importing-")).collect();
    for name in left {
        place.run(&["branch", "delete", place.dir(), name]).fine();
    }
    place.umount();
    place.fsck();
}

/// A user who may not open the volume gets nothing of it; a reader changes nothing.
#[test]
fn a_descriptor_of_the_volume_is_the_permission() {
    let place = changed();
    let Some(nobody) = Nobody::at(&place) else { return };
    let (image, dir) = (place.image(), place.dir());
    let mode = |mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(image, mode).unwrap();
    };
    to_file(&place, &["export", dir, "--tar"], "tar").fine();
    mode(0o600);
    for place in [dir, image] {
        nobody.run(&["diff", place, "@a"]).fails(2, "");
        for command in ["send", "export --tar"] {
            let said = nobody.sh(&format!("{} {command} {place}@a", nobody.program()));
            assert!(said.code != 0 && said.out.is_empty(), "{said:?}");
        }
    }
    mode(0o604);
    // Root's daemon answers a user who can read the volume, as the file would.
    assert!(nobody.run(&["diff", image, "@a"]).fine().contains("created     new"));
    let tar = fs::canonicalize(place.path("tar")).unwrap();
    let import = format!("{} import --tar {image} < {}", nobody.program(), tar.display());
    let said = nobody.sh(&import);
    assert!(said.code != 0 && said.err.contains("ermission denied"), "{said:?}");
    mode(0o606);
    fs::remove_file(Path::new(dir).join("new")).unwrap();
    nobody.sh(&import).fine();
    assert!(Path::new(dir).join("new").exists());
    place.umount();
    place.fsck();
}

/// A daemon without a mount does the same, and one that only reads does what changes nothing.
#[test]
fn a_daemon_that_lingers_and_one_that_only_reads() {
    if !can_mount() {
        return;
    }
    let place = changed();
    let image = place.image();
    place.umount();
    place.run(&["mount", "-o", "ro", image, place.dir()]).fine();
    let told = place.run(&["diff", place.dir(), "@a"]).fine();
    assert!(told.contains("created     new"), "{told}");
    to_file(&place, &["export", place.dir(), "--tar"], "tar").fine();
    from_file(&place, &["import", image, "--tar"], "tar").fails(1, "read-only");
    place.umount();
    place.run(&["mount", &format!("{image}@a"), place.dir()]).fine();
    assert_eq!(place.run(&["diff", place.dir(), "@a"]).fine(), "", "it is that snapshot");
    place.umount();
    place.run(&["mount", "--linger", image, place.dir()]).fine();
    let daemon = place.daemon();
    place.run(&["umount", place.dir()]).fine();
    assert_eq!(place.run(&["diff", image, "@a"]).fine(), told);
    from_file(&place, &["import", image, "--tar"], "tar").fine();
    let mute = Waiting::start(&place, &["export", image, "--tar"]);
    drop(mute);
    place.run(&["umount", image]).fine();
    wait_until_ended(daemon);
    place.fsck();
}
