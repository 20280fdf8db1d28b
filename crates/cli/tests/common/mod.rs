//! The built program, a volume and a directory to mount it at. Unmounted when dropped, also when a test fails.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod loop_device;
pub mod many;
pub mod users;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program that is tested: that of the crate whose test this is, `holdfast` or `holdfast-dev`.
pub const PROGRAM: &str =
    match (option_env!("CARGO_BIN_EXE_holdfast"), option_env!("CARGO_BIN_EXE_holdfast-dev")) {
        (Some(program), _) | (None, Some(program)) => program,
        (None, None) => panic!("this is a test of a crate with a program"),
    };

/// Copies a program that is to be run. Another process writes it: what another test starts meanwhile inherits what this process has open
/// for writing, and until that is closed, the copy is "text file busy".
#[track_caller]
pub fn copy_program(from: &str, to: &str) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success(), "cp {from} {to}");
}

pub struct TestMount {
    pub root: TempDir,
    pub image: PathBuf,
    pub dir: PathBuf,
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if self.is_mounted() {
            self.run(&["umount", self.dir()]);
        }
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

/// What a run of the program said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    #[track_caller]
    pub fn fine(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "stdout: {}", self.out);
        self.out
    }

    /// One sentence on stderr that begins with the program's name, and this exit code.
    #[track_caller]
    pub fn fails(self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        let is_named = |name: &str| self.err.starts_with(name);
        assert!(is_named("holdfast: ") || is_named("holdfast-dev: "), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        assert!(self.err.contains(words), "{words:?} is missing: {self:?}");
        assert!(!self.err.contains("os error"), "{self:?}");
    }
}

impl TestMount {
    pub fn new() -> TestMount {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        TestMount { image: root.path().join("volume.img"), dir, root }
    }

    pub fn with_volume() -> TestMount {
        let place = TestMount::new();
        place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
        place
    }

    /// Mounted, with a file of 300,000 bytes that an fsync has made durable.
    pub fn in_use() -> TestMount {
        let place = TestMount::with_volume();
        place.mount();
        std::fs::write(place.dir.join("file"), vec![1; 300_000]).unwrap();
        std::fs::File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
        place
    }

    pub fn image(&self) -> &str {
        self.image.to_str().unwrap()
    }

    pub fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_str().unwrap().to_string()
    }

    pub fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.root.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        said(self.command(args).output().unwrap())
    }

    /// Runs through a link of another name.
    pub fn run_as(&self, name: &str, args: &[&str]) -> Said {
        let link = self.root.path().join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
        }
        said(Command::new(link).args(args).stdin(Stdio::null()).output().unwrap())
    }

    pub fn mount(&self) {
        self.run(&["mount", self.image(), self.dir()]).fine();
        assert!(self.is_mounted());
    }

    pub fn umount(&self) {
        // A child of another test that has not run its own code yet holds copies of all descriptors of this process.
        self.run_again_while(&["umount", self.dir()], |said| said.err.contains("busy")).fine();
        assert!(!self.is_mounted());
    }

    /// Runs a command, and again while what it says is only of a busy machine.
    fn run_again_while(&self, args: &[&str], is_of_a_busy_machine: impl Fn(&Said) -> bool) -> Said {
        let until = Instant::now() + TOO_LONG;
        loop {
            let said = self.run(args);
            if !is_of_a_busy_machine(&said) || Instant::now() >= until {
                return said;
            }
        }
    }

    pub fn fsck(&self) {
        self.run(&["fsck", "-n", "-d", self.image()]).fine();
    }

    /// The line of /proc/mounts.
    pub fn mount_line(&self) -> Option<String> {
        let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
        let at = format!(" {} ", self.dir());
        mounts.lines().find(|line| line.contains(&at)).map(String::from)
    }

    pub fn is_mounted(&self) -> bool {
        self.mount_line().is_some()
    }

    /// The process that serves the mount.
    pub fn daemon(&self) -> u32 {
        // On a busy machine a daemon may not answer in time, or be another one by now.
        let asked = ["stats", "--json", self.dir()];
        let stats = self.run_again_while(&asked, |said| said.code != 0).fine();
        let pid = stats.split("\"pid\":").nth(1).unwrap();
        let end = pid.find(|c: char| !c.is_ascii_digit()).unwrap();
        pid[..end].parse().unwrap()
    }
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether mounting can work here at all. Printed, so that a skipped test is not taken for a passed one.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        holdfast_base::skip::skipped("there is no /dev/fuse here");
    }
    can
}

/// What takes so long does not come any more. Much more than it needs: the machine may be busy with other things.
const TOO_LONG: Duration = Duration::from_secs(100);

/// Waits until a process is gone, or a zombie that its parent has not asked about.
#[track_caller]
pub fn wait_until_ended(pid: u32) {
    let until = Instant::now() + TOO_LONG;
    while Instant::now() < until {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Err(_) => return,
            Ok(stat) if stat.contains(") Z ") => return,
            Ok(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("process {pid} does not end");
}

/// Sends a signal to a process that a test started.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.unwrap().success());
}

/// The unsigned number that follows `"name":` in a line of JSON.
#[track_caller]
pub fn number(json: &str, name: &str) -> u64 {
    let key = format!("\"{name}\":");
    let at = json.find(&key).unwrap_or_else(|| panic!("{name} is missing: {json}")) + key.len();
    let len = json[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
    json[at..at + len].parse().unwrap()
}

/// Waits until `done`, and fails with `what` if that takes too long.
#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + TOO_LONG;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The user `nobody`, and a copy of the program that this user can reach.
pub struct Nobody {
    program: String,
}

pub const NOBODY: u32 = 65534;

impl Nobody {
    /// `None`, and a message, where tests cannot become `nobody`.
    pub fn at(place: &TestMount) -> Option<Nobody> {
        let root = std::fs::metadata("/proc/self")
            .is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        let helper = Command::new("fusermount3").arg("--version").output();
        if !can_mount() || helper.is_err() || !root {
            holdfast_base::skip::skipped("needs root to become nobody, and fusermount3");
            return None;
        }
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.root.path(), open).unwrap();
        let program = place.path("holdfast");
        copy_program(PROGRAM, &program);
        let nobody = Nobody { program };
        if nobody.run(&["--version"]).code != 0 {
            holdfast_base::skip::skipped(format_args!("nobody cannot reach {}", nobody.program));
            return None;
        }
        Some(nobody)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Where its program is.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Runs the program.
    pub fn run(&self, args: &[&str]) -> Said {
        said(self.command(&self.program).args(args).output().unwrap())
    }

    /// Runs a shell.
    pub fn sh(&self, script: &str) -> Said {
        said(self.command("sh").args(["-c", script]).output().unwrap())
    }

    /// A volume of `nobody`, mounted by `nobody`; false, and a message, where that is not allowed.
    pub fn mounts(&self, place: &TestMount) -> bool {
        for path in [place.root.path(), place.dir.as_path()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        self.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
        let mounted = self.run(&["mount", place.image(), place.dir()]);
        if mounted.code != 0 {
            holdfast_base::skip::skipped(&mounted.err);
            mounted.fails(32, "");
            return false;
        }
        true
    }
}
