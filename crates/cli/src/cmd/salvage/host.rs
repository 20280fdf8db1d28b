//! Salvaged files in a directory of the host.
//!
//! The volume may be hostile, and others may look on. Everything is made relative to a directory that is held open, under a name that
//! must be free, and no link is followed; the directory itself is closed to others until all is in it. So nothing outside it is
//! ever touched.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_base::Timestamp;
use holdfast_salvage::{Attributes, Destination, Found};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

/// Directories on the way that are held open; those above are opened again on the way back.
const OPEN_MAX: usize = 64;
/// Bits with which a program runs as the owner or group of its file.
const SET_ID: u32 = 0o6000;

/// A directory that was entered.
struct Level {
    name: Vec<u8>,
    dir: Option<OwnedFd>,
}

/// A tree that is made in a directory.
pub(super) struct HostTree<'r> {
    root: OwnedFd,
    levels: Vec<Level>,
    file: Option<File>,
    report: &'r mut dyn FnMut(&Found) -> io::Result<()>,
}

impl<'r> HostTree<'r> {
    /// Fills `path`, which is made, or is an empty directory.
    pub(super) fn new(
        path: &Path,
        report: &'r mut dyn FnMut(&Found) -> io::Result<()>,
    ) -> io::Result<HostTree<'r>> {
        let closed = Mode::from_raw_mode(0o700);
        match rustix::fs::mkdir(path, closed) {
            Err(Errno::EXIST) => {
                if std::fs::read_dir(path)?.next().is_some() {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
            }
            made => made?,
        }
        let root = rustix::fs::openat(CWD, path, directory(), Mode::empty())?;
        // Its owner could put other things in the place of what is made.
        if rustix::fs::fstat(&root)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(
                "it belongs to another user: name a directory that does not exist",
            ));
        }
        rustix::fs::fchmod(&root, closed)?;
        Ok(HostTree { root, levels: Vec::new(), file: None, report })
    }

    /// The directory that was entered last.
    fn here(&mut self) -> io::Result<BorrowedFd<'_>> {
        let first = self.levels.iter().rposition(|level| level.dir.is_some());
        let first = first.map_or(0, |at| at + 1);
        for at in first..self.levels.len() {
            let (above, below) = self.levels.split_at(at);
            let parent = above.last().and_then(|level| level.dir.as_ref()).unwrap_or(&self.root);
            let dir = rustix::fs::openat(parent, &below[0].name[..], directory(), Mode::empty())?;
            self.keep(at, dir);
        }
        let last = self.levels.last().and_then(|level| level.dir.as_ref());
        Ok(last.unwrap_or(&self.root).as_fd())
    }

    /// Holds a directory open, and lets go of the one so far above.
    fn keep(&mut self, at: usize, dir: OwnedFd) {
        self.levels[at].dir = Some(dir);
        if let Some(above) = at.checked_sub(OPEN_MAX) {
            self.levels[above].dir = None;
        }
    }

    /// Sets what something that was just made in the directory has, by its name.
    fn set_by_name(
        &mut self,
        name: &[u8],
        attributes: &Attributes,
        is_link: bool,
    ) -> io::Result<()> {
        let dir = self.here()?;
        if let Some((uid, gid)) = attributes.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            unless_left_out(rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        }
        let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
        let left_out = set_xattrs(attributes, |xattr, value| {
            rustix::fs::lsetxattr(&path[..], xattr, value, XattrFlags::empty())
        })?;
        if let Some(mode) = attributes.mode.filter(|_| !is_link) {
            // It was made here under a free name and is no link; nobody else can reach it.
            rustix::fs::chmodat(dir, name, permissions(mode), AtFlags::empty())?;
        }
        if let Some(times) = &attributes.times {
            rustix::fs::utimensat(dir, name, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        expect_all_set(attributes, left_out)
    }
}

impl Destination for HostTree<'_> {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        let parent = self.here()?;
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700))?;
        let dir = rustix::fs::openat(parent, name, directory(), Mode::empty())?;
        self.levels.push(Level { name: name.to_vec(), dir: None });
        self.keep(self.levels.len() - 1, dir);
        Ok(())
    }

    fn leave(&mut self, attributes: &Attributes) -> io::Result<()> {
        let dir = self.here()?;
        let set = set(dir, attributes);
        self.levels.pop();
        set
    }

    fn begin(&mut self, name: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.here()?, name, flags, Mode::from_raw_mode(0o600))?;
        self.file = Some(file.into());
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_ref().expect("a file is begun before it is written");
        file.write_all_at(bytes, at)
    }

    fn end(&mut self, len: u64, attributes: &Attributes) -> io::Result<()> {
        let file = self.file.take().expect("a file is begun before it ends");
        let longer = file.set_len(len);
        set(file.as_fd(), attributes)?;
        longer
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> io::Result<()> {
        rustix::fs::symlinkat(target, self.here()?, name)?;
        self.set_by_name(name, attributes, true)
    }

    fn node(&mut self, name: &[u8], rdev: u64, attributes: &Attributes) -> io::Result<()> {
        let kind = FileType::from_raw_mode(attributes.mode.unwrap_or(0));
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return Err(io::Error::other(format!("a device node ({rdev:#x}) is not made")));
        }
        rustix::fs::mknodat(self.here()?, name, kind, Mode::from_raw_mode(0o600), rdev)?;
        self.set_by_name(name, attributes, false)
    }

    fn link(&mut self, name: &[u8], old: &[Vec<u8>]) -> io::Result<()> {
        let Some((last, above)) = old.split_last() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut parent: Option<OwnedFd> = None;
        for name in above {
            let from = parent.as_ref().unwrap_or(&self.root);
            parent = Some(rustix::fs::openat(from, &name[..], directory(), Mode::empty())?);
        }
        let here = self.here()?.try_clone_to_owned()?;
        let from = parent.as_ref().unwrap_or(&self.root);
        Ok(rustix::fs::linkat(from, &last[..], here, name, AtFlags::empty())?)
    }

    fn report(&mut self, found: &Found) -> io::Result<()> {
        (self.report)(found)
    }
}

fn directory() -> OFlags {
    OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC
}

/// Owner before mode, because a change of owner clears set-id bits; times last.
fn set(file: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        unless_left_out(rustix::fs::fchown(file, uid, gid))?;
    }
    let left_out = set_xattrs(attributes, |name, value| {
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
    })?;
    if let Some(mode) = attributes.mode {
        rustix::fs::fchmod(file, permissions(mode))?;
    }
    if let Some(times) = &attributes.times {
        rustix::fs::futimens(file, &timestamps(times))?;
    }
    expect_all_set(attributes, left_out)
}

/// Fails if something was left out that the host would believe: the volume may be a stranger's, or its bytes be anybody's.
fn expect_all_set(attributes: &Attributes, left_out: Option<String>) -> io::Result<()> {
    if let Some(name) = left_out {
        return Err(io::Error::other(format!("the attribute {name} is not set")));
    }
    match attributes.mode {
        Some(mode) if mode & SET_ID != 0 => Err(io::Error::other("its set-id bits are not set")),
        _ => Ok(()),
    }
}

/// Sets attributes but those that give rights, of which the first is returned.
fn set_xattrs(
    attributes: &Attributes,
    set: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>,
) -> io::Result<Option<String>> {
    let mut left_out = None;
    for (name, value) in &attributes.xattrs {
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            left_out = left_out.or_else(|| Some(holdfast_base::show::name(name)));
            continue;
        }
        // A filesystem that has no room for so many is not full.
        unless_left_out(set(name, value)).map_err(|error| {
            let name = holdfast_base::show::name(name);
            io::Error::other(format!("attribute {name}: {}", crate::outcome::plain_words(&error)))
        })?;
    }
    Ok(left_out)
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777 & !SET_ID)
}

/// A user without the right to give files away keeps them, and what the filesystem does not have is left out, as with cp(1).
fn unless_left_out(set: rustix::io::Result<()>) -> io::Result<()> {
    match set {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

fn timestamps((accessed, modified): &(Timestamp, Timestamp)) -> Timestamps {
    let of = |time: &Timestamp| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    Timestamps { last_access: of(accessed), last_modification: of(modified) }
}
