//! A volume mounted with the real program, as a target of scripts.

mod beside;
mod branches;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use beside::Beside;
use holdfast_script::{Answer, BranchOp, Errno, Hooks, TreeName};

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");

/// What takes so long does not come any more, also on a busy machine.
const TOO_LONG: Duration = Duration::from_secs(100);

/// Why the tests of this file cannot run here, if they cannot.
pub(crate) fn unable() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("needs /dev/fuse");
    }
    None
}

/// The transport that `HOLDFAST_TRANSPORT` names and the side that opens files, as `HOLDFAST_OPEN` says: as mount
/// options.
fn way() -> String {
    let word = |name, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.into());
    let (transport, open) = (word("HOLDFAST_TRANSPORT", "auto"), word("HOLDFAST_OPEN", "server"));
    format!("transport={transport},open={open}")
}

pub(crate) fn holdfast(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(HOLDFAST).args(words).args(paths).output().expect("the program was just built")
}

fn must(output: Output) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
}

fn is_mounted(dir: &Path) -> bool {
    let table = holdfast_base::proc::list("/proc/self/mountinfo").expect("proc is mounted");
    let dir = dir.to_str().expect("a temporary path is plain");
    table.lines().any(|line| line.split(' ').nth(4) == Some(dir))
}

/// A volume in a temporary directory, mounted; unmounted when dropped, also when a test fails.
pub(crate) struct Mounted {
    pub(crate) volume: PathBuf,
    pub(crate) dir: PathBuf,
    daemon: Option<Child>,
    /// The branch that is mounted.
    branch: TreeName,
    /// A snapshot of it that is mounted instead.
    snapshot: Option<TreeName>,
    /// What is mounted beside it by one daemon, which lives on when it is unmounted.
    beside: Option<Beside>,
    _keep: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn new(node_size: &str) -> Mounted {
        let keep = tempfile::tempdir().expect("a directory for the volume");
        let root = keep.path().canonicalize().expect("the directory is new");
        let (volume, dir) = (root.join("volume"), root.join("mnt"));
        std::fs::create_dir(&dir).expect("the directory is new");
        must(holdfast(&["mkfs", "--size", "64M", "--node-size", node_size], &[&volume]));
        let mut mounted = Mounted {
            volume,
            dir,
            daemon: None,
            branch: TreeName::main(),
            snapshot: None,
            beside: None,
            _keep: keep,
        };
        mounted.mount().expect("a fresh volume mounts");
        mounted
    }

    /// As [`Mounted::new`], but a fork of the volume's first snapshot, beside `count` other forks that are mounted.
    pub(crate) fn beside(node_size: &str, count: usize) -> Mounted {
        let mut mounted = Mounted::new(node_size);
        let tested = TreeName::new("tested").expect("it is one");
        must(holdfast(&["snapshot", "create"], &[&mounted.dir, Path::new("base")]));
        must(holdfast(&["fork", "--from", "@base"], &[&mounted.dir, Path::new("tested")]));
        let beside = Beside::of(&mounted.dir, count);
        mounted.unmount().expect("nothing is open");
        (mounted.branch, mounted.beside) = (tested, Some(beside));
        mounted.mount().expect("a fork mounts");
        mounted
    }

    /// Unmounts everything.
    pub(crate) fn end(&mut self) -> Result<(), Errno> {
        self.unmount()?;
        self.beside.take().map_or(Ok(()), Beside::leave)
    }

    /// Where the daemons write what they have to say.
    fn log(&self) -> std::fs::File {
        let path = self.volume.with_file_name("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
        log.expect("the directory is ours")
    }

    /// What the daemons said.
    fn said(&self) -> String {
        std::fs::read_to_string(self.volume.with_file_name("log")).unwrap_or_default()
    }

    /// Whether the directory is a mount point.
    fn is_mounted(&self) -> bool {
        is_mounted(&self.dir)
    }

    fn mount(&mut self) -> Result<(), Errno> {
        if self.beside.is_some() {
            return self.join();
        }
        let mut daemon = Command::new(HOLDFAST)
            .args(["mount", "--foreground", "-o", &way()])
            .arg(self.place())
            .arg(&self.dir)
            // What it says of every mount would drown what a failing test says.
            .stdout(std::process::Stdio::null())
            .stderr(self.log())
            .spawn()
            .expect("the program was just built");
        let start = Instant::now();
        while !self.is_mounted() {
            if let Ok(Some(status)) = daemon.try_wait() {
                eprintln!("mount ended with {status}\n{}", self.said());
                return Err(Errno::EIO);
            }
            if start.elapsed() > TOO_LONG {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return Err(Errno::EBUSY);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.daemon = Some(daemon);
        // It is mounted before the daemon has shaken hands, which may fail. This waits for that.
        let looked = std::fs::metadata(&self.dir);
        if looked.is_ok() && self.is_mounted() {
            return Ok(());
        }
        let ended = self.daemon.take().map(|mut daemon| daemon.wait());
        eprintln!("mount ended with {ended:?} ({looked:?})\n{}", self.said());
        Err(Errno::EIO)
    }

    pub(crate) fn unmount(&mut self) -> Result<(), Errno> {
        let mut output = holdfast(&["umount"], &[&self.dir]);
        // A program that another test is starting holds copies of our open files until it has begun.
        let start = Instant::now();
        while !output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("busy")
            && start.elapsed() < TOO_LONG
        {
            std::thread::sleep(Duration::from_millis(20));
            output = holdfast(&["umount"], &[&self.dir]);
        }
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return Err(Errno::EBUSY);
        }
        match self.daemon.take().map(|mut daemon| daemon.wait()) {
            Some(Ok(status)) if !status.success() => {
                eprintln!("the daemon ended with {status}\n{}", self.said());
                Err(Errno::EIO)
            }
            _ => Ok(()),
        }
    }

    /// As SIGKILL and a forced unmount leave it.
    fn kill(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.kill();
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if self.is_mounted() {
            let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.daemon.is_some() && self.beside.is_none() && self.unmount().is_ok() {
            return;
        }
        self.kill();
    }
}

impl Hooks for Mounted {
    fn remount(&mut self) -> Result<(), Errno> {
        self.unmount()?;
        self.mount()
    }

    fn crash(&mut self) -> Result<(), Errno> {
        self.kill();
        self.mount()
    }

    fn evict(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Errno> {
        let output = holdfast(&["sync"], &[&self.dir]);
        if output.status.success() {
            return Ok(());
        }
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        Err(Errno::EIO)
    }

    fn has_branches(&self) -> bool {
        // Of the branches that are mounted beside it no script knows.
        self.beside.is_none()
    }

    fn branch(&mut self, op: &BranchOp) -> Result<Answer, Errno> {
        self.carry_out(op)
    }

    fn look(&mut self, name: &TreeName) -> Result<(), Errno> {
        self.show(Some(name))
    }

    fn look_away(&mut self) -> Result<(), Errno> {
        self.show(None)
    }
}
