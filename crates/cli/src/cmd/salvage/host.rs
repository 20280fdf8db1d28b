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

use holdfast_base::{Timestamp, show};
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
    /// Attributes of what was made, ended or left last that the host did not take.
    not_set: Vec<String>,
    report: &'r mut dyn FnMut(&Found) -> io::Result<()>,
}

/// Fails unless `path` can be made, or is an empty directory of this user.
pub(super) fn expect_place(path: &Path) -> io::Result<()> {
    let inside = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        inside => inside?.next(),
    };
    if inside.is_some() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    expect_own(&rustix::fs::openat(CWD, path, directory(), Mode::empty())?)
}

/// Makes a directory that nobody else enters, or has an empty one become that.
pub(super) fn make_own(path: &Path) -> io::Result<OwnedFd> {
    let closed = Mode::from_raw_mode(0o700);
    match rustix::fs::mkdir(path, closed) {
        Err(Errno::EXIST) => expect_place(path)?,
        made => made?,
    }
    let dir = rustix::fs::openat(CWD, path, directory(), Mode::empty())?;
    expect_own(&dir)?;
    rustix::fs::fchmod(&dir, closed)?;
    Ok(dir)
}

/// Its owner could put other things in the place of what is made.
fn expect_own(dir: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fstat(dir)?.st_uid == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::other(
            "it belongs to another user: name a directory that does not exist",
        )),
    }
}

impl<'r> HostTree<'r> {
    /// Fills `path`, which is made, or is an empty directory.
    pub(super) fn new(
        path: &Path,
        report: &'r mut dyn FnMut(&Found) -> io::Result<()>,
    ) -> io::Result<HostTree<'r>> {
        let root = make_own(path)?;
        Ok(HostTree { root, levels: Vec::new(), file: None, not_set: Vec::new(), report })
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
        let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
        let own = AtFlags::SYMLINK_NOFOLLOW;
        let (not_set, done) = set(attributes, &mut |one| match one {
            One::Owner(uid, gid) => rustix::fs::chownat(dir, name, Some(uid), Some(gid), own),
            One::Xattr(xattr, value) => {
                rustix::fs::lsetxattr(&path[..], xattr, value, XattrFlags::empty())
            }
            // A link has none.
            One::Mode(_) if is_link => Ok(()),
            // It was made here under a free name and is no link; nobody else can reach it.
            One::Mode(mode) => rustix::fs::chmodat(dir, name, mode, AtFlags::empty()),
            One::Times(times) => rustix::fs::utimensat(dir, name, times, own),
        });
        self.not_set = not_set;
        done?;
        expect_all_set(attributes)
    }

    fn set(&mut self, file: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
        let (not_set, done) = set(attributes, &mut |one| match one {
            One::Owner(uid, gid) => rustix::fs::fchown(file, Some(uid), Some(gid)),
            One::Xattr(name, value) => {
                rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
            }
            One::Mode(mode) => rustix::fs::fchmod(file, mode),
            One::Times(times) => rustix::fs::futimens(file, times),
        });
        self.not_set = not_set;
        done?;
        expect_all_set(attributes)
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
        let dir = self.here()?.try_clone_to_owned()?;
        let set = self.set(dir.as_fd(), attributes);
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
        // What is missing of it is worse than what it may not do.
        let longer = file.set_len(len);
        let set = self.set(file.as_fd(), attributes);
        longer.and(set)
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

    fn take_not_set(&mut self) -> Vec<String> {
        std::mem::take(&mut self.not_set)
    }

    fn report(&mut self, found: &Found) -> io::Result<()> {
        (self.report)(found)
    }
}

fn directory() -> OFlags {
    OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC
}

/// An attribute that is to be set.
enum One<'a> {
    Owner(Uid, Gid),
    Xattr(&'a [u8], &'a [u8]),
    Mode(Mode),
    Times(&'a Timestamps),
}

/// Owner before mode, because a change of owner clears set-id bits; times last. Each of them is tried: a user without the right to give
/// files away keeps them, as with cp(1), and a filesystem that has no room for an attribute is not full. Returns those that the host
/// does not take, and the first error that is of the host itself. Of what gives rights nothing is set.
fn set(
    attributes: &Attributes,
    set: &mut dyn FnMut(One<'_>) -> rustix::io::Result<()>,
) -> (Vec<String>, rustix::io::Result<()>) {
    let (mut not_set, mut done) = (Vec::new(), Ok(()));
    let mut one = |what: &dyn Fn() -> String, one: One<'_>| {
        let is_xattr = matches!(one, One::Xattr(..));
        match set(one) {
            Ok(()) => {}
            Err(error) if is_not_taken(error, is_xattr) => not_set.push(what()),
            Err(error) => done = done.and(Err(error)),
        }
    };
    if let Some((uid, gid)) = attributes.owner {
        one(&|| "owner".into(), One::Owner(Uid::from_raw(uid), Gid::from_raw(gid)));
    }
    for (name, value) in attributes.xattrs.iter().filter(|(name, _)| !gives_rights(name)) {
        one(&|| show::name(name), One::Xattr(name, value));
    }
    if let Some(mode) = attributes.mode {
        one(&|| "mode".into(), One::Mode(permissions(mode)));
    }
    if let Some(times) = &attributes.times {
        one(&|| "times".into(), One::Times(&timestamps(times)));
    }
    (not_set, done)
}

/// Whether an error says that this file cannot have the attribute here, and nothing of the host's state.
fn is_not_taken(error: Errno, is_xattr: bool) -> bool {
    let of_the_attribute = matches!(
        error,
        Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::RANGE
            | Errno::TOOBIG
    );
    of_the_attribute || is_xattr && error == Errno::NOSPC
}

fn gives_rights(xattr: &[u8]) -> bool {
    xattr.starts_with(b"security.") || xattr.starts_with(b"trusted.")
}

/// Fails if something was left out that the host would believe: the volume may be a stranger's, or its bytes be anybody's.
fn expect_all_set(attributes: &Attributes) -> io::Result<()> {
    if let Some((name, _)) = attributes.xattrs.iter().find(|(name, _)| gives_rights(name)) {
        return Err(io::Error::other(format!("the attribute {} is not set", show::name(name))));
    }
    match attributes.mode {
        Some(mode) if mode & SET_ID != 0 => Err(io::Error::other("its set-id bits are not set")),
        _ => Ok(()),
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777 & !SET_ID)
}

fn timestamps((accessed, modified): &(Timestamp, Timestamp)) -> Timestamps {
    let of = |time: &Timestamp| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    Timestamps { last_access: of(accessed), last_modification: of(modified) }
}
