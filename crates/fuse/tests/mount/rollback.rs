//! What programs find whose branch is rolled back under them: what the kernel holds for them, and what they hold themselves.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Mount, can_mount, options, volume, wait_for};
use holdfast_fuse::{CONTROL, Control, Opens};
use holdfast_posix::Told;

/// A mount of which snapshots are taken, and that goes back to them, as a command does it: by ioctl(2), but without
/// syncfs(2) before.
fn live(opens: Opens) -> Mount {
    let control = Control::new(|mount, command| {
        let words = std::str::from_utf8(command).unwrap();
        let (what, name) = words.split_once(' ').unwrap();
        match what {
            "take" => mount.fs().snapshot(name.as_bytes()).map(drop),
            "drop" => {
                let branch = mount.fs().branch_name().unwrap();
                mount.fs().delete_snapshot(&branch[..], name.as_bytes())
            }
            _ => mount.roll_back(name.as_bytes(), None).map(|told| assert_eq!(told, Told::All)),
        }
        .map_or_else(|error| error.to_string(), |()| "done".into())
        .into_bytes()
    });
    Mount::with(volume(256), options(), |fuse| {
        fuse.opens = opens;
        fuse.control = Some(control);
    })
}

fn command(mount: &Mount, words: &str) {
    let dir = File::open(mount.dir.path()).unwrap();
    let said = holdfast_fuse::attribute(dir, &[CONTROL, words.as_bytes()].concat()).unwrap();
    assert_eq!(String::from_utf8_lossy(&said), "done", "{words}");
}

/// A process of its own that does what it is told, one line of Python at a time. It maps files: a process that serves a mount
/// and touches pages of it may wait for itself.
struct Program {
    child: Child,
    lines: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Program {
    /// `None`, and a message, where there is no Python.
    fn start(dir: &Path) -> Option<Program> {
        let program = "import fcntl, mmap, os, sys\n\
            for line in sys.stdin:\n\
            \x20   try: value = eval(line)\n\
            \x20   except SyntaxError: value = exec(line)\n\
            \x20   except OSError as error: value = error.errno\n\
            \x20   print(value, flush=True)\n";
        let mut python = Command::new("python3");
        python.args(["-c", program]).current_dir(dir);
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        match python.spawn() {
            Ok(mut child) => {
                let lines = child.stdin.take().unwrap();
                let said = BufReader::new(child.stdout.take().unwrap());
                Some(Program { child, lines, said })
            }
            Err(error) => {
                holdfast_base::skip::skipped(format_args!("python3: {error}"));
                None
            }
        }
    }

    /// The value of an expression, the number of its error, or `None` of a statement. Nothing if the process has died.
    fn run(&mut self, line: &str) -> String {
        writeln!(self.lines, "{line}").unwrap();
        let mut said = String::new();
        self.said.read_line(&mut said).unwrap();
        said.trim_end().into()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const STALE: &str = "116";

/// What was stored into a mapping belongs to the head that was, and the kernel writes it when it drops the pages.
fn pages_of_mappings_stay_behind(opens: Opens) {
    let mount = live(opens);
    fs::write(mount.path("same"), vec![b'.'; 12_288]).unwrap();
    fs::write(mount.path("changed"), vec![b'.'; 12_288]).unwrap();
    command(&mount, "take s");
    let changed = OpenOptions::new().write(true).open(mount.path("changed")).unwrap();
    changed.write_all_at(b"changed", 8192).unwrap();
    drop(changed);
    let Some(mut program) = Program::start(mount.dir.path()) else { return };
    program.run("fs = [os.open(name, os.O_RDWR) for name in ['same', 'changed']]");
    program.run("ms = [mmap.mmap(f, 12288) for f in fs]");
    assert_eq!(program.run("ms[1][8192:8199]"), "b'changed'");
    program.run("for m in ms: m[0:3] = b'old'; m[5000:5003] = b'old'");

    command(&mount, "back s");
    let whole = |name: &str| fs::read(mount.path(name)).unwrap() == [b'.'; 12_288];
    assert!(whole("same") && whole("changed"), "what was mapped is written into the new head");
    assert_eq!(
        program
            .run("[m[0:3] + m[5000:5003] + m[8192:8199] for m in ms]")
            .matches("b'.............'")
            .count(),
        2
    );
    // And what is stored now is there.
    program.run("for m in ms: m[5000:5003] = b'new'; m.flush()");
    assert_eq!(program.run("[os.fsync(f) for f in fs]"), "[None, None]");
    drop(program);
    let mount = mount.crash();
    for name in ["same", "changed"] {
        let bytes = fs::read(mount.path(name)).unwrap();
        assert_eq!(&bytes[4999..5004], b".new.", "{name}");
        assert_eq!(bytes.iter().filter(|byte| **byte != b'.').count(), 3, "{name}");
    }
}

#[test]
fn pages_of_mappings_stay_behind_whichever_side_opens() {
    if can_mount() {
        pages_of_mappings_stay_behind(Opens::Server);
        pages_of_mappings_stay_behind(Opens::Kernel);
    }
}

/// The kernel puts an append where it believes that the file ends.
fn appends_go_to_the_end(opens: Opens) {
    let mount = live(opens);
    let at = |name: &str| mount.path(name);
    let open = |name: &str, flags| {
        OpenOptions::new().read(true).append(true).custom_flags(flags).open(at(name)).unwrap()
    };
    for name in ["grown", "cut", "direct"] {
        fs::write(at(name), vec![b'a'; 8192]).unwrap();
    }
    fs::write(at("line"), b"one\n").unwrap();
    command(&mount, "take s");
    let mut grown = open("grown", 0);
    grown.write_all(&[b'b'; 30_000]).unwrap();
    let mut line = open("line", 0);
    line.write_all(b"two\n").unwrap();
    let mut cut = open("cut", 0);
    cut.set_len(0).unwrap();
    let mut direct = open("direct", libc::O_DIRECT);
    direct.set_len(0).unwrap();
    direct.write_all(&[b'b'; 4096]).unwrap();

    command(&mount, "back s");
    line.write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(at("line")).unwrap(), "one\nthree\n");
    let all = |name: &str, more: usize| {
        let bytes = fs::read(at(name)).unwrap();
        assert_eq!(bytes.len(), 8192 + more, "{name}");
        assert!(bytes[..8192].iter().all(|byte| *byte == b'a'), "{name}");
        assert!(bytes[8192..].iter().all(|byte| *byte == b'n'), "{name}");
    };
    // Whole pages, which the kernel keeps where it believes them to be. The second is larger than a message.
    for (file, name) in [(&mut grown, "grown"), (&mut cut, "cut"), (&mut direct, "direct")] {
        file.write_all(&[b'n'; 4096]).unwrap();
        let mut first = [0; 4096];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [b'a'; 4096], "{name}: what another reads behind the append");
        all(name, 4096);
        file.write_all(&vec![b'n'; 3 << 20]).unwrap();
        file.write_all(b"nn").unwrap();
        all(name, 4096 + (3 << 20) + 2);
    }
    drop((line, grown, cut, direct));
    let mount = mount.remount();
    assert_eq!(fs::read(mount.path("cut")).unwrap().len(), 8192 + 4096 + (3 << 20) + 2);
}

#[test]
fn appends_go_to_the_end_whichever_side_opens() {
    if can_mount() {
        appends_go_to_the_end(Opens::Server);
        appends_go_to_the_end(Opens::Kernel);
    }
}

#[test]
fn mappings_show_what_the_snapshot_has_and_nothing_of_files_that_are_gone() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    fs::write(mount.path("f"), vec![b'1'; 8192]).unwrap();
    fs::write(mount.path("cut"), vec![b'1'; 8192]).unwrap();
    command(&mount, "take s");
    fs::write(mount.path("f"), vec![b'2'; 16_384]).unwrap();
    fs::write(mount.path("new"), vec![b'2'; 8192]).unwrap();
    let Some(mut program) = Program::start(mount.dir.path()) else { return };
    let Some(mut other) = Program::start(mount.dir.path()) else { return };
    program.run("f = open('f', 'rb'); m = mmap.mmap(f.fileno(), 16384, prot=mmap.PROT_READ)");
    assert_eq!(program.run("m[0:1] + m[16383:]"), "b'22'");
    program.run("c = open('cut', 'r+b'); n = mmap.mmap(c.fileno(), 8192); c.truncate(0)");
    other.run("f = open('new', 'rb'); m = mmap.mmap(f.fileno(), 8192, prot=mmap.PROT_READ)");
    assert_eq!(other.run("m[0:1]"), "b'2'");

    command(&mount, "back s");
    assert_eq!(program.run("m[0:1] + m[8191:8192]"), "b'11'");
    // What was cut off is there again.
    assert_eq!(program.run("n[0:1] + n[8191:8192]"), "b'11'");
    assert_eq!(other.run("os.fstat(f.fileno())"), STALE);
    // A mapping of a file that is gone has no pages: SIGBUS.
    assert_eq!(other.run("m[0:1]"), "");
    let ended = other.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGBUS));
}

#[test]
fn names_that_the_kernel_believes_are_void() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    let at = |name: &str| mount.path(name);
    fs::create_dir_all(at("dir/below")).unwrap();
    fs::write(at("dir/gone"), b"").unwrap();
    std::os::unix::fs::symlink("one", at("link")).unwrap();
    std::os::unix::fs::symlink("one", at("other")).unwrap();
    command(&mount, "take s");
    fs::remove_file(at("dir/gone")).unwrap();
    fs::remove_file(at("link")).unwrap();
    std::os::unix::fs::symlink("two", at("link")).unwrap();
    fs::write(at("new"), b"").unwrap();
    for _ in 0..2 {
        assert!(!at("dir/gone").exists() && !at("dir/below/never").exists());
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("two"));
        assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 1);
    }
    command(&mount, "back s");
    assert!(at("dir/gone").exists() && !at("new").exists() && !at("dir/below/never").exists());
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("one"));
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 2);
    let link = fs::symlink_metadata(at("link")).unwrap();
    assert_eq!(link.len(), 3);
}

#[test]
fn a_listing_goes_on_in_the_new_head() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..4000 {
        File::create(dir.join(format!("both-{n}"))).unwrap();
    }
    for n in 0..2000 {
        File::create(dir.join(format!("snap-{n}"))).unwrap();
    }
    command(&mount, "take s");
    for n in 0..2000 {
        fs::remove_file(dir.join(format!("snap-{n}"))).unwrap();
        File::create(dir.join(format!("head-{n}"))).unwrap();
    }
    let mut listing = fs::read_dir(&dir).unwrap();
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut seen: Vec<String> = listing.by_ref().take(100).map(name).collect();
    command(&mount, "back s");
    seen.extend(listing.map(name));
    let count = |of: &str| seen.iter().filter(|name| name.starts_with(of)).count();
    let mut each = seen.clone();
    each.sort();
    each.dedup();
    assert_eq!(each.len(), seen.len(), "none is seen twice");
    assert_eq!(count("both-"), 4000, "what is in both is seen");
    // What the C library had fetched already it shows; behind that only what is there.
    let last = seen.iter().rposition(|name| name.starts_with("head-")).unwrap();
    assert!(last < 2500 && count("snap-") > 1000, "{last} {}", count("snap-"));
    let now = fs::read_dir(&dir).unwrap().map(name).filter(|name| name.starts_with("head-"));
    assert_eq!(now.count(), 0);
}

#[test]
fn a_process_in_a_directory_that_is_gone_finds_it_gone() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    command(&mount, "take s");
    fs::create_dir(mount.path("new")).unwrap();
    fs::write(mount.path("new/file"), b"").unwrap();
    let Some(mut program) = Program::start(&mount.path("new")) else { return };
    assert_eq!(program.run("os.listdir('.')"), "['file']");
    command(&mount, "back s");
    fs::create_dir(mount.path("new")).unwrap();
    fs::write(mount.path("new/other"), b"").unwrap();
    let gone = ["2", STALE];
    for act in [
        "os.listdir('.')",
        "os.stat('.')",
        "os.stat('file')",
        "os.open('x', 65)",
        "os.mkdir('y')",
        "os.stat('..')",
    ] {
        let said = program.run(act);
        assert!(gone.contains(&said.as_str()), "{act}: {said}");
    }
    assert_eq!(program.run("os.chdir('/')"), "None");
    assert_eq!(fs::read_dir(mount.path("new")).unwrap().count(), 1);
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|of| of.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The kernel has a directory that was removed for dead, as long as it is in memory: one that comes back is not that one.
fn a_directory_that_was_removed_in_use_comes_back_alive(opens: Opens) {
    let mount = live(opens);
    let at = |name: &str| mount.path(name);
    for dir in ["current", "of a file", "replaced"] {
        fs::create_dir_all(at(dir).join("below")).unwrap();
        fs::write(at(dir).join("below/f"), dir).unwrap();
    }
    fs::create_dir(at("empty")).unwrap();
    command(&mount, "take s");
    for turn in 0..3 {
        let held = [
            File::open(at("current/below")).unwrap(),
            File::open(at("current")).unwrap(),
            File::open(at("of a file/below/f")).unwrap(),
            File::open(at("empty")).unwrap(),
        ];
        fs::remove_dir_all(at("current")).unwrap();
        fs::remove_dir_all(at("of a file")).unwrap();
        // It takes the place of an empty one, which is dead then.
        fs::rename(at("replaced"), at("empty")).unwrap();
        if turn == 1 {
            // It is in no head between.
            command(&mount, "take without");
            command(&mount, "back without");
        }
        command(&mount, "back s");
        assert_eq!(names(mount.dir.path()), ["current", "empty", "of a file", "replaced"]);
        for dir in ["current", "of a file", "replaced"] {
            assert_eq!(names(&at(dir)), ["below"], "{dir} {turn}");
            assert_eq!(fs::read_to_string(at(dir).join("below/f")).unwrap(), dir);
            fs::write(at(dir).join("below/new"), "x").unwrap();
            assert_eq!(names(&at(dir).join("below")), ["f", "new"]);
            fs::remove_file(at(dir).join("below/new")).unwrap();
        }
        fs::create_dir(at("empty/new")).unwrap();
        fs::remove_dir(at("empty/new")).unwrap();
        let read = std::io::read_to_string(&held[2]).unwrap();
        assert_eq!(read, "of a file", "an open file goes on");
        if turn == 0 {
            drop(held);
            assert_eq!(names(&at("current")), ["below"], "nor does it die behind them");
        }
        if turn == 1 {
            command(&mount, "drop without");
        }
    }
}

#[test]
fn a_directory_that_was_removed_in_use_comes_back_alive_whichever_side_opens() {
    if can_mount() {
        a_directory_that_was_removed_in_use_comes_back_alive(Opens::Server);
        a_directory_that_was_removed_in_use_comes_back_alive(Opens::Kernel);
    }
}

#[test]
fn locks_are_kept_with_their_files() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    fs::write(mount.path("f"), b"one").unwrap();
    command(&mount, "take s");
    fs::write(mount.path("f"), b"two, and longer").unwrap();
    fs::write(mount.path("new"), b"").unwrap();
    let Some(mut holder) = Program::start(mount.dir.path()) else { return };
    let Some(mut asking) = Program::start(mount.dir.path()) else { return };
    holder.run("f = open('f', 'r+b'); n = open('new', 'r+b')");
    for lock in [
        "fcntl.flock(f, fcntl.LOCK_EX)",
        "fcntl.flock(n, fcntl.LOCK_EX)",
        "fcntl.lockf(f, fcntl.LOCK_EX, 2)",
    ] {
        assert_eq!(holder.run(lock), "None", "{lock}");
    }
    command(&mount, "back s");
    let wanted = "fcntl.LOCK_EX | fcntl.LOCK_NB";
    asking.run("f = open('f', 'r+b')");
    for call in [format!("fcntl.flock(f, {wanted})"), format!("fcntl.lockf(f, {wanted}, 2)")] {
        assert_eq!(asking.run(&call), "11", "{call}");
    }
    // A file of the same name is another one.
    fs::write(mount.path("new"), b"").unwrap();
    asking.run("n = open('new', 'r+b')");
    assert_eq!(asking.run(&format!("fcntl.flock(n, {wanted})")), "None");
    // A lock of a file that is gone can still be given back.
    assert_eq!(holder.run("fcntl.flock(n, fcntl.LOCK_UN)"), "None");
    holder.run("f.close()");
    assert_eq!(asking.run(&format!("fcntl.flock(f, {wanted})")), "None");
}

#[test]
fn files_without_a_name_live_on_if_the_snapshot_has_them() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    let tmpfile = || {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(libc::O_TMPFILE).open(mount.dir.path()).unwrap()
    };
    let before = tmpfile();
    before.write_all_at(b"one", 0).unwrap();
    fs::write(mount.path("f"), b"one").unwrap();
    let unlinked = OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    let used = || {
        let of = mount.fs().statfs();
        of.inodes - of.inodes_free
    };
    let before_it = used();
    command(&mount, "take s");
    let after = tmpfile();
    for file in [&before, &unlinked, &after] {
        file.write_all_at(b"two, and longer", 0).unwrap();
    }
    command(&mount, "back s");
    for file in [&before, &unlinked] {
        let mut bytes = [0; 100];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3);
        assert_eq!(&bytes[..3], b"one");
        file.write_all_at(b"more", 3).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 7);
    }
    assert_eq!(after.metadata().unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert_eq!(after.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    // One that was made without a name may still get one, and one that is gone gets none.
    let link = |file: &File, name: &str| {
        use std::os::fd::AsRawFd;
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (cwd, follow) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
        rustix::fs::linkat(cwd, from, cwd, mount.path(name), follow)
    };
    assert!(link(&after, "gone").is_err());
    assert!(!mount.path("gone").exists());
    drop((unlinked, after));
    link(&before, "named").unwrap();
    assert_eq!(fs::read(mount.path("named")).unwrap(), b"onemore");
    drop(before);
    // Of the two one has got a name; the kernel forgets the other when it likes.
    wait_for("its space does not become free", || used() < before_it);
    mount.leave();
}

/// However many files the kernel remembers, it believes nothing that a rollback has changed.
fn what_the_kernel_remembers_is_true(opens: Opens) {
    const FILES: u32 = 50_000;
    let mount = live(opens);
    fs::create_dir(mount.path("d")).unwrap();
    let at = |n: u32| mount.path(&format!("d/{n}"));
    (0..FILES).for_each(|n| drop(File::create(at(n)).unwrap()));
    fs::write(at(1), vec![b'1'; 8192]).unwrap();
    fs::write(at(2), b"one").unwrap();
    command(&mount, "take s");
    let lengths = || (0..FILES).map(|n| fs::metadata(at(n)).map_or(99, |of| of.len())).sum::<u64>();
    let before = lengths();
    fs::write(at(1), b"two").unwrap();
    fs::rename(at(2), at(3)).unwrap();
    fs::remove_file(at(40_000)).unwrap();
    assert!(!at(40_000).exists() && !at(FILES).exists());
    assert_eq!(fs::read(at(1)).unwrap(), b"two");
    assert_ne!(lengths(), before);
    let time = std::time::Instant::now();
    command(&mount, "back s");
    println!("a rollback with {FILES} files in memory, opened by {opens:?}: {:?}", time.elapsed());
    assert_eq!(lengths(), before);
    assert_eq!(fs::read(at(1)).unwrap(), [b'1'; 8192]);
    assert_eq!(fs::read(at(2)).unwrap(), b"one");
    assert!(at(40_000).exists() && fs::read(at(3)).unwrap().is_empty());
    // What comes later is seen, and what is stored.
    fs::write(at(1), b"three").unwrap();
    fs::write(at(FILES), b"new").unwrap();
    command(&mount, "take t");
    fs::write(at(1), b"four").unwrap();
    fs::remove_file(at(FILES)).unwrap();
    command(&mount, "back t");
    assert_eq!(fs::read(at(1)).unwrap(), b"three");
    assert_eq!(fs::read(at(FILES)).unwrap(), b"new");
}

#[test]
fn what_the_kernel_remembers_of_many_files_is_true_behind_a_rollback() {
    if can_mount() {
        what_the_kernel_remembers_is_true(Opens::Server);
        // It is told each inode.
        what_the_kernel_remembers_is_true(Opens::Kernel);
    }
}

/// What was read of the head that was is not written into the next one.
#[test]
fn a_copy_takes_nothing_over_a_rollback() {
    const LEN: usize = 4 << 20;
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    fs::write(mount.path("from"), vec![b'a'; LEN]).unwrap();
    fs::write(mount.path("to"), b"").unwrap();
    command(&mount, "take s");
    let from = File::open(mount.path("from")).unwrap();
    let to = OpenOptions::new().write(true).open(mount.path("to")).unwrap();
    let (end, copied, mut old) = (AtomicBool::new(false), AtomicU64::new(0), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Acquire) {
                let (at_from, at_to) = (Some(&mut 0), Some(&mut 0));
                let done = rustix::fs::copy_file_range(&from, at_from, &to, at_to, LEN).unwrap();
                copied.fetch_add(done as u64, Ordering::AcqRel);
            }
        });
        for _ in 0..8 {
            fs::write(mount.path("from"), vec![b'b'; LEN]).unwrap();
            let before = copied.load(Ordering::Acquire);
            while copied.load(Ordering::Acquire) < before + LEN as u64 {
                std::thread::yield_now();
            }
            command(&mount, "back s");
            let bytes = fs::read(mount.path("to")).unwrap();
            // The part of a copy that came behind the rollback begins where that part does.
            old += bytes.iter().filter(|byte| !matches!(byte, b'a' | 0)).count();
        }
        end.store(true, Ordering::Release);
    });
    assert_eq!(old, 0, "bytes of the head that was");
}

/// The kernel puts a part of a page into the page that it has.
#[test]
fn an_append_of_a_part_of_a_page_is_right_in_the_page_that_the_kernel_has() {
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    fs::write(mount.path("f"), b"0123456789").unwrap();
    command(&mount, "take s");
    let mut file = OpenOptions::new().read(true).append(true).open(mount.path("f")).unwrap();
    file.write_all(&[b'b'; 6000]).unwrap();
    let Some(mut program) = Program::start(mount.dir.path()) else { return };
    program.run("f = open('f', 'rb'); m = mmap.mmap(f.fileno(), 6010, prot=mmap.PROT_READ)");
    assert_eq!(program.run("m[8:12] + m[6000:6001]"), "b'89bbb'");
    command(&mount, "back s");
    assert_eq!(program.run("m[0:10]"), "b'0123456789'");
    for (more, all) in [("xyz", "0123456789xyz"), ("!", "0123456789xyz!")] {
        file.write_all(more.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), all);
        let mapped = program.run(&format!("m[0:{}]", all.len() + 1));
        assert_eq!(mapped, format!("b'{all}\\x00'"), "what is mapped");
    }
    drop((program, file));
    let mount = mount.remount();
    assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), "0123456789xyz!");
}

/// The snapshot has file capabilities, and the kernel knows of the head that was that it has none: a write takes them all the same.
#[test]
fn a_write_behind_a_rollback_takes_capabilities_away() {
    const NAME: &str = "security.capability";
    // Version 2, CAP_NET_RAW permitted.
    let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mount = live(Opens::Server);
    let at = mount.path("f");
    fs::write(&at, b"old").unwrap();
    rustix::fs::setxattr(&at, NAME, &value, rustix::fs::XattrFlags::empty()).unwrap();
    command(&mount, "take s");
    let has = || rustix::fs::getxattr(&at, NAME, &mut [0; 64][..]).is_ok();
    let file = OpenOptions::new().write(true).open(&at).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    assert!(!has());
    command(&mount, "back s");
    assert!(has());
    file.write_all_at(b"x", 0).unwrap();
    assert!(!has(), "a write behind the rollback");
    // And one that the rollback overtakes, or that is all that the kernel asks for behind it.
    let mut kept = 0;
    let (end, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Acquire) {
                file.write_all_at(b"y", 0).unwrap();
                written.fetch_add(1, Ordering::AcqRel);
            }
        });
        for _ in 0..20 {
            command(&mount, "back s");
            let before = written.load(Ordering::Acquire);
            while written.load(Ordering::Acquire) < before + 2 {
                std::thread::yield_now();
            }
            kept += u32::from(has());
        }
        end.store(true, Ordering::Release);
    });
    assert_eq!(kept, 0, "a write took nothing away");
    drop(file);
    let mount = mount.remount();
    let found = rustix::fs::getxattr(mount.path("f"), NAME, &mut [0; 64][..]);
    assert_eq!(found, Err(rustix::io::Errno::NODATA));
}

/// The kernel does not say that a write of an appender has a place of its own: until it knows where the file ends, such a write
/// goes to the end as well.
#[test]
fn a_write_of_an_appender_to_a_place_of_its_own() {
    const RWF_NOAPPEND: u32 = 0x20;
    if !can_mount() {
        return;
    }
    let mount = live(Opens::Server);
    fs::write(mount.path("f"), [b'a'; 100]).unwrap();
    command(&mount, "take s");
    let file = OpenOptions::new().read(true).append(true).open(mount.path("f")).unwrap();
    (&file).write_all(&[b'b'; 100]).unwrap();
    let at_start = |byte: u8| {
        let how = rustix::io::ReadWriteFlags::from_bits_retain(RWF_NOAPPEND);
        rustix::io::pwritev2(&file, &[IoSlice::new(&[byte])], 0, how)
    };
    match at_start(b'c') {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            return holdfast_base::skip::skipped(format_args!("RWF_NOAPPEND: Linux 6.9"));
        }
        done => assert_eq!(done, Ok(1)),
    }
    assert_eq!(fs::read(mount.path("f")).unwrap()[0], b'c');
    command(&mount, "back s");
    assert_eq!(at_start(b'x'), Ok(1));
    let bytes = fs::read(mount.path("f")).unwrap();
    assert_eq!((bytes.len(), bytes[0], bytes[100]), (101, b'a', b'x'));
    // An append by which the kernel shows that it knows the end.
    assert_eq!(file.metadata().unwrap().len(), 101);
    (&file).write_all(b"y").unwrap();
    assert_eq!(at_start(b'w'), Ok(1));
    let bytes = fs::read(mount.path("f")).unwrap();
    assert_eq!((bytes.len(), bytes[0], &bytes[100..]), (102, b'w', &b"xy"[..]));
}
