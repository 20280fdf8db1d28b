//! Attributes of what is open, and what of them the host does not take.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use holdfast_base::{attribute, show};
use holdfast_service::work::files::message::{Attributes, Time};
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::by_proc;

/// Bits with which a program runs as the owner or group of its file: not as another one, who has got the copy.
const SET_ID: u32 = 0o6000;
/// Bytes that all names of extended attributes have at most, and a value.
const XATTR_MAX: usize = 65536;

/// Owner before mode, because a change of owner clears set-id bits; times last. Each of them is tried. Returns those that the host
/// does not take, by name, and the first error that says something of the host and not of the attribute. No set-id bits are set where
/// the owner is not.
pub(crate) fn set(file: impl AsFd, attributes: &Attributes) -> (Vec<String>, io::Result<()>) {
    let file = file.as_fd();
    let (mut left, mut done) = (Vec::new(), Ok(()));
    let mut one = |what: &dyn Fn() -> String, set: rustix::io::Result<()>| {
        let Err(error) = set.map_err(io::Error::from) else { return true };
        match attribute::is_not_taken(&error) {
            true => left.push(what()),
            false if done.is_ok() => done = Err(error),
            false => {}
        }
        false
    };
    let mut is_given = true;
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let itself = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        is_given = match rustix::fs::chownat(file, "", uid, gid, itself) {
            // There is no such number in this user namespace: its root is an ordinary user outside, who gives no files away.
            Err(Errno::INVAL) => false,
            given => one(&|| "owner".into(), given),
        };
    }
    for (name, value) in &attributes.xattrs {
        one(&|| show::name(name), set_xattr(file, name, value));
    }
    if let Some(mode) = attributes.mode {
        let mode = if is_given { mode } else { mode & !SET_ID };
        one(&|| "mode".into(), set_mode(file, Mode::from_raw_mode(mode & 0o7777)));
    }
    if let Some(times) = &attributes.times {
        one(&|| "times".into(), set_times(file, &timestamps(times)));
    }
    (left, done)
}

/// Whether something that was left out is to be told of: who is not root gives no files away and knows it, as with cp(1).
pub(crate) fn is_missed(left_out: &str) -> bool {
    left_out != "owner" || rustix::process::geteuid().is_root()
}

// What only holds a place has no attributes of its own to most calls.

fn set_xattr(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    let flags = XattrFlags::empty();
    let set = match rustix::fs::fsetxattr(file, name, value, flags) {
        Err(Errno::BADF) => rustix::fs::setxattr(by_proc(file), name, value, flags),
        set => set,
    };
    match set {
        // A filesystem that has no room for an attribute is not full.
        Err(Errno::NOSPC | Errno::RANGE) => Err(Errno::TOOBIG),
        set => set,
    }
}

fn set_mode(file: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<()> {
    match rustix::fs::fchmod(file, mode) {
        Err(Errno::BADF) => rustix::fs::chmod(by_proc(file), mode),
        set => set,
    }
}

fn set_times(file: BorrowedFd<'_>, times: &Timestamps) -> rustix::io::Result<()> {
    match rustix::fs::futimens(file, times) {
        Err(Errno::BADF) => rustix::fs::utimensat(CWD, by_proc(file), times, AtFlags::empty()),
        set => set,
    }
}

fn timestamps((accessed, modified): &(Time, Time)) -> Timestamps {
    let of = |(secs, nanos): &Time| Timespec { tv_sec: *secs, tv_nsec: (*nanos).into() };
    Timestamps { last_access: of(accessed), last_modification: of(modified) }
}

/// Extended attributes; none where the filesystem has none.
pub(crate) fn xattrs(file: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let file = file.as_fd();
    let mut list = Vec::with_capacity(XATTR_MAX);
    let listed = match rustix::fs::flistxattr(file, spare_capacity(&mut list)) {
        Err(Errno::BADF) => rustix::fs::listxattr(by_proc(file), spare_capacity(&mut list)),
        listed => listed,
    };
    match listed {
        Ok(_) => {}
        // Links and devices have hardly any; where no /proc is mounted, none is found.
        Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let mut all = Vec::new();
    for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let mut value = Vec::with_capacity(XATTR_MAX);
        let read = match rustix::fs::fgetxattr(file, name, spare_capacity(&mut value)) {
            Err(Errno::BADF) => {
                rustix::fs::getxattr(by_proc(file), name, spare_capacity(&mut value))
            }
            read => read,
        };
        match read {
            Ok(_) => all.push((name.to_vec(), value)),
            // It has gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}
