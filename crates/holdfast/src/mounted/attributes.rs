//! Attributes of what is in a mount, by a descriptor of its place.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::item::FileType;
use holdfast_posix::{Attr, SetAttr, SetTime, XattrFlags};
use rustix::fs::{AtFlags, Gid, Mode, StatxFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::errno;

/// Bytes of most values of extended attributes.
const USUAL: usize = 512;
/// No value and no list of names has more (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const MOST: usize = 65_536;

/// Attributes, and which filesystem it is on.
pub(super) struct Status {
    pub(super) device: u64,
    /// By which mount it was reached, as /proc has it; `None` before Linux 5.8.
    pub(super) mount: Option<u64>,
    pub(super) attr: Attr,
}

/// What is known of an open place or file.
pub(super) fn status(of: impl AsFd) -> io::Result<Status> {
    status_at(of, b"", AtFlags::EMPTY_PATH)
}

/// What is known of a name of a directory, links not followed.
pub(super) fn status_of_name(dir: impl AsFd, name: &[u8]) -> io::Result<Status> {
    status_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn status_at(dir: impl AsFd, name: &[u8], flags: AtFlags) -> io::Result<Status> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let found = rustix::fs::statx(dir, name, flags, wanted)?;
    let mode = u32::from(found.stx_mode);
    let time = |secs, nanos| Timestamp { secs, nanos };
    let known = StatxFlags::from_bits_retain(found.stx_mask);
    let born = known.contains(StatxFlags::BTIME);
    let attr = Attr {
        inode: InodeNo(found.stx_ino),
        file_type: FileType::from_mode(mode).ok_or_else(|| errno(libc::EIO))?,
        perm: mode & 0o7777,
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        blocks: found.stx_blocks,
        rdev: rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        atime: time(found.stx_atime.tv_sec, found.stx_atime.tv_nsec),
        mtime: time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        ctime: time(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        btime: match born {
            true => time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec),
            false => Timestamp::default(),
        },
    };
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let mount = known.contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id);
    Ok(Status { device, mount, attr })
}

/// A path to what a descriptor is of, also one that is only a place: for calls that take no such descriptor. A link is meant itself.
/// Of the thread: one may have descriptors of its own (unshare(2)), and the process other things under the same numbers.
pub(super) fn by_descriptor(of: &impl AsFd) -> String {
    format!("/proc/thread-self/fd/{}", of.as_fd().as_raw_fd())
}

/// Changes attributes, one kind after the other: owner, permission bits, times.
pub(super) fn change(of: impl AsFd, change: SetAttr) -> io::Result<()> {
    if change.btime.is_some() {
        // No system call can. Before anything is changed.
        return Err(errno(libc::EOPNOTSUPP));
    }
    let path = by_descriptor(&of);
    if change.uid.is_some() || change.gid.is_some() {
        let owner = change.uid.map(Uid::from_raw);
        let group = change.gid.map(Gid::from_raw);
        rustix::fs::chownat(&of, "", owner, group, AtFlags::EMPTY_PATH)?;
    }
    if let Some(perm) = change.perm {
        rustix::fs::chmod(&path, Mode::from_raw_mode(perm))?;
    }
    if change.atime.is_some() || change.mtime.is_some() {
        let times =
            Timestamps { last_access: time(change.atime), last_modification: time(change.mtime) };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
    }
    Ok(())
}

fn time(set: Option<SetTime>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match set {
        None => special(rustix::fs::UTIME_OMIT),
        Some(SetTime::Now) => special(rustix::fs::UTIME_NOW),
        Some(SetTime::At(at)) => Timespec { tv_sec: at.secs, tv_nsec: at.nanos.into() },
    }
}

/// Has what was just made have these permission bits, although the kernel has taken those of the umask.
pub(super) fn without_umask(made: impl AsFd, parent: impl AsFd, mode: u32) -> io::Result<()> {
    let has = status(&made)?.attr.perm;
    if mode & !has == 0 {
        return Ok(());
    }
    // Where the directory has a list for what is made in it, that has decided.
    match get(&by_descriptor(&parent), b"system.posix_acl_default") {
        Ok(_) => Ok(()),
        Err(_) => Ok(rustix::fs::chmod(by_descriptor(&made), Mode::from_raw_mode(mode | has))?),
    }
}

/// The value of an extended attribute of what is at a path of this process.
pub(super) fn get(path: &str, name: &[u8]) -> io::Result<Vec<u8>> {
    in_whole(|buffer| rustix::fs::getxattr(path, name, buffer))
}

/// The names of all of them.
pub(super) fn list(path: &str) -> io::Result<Vec<Vec<u8>>> {
    let names = in_whole(|buffer| rustix::fs::listxattr(path, buffer))?;
    let names = names.split(|&b| b == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Values, and lists of names, are short, and none is longer than what Linux allows.
fn in_whole(ask: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> io::Result<Vec<u8>> {
    let mut value = vec![0; USUAL];
    let asked = match ask(&mut value) {
        Err(Errno::RANGE) => {
            value = vec![0; MOST];
            ask(&mut value)
        }
        asked => asked,
    };
    value.truncate(asked?);
    Ok(value)
}

/// Sets one.
pub(super) fn set(path: &str, name: &[u8], value: &[u8], flags: XattrFlags) -> io::Result<()> {
    let flags = rustix::fs::XattrFlags::from_bits_retain(flags.bits());
    Ok(rustix::fs::setxattr(path, name, value, flags)?)
}

/// Removes one.
pub(super) fn remove(path: &str, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::removexattr(path, name)?)
}
