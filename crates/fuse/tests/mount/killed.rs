//! A daemon that is killed at the moment in which it cannot end: the kernel forgets pages for it, and waits for one that is
//! being read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_fuse::Opens;
use holdfast_fuse::connection::{self, Connection, Watchdog};

use crate::common::{Mount, can_mount, mkfs, options, wait_for};

const TEST: &str = "killed::a_daemon_that_cannot_end_is_ended";
/// What this process is: the daemon, or the PID that it watches over.
const ROLE: &str = "HOLDFAST_TEST_ROLE";
const DAEMON: &str = "daemon";
/// Set: what watches over the daemon looks for the first time when that was killed.
const LATE: &str = "HOLDFAST_TEST_LATE";
const FILE: usize = 16 << 20;
const PAGE: usize = 4096;

/// A device that never comes back from one read.
#[derive(Debug)]
struct Stuck {
    inner: SimDevice,
    armed: AtomicBool,
}

impl Device for Stuck {
    forward!(inner: write, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if self.armed.swap(false, Ordering::SeqCst) {
            println!("stuck");
            loop {
                std::thread::park();
            }
        }
        self.inner.read(at, into)
    }
}

/// This test once more, as something else.
fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(ROLE, role).stdin(Stdio::piped());
    // What it mounts beside would stay behind it.
    command.env_remove("HOLDFAST_BESIDE");
    command
}

/// Serves a volume with a file `f` and does what it is told: `stick`, `refuse`.
fn serve_until_killed() {
    let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&empty);
    let mut image = vec![0; 64 << 20];
    empty.read(0, &mut image).unwrap();
    let inner = SimDevice::new(&MemoryDevice::from_image(&image));
    let device = Arc::new(Stuck { inner, armed: AtomicBool::new(false) });
    let mount = Mount::of(device.clone());
    fs::write(mount.path("f"), vec![1; FILE]).unwrap();
    mount.leave();
    let pid = std::process::id();
    let watchdog = move |connection: OwnedFd| {
        again(&pid.to_string()).stdin(connection).stdout(Stdio::null()).spawn()
    };
    let mount = Mount::with(device.clone(), options(), |fuse| {
        fuse.opens = Opens::Server;
        fuse.watchdog = Some(Watchdog::new(watchdog));
    });
    let geometry = mount.fs().superblock().geometry;
    println!("at {}", mount.dir.path().display());
    for word in std::io::stdin().lines() {
        match word.unwrap().as_str() {
            "stick" => device.armed.store(true, Ordering::SeqCst),
            "refuse" => {
                let (start, end) =
                    (geometry.first_data_block().0 * 4096, geometry.volume_blocks * 4096);
                let inside = When::Inside { start, end, skip: 0, times: u64::MAX };
                device.inner.set_faults(Faults::none().with(Call::Write, inside, Action::Fail));
            }
            other => panic!("{other}"),
        }
        println!("done");
    }
}

struct Daemon {
    process: Child,
    told: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    dir: PathBuf,
}

impl Daemon {
    fn start(is_late: bool) -> Daemon {
        let mut command = again(DAEMON);
        if is_late {
            command.env(LATE, "1");
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let told = process.stdin.take().unwrap();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut daemon = Daemon { process, told, says, dir: PathBuf::new() };
        daemon.dir = daemon.hears("at ").into();
        daemon
    }

    /// The rest of the next line that begins so.
    fn hears(&mut self, word: &str) -> String {
        let found = self.says.find_map(|line| line.unwrap().strip_prefix(word).map(str::to_owned));
        found.unwrap_or_else(|| panic!("it never says {word}"))
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.told, "{word}").unwrap();
        self.hears("done");
    }

    /// Whether one of its threads waits in the kernel and cannot be woken.
    fn waits(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let mut stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        stats.any(|stat| stat.is_ok_and(|stat| stat.contains(") D ")))
    }
}

/// Whatever happens, nothing stays mounted, and nothing waits.
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = Command::new("umount").args(["-f", "-l"]).arg(&self.dir).status();
        let _ = self.process.wait();
        let _ = fs::remove_dir(&self.dir);
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_daemon_that_cannot_end_is_ended() {
    match std::env::var(ROLE).ok() {
        Some(role) if role == DAEMON => return serve_until_killed(),
        Some(role) => {
            let pid = role.parse().unwrap();
            while std::env::var_os(LATE).is_some() && !connection::is_dying(pid) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let held = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            return connection::watch(pid, &Connection::held(held)).unwrap();
        }
        None if !can_mount() => return,
        None => {}
    }
    ends(false);
    // In the window between its start and its first look.
    ends(true);
}

/// Kills a daemon while it waits in the kernel, and sees its mount end.
fn ends(is_late: bool) {
    let mut daemon = Daemon::start(is_late);
    let path = daemon.dir.join("f");
    let file = open(&path);
    // The way to the data is in memory then, and the data is not.
    file.read_exact_at(&mut [0; PAGE], (FILE * 3 / 4) as u64).unwrap();
    daemon.tell("stick");
    // Not a thread of this process, which must end whatever happens.
    let mut reader = Command::new("dd")
        .args([&format!("if={}", path.display()), "bs=4096", "skip=2048", "count=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    daemon.hears("stuck");
    daemon.tell("refuse");
    // More than what travels inside the log.
    file.write_all_at(&[2; 64 * PAGE], 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    wait_for("the kernel does not wait for the page that is being read", || daemon.waits());
    daemon.process.kill().unwrap();
    wait_for("the daemon was killed and does not end", || {
        daemon.process.try_wait().unwrap().is_some()
    });
    wait_for("its client does not end", || reader.try_wait().unwrap().is_some());
    let error = fs::metadata(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "the mount stays until it is unmounted");
}
