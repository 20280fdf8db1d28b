//! Forks that one daemon serves beside the mount that is tested.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_script::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::{HOLDFAST, Mounted, holdfast, must, way};

/// Forks, each with its directory, in which the first look leaves a file.
pub(super) struct Beside {
    dirs: Vec<PathBuf>,
    /// The daemon, which the first of them has started.
    daemon: Option<Child>,
}

impl Beside {
    /// Makes `count` forks of the snapshot `base`, and the directories beside `dir` that they are mounted at later.
    pub(super) fn of(dir: &Path, count: usize) -> Beside {
        let dirs: Vec<_> =
            (0..count).map(|number| dir.with_file_name(format!("beside-{number}"))).collect();
        for beside in &dirs {
            let name = beside.file_name().expect("it has one");
            must(holdfast(&["fork", "--from", "@base"], &[dir, Path::new(name)]));
            std::fs::create_dir(beside).expect("the directory is new");
        }
        Beside { dirs, daemon: None }
    }

    /// What each has and nothing else: its own name, in one file.
    fn expect_alone(&self) {
        for dir in &self.dirs {
            let name = dir.file_name().and_then(|name| name.to_str()).expect("it is plain");
            let names: Vec<_> = std::fs::read_dir(dir)
                .expect("it is mounted")
                .map(|entry| entry.expect("it is read").file_name())
                .collect();
            assert_eq!(names, ["mark"], "{name}");
            let mark = std::fs::read_to_string(dir.join("mark")).expect("it is there");
            assert_eq!(mark, name, "a branch has what was written into another one");
        }
    }

    /// Unmounts all of them, and waits for the daemon.
    pub(super) fn leave(mut self) -> Result<(), Errno> {
        self.expect_alone();
        for dir in &self.dirs {
            must(holdfast(&["umount"], &[dir]));
        }
        let ended = self.daemon.take().map(|mut daemon| daemon.wait());
        match ended {
            Some(Ok(status)) if status.success() => Ok(()),
            other => {
                eprintln!("the daemon ended with {other:?}");
                Err(Errno::EIO)
            }
        }
    }

    /// As SIGKILL and forced unmounts leave it.
    pub(super) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for dir in &self.dirs {
            let _ = unmount(dir, UnmountFlags::DETACH);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Mounted {
    /// Mounts the tested branch by the daemon of the others, and these before, should it not live.
    pub(super) fn join(&mut self) -> Result<(), Errno> {
        if self.beside.as_ref().is_some_and(|beside| beside.daemon.is_none()) {
            self.mount_others();
        }
        let mut join = Command::new(HOLDFAST);
        join.args(["mount", "-o", &way()]).arg(self.place()).arg(&self.dir);
        let output = join.output().expect("the program was just built");
        if output.status.success() {
            return Ok(());
        }
        eprintln!("{}\n{}", String::from_utf8_lossy(&output.stderr), self.said());
        Err(Errno::EIO)
    }

    fn mount_others(&mut self) {
        let log = self.log();
        let dirs = self.beside.as_ref().map(|beside| beside.dirs.clone()).unwrap_or_default();
        let place = |dir: &Path| {
            let mut place = self.volume.clone().into_os_string();
            place.push(":");
            place.push(dir.file_name().expect("it has one"));
            place
        };
        let (first, others) = dirs.split_first().expect("there is one at least");
        let mut start = Command::new(HOLDFAST);
        start
            .args(["mount", "--foreground", "-o", &way()])
            .arg(place(first))
            .arg(first)
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(beside) = &mut self.beside {
            beside.daemon = Some(start.spawn().expect("the program was just built"));
        }
        for _ in 0..3000 {
            if super::is_mounted(first) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for dir in others {
            let mut join = Command::new(HOLDFAST);
            must(
                join.args(["mount", "-o", &way()])
                    .arg(place(dir))
                    .arg(dir)
                    .output()
                    .expect("built"),
            );
        }
        for dir in &dirs {
            let (mark, name) = (dir.join("mark"), dir.file_name().expect("it has one"));
            // Behind a crash it is there, or was not durable yet.
            if std::fs::read(&mark).unwrap_or_default().is_empty() {
                std::fs::write(&mark, name.as_encoded_bytes()).expect("a fork takes a file");
            }
        }
        if let Some(beside) = &self.beside {
            beside.expect_alone();
        }
    }
}
