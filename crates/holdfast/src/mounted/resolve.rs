//! From paths to places in a mount, by the rules of the library (`path.rs`), and never out of the volume.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use holdfast_format::item::FileType;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::attributes::status;
use super::{Directory, Mount, errno};
use crate::path::{Follow, Walk};

/// How often the kernel is asked again that was disturbed by renames elsewhere, before the path is gone by single steps.
const TRIES: usize = 32;

/// A place, of anything.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// What is mounted over a directory is not the volume.
const INSIDE: ResolveFlags = ResolveFlags::NO_XDEV.union(ResolveFlags::NO_MAGICLINKS);

/// The root of the mount at `dir`.
pub(super) fn root(dir: &Path) -> io::Result<OwnedFd> {
    let flags = PLACE | OFlags::DIRECTORY;
    // Not by plain open(2): whether there is openat2(2) is found out here.
    let resolve = ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(rustix::fs::CWD, dir, flags, Mode::empty(), resolve)?)
}

/// A directory in it, by a path without links.
pub(super) fn root_within(root: &OwnedFd, path: String) -> io::Result<OwnedFd> {
    let flags = PLACE | OFlags::DIRECTORY;
    let resolve = INSIDE | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// A descriptor of a place, its own or another one's.
pub(super) enum Parent<'d> {
    Here(BorrowedFd<'d>),
    There(OwnedFd),
    Walked(Arc<OwnedFd>),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Here(fd) => *fd,
            Parent::There(fd) => fd.as_fd(),
            Parent::Walked(fd) => fd.as_fd(),
        }
    }
}

/// The last name of a path and the directory it is in, as of the engine.
pub(super) struct ParentAndName<'d, 'p> {
    pub(super) parent: Parent<'d>,
    pub(super) name: Cow<'p, [u8]>,
    /// The path ended in `/`: only a directory will do.
    pub(super) slash: bool,
}

/// Where a walk that may end at nothing ended.
pub(super) enum End<'d, 'p> {
    Found(OwnedFd),
    Missing(ParentAndName<'d, 'p>),
}

impl Directory {
    /// What is at `path`.
    pub(super) fn node(&self, path: &[u8], follow: Follow) -> io::Result<OwnedFd> {
        self.open(path, follow, OFlags::empty())
    }

    /// The directory at `path`.
    pub(super) fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.open(path, Follow::Yes, OFlags::DIRECTORY)
    }

    fn open(&self, path: &[u8], follow: Follow, more: OFlags) -> io::Result<OwnedFd> {
        check(path)?;
        let mut flags = PLACE | more;
        flags.set(OFlags::NOFOLLOW, follow == Follow::No);
        let from_root = path[0] == b'/' || self.inode.0 == self.mount.root_is.1;
        let (base, resolve) = match from_root {
            true => (&self.mount.root, ResolveFlags::IN_ROOT),
            false => (&self.place, ResolveFlags::BENEATH),
        };
        for _ in 0..TRIES {
            match openat2(base, path, flags, Mode::empty(), INSIDE | resolve) {
                Ok(found) => return Ok(found),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // It leads to above the directory, or to something that is mounted there: a walk finds out which.
                Err(Errno::XDEV) if !from_root => break,
                // Paths have no length limit, names do.
                Err(Errno::NAMETOOLONG) if path.len() >= libc::PATH_MAX as usize => break,
                Err(error) => return Err(error.into()),
            }
        }
        match self.walk(path, follow)? {
            End::Missing(_) => Err(errno(libc::ENOENT)),
            End::Found(found) => {
                let wants_directory = more.contains(OFlags::DIRECTORY);
                match wants_directory && status(&found)?.attr.file_type != FileType::Directory {
                    true => Err(errno(libc::ENOTDIR)),
                    false => Ok(found),
                }
            }
        }
    }

    /// The end of `path`, name by name: what the kernel is not asked for as a whole.
    pub(super) fn walk<'p>(&self, path: &'p [u8], follow: Follow) -> io::Result<End<'_, 'p>> {
        let place = |fd: &OwnedFd| fd.try_clone().map(Arc::new);
        let root = place(&self.mount.root)?;
        let base = place(&self.place)?;
        let mut walk = Walk::new(root, base, path).map_err(io::Error::from)?;
        while let Some(step) = walk.next() {
            let found = match self.step(&walk.at, &step.name) {
                Err(error) if step.last && error.raw_os_error() == Some(libc::ENOENT) => {
                    let parent = Parent::Walked(walk.at);
                    let (name, slash) = (step.name, step.slash);
                    return Ok(End::Missing(ParentAndName { parent, name, slash }));
                }
                found => found?,
            };
            let file_type = status(&found)?.attr.file_type;
            let keep_link = step.last && !step.slash && follow == Follow::No;
            if file_type == FileType::Symlink && !keep_link {
                walk.enter_link(target(&found)?).map_err(io::Error::from)?;
                continue;
            }
            if (!step.last || step.slash) && file_type != FileType::Directory {
                return Err(errno(libc::ENOTDIR));
            }
            if step.last {
                return Ok(End::Found(found));
            }
            walk.at = Arc::new(found);
        }
        Ok(End::Found(walk.at.try_clone()?))
    }

    fn step(&self, at: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
        if name == b".." && self.mount.is_root(at)? {
            return at.try_clone();
        }
        one_name(at, name, OFlags::empty())
    }

    /// The place that `path` names, whether or not anything is there; links at its end are not followed.
    /// A path that ends in `.` or `..` or is `/` names no place: `special` is the answer then.
    pub(super) fn place<'d, 'p>(
        &'d self,
        path: &'p [u8],
        special: i32,
    ) -> io::Result<ParentAndName<'d, 'p>> {
        check(path)?;
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        let (whole, slash) = (&path[..end], end < path.len());
        if whole.is_empty() {
            return Err(errno(special));
        }
        let start = whole.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let (dir, name) = whole.split_at(start);
        let parent = match dir {
            [] => Parent::Here(self.place.as_fd()),
            dir => Parent::There(self.directory(dir)?),
        };
        match name {
            b"." | b".." => Err(errno(special)),
            name => Ok(ParentAndName { parent, name: Cow::Borrowed(name), slash }),
        }
    }
}

impl Mount {
    /// Whether a place is the root of the volume.
    fn is_root(&self, at: &OwnedFd) -> io::Result<bool> {
        let is = status(at)?;
        Ok((is.device, is.attr.inode.0) == self.root_is)
    }
}

/// What a name of a directory leads to, links not followed.
pub(super) fn one_name(at: impl AsFd, name: &[u8], more: OFlags) -> io::Result<OwnedFd> {
    let flags = PLACE | OFlags::NOFOLLOW | more;
    Ok(openat2(at, name, flags, Mode::empty(), INSIDE)?)
}

/// What a link says.
pub(super) fn target(link: &OwnedFd) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
}

/// As the engine judges paths.
fn check(path: &[u8]) -> io::Result<()> {
    match path {
        [] => Err(errno(libc::ENOENT)),
        path if path.contains(&0) => Err(errno(libc::EINVAL)),
        _ => Ok(()),
    }
}
