//! A directory that is held open, in a tree of any depth.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::another;

/// Device and inode: what tells a file from all others.
pub(crate) type Id = (u64, u64);

/// Directories of a tree that are open at once. Another one is opened anew when it is needed, and compared.
const OPEN_MAX: usize = 64;

/// A directory.
#[derive(Debug)]
pub(crate) struct Dir {
    /// The directory in which it was found, and its name there; `None` for one that was named by its path.
    above: Option<(Rc<Dir>, OsString)>,
    path: PathBuf,
    id: Option<Id>,
    fd: RefCell<Option<Rc<OwnedFd>>>,
    held: Rc<Held>,
}

/// Those of a tree that are open, the first of them for the longest time.
#[derive(Debug, Default)]
struct Held(RefCell<VecDeque<Weak<Dir>>>);

impl Dir {
    /// A directory by its path, which is followed when it is first used, and held from then on.
    pub(crate) fn named(path: &Path) -> Rc<Dir> {
        let (fd, held) = (RefCell::default(), Rc::default());
        Rc::new(Dir { above: None, path: path.into(), id: None, fd, held })
    }

    /// One that is open.
    pub(crate) fn of(path: &Path, fd: OwnedFd) -> Rc<Dir> {
        let dir = Dir::named(path);
        dir.fd.replace(Some(Rc::new(fd)));
        dir
    }

    /// The directory of this name in it; `id` is what it was found to be.
    ///
    /// # Errors
    /// It is another one by now, or a link.
    pub(crate) fn enter(self: &Rc<Dir>, name: &OsStr, id: Option<Id>) -> io::Result<Rc<Dir>> {
        let fd = open_in(&*self.fd()?, name)?;
        let found = id_of(&fd)?;
        if id.is_some_and(|id| id != found) {
            return Err(another());
        }
        let above = Some((Rc::clone(self), name.to_owned()));
        let held = Rc::clone(&self.held);
        let (path, id) = (PathBuf::new(), Some(found));
        let dir = Rc::new(Dir { above, path, id, fd: RefCell::default(), held });
        dir.keep(Rc::new(fd));
        Ok(dir)
    }

    /// Makes a directory that its owner alone can use, and enters it.
    ///
    /// # Errors
    /// `AlreadyExists`; or another one has come into its place, which is not empty.
    pub(crate) fn make(self: &Rc<Dir>, name: &OsStr) -> io::Result<Rc<Dir>> {
        rustix::fs::mkdirat(&*self.fd()?, name, Mode::from_raw_mode(0o700))?;
        let made = self.enter(name, None)?;
        if made.names()?.is_empty() { Ok(made) } else { Err(another()) }
    }

    /// It, open. What lies below it is made and opened relative to that.
    pub(crate) fn fd(self: &Rc<Dir>) -> io::Result<Rc<OwnedFd>> {
        let (mut closed, mut at) = (Vec::new(), self);
        let mut fd = loop {
            if let Some(fd) = &*at.fd.borrow() {
                break Rc::clone(fd);
            }
            let Some((above, name)) = &at.above else { break at.follow()? };
            closed.push((at, name));
            at = above;
        };
        for (dir, name) in closed.into_iter().rev() {
            fd = Rc::new(open_in(&*fd, name)?);
            if Some(id_of(&*fd)?) != dir.id {
                return Err(another());
            }
            dir.keep(Rc::clone(&fd));
        }
        Ok(fd)
    }

    /// Opens the one that was named.
    fn follow(&self) -> io::Result<Rc<OwnedFd>> {
        let path = if self.path == Path::new("") { Path::new(".") } else { &self.path };
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = Rc::new(rustix::fs::openat(CWD, path, how, Mode::empty())?);
        self.fd.replace(Some(Rc::clone(&fd)));
        Ok(fd)
    }

    /// Holds it open, and lets go of the one that was held for the longest time.
    fn keep(self: &Rc<Dir>, fd: Rc<OwnedFd>) {
        self.fd.replace(Some(fd));
        let mut held = self.held.0.borrow_mut();
        held.retain(|dir| dir.strong_count() > 0);
        held.push_back(Rc::downgrade(self));
        if held.len() > OPEN_MAX
            && let Some(oldest) = held.pop_front().and_then(|dir| dir.upgrade())
        {
            oldest.fd.take();
        }
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.fd.borrow().is_some()
    }

    /// Names in it, in no order.
    pub(crate) fn names(self: &Rc<Dir>) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&*self.fd()?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Fails if others have put it elsewhere, with all that was made in it.
    pub(crate) fn expect_in_place(self: &Rc<Dir>) -> io::Result<()> {
        let Some((above, name)) = &self.above else { return Ok(()) };
        let there = rustix::fs::statat(&*above.fd()?, name, AtFlags::SYMLINK_NOFOLLOW);
        match there.is_ok_and(|there| Some((there.st_dev, there.st_ino)) == self.id) {
            true => Ok(()),
            false => Err(another()),
        }
    }

    /// All names in it are durable.
    pub(crate) fn sync(self: &Rc<Dir>) -> io::Result<()> {
        // Itself it may only be a place.
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&*self.fd()?, ".", how, Mode::empty())?;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// What it is called.
    pub(crate) fn path(&self) -> PathBuf {
        let (mut names, mut at) = (Vec::new(), self);
        while let Some((above, name)) = &at.above {
            names.push(name);
            at = above;
        }
        let mut path = at.path.clone();
        path.extend(names.into_iter().rev());
        path
    }
}

/// One after the other: a tree may be deeper than a stack.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some((dir, _)) = above {
            above = Rc::into_inner(dir).and_then(|mut dir| dir.above.take());
        }
    }
}

/// Opens a directory, and no link to one; one that cannot be read as a place where others are.
fn open_in(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let how = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir, name, how | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            Ok(rustix::fs::openat(&dir, name, how | OFlags::PATH, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

fn id_of(fd: impl AsFd) -> io::Result<Id> {
    let found = rustix::fs::fstat(fd)?;
    Ok((found.st_dev, found.st_ino))
}

/// A directory and those above it.
pub(super) fn ids_above(dir: &Rc<Dir>) -> io::Result<Vec<Id>> {
    let mut fd = dir.fd()?;
    let mut ids = vec![id_of(&*fd)?];
    loop {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(above) = rustix::fs::openat(&*fd, "..", how, Mode::empty()) else { return Ok(ids) };
        let id = id_of(&above)?;
        // The root is above itself. One that others move about may be so for ever.
        if ids.contains(&id) {
            return Ok(ids);
        }
        ids.push(id);
        fd = Rc::new(above);
    }
}
