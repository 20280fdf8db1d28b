//! One writer or many readers for each volume, across programs.
//!
//! A device holds a `flock` on what it opened: exclusive for writing, shared
//! for reading. The lock belongs to the open file description and ends with
//! it, however the program ends; nothing is left behind that could be stale.
//! Block devices opened for writing are opened with O_EXCL as well, which the
//! kernel's own mounts respect. [`wait_until_free`] waits for the end.
//!
//! Who holds a lock is looked up in /proc for the message only; nothing is
//! decided by it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use rustix::fs::{FlockOperation, flock};

use super::{OpenMode, reason, refused};
use crate::DeviceError;

/// How long a lock is tried again. Device managers hold a block device for moments, and a child that
/// this program is just starting holds a copy of every descriptor until it runs its own code.
const PATIENCE: Duration = Duration::from_millis(300);
/// Between two looks at a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// Locks an open file as `mode` says, or names the holder.
pub(super) fn take(file: &File, path: &Path, mode: OpenMode) -> Result<(), DeviceError> {
    let how = match mode {
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match patiently(|| flock(file, how).map_err(io::Error::from)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use(path)),
        Err(error) => {
            let why = format!("cannot be locked: {}", reason(&error));
            Err(refused(path, why))
        }
    }
}

/// Tries again for [`PATIENCE`] while the answer is that somebody else holds it.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let since = Stopwatch::start();
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if since.elapsed() < PATIENCE
                    && matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                    ) =>
            {
                sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Waits until nobody has the volume at `path` open for writing; false after `patience`.
/// A path that does not exist is free. One that cannot be opened for reading counts as held.
pub fn wait_until_free(path: impl AsRef<Path>, patience: Duration) -> bool {
    let path = path.as_ref();
    let since = Stopwatch::start();
    loop {
        match File::open(path) {
            // Taken for a moment only: the descriptor is closed at the end of this arm.
            Ok(file) if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Ok(_) | Err(_) => {}
        }
        if since.elapsed() >= patience {
            return false;
        }
        sleep(PAUSE);
    }
}

/// The refusal, with the holder's name if it can be found.
pub(super) fn in_use(path: &Path) -> DeviceError {
    let holder = fs::metadata(path).ok().and_then(|found| holder(path, &found));
    DeviceError::InUse {
        path: path.display().to_string(),
        holder: holder.unwrap_or_else(|| "another program".into()),
    }
}

/// Looks for the holder: in the kernel's list of locks, among the mounts, among open descriptors.
fn holder(path: &Path, found: &Metadata) -> Option<String> {
    locking_process(found)
        .and_then(named)
        .or_else(|| mounted(path))
        .or_else(|| opening_process(found).and_then(named))
}

/// `process 123 (holdfast)`, if it still runs.
fn named(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// The process that took a lock on this inode. After a fork this may be a parent that has ended.
fn locking_process(found: &Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| parse_lock(line, found.st_ino()))
}

/// The process in a line of /proc/locks such as
/// `3: FLOCK  ADVISORY  WRITE 4711 fe:00:1835021 0 EOF`, if it is a flock on that inode.
/// The device numbers are not compared: overlays and btrfs show others there than stat does.
fn parse_lock(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid: u32 = words.nth(2)?.parse().ok()?;
    let locked: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
    (locked == inode).then_some(pid)
}

/// Where the kernel has mounted a block device.
fn mounted(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let (what, rest) = line.split_once(' ')?;
        let place = rest.split(' ').next()?;
        (Path::new(what) == path).then(|| format!("the mount at {place}"))
    })
}

/// Another process that has the same file open.
fn opening_process(found: &Metadata) -> Option<u32> {
    let own = std::process::id();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut files = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let same = files.any(|file| {
            fs::metadata(file.path()).is_ok_and(|other| {
                (other.st_dev(), other.st_ino()) == (found.st_dev(), found.st_ino())
            })
        });
        (same && pid != own).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:1835021 0 EOF";
        assert_eq!(parse_lock(line, 1835021), Some(4711));
        assert_eq!(parse_lock(line, 1835022), None);
        assert_eq!(parse_lock(&line.replace("FLOCK", "POSIX"), 1835021), None);
        assert_eq!(parse_lock("", 1), None);
    }
}
