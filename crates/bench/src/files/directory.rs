//! Any directory of any filesystem as a place to work in; it is as it was when everything is dropped.

use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::run::{Host, Reading};
use crate::counts::Counts;
use crate::systems::{Mounted, meter, mounted};
use crate::work::named;

/// A new directory inside another one, gone when it is dropped.
#[derive(Debug)]
pub struct Directory {
    dir: TempDir,
    /// The device below, in /sys, if there is one.
    device: Option<PathBuf>,
    /// The program of Holdfast and the process that serves the directory, if it is ours.
    ours: Option<(PathBuf, u32)>,
    /// Whether the caches of the whole machine may be dropped.
    is_cold: bool,
}

impl Directory {
    /// A place to work in below `path`. `program` is Holdfast's, for the statistics of a mount of its own. With
    /// `cold` what is cached is forgotten before some phases, for the whole machine: that needs root.
    pub fn below(path: &Path, program: &Path, cold: bool) -> io::Result<Directory> {
        let dir = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(path);
        let dir = dir.map_err(|error| named(path, &error))?;
        let number = std::fs::metadata(&dir)?.st_dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let device = meter::asked(&device).is_ok().then_some(device);
        let root = mount_point(dir.path())?;
        let ours = root.and_then(|root| mounted::ask(program, &root).ok());
        let ours = ours.map(|(pid, _)| (program.to_path_buf(), pid));
        Ok(Directory { dir, device, ours, is_cold: cold })
    }

    /// Whether it is in a mount of Holdfast.
    pub fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// What is known of the filesystem: its type and its device.
    pub fn about(&self) -> String {
        let kind = mount_line(self.dir.path()).ok().flatten();
        let kind = kind.map_or("an unknown filesystem".into(), |(_, kind)| kind);
        match self.device {
            Some(_) => format!("{kind} on a block device"),
            None => format!("{kind}, of which no block device tells anything"),
        }
    }
}

/// The mount in which `dir` is, and its type.
fn mount_line(dir: &Path) -> io::Result<Option<(PathBuf, String)>> {
    let dir = dir.canonicalize()?;
    let table = holdfast_base::proc::list("/proc/self/mountinfo")?;
    let mounts = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(left.split(' ').nth(4)?.replace("\\040", " "));
        Some((point, right.split(' ').next()?.to_string()))
    });
    let around = mounts.filter(|(point, _)| dir.starts_with(point));
    Ok(around.max_by_key(|(point, _)| point.as_os_str().len()))
}

/// The mount point, if the mount is one of ours.
fn mount_point(dir: &Path) -> io::Result<Option<PathBuf>> {
    let found = mount_line(dir)?;
    Ok(found.filter(|(_, kind)| kind == "fuse.holdfast").map(|(point, _)| point))
}

impl Host for Directory {
    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn quiesce(&self) -> io::Result<()> {
        mounted::quiesce(self.dir.path(), self.ours.is_some())
    }

    fn cool(&self) -> io::Result<Result<(), String>> {
        if !self.is_cold {
            return Ok(Err("dropping caches was not asked for".into()));
        }
        match std::fs::write("/proc/sys/vm/drop_caches", "3") {
            Ok(()) => Ok(Ok(())),
            Err(_) => Ok(Err("dropping caches needs root".into())),
        }
    }

    fn reading(&self) -> io::Result<Reading> {
        let asked = self.device.as_deref().map(meter::asked).transpose()?;
        Reading::now(self.ours.as_ref().map(|(_, pid)| *pid), asked)
    }

    fn counts(&self) -> io::Result<Option<Counts>> {
        let Some((program, _)) = &self.ours else { return Ok(None) };
        let Some(root) = mount_point(self.dir.path())? else { return Ok(None) };
        mounted::ask(program, &root).map(|(_, counts)| Some(counts))
    }
}

impl Host for Mounted<'_> {
    fn dir(&self) -> &Path {
        Mounted::dir(self)
    }

    fn quiesce(&self) -> io::Result<()> {
        Mounted::quiesce(self)
    }

    fn cool(&self) -> io::Result<Result<(), String>> {
        Mounted::cool(self).map(Ok)
    }

    fn reading(&self) -> io::Result<Reading> {
        Reading::now(self.daemon(), Some(self.bed().asked()?))
    }

    fn counts(&self) -> io::Result<Option<Counts>> {
        Mounted::counts(self)
    }
}
