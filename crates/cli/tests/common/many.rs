//! Many mounts of a volume by one daemon, and a program that asks a daemon without our help.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TestMount, number};

/// A program that becomes `nobody` and asks a daemon, or does worse.
pub const CALLER: &str = include_str!("caller.py");

/// A volume with these branches, and directories to mount them at.
pub struct Many {
    pub place: TestMount,
}

impl Many {
    pub fn new(branches: &[&str]) -> Many {
        let place = TestMount::with_volume();
        for branch in branches {
            place.run(&["fork", place.image(), branch]).fine();
        }
        Many { place }
    }

    /// A new directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.place.root.path().join(name);
        if !dir.exists() {
            fs::create_dir(&dir).unwrap();
        }
        dir
    }

    pub fn mount(&self, what: &str, dir: &str) -> PathBuf {
        let at = self.dir(dir);
        let what = format!("{}{what}", self.place.image());
        self.place.run(&["mount", &what, at.to_str().unwrap()]).fine();
        at
    }

    pub fn pid(&self, dir: &Path) -> u32 {
        let stats = self.place.run(&["stats", "--json", dir.to_str().unwrap()]).fine();
        u32::try_from(number(&stats, "pid")).unwrap()
    }

    /// The lines of `holdfast list` that are of this volume.
    pub fn list(&self) -> Vec<String> {
        let list = self.place.run(&["list"]).fine();
        list.lines().filter(|line| line.starts_with(self.place.image())).map(Into::into).collect()
    }

    /// Where its control socket is.
    pub fn socket(&self) -> PathBuf {
        let found = fs::metadata(&self.place.image).unwrap();
        format!("/run/holdfast/file-{:x}-{:x}.sock", found.dev(), found.ino()).into()
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        let _ = self.place.run(&["umount", self.place.image()]);
        let below = self.place.root.path().to_str().unwrap().to_owned();
        let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
        for dir in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if dir.starts_with(&below) {
                let _ = Command::new("umount").args(["-l", dir]).status();
            }
        }
    }
}
