//! A filesystem that was just made on a bed and is mounted until it is dropped.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::bed::Bed;
use super::{System, find_program, patiently};
use crate::counts::Counts;
use crate::undo::{Undo, interrupted, run};

/// Whether the kernel offers rings to FUSE servers.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// How Holdfast is made and mounted.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// Its program.
    pub program: PathBuf,
    /// Options of the mount, separated by commas; may be empty.
    pub options: String,
    /// Options of mkfs.
    pub mkfs: Vec<String>,
}

/// A mounted filesystem, empty at first.
pub struct Mounted<'a> {
    system: System,
    bed: &'a Bed,
    ours: Ours,
    mount: RefCell<Option<Undo>>,
    /// The process that serves it.
    daemon: Cell<Option<u32>>,
    dir: PathBuf,
    _rings: Option<Undo>,
}

impl<'a> Mounted<'a> {
    /// Makes `system` on `bed` and mounts it.
    pub fn new(system: System, bed: &'a Bed, ours: &Ours) -> io::Result<Mounted<'a>> {
        let mut make = match system.recipe() {
            Some(recipe) => {
                let name = recipe.program;
                let found = find_program(name);
                let found = found.ok_or_else(|| io::Error::other(format!("{name} is missing")))?;
                let mut command = Command::new(found);
                command.args(recipe.args);
                command
            }
            None if system.is_ours() => {
                let mut command = Command::new(&ours.program);
                // Metadata once, as most of the others store it, and as in an image.
                command.args(["mkfs", "-q", "--force", "--copies", "metadata=1"]);
                command.args(&ours.mkfs);
                command
            }
            None => return Err(io::Error::other("the bare device cannot be mounted")),
        };
        run(make.arg(bed.device()))?;
        let mounted = Mounted {
            system,
            bed,
            ours: ours.clone(),
            mount: RefCell::new(None),
            daemon: Cell::new(None),
            dir: bed.mount_point(),
            _rings: if system == System::Rings { Some(allow_rings()?) } else { None },
        };
        mounted.resume()?;
        mounted.quiesce()?;
        Ok(mounted)
    }

    /// Mounts it again after [`Mounted::pause`].
    pub fn resume(&self) -> io::Result<()> {
        interrupted()?;
        let (device, dir) = (self.bed.device(), self.dir.clone());
        let mount = match (self.system.recipe(), self.system.server()) {
            (Some(_), Some(_)) => {
                let (pid, mount) = serve(self.system, device, &dir, self.bed.below())?;
                self.daemon.set(Some(pid));
                mount
            }
            (Some(recipe), None) => mount(device, dir, recipe.kind)?,
            (None, _) => {
                let transport = if self.system == System::Rings { "rings" } else { "auto" };
                let options = format!("noatime,transport={transport},{}", self.ours.options);
                let program = self.ours.program.clone();
                let mut command = Command::new(&program);
                command.args(["mount", "-o", options.trim_end_matches(',')]);
                run(command.arg(device).arg(&dir))?;
                let umount = move |lazy: Option<&str>| {
                    run(Command::new(&program).arg("umount").args(lazy).arg(&dir)).map(drop)
                };
                Undo::new(move || {
                    umount(None).or_else(|error| umount(Some("--lazy")).and(Err(error)))
                })
            }
        };
        self.mount.replace(Some(mount));
        if self.system.is_ours() {
            let (pid, _) = ask(&self.ours.program, &self.dir)?;
            self.daemon.set(Some(pid));
        }
        Ok(())
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The device below.
    pub fn bed(&self) -> &Bed {
        self.bed
    }

    /// The process that serves it, if it is one.
    pub fn daemon(&self) -> Option<u32> {
        self.daemon.get()
    }

    /// Everything so far is durable and at its location, as far as the filesystem says.
    pub fn quiesce(&self) -> io::Result<()> {
        quiesce(&self.dir, self.system.is_ours())
    }

    /// Unmounts it for a while: everything is at its location then.
    pub fn pause(&self) -> io::Result<()> {
        self.daemon.set(None);
        self.mount.take().map_or(Ok(()), Undo::finish)
    }

    /// Nothing of it is in memory any more: it is unmounted, and mounted again.
    pub fn cool(&self) -> io::Result<()> {
        self.pause()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        self.resume()
    }

    /// What the daemon has counted, for ours.
    pub fn counts(&self) -> io::Result<Option<Counts>> {
        let ours = self.system.is_ours();
        ours.then(|| Ok(ask(&self.ours.program, &self.dir)?.1)).transpose()
    }

    /// Unmounts, and says whether that went well; what is ours must be in order then.
    pub fn leave(self) -> io::Result<()> {
        self.pause()?;
        if self.system.is_ours() {
            run(Command::new(&self.ours.program).args(["fsck", "-n"]).arg(self.bed.device()))?;
        }
        Ok(())
    }
}

/// Mounts a filesystem of the kernel.
fn mount(device: &Path, dir: PathBuf, kind: &str) -> io::Result<Undo> {
    rustix::mount::mount(device, &dir, kind, MountFlags::NOATIME, None)?;
    let device = device.to_path_buf();
    Ok(Undo::new(move || {
        unmount(&dir)?;
        // Another process may have taken the mount into a namespace of its own: the device is in use until that ends.
        let in_use = || matches!(open(&device, OFlags::EXCL, Mode::empty()), Err(Errno::BUSY));
        patiently(|| Ok(!in_use())).map(drop)
    }))
}

/// Patiently, and in the end even if it is in use.
fn unmount(dir: &Path) -> io::Result<()> {
    let unmount = |flags| match rustix::mount::unmount(dir, flags) {
        Err(Errno::BUSY) => Ok(false),
        // What is not there any more was unmounted.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    };
    if !patiently(|| unmount(UnmountFlags::NOFOLLOW))? {
        unmount(UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Serves `device`, on which an ext4 was made, at `dir`, by a program that is not ours: its process. What needs an ext4
/// of the kernel gets one at `below`. The server is a child, so that its processor time is known, and that nothing is
/// written any more when it has ended.
fn serve(system: System, device: &Path, dir: &Path, below: PathBuf) -> io::Result<(u32, Undo)> {
    let name = system.server().unwrap_or("no server");
    let mut command = Command::new(name);
    command.arg("-f").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut ext4 = None;
    if system == System::Fuse2fs {
        command.arg(device);
    } else {
        ext4 = Some(mount(device, below.clone(), "ext4")?);
        if system == System::FuseOverlayfs {
            let folders = ["lower", "upper", "work"].map(|name| below.join(name));
            folders.iter().try_for_each(std::fs::create_dir_all)?;
            let [lower, upper, work] = folders.map(|path| path.display().to_string());
            command.arg("-o").arg(format!("lowerdir={lower},upperdir={upper},workdir={work}"));
        } else {
            command.arg(&below);
        }
    }
    let child = command.arg(dir).spawn();
    let mut child =
        Server(child.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?);
    let pid = child.0.id();
    let is_there = patiently(|| match child.0.try_wait()? {
        Some(status) => Err(io::Error::other(format!("{name} mounts nothing ({status})"))),
        None => is_mounted(dir),
    })?;
    if !is_there {
        return Err(io::Error::other(format!("{name} does not come to a mount")));
    }
    let dir = dir.to_path_buf();
    let undo = Undo::new(move || {
        unmount(&dir)?;
        if !patiently(|| Ok(child.0.try_wait()?.is_some()))? {
            return Err(io::Error::other("the server does not end after its mount is gone"));
        }
        ext4.map_or(Ok(()), Undo::finish)
    });
    Ok((pid, undo))
}

/// A server; one that still runs when this is dropped is killed.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It fails where the server has ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn is_mounted(dir: &Path) -> io::Result<bool> {
    let mounts = holdfast_base::proc::list("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str()))
}

/// Makes everything below `dir` durable. The kernel passes no syncfs to a FUSE server, so ours is asked directly.
pub(crate) fn quiesce(dir: &Path, is_ours: bool) -> io::Result<()> {
    let root = File::open(dir)?;
    rustix::fs::syncfs(&root)?;
    if is_ours {
        rustix::fs::fgetxattr(&root, "system.holdfast.sync", &mut [0; 0][..])?;
    }
    Ok(())
}

/// Process and statistics of the daemon that serves `dir`.
pub(crate) fn ask(program: &Path, dir: &Path) -> io::Result<(u32, Counts)> {
    let said = run(Command::new(program).args(["stats", "--json"]).arg(dir))?;
    understand(&said).map_err(|error| io::Error::other(format!("{}: {error}", dir.display())))
}

/// What `holdfast stats --json` says.
fn understand(said: &str) -> io::Result<(u32, Counts)> {
    let value: serde_json::Value = serde_json::from_str(said)?;
    let pid = value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("no process serves it"))?;
    let group = |group: &str, prefix: &'static str| {
        let of_group = value["all"][group].as_object().cloned().into_iter().flatten();
        of_group.filter_map(move |(name, value)| Some((format!("{prefix}{name}"), value.as_u64()?)))
    };
    let counts: Counts = group("counters", "").chain(group("device", "device.")).collect();
    // All figures made of them would be 0.
    if counts.is_empty() {
        return Err(io::Error::other("its process tells of no counters"));
    }
    Ok((pid, counts))
}

/// Rings are offered until this is dropped.
fn allow_rings() -> io::Result<Undo> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{RINGS}: {error}"));
    let before = std::fs::read_to_string(RINGS).map_err(named)?;
    std::fs::write(RINGS, "Y").map_err(named)?;
    Ok(Undo::new(move || std::fs::write(RINGS, before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_daemon_are_found() {
        let said = r#"{"pid":7,"all":{"counters":{"commits":3,"note":"no number"},"device":{"flushes":5}}}"#;
        let wanted = [("commits".to_string(), 3), ("device.flushes".to_string(), 5)];
        assert_eq!(understand(said).unwrap(), (7, wanted.into_iter().collect()));
        for (said, why) in [
            (r#"{"pid":7,"statistics":{"commits":3}}"#, "no counters"),
            (r#"{"all":{"counters":{"commits":3}}}"#, "no process"),
        ] {
            let error = understand(said).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
