//! A filesystem in userspace that is not ours: its server, and the ext4 that some of them pass everything on to.
//!
//! The server runs in the foreground, as a child: so its end can be awaited,
//! after which nothing of it is written any more, and its processor time is
//! known.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use rustix::mount::MountFlags;

use super::System;
use super::cleanup::{Cleanup, CleanupGuard, interrupted};

/// How long a server may take until its mount is there, and to end after it is gone: it writes what it holds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A mount with its server. Dropped in this order.
#[derive(Debug)]
pub(super) struct Served {
    mount: CleanupGuard,
    program: CleanupGuard,
    child: Child,
    /// The ext4 below, and its mount point.
    below: Option<(CleanupGuard, CleanupGuard)>,
}

impl Served {
    /// Serves `device`, on which an ext4 was made, at `dir`; what needs an ext4 of the kernel finds it at `below`.
    pub(super) fn start(
        system: System,
        device: &Path,
        dir: &Path,
        below: &Path,
    ) -> io::Result<Served> {
        let name = system.server().map_or("no server", |(name, _)| name);
        let mut command = Command::new(name);
        let mut ext4 = None;
        if system == System::Fuse2fs {
            command.arg("-f").arg(device).arg(dir);
        } else {
            let (below, place) = CleanupGuard::make(|| {
                std::fs::create_dir(below)?;
                Ok((below, Cleanup::MountPoint(below.into())))
            })?;
            let ((), mount) = CleanupGuard::make(|| {
                rustix::mount::mount(device, below, "ext4", MountFlags::NOATIME, None)?;
                Ok(((), Cleanup::Mount(below.into())))
            })?;
            ext4 = Some((mount, place));
            command.args(arguments(system, below)?).arg(dir);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (mut child, program) = CleanupGuard::make(|| {
            let child = command.spawn();
            let child = child.map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
            let cleanup = Cleanup::Program(child.id());
            Ok((child, cleanup))
        })?;
        let until = Deadline::after(PATIENCE);
        while !is_mounted(dir)? {
            interrupted()?;
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("{name} mounts nothing ({status})")));
            }
            if until.is_over() {
                return Err(io::Error::other(format!("{name} does not come to a mount")));
            }
            std::thread::sleep(PAUSE);
        }
        let ((), mount) = CleanupGuard::make(|| Ok(((), Cleanup::Mount(dir.into()))))?;
        Ok(Served { mount, program, child, below: ext4 })
    }

    /// The server's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Unmounts, and returns when the server has ended: everything is on the device then.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.mount.finish()?;
        let until = Deadline::after(PATIENCE);
        while self.child.try_wait()?.is_none() {
            interrupted()?;
            if until.is_over() {
                return Err(io::Error::other("the server does not end after its mount is gone"));
            }
            std::thread::sleep(PAUSE);
        }
        self.program.forget();
        match self.below {
            None => Ok(()),
            Some((mount, place)) => mount.finish().and_then(|()| place.finish()),
        }
    }
}

/// The arguments of a server that passes on to `below`, without the mount point.
fn arguments(system: System, below: &Path) -> io::Result<Vec<PathBuf>> {
    if system == System::Bindfs {
        return Ok(vec!["-f".into(), below.into()]);
    }
    let folders = ["lower", "upper", "work"].map(|name| below.join(name));
    folders.iter().try_for_each(std::fs::create_dir_all)?;
    let [lower, upper, work] = folders.map(|path| path.display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    Ok(vec!["-f".into(), "-o".into(), options.into()])
}

fn is_mounted(dir: &Path) -> io::Result<bool> {
    let mounts = holdfast_base::proc::list("/proc/self/mountinfo")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str()))
}
