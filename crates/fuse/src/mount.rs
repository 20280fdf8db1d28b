//! Mounting, unmounting, and what root may tune.
//!
//! Root mounts with mount(2), others with the set-uid helper fusermount3, which hands over the descriptor of the
//! connection. Unmounting first looks where our mount is now, and whether it is the one that one sees there ([`MountPoint`]): another
//! program may have unmounted us and mounted something else, mounted over us, or renamed a directory above.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::connection::Connection;
use crate::mount_point::{Lookup, MountNumber, MountPoint};
use crate::mountinfo;
use crate::options::FuseOptions;
use crate::transport::MAX_WRITE;

/// The type that /proc/mounts shows.
const FS_TYPE: &str = "fuse.holdfast";
/// The helper for users other than root.
const HELPER: &str = "fusermount3";
/// Kilobytes that the kernel may read ahead: four requests, so that the device has one while others are copied.
const READ_AHEAD_KB: u32 = 4 * (MAX_WRITE >> 10);

/// A mount of ours. Dropping it detaches it if it is still there.
#[derive(Debug)]
pub struct Mounted {
    /// Where it was mounted.
    dir: PathBuf,
    /// It lies in another mount namespace, and can only be ended.
    is_elsewhere: bool,
    /// As mountinfo shows it; `None` if it could not be found out.
    seen: Option<mountinfo::Mount>,
    /// `None` where the kernel is older than 5.8.
    number: Option<MountNumber>,
    /// Which servers the search for its place may ask.
    lookup: Lookup,
    /// Opened while the mount was surely there; `None` if this user may not.
    connection: Option<Arc<Connection>>,
    gone: bool,
}

/// What a process that has mounted tells the one that serves the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Where it is mounted.
    pub dir: PathBuf,
    /// `major:minor`; `None` if it could not be found out.
    pub device: Option<String>,
}

/// Mounts at `dir` and returns the connection to the kernel, which [`Session::start`](crate::Session::start) serves, in this process
/// or in another one. As root by mount(2), otherwise by the helper fusermount3.
///
/// # Errors
/// The directory cannot be mounted on, or this user may not.
pub fn mount(dir: &Path, options: &FuseOptions) -> io::Result<(OwnedFd, Mounted)> {
    let dir = dir.canonicalize()?;
    if !dir.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let fd = match mount_directly(&dir, options) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
            ) && !rustix::process::geteuid().is_root() =>
        {
            if !options.labels.is_empty() {
                let why = "security labels (context= and its kin) are for root";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            mount_by_helper(&dir, options)?
        }
        other => other?,
    };
    let seen = mountinfo::topmost(&dir).filter(|mount| mount.fs_type == FS_TYPE);
    let lookup = Lookup::Any;
    let number = seen.as_ref().and_then(|_| number_at(&dir, lookup));
    let connection = seen.as_ref().and_then(|mount| Connection::open(&mount.device).ok());
    let connection = connection.map(Arc::new);
    let mounted =
        Mounted { dir, is_elsewhere: false, seen, number, lookup, connection, gone: false };
    Ok((fd, mounted))
}

fn number_at(dir: &Path, lookup: Lookup) -> Option<MountNumber> {
    MountPoint::open(dir, lookup).ok()?.number()
}

fn mount_directly(dir: &Path, options: &FuseOptions) -> io::Result<OwnedFd> {
    let fuse = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| io::Error::new(error.kind(), format!("/dev/fuse: {error}")))?;
    let data = CString::new(kernel_options(&fuse, options))?;
    let flags = flags(options);
    rustix::mount::mount(options.source.as_os_str(), dir, FS_TYPE, flags, Some(data.as_c_str()))?;
    Ok(fuse.into())
}

/// What mount(2) takes as bits.
fn flags(options: &FuseOptions) -> MountFlags {
    let switches = [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
        (options.nodiratime, MountFlags::NODIRATIME),
        (options.strictatime, MountFlags::STRICTATIME),
        // Said, or a remount would keep what was there before.
        (!options.noatime && !options.strictatime, MountFlags::RELATIME),
        (options.nosymfollow, MountFlags::NOSYMFOLLOW),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ];
    switches.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag).collect()
}

/// Gives the mount at `dir` the bits that are among `options`, all at once. The kernel writes what it holds back first; nothing
/// else of a mount can be changed. For root.
///
/// # Errors
/// EBUSY: it shall be read-only and files are open for writing.
pub fn remount(dir: &Path, options: &FuseOptions) -> io::Result<()> {
    rustix::mount::mount_remount(dir, flags(options), c"")?;
    Ok(())
}

fn kernel_options(fuse: &File, options: &FuseOptions) -> String {
    let mut text = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        fuse.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        text.push_str(",allow_other");
    }
    if options.is_checked_by_kernel() {
        text.push_str(",default_permissions");
    }
    for label in &options.labels {
        text.push(',');
        text.push_str(label);
    }
    text
}

fn helper_options(options: &FuseOptions) -> OsString {
    let mut text = b"fsname=".to_vec();
    for byte in options.source.as_bytes() {
        // The helper ends an option at a comma and knows the backslash.
        if matches!(byte, b'\\' | b',') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    let mut text = OsString::from_vec(text);
    text.push(",subtype=holdfast,nosuid,nodev");
    let switches = [
        (options.read_only, "ro"),
        (options.noexec, "noexec"),
        (options.noatime, "noatime"),
        // Without nodiratime, which helpers of some years do not know: the server obeys it.
        (options.nosymfollow, "nosymfollow"),
        (options.sync, "sync"),
        (options.dirsync, "dirsync"),
        (options.allow_other, "allow_other"),
        (options.is_checked_by_kernel(), "default_permissions"),
    ];
    for (on, name) in switches {
        if on {
            text.push(",");
            text.push(name);
        }
    }
    text
}

fn mount_by_helper(dir: &Path, options: &FuseOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    // The helper gets its end as descriptor 0.
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}")))?;
    let fd = receive_fd(&ours);
    let output = child.wait_with_output()?;
    match fd? {
        Some(fd) => Ok(fd),
        None => Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal(&output.stderr))),
    }
}

/// What the helper says, and what helps if that is too old for an option that the kernel must have.
fn refusal(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said).trim().to_owned();
    match said.contains("unknown option") {
        true => format!("{said}: leave it out, have a newer fuse3, or let root mount"),
        false => said,
    }
}

/// The descriptor that comes through a socket; `None` if the other end closes without one.
fn receive_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        match received {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

impl Mounted {
    /// What another process needs to [adopt](Mounted::adopt) it, and what ends it, if this user may end it.
    pub fn to_hand(&self) -> (Handed, Option<OwnedFd>) {
        let device = self.device().map(Into::into);
        let handed = Handed { dir: self.dir.clone(), device };
        let ends = self.connection.as_ref().and_then(|connection| connection.shared().ok());
        (handed, ends)
    }

    /// Another process has it now: it is nothing of ours any more.
    pub fn handed_over(mut self) {
        self.gone = true;
    }

    /// A mount that a process of the user `owner` has made. What that process says is believed as far as it can be seen: a
    /// mount at that place, of that device and of that user, is unmounted in the end, wherever its point is then; anything else is
    /// only ended.
    pub fn adopt(handed: &Handed, ends: Option<OwnedFd>, owner: u32) -> Mounted {
        let is_it = |mount: &mountinfo::Mount| {
            mount.fs_type == FS_TYPE
                && Some(&mount.device) == handed.device.as_ref()
                && mount.owner == Some(owner)
        };
        let seen = mountinfo::topmost(&handed.dir).filter(is_it);
        let is_trusted = owner == 0 || owner == rustix::process::geteuid().as_raw();
        // Its point may lie on a server of the stranger, which would be asked for it, and need not answer.
        let answers = |seen: &mountinfo::Mount| {
            mountinfo::below(seen).is_some_and(|below| !below.fs_type.starts_with("fuse"))
        };
        let seen = seen.filter(|seen| is_trusted || answers(seen));
        let lookup = if is_trusted { Lookup::Any } else { Lookup::Remembered };
        let number = seen.as_ref().and_then(|_| number_at(&handed.dir, lookup));
        // One of a stranger that could not be told from another one is not unmounted.
        let seen = seen.filter(|_| is_trusted || number.is_some());
        Mounted {
            dir: handed.dir.clone(),
            is_elsewhere: seen.is_none(),
            seen,
            number,
            lookup,
            connection: ends.and_then(Connection::received).map(Arc::new),
            gone: false,
        }
    }

    /// Raises the readahead of the mount; needs root and is not worth an error.
    pub(crate) fn raise_read_ahead(&self) {
        if let Some(device) = self.device() {
            let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
            if let Err(error) = std::fs::write(&file, READ_AHEAD_KB.to_string()) {
                tracing::debug!("{file}: {error}");
            }
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// `major:minor`, as mountinfo shows it; `None` if the mount is not to be seen here.
    pub fn device(&self) -> Option<&str> {
        self.seen.as_ref().map(|mount| mount.device.as_str())
    }

    /// What ends it, if this user may.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.clone()
    }

    /// Where it is now, if it is what one sees there; `None` if it is not.
    fn place(&self, seen: &mountinfo::Mount) -> Result<Option<(PathBuf, MountPoint)>, Errno> {
        let Some(now) = mountinfo::now(seen) else { return Ok(None) };
        let point = MountPoint::open(&now.point, self.lookup)?;
        // The kernel gives the other numbers away again, also to another mount here.
        Ok((point.number() == self.number).then_some((now.point, point)))
    }

    /// Unmounts. EBUSY while files are open or a program has its working directory inside.
    pub(crate) fn unmount(&mut self) -> Result<(), Errno> {
        self.take_away(UnmountFlags::NOFOLLOW)
    }

    /// Ends the connection, whatever is still open, and takes the mount out of the tree of names.
    pub(crate) fn abort(&mut self) -> Result<(), Errno> {
        // Also where nothing is seen of the mount any more: another namespace may have a copy.
        if let Some(connection) = &self.connection {
            let _ = connection.abort();
        }
        self.take_away(UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH)
    }

    fn take_away(&mut self, flags: UnmountFlags) -> Result<(), Errno> {
        if self.is_elsewhere && !self.gone {
            self.gone = flags.contains(UnmountFlags::FORCE);
            return if self.gone { Ok(()) } else { Err(Errno::NOENT) };
        }
        if self.gone {
            return Ok(());
        }
        let done = match &self.seen {
            Some(seen) => match self.place(seen)? {
                Some((path, point)) => by_helper_if_refused(point.unmount(flags), &path, flags),
                None => Ok(()),
            },
            // Without /proc.
            None => {
                by_helper_if_refused(rustix::mount::unmount(&self.dir, flags), &self.dir, flags)
            }
        };
        self.gone = done.is_ok();
        done
    }
}

/// The helper unmounts only what the user of this process has mounted.
fn by_helper_if_refused(
    done: Result<(), Errno>,
    path: &Path,
    flags: UnmountFlags,
) -> Result<(), Errno> {
    if done != Err(Errno::PERM) {
        return done;
    }
    let mut command = Command::new(HELPER);
    command.args(["-u", "-q"]);
    if flags.contains(UnmountFlags::DETACH) {
        command.arg("-z");
    }
    let status = command
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        // The helper does not say why; almost always something is open.
        Ok(_) => Err(Errno::BUSY),
        Err(_) => Err(Errno::PERM),
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.gone
            && let Err(error) = self.abort()
        {
            tracing::warn!("unmounting {:?} failed: {error}", self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_asked_for_nothing_that_the_server_does() {
        let options = FuseOptions {
            nodiratime: true,
            strictatime: true,
            noatime: true,
            handover: true,
            ..FuseOptions::default()
        };
        assert_eq!(
            helper_options(&options),
            "fsname=holdfast,subtype=holdfast,nosuid,nodev,noatime,default_permissions"
        );
        let unknown = refusal(b"fusermount3: unknown option 'nosymfollow'\n");
        assert!(
            unknown.ends_with("'nosymfollow': leave it out, have a newer fuse3, or let root mount")
        );
        assert_eq!(refusal(b"fusermount3: no\n"), "fusermount3: no");
    }

    #[test]
    fn the_helper_gets_names_with_commas_whole() {
        let options =
            FuseOptions { source: "/a,b\\c".into(), read_only: true, ..FuseOptions::default() };
        assert_eq!(
            helper_options(&options),
            "fsname=/a\\,b\\\\c,subtype=holdfast,nosuid,nodev,ro,default_permissions"
        );
    }
}
