//! A name in a directory that is held: what is there, opened and made.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use holdfast_base::prng;
use holdfast_service::work::files::message::{Attributes, FileStat};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::attributes::set;
use super::dir::{Dir, Id, ids_above};
use super::{another, by_proc};

/// How often a free name is drawn.
const TRIES: usize = 16;

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct HostEntry {
    pub(super) dir: Rc<Dir>,
    pub(super) name: OsString,
}

/// What becomes of what is at a place already where something is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    /// It goes, in the step in which the other comes; unless it is a directory.
    Goes,
    /// It stays, and nothing is made.
    Stays,
}

/// What was found at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryStat {
    pub(crate) found: FileStat,
    pub(crate) id: Id,
}

/// What was made, and the attributes that the host did not take.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) id: Id,
    pub(crate) left_out: Vec<String>,
}

impl EntryStat {
    #[allow(clippy::useless_conversion, reason = "other machines have narrower numbers of names")]
    pub(super) fn of(found: &Stat) -> EntryStat {
        let nanos = |nanos| u32::try_from(nanos).unwrap_or(0);
        let id = (found.st_dev, found.st_ino);
        let found = FileStat {
            mode: found.st_mode,
            uid: found.st_uid,
            gid: found.st_gid,
            len: u64::try_from(found.st_size).unwrap_or(0),
            nlink: u64::from(found.st_nlink),
            rdev: found.st_rdev,
            inode: found.st_ino,
            accessed: (found.st_atime, nanos(found.st_atime_nsec)),
            modified: (found.st_mtime, nanos(found.st_mtime_nsec)),
        };
        EntryStat { found, id }
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.found.mode)
    }

    /// What is open is that, and its attributes as they are now.
    fn expect(&self, file: impl AsFd) -> io::Result<EntryStat> {
        let now = EntryStat::of(&rustix::fs::fstat(file)?);
        if (now.id, now.kind()) == (self.id, self.kind()) { Ok(now) } else { Err(another()) }
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path().display())
    }
}

impl HostEntry {
    /// What the user has named. The directories on the way are followed when it is first used, and once.
    pub(crate) fn named(path: &Path) -> HostEntry {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        // With the slashes behind it, which say that it is a directory.
        let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = bytes.split_at(start);
        let dir = Dir::named(Path::new(OsStr::from_bytes(above)));
        HostEntry { dir, name: OsStr::from_bytes(name).into() }
    }

    pub(crate) fn of(dir: &Rc<Dir>, name: &OsStr) -> HostEntry {
        HostEntry { dir: Rc::clone(dir), name: name.into() }
    }

    /// What it is called.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    /// Whether its directory is the one of this number, or lies below that.
    pub(crate) fn lies_below(&self, id: Id) -> bool {
        ids_above(&self.dir).is_ok_and(|above| above.contains(&id))
    }

    /// What is there; a link itself, unless `follow`.
    pub(crate) fn look(&self, follow: bool) -> io::Result<EntryStat> {
        let how = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(EntryStat::of(&rustix::fs::statat(&*self.dir.fd()?, &*self.name, how)?))
    }

    /// The directory that was found here; a link to one, if `follow`.
    pub(crate) fn enter(&self, seen: &EntryStat, follow: bool) -> io::Result<Rc<Dir>> {
        if !follow {
            return self.dir.enter(&self.name, Some(seen.id));
        }
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*self.dir.fd()?, &*self.name, how, Mode::empty())?;
        seen.expect(&fd)?;
        Ok(Dir::of(&self.path(), fd))
    }

    /// Makes a directory that its owner alone can use.
    pub(crate) fn make_dir(&self) -> io::Result<Rc<Dir>> {
        self.dir.make(&self.name)
    }

    /// The file that was found here, to be read, and what it is now.
    pub(crate) fn open(&self, seen: &EntryStat, follow: bool) -> io::Result<(File, EntryStat)> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let how = if follow { how } else { how | OFlags::NOFOLLOW };
        let file = match rustix::fs::openat(&*self.dir.fd()?, &*self.name, how, Mode::empty()) {
            // Others hold a lease on it, which they are to give back.
            Err(Errno::AGAIN) => return self.open_waiting(seen, follow),
            file => file?,
        };
        let now = seen.expect(&file)?;
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
        Ok((file.into(), now))
    }

    /// The same, waiting for those at the other end; a pipe and a device as well.
    pub(crate) fn open_waiting(
        &self,
        seen: &EntryStat,
        follow: bool,
    ) -> io::Result<(File, EntryStat)> {
        let (held, now) = self.hold(seen, follow)?;
        Ok((self.reopen(&held, OFlags::RDONLY, follow)?, now))
    }

    /// Opens what is held.
    pub(super) fn reopen(&self, held: &OwnedFd, how: OFlags, follow: bool) -> io::Result<File> {
        let how = how | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(by_proc(held.as_fd()), how, Mode::empty()) {
            // Where no /proc is mounted.
            Err(Errno::NOENT) if follow => {
                Ok(rustix::fs::openat(&*self.dir.fd()?, &*self.name, how, Mode::empty())?.into())
            }
            file => Ok(file?.into()),
        }
    }

    /// What was found here, of any kind, as a place that is held; and what it is now.
    pub(crate) fn hold(&self, seen: &EntryStat, follow: bool) -> io::Result<(OwnedFd, EntryStat)> {
        let held = hold(&*self.dir.fd()?, &self.name, follow)?;
        let now = seen.expect(&held)?;
        Ok((held, now))
    }

    /// Makes a file for this user alone, where there is nothing.
    pub(crate) fn create(&self) -> io::Result<File> {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        Ok(rustix::fs::openat(&*self.dir.fd()?, &*self.name, how, mode)?.into())
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(
        &self,
        target: &Path,
        attributes: &Attributes,
        there: There,
    ) -> io::Result<Made> {
        let is_it = |held: BorrowedFd<'_>| read_link(held).is_ok_and(|found| found == target);
        self.make(attributes, there, (FileType::Symlink, &is_it), |dir, name| {
            rustix::fs::symlinkat(target, dir, name)
        })
    }

    /// Makes a pipe, a socket or a device.
    pub(crate) fn node(
        &self,
        (mode, rdev): (u32, u64),
        attributes: &Attributes,
        there: There,
    ) -> io::Result<Made> {
        let kind = FileType::from_raw_mode(mode);
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let is_it = |held: BorrowedFd<'_>| {
            rustix::fs::fstat(held).is_ok_and(|found| !is_device || found.st_rdev == rdev)
        };
        self.make(attributes, there, (kind, &is_it), |dir, name| {
            rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(0o600), rdev)
        })
    }

    /// Makes something with attributes.
    fn make(
        &self,
        attributes: &Attributes,
        there: There,
        (kind, is_it): (FileType, &dyn Fn(BorrowedFd<'_>) -> bool),
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
    ) -> io::Result<Made> {
        self.put(there, |dir, name| {
            make(dir, name)?;
            let held = hold(dir, name, false)?;
            let found = EntryStat::of(&rustix::fs::fstat(&held)?);
            // Others may have put something else here: it keeps what it has.
            if found.kind() != kind || !is_it(held.as_fd()) {
                return Err(another());
            }
            let (left_out, done) = set(&held, attributes);
            match done {
                Ok(()) => Ok(Made { id: found.id, left_out }),
                Err(error) => {
                    let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
                    Err(error)
                }
            }
        })
    }

    /// Gives the file that was made at `old` this name as well.
    pub(crate) fn link(&self, old: &HostEntry, id: Id, there: There) -> io::Result<()> {
        // A name of a file that takes the place of another name of it would leave both.
        if self.look(false).is_ok_and(|there| there.id == id) {
            return Ok(());
        }
        let held = hold(&*old.dir.fd()?, &old.name, false)?;
        if EntryStat::of(&rustix::fs::fstat(&held)?).id != id {
            return Err(another());
        }
        self.put_name_of(held.as_fd(), there)
    }

    /// Gives what is open this name.
    pub(super) fn put_name_of(&self, file: BorrowedFd<'_>, there: There) -> io::Result<()> {
        self.put(there, |dir, name| {
            let follow = AtFlags::SYMLINK_FOLLOW;
            match rustix::fs::linkat(CWD, by_proc(file), dir, name, follow) {
                // Where no /proc is mounted. Older kernels let only root do so.
                Err(Errno::NOENT) => {
                    Ok(rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH)?)
                }
                linked => Ok(linked?),
            }
        })
    }

    /// Makes something here, or under a free name, which then takes the place of what is here.
    fn put<T>(
        &self,
        there: There,
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let dir = self.dir.fd()?;
        match make(dir.as_fd(), &self.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && there == There::Goes => {}
            made => return made,
        }
        if self.look(false)?.kind() == FileType::Directory {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..TRIES {
            let free = free_name();
            match make(dir.as_fd(), &free) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
                Ok(made) => return self.replace(&free).map(|()| made),
            }
        }
        Err(last)
    }

    /// What has another name in the directory comes here.
    pub(super) fn replace(&self, by: &OsStr) -> io::Result<()> {
        let dir = self.dir.fd()?;
        Ok(rustix::fs::renameat(&*dir, by, &*dir, &*self.name).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&*dir, by, AtFlags::empty());
        })?)
    }
}

/// A free name.
pub(super) fn free_name() -> OsString {
    format!(".holdfast-new-{:016x}", prng::entropy()).into()
}

/// Holds what is at a name; a link itself, unless `follow`.
fn hold(dir: impl AsFd, name: &OsStr, follow: bool) -> io::Result<OwnedFd> {
    let how = OFlags::PATH | OFlags::CLOEXEC;
    let how = if follow { how } else { how | OFlags::NOFOLLOW };
    Ok(rustix::fs::openat(dir, name, how, Mode::empty())?)
}

/// Where a link that is held leads.
pub(crate) fn read_link(held: impl AsFd) -> io::Result<PathBuf> {
    let target = rustix::fs::readlinkat(held, "", Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// The next stretch of data at or after `at`.
pub(crate) fn data_after(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A filesystem that cannot say: all of it is data.
        Err(_) => return Ok((at < len).then_some((at, len))),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len);
    Ok((end > start).then_some((start, end)))
}
