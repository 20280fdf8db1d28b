//! The end of a connection whose daemon cannot end it.
//!
//! The kernel ends a connection when the daemon's descriptors are closed. A daemon that is killed while the kernel
//! forgets pages for it (see `notices`) never gets there: that thread waits, and cannot be woken, for pages that wait
//! for answers of the threads that are dead. So the mount hangs until the connection is aborted, by another process.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FsWord, Mode, OFlags, fstatfs, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{Pid, getppid};

/// Where the kernel usually shows its connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The kind of filesystem that connections are shown in.
const FUSECTL_MAGIC: FsWord = 0x6573_5543;
/// Between two looks at a daemon.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, held open so that it can be ended. The kernel gives the numbers of devices away again. An open
/// connection stays the one it was, and ending one that is gone does nothing.
#[derive(Debug)]
pub struct Connection(fs::File);

impl Connection {
    /// The connection of the mount on `device`, `major:minor` as mountinfo shows it. It is the right one only if the
    /// mount is there still when this has returned.
    ///
    /// # Errors
    /// The caller is neither root nor, where the system shows connections in their usual place, the user of the mount.
    pub fn open(device: &str) -> io::Result<Connection> {
        let minor = device.strip_prefix("0:").ok_or(io::ErrorKind::NotFound)?;
        // To be opened, never made.
        let shown = fs::OpenOptions::new().write(true).open(format!("{CONNECTIONS}/{minor}/abort"));
        if let Ok(file) = shown {
            return Ok(Connection(file));
        }
        // Not shown, as in most containers. Root may look without a place where it is mounted.
        let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let connections = rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())?;
        let path = format!("{minor}/abort");
        let file = openat(&connections, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Connection(file.into()))
    }

    /// The connection that a process which is not trusted has opened: it may end what it may open. `None` if it is none.
    pub(crate) fn received(descriptor: OwnedFd) -> Option<Connection> {
        ends_one(&descriptor).then(|| Connection(descriptor.into()))
    }

    /// What another process [holds](Connection::held) for it.
    pub(crate) fn shared(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// The connection that another process has opened.
    pub fn held(by: OwnedFd) -> Connection {
        Connection(by.into())
    }

    /// Ends it: whatever waits for an answer gets an error. The mount stays, and answers ENOTCONN.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn abort(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }
}

/// Whether a descriptor is what ends a connection. May wait for ever if its filesystem does not answer.
pub fn ends_one(descriptor: impl AsFd) -> bool {
    fstatfs(descriptor).is_ok_and(|found| found.f_type == FUSECTL_MAGIC)
}

/// Whether process `pid` was killed and has not ended: its first thread has, which ends only with the process, but
/// another one is still there.
pub fn is_dying(pid: u32) -> bool {
    let state_of = |path: PathBuf| fs::read(path).ok().and_then(|stat| state(&stat));
    let process = PathBuf::from(format!("/proc/{pid}"));
    if state_of(process.join("stat")) != Some(b'Z') {
        return false;
    }
    // A process of which no thread is left has ended, and only waits to be reaped.
    let Ok(threads) = fs::read_dir(process.join("task")) else { return false };
    let mut states = threads.flatten().filter_map(|thread| state_of(thread.path().join("stat")));
    states.any(|state| !matches!(state, b'Z' | b'X'))
}

/// `PID (NAME) STATE ...`, where the name may be anything.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

/// The life of a [`Watchdog`]: aborts `connection` if process `pid`, which has started this one, is killed and cannot
/// end. Returns then, or when it has ended. The daemon itself has opened the connection, so it may be killed at any moment:
/// by number, a connection is found for certain only while its daemon serves it.
///
/// # Errors
/// Those of [`Connection`].
pub fn watch(pid: u32, connection: &Connection) -> io::Result<()> {
    let daemon = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // A process whose parent has ended gets another one.
    while daemon.is_some() && getppid() == daemon {
        if is_dying(pid) {
            return connection.abort();
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// How a process is started that [watches](watch) over this one, for the time in which this one may be unable to end.
#[derive(Clone)]
pub struct Watchdog(Arc<Start>);

type Start = dyn Fn(OwnedFd) -> io::Result<Child> + Send + Sync;

impl Watchdog {
    /// `start` starts a process that calls [`watch`] with what it is given as the [held](Connection::held) connection.
    pub fn new(start: impl Fn(OwnedFd) -> io::Result<Child> + Send + Sync + 'static) -> Watchdog {
        Watchdog(Arc::new(start))
    }

    /// Has a process watch over this one until the answer is dropped. Where no process can be started there is no
    /// watchdog.
    pub(crate) fn start(&self, connection: &Connection) -> Watched {
        let started = connection.shared().and_then(|shared| (self.0)(shared));
        Watched(
            started
                .inspect_err(|error| tracing::warn!("no process watches over the daemon: {error}"))
                .ok(),
        )
    }
}

holdfast_base::opaque!(Watchdog);

/// A watchdog that runs.
pub(crate) struct Watched(Option<Child>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_dying_whatever_it_is_called() {
        assert_eq!(state(b"12 (a) Z (b) S 1 12"), Some(b'S'));
        assert_eq!(state(b"12 (a) Z 1 12"), Some(b'Z'));
        assert_eq!(state(b"12 (a)"), None);
        assert!(!is_dying(std::process::id()));
        assert!(Connection::open("8:1").is_err() && Connection::open("0:no such").is_err());
        // Not the parent: there is nothing to watch, and nothing is ended.
        let none = Connection(fs::File::open("/dev/null").unwrap());
        watch(u32::MAX, &none).unwrap();
        watch(1 << 22, &none).unwrap();
    }
}
