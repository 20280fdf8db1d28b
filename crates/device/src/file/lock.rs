//! One writer or many readers for each volume, across programs.
//!
//! A device holds a `flock` on what it opened: exclusive for writing, shared for reading. The lock belongs to the open
//! file description and ends with it, however the program ends; nothing is left behind that could be stale. Block
//! devices opened for writing are opened with O_EXCL as well, which the kernel's own mounts respect.
//! [`wait_until_free`] waits for the end.
//!
//! A `flock` is of the whole file, and a file may hold several volumes, which are reached through partitions of a loop
//! device. So what was opened, and each file behind it (`behind`), is also locked byte by byte (OFD locks), where the
//! host has such locks. Virtual machines (QEMU) and servers of network filesystems lock the images that they write to
//! in this way too.
//!
//! The holder of a lock is looked up in /proc for the refusal's message; whether a lock is given is not decided by it.
//! Callers of [`holding_process`] have to allow for a process that is not found.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::proc;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::{OpenMode, open_bytes, reason, refused};
use crate::DeviceError;

/// How long a lock is tried again. Device managers hold a block device for moments, and a child that this program is
/// just starting holds a copy of every descriptor until it runs its own code.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long it is tried again while only such a child can have it: on a busy machine it may not run for long.
const PATIENCE_WITH_CHILDREN: Duration = Duration::from_secs(5);
/// Between two looks at a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    start: u64,
    /// 0: to the end, wherever that will be.
    len: u64,
}

impl Part {
    pub(super) const WHOLE: Part = Part { start: 0, len: 0 };

    /// Where this part of a device lies in the file or device that the device is `len` bytes of (0: all), from
    /// `start` on.
    pub(super) fn within(self, start: u64, len: u64) -> Part {
        let left = len.saturating_sub(self.start);
        let len = match (self.len, len) {
            (own, 0) => own,
            (0, _) => left,
            (own, _) => own.min(left),
        };
        Part { start: self.start.saturating_add(start), len }
    }
}

/// Whether other openers may share a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// No other.
    Alone,
    /// Others that share it, too.
    Beside,
}

/// Locks an open file as `mode` says and gives it back, or names the holder.
pub(super) fn take(file: File, path: &Path, mode: OpenMode) -> Result<File, DeviceError> {
    let (how, share) = match mode {
        OpenMode::ReadOnly => (FlockOperation::NonBlockingLockShared, Share::Beside),
        OpenMode::ReadWrite => (FlockOperation::NonBlockingLockExclusive, Share::Alone),
    };
    let since = Stopwatch::start();
    let locked = loop {
        match patiently(|| flock(&file, how).map_err(io::Error::from)) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && since.elapsed() < PATIENCE_WITH_CHILDREN
                    && is_left_to_children(&file, path) => {}
            done => break done,
        }
    };
    match locked {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            drop(file);
            return Err(in_use(path));
        }
        Err(error) => {
            let why = format!("cannot be locked: {}", reason(&error));
            return Err(refused(path, why));
        }
    }
    match lock_part(&file, Part::WHOLE, share) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            drop(file);
            Err(in_use(path))
        }
        // The lock of the whole file is enough then.
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the host has no locks of parts");
            Ok(file)
        }
        Ok(()) => Ok(file),
    }
}

/// Locks a part of an open file and gives it back, or names the holder; `None` where the host has no such locks.
/// `named`: the file in messages.
pub(super) fn take_part(
    file: File,
    path: &Path,
    named: &str,
    part: Part,
    share: Share,
) -> Result<Option<File>, DeviceError> {
    match lock_part(&file, part, share) {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            // First of all: the holder is looked for among the processes that have the file open.
            drop(file);
            Err(in_use_as(path, named.into()))
        }
        Err(error) => {
            tracing::debug!(%error, "{named} has no locks of parts");
            Ok(None)
        }
    }
}

fn lock_part(file: &File, part: Part, share: Share) -> io::Result<()> {
    let kind = match share {
        Share::Alone => libc::F_WRLCK,
        Share::Beside => libc::F_RDLCK,
    };
    // Zero but for what is named here: from the start of the file, of this open file.
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: part.start as libc::off_t,
        l_len: part.len as libc::off_t,
        l_pid: 0,
    };
    patiently(|| match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(()),
        // POSIX lets the host choose between the two.
        Err(Errno::EACCES | Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    })
}

/// Tries again for [`PATIENCE`] while the answer is that another process holds it.
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

/// Waits until no process has the volume at `path` open for writing; false after `patience`. A path that does not exist, or has what
/// is no volume, is free. One that cannot be opened for reading counts as held.
pub fn wait_until_free(path: impl AsRef<Path>, patience: Duration) -> bool {
    let path = path.as_ref();
    let since = Stopwatch::start();
    loop {
        match open_bytes(path, OFlags::RDONLY) {
            // Taken for a moment only: the descriptor is closed at the end of this arm.
            Ok(file) if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() => return true,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                ) =>
            {
                return true;
            }
            Ok(_) | Err(_) => {}
        }
        if since.elapsed() >= patience {
            return false;
        }
        sleep(PAUSE);
    }
}

/// The process that holds a lock on the file or block device at `path`, as far as the kernel's list tells this user.
pub fn holding_process(path: impl AsRef<Path>) -> Option<u32> {
    let found = Identity::of(path.as_ref())?;
    (0..LOOKS).find_map(|_| locking_process(&found))
}

/// The refusal, with the holder's name if it can be found.
pub(super) fn in_use(path: &Path) -> DeviceError {
    in_use_as(path, path.display().to_string())
}

/// As [`in_use`], with another name for what is in use.
fn in_use_as(path: &Path, named: String) -> DeviceError {
    let holder = holder(path);
    let holder = holder.unwrap_or_else(|| "another program".into());
    DeviceError::InUse { path: named, holder }
}

/// How often the holder is looked for: the kernel shows its lists in pieces, and one that changes in between may miss an entry.
const LOOKS: u32 = 3;

/// Looks for the holder: in the kernel's list of locks, among the mounts, among open descriptors.
fn holder(path: &Path) -> Option<String> {
    (0..LOOKS).find_map(|_| {
        let found = Identity::of(path);
        let found = found.as_ref();
        (found.and_then(locking_process).and_then(named))
            .or_else(|| mounted(path))
            .or_else(|| found.and_then(opening_process).and_then(named))
    })
}

/// A file as the kernel's own lists name it: by the device of its filesystem and its inode. Overlays and btrfs tell
/// `stat` other numbers, so these come from where the lists come from, and no filesystem is asked: one whose server
/// has stopped would never answer.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let mounts = proc::list("/proc/self/mountinfo").ok()?;
        let (mount, inode) = parse_fdinfo(&info)?;
        let inode = inode.or_else(|| Some(fs::metadata(path).ok()?.st_ino()))?;
        Some(Identity { device: mount_device(&mounts, mount)?, inode })
    }
}

/// The mount and the inode of an open file. Linux before 5.14 does not tell the inode.
fn parse_fdinfo(info: &str) -> Option<(u64, Option<u64>)> {
    let value = |key: &str| {
        let mut values = info.lines().filter_map(|line| line.strip_prefix(key));
        values.next()?.trim().parse().ok()
    };
    Some((value("mnt_id:")?, value("ino:")))
}

/// The device of a mount in a list such as /proc/self/mountinfo: `36 35 98:0 /root /place ...`.
fn mount_device(mounts: &str, mount: u64) -> Option<(u32, u32)> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        if words.next()?.parse() != Ok(mount) {
            return None;
        }
        let (major, minor) = words.nth(1)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// `process 123 (holdfast)`, if it still runs.
fn named(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// The process that took a lock on this file. After a fork this may be a parent that has ended.
fn locking_process(found: &Identity) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| parse_lock(line, found))
}

/// The process in a line of /proc/locks such as
/// `3: FLOCK  ADVISORY  WRITE 4711 fe:00:1835021 0 EOF`, if it is a flock on that file.
fn parse_lock(line: &str, found: &Identity) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid: u32 = words.nth(2)?.parse().ok()?;
    let mut locked = words.next()?.split(':');
    let major = u32::from_str_radix(locked.next()?, 16).ok()?;
    let minor = u32::from_str_radix(locked.next()?, 16).ok()?;
    let inode = locked.next()?.parse().ok()?;
    (*found == Identity { device: (major, minor), inode }).then_some(pid)
}

/// Where the kernel has mounted a block device.
fn mounted(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = proc::list("/proc/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let (what, rest) = line.split_once(' ')?;
        let place = rest.split(' ').next()?;
        (Path::new(what) == path).then(|| format!("the mount at {place}"))
    })
}

/// Whether the process that took the lock runs and has closed what it had locked: then only children have copies of that. Where the
/// kernel does not say what a descriptor leads to, it may lead to that. `file`: what this process has just opened of it.
fn is_left_to_children(file: &File, path: &Path) -> bool {
    let Some(found) = Identity::of(path) else { return false };
    let Some(pid) = locking_process(&found) else { return false };
    let own = (pid == std::process::id()).then(|| file.as_raw_fd());
    let may_be_it = |of: &Described| {
        of.inode.is_none_or(|inode| inode == found.inode)
            && of.device.is_none_or(|device| device == found.device)
    };
    descriptors_of(pid).is_ok_and(|mut all| all.all(|of| Some(of.fd) == own || !may_be_it(&of)))
}

/// A descriptor of a process, and what the kernel says of its file.
struct Described {
    fd: RawFd,
    device: Option<(u32, u32)>,
    inode: Option<u64>,
}

/// # Errors
/// The descriptors cannot be looked at: the process is gone, or another user's.
fn descriptors_of(pid: u32) -> io::Result<impl Iterator<Item = Described>> {
    let mounts = proc::list(format!("/proc/{pid}/mountinfo"))?;
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten();
    Ok(files.filter_map(move |file| {
        let fd = file.file_name().to_str()?.parse().ok()?;
        let info = match fs::read_to_string(file.path()) {
            // It was closed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            info => info.ok().and_then(|info| parse_fdinfo(&info)),
        };
        let device = info.and_then(|(mount, _)| mount_device(&mounts, mount));
        Some(Described { fd, device, inode: info.and_then(|(_, inode)| inode) })
    }))
}

/// A process that has the same file open: this one only if no other has. (What it opened to no avail is closed.)
fn opening_process(found: &Identity) -> Option<u32> {
    let is_it = |of: Described| of.inode == Some(found.inode) && of.device == Some(found.device);
    let has_it = |pid: &u32| descriptors_of(*pid).is_ok_and(|mut all| all.any(is_it));
    let own = std::process::id();
    let running = fs::read_dir("/proc").ok()?.flatten();
    let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| *pid != own).chain([own]).find(has_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_device_lies_inside_what_the_device_is_of_a_file() {
        let part = |start, len| Part { start, len };
        assert_eq!(Part::WHOLE.within(0, 0), Part::WHOLE);
        assert_eq!(Part::WHOLE.within(4096, 0), part(4096, 0));
        assert_eq!(Part::WHOLE.within(4096, 8192), part(4096, 8192));
        assert_eq!(part(512, 1024).within(4096, 0), part(4608, 1024));
        assert_eq!(part(512, 1024).within(4096, 1000), part(4608, 488), "cut by a limit");
        assert_eq!(part(512, 0).within(4096, 1000), part(4608, 488));
    }

    #[test]
    fn what_another_user_has_put_in_the_place_of_a_volume_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        // It stays behind if it waits.
        std::thread::spawn(move || told.send(wait_until_free(path, Duration::ZERO)));
        assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    /// A child that has not run its own code yet holds a copy of what was closed.
    #[test]
    fn what_is_left_to_children_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let locked = take(open(), &path, OpenMode::ReadWrite).unwrap();
        // Longer than a lock is tried again in any case.
        let mut child = {
            let mut command = std::process::Command::new("sleep");
            command.arg("1").stdin(locked.try_clone().unwrap()).spawn().unwrap()
        };
        assert!(matches!(take(open(), &path, OpenMode::ReadOnly), Err(DeviceError::InUse { .. })));
        drop(locked);
        let again = take(open(), &path, OpenMode::ReadWrite);
        child.wait().unwrap();
        assert!(again.is_ok(), "{again:?}");
    }

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:1835021 0 EOF";
        let file = |device, inode| Identity { device, inode };
        assert_eq!(parse_lock(line, &file((0xfe, 0), 1835021)), Some(4711));
        assert_eq!(parse_lock(line, &file((0xfe, 0), 1835022)), None);
        assert_eq!(parse_lock(line, &file((0xfe, 1), 1835021)), None, "on another device");
        let posix = line.replace("FLOCK", "POSIX");
        assert_eq!(parse_lock(&posix, &file((0xfe, 0), 1835021)), None);
        assert_eq!(parse_lock("", &file((0, 0), 1)), None);
    }
}
