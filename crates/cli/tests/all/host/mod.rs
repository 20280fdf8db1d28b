//! A host that sets limits: cgroups for the daemon, a small filesystem for the image, and a volume there. Where a test may
//! not set a limit it says so.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::common::TestMount;

/// A volume in a file, larger than any limit.
pub fn volume(image: Option<PathBuf>) -> TestMount {
    let mut place = TestMount::new();
    if let Some(image) = image {
        place.image = image;
    }
    place.run(&["mkfs", "-q", "--size", "256M", place.image()]).fine();
    place
}

/// A group of processes with a limit, gone when it is dropped.
pub struct Group {
    pub path: PathBuf,
    parent: PathBuf,
    pid: u32,
}

impl Group {
    /// A new one with the process in it; `None`, and said, if there can be none here.
    pub fn with(controller: &str, pid: u32) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup");
        // Version 1 has a tree for each controller.
        let own = root.join(controller);
        let parent = if own.join("cgroup.procs").exists() { own } else { root.to_path_buf() };
        let path = parent.join(format!("holdfast-limits-{}-{pid}", std::process::id()));
        let group = Group { path, parent, pid };
        match group.make(controller) {
            Ok(()) => Some(group),
            Err(error) => {
                holdfast_base::skip::skipped(format_args!(
                    "no cgroup for {controller} can be made here: {error}"
                ));
                None
            }
        }
    }

    fn make(&self, controller: &str) -> io::Result<()> {
        if self.parent.join("cgroup.controllers").exists() {
            fs::write(self.parent.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
        fs::create_dir(&self.path)?;
        fs::write(self.path.join("cgroup.procs"), self.pid.to_string())
    }

    pub fn read(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }

    pub fn write(&self, name: &str, value: u64) {
        fs::write(self.path.join(name), value.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may have ended.
        let _ = fs::write(self.parent.join("cgroup.procs"), self.pid.to_string());
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A host's filesystem of a few MiB. Unmounted when dropped, also when a test fails.
pub struct SmallHost(tempfile::TempDir);

impl SmallHost {
    pub fn tmpfs(mib: u64) -> Option<SmallHost> {
        SmallHost::without_device("tmpfs", &format!("size={mib}m"))
    }

    /// Which has no extended attributes and no access control lists.
    pub fn ramfs() -> Option<SmallHost> {
        SmallHost::without_device("ramfs", "mode=755")
    }

    fn without_device(kind: &str, options: &str) -> Option<SmallHost> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "host"]).arg(dir.path());
        let mounted = mount.status().is_ok_and(|status| status.success());
        if !mounted {
            holdfast_base::skip::skipped(format_args!("no {kind} can be mounted here"));
        }
        mounted.then_some(SmallHost(dir))
    }

    /// ext4 in a file, which keeps no room for root.
    pub fn ext4(mib: u64) -> Option<SmallHost> {
        let dir = tempfile::tempdir().unwrap();
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(mib << 20).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        let is_made =
            done(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(image.path()));
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).arg(image.path()).arg(dir.path());
        // The loop device keeps the file.
        let mounted = is_made && done(&mut mount);
        if !mounted {
            holdfast_base::skip::skipped("no ext4 can be mounted here from a file");
        }
        mounted.then_some(SmallHost(dir))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn room(&self) -> u64 {
        let found = rustix::fs::statvfs(self.0.path()).unwrap();
        found.f_bavail * found.f_frsize
    }

    /// A file that takes all that is left.
    pub fn fill(&self) -> PathBuf {
        let path = self.path("ballast");
        let mut file = File::create(&path).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[1; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        while file.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
        // ext4 counts what it may need for extents apart.
        let _ = file.sync_all();
        assert!(self.room() < 256 << 10, "{} are left", self.room());
        path
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
