//! Taking a mount away without believing in its path.
//!
//! The owner of a directory above a mount point can rename it at any moment, and put a link to another mount in its place. So a
//! mount is known by numbers that the kernel gives. Where it is now stands in mountinfo; the directory that holds the mount point is
//! opened without following a link, and through it what lies there is compared with the number and unmounted.
//!
//! Opening never asks a server of FUSE for a mount that another user has made: it might not answer.

use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use holdfast_wire::mount_number::mount_number;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, open, openat, openat2, statx,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// STATX_MNT_ID, of Linux 5.8, and STATX_MNT_ID_UNIQUE, of 6.8.
const MNT_ID: u32 = 0x1000;
const MNT_ID_UNIQUE: u32 = 0x4000;
/// How often a place is looked up in the kernel's memory, which fails now and then when others rename things.
const TRIES: u32 = 10;

/// What tells a mount from others. Before Linux 6.8, and 6.12 where only the user of a mount is let in, the kernel gives it away again
/// when the mount is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountNumber {
    number: u64,
    is_unique: bool,
}

/// Which servers a lookup may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Only the kernel's memory, which has each directory above a mount.
    Remembered,
    /// Also the filesystems on the way.
    Any,
}

/// The place of a mount: a name in an open directory.
#[derive(Debug)]
pub(crate) struct MountPoint {
    parent: OwnedFd,
    name: OsString,
}

impl MountPoint {
    /// The place at `path`, which mountinfo has named.
    ///
    /// # Errors
    /// It is not there any more, or it has no name; AGAIN: the kernel does not remember it.
    pub(crate) fn open(path: &Path, lookup: Lookup) -> Result<MountPoint, Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::BUSY);
        };
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let no_links = ResolveFlags::NO_SYMLINKS;
        let resolve = |flags| openat2(CWD, parent, how, Mode::empty(), flags);
        let mut opened = resolve(no_links | ResolveFlags::CACHED);
        for _ in 0..TRIES {
            match opened {
                Err(Errno::AGAIN) => opened = resolve(no_links | ResolveFlags::CACHED),
                _ => break,
            }
        }
        if lookup == Lookup::Any {
            if let Err(Errno::AGAIN | Errno::INVAL) = opened {
                opened = resolve(no_links);
            }
            // Before Linux 5.6, or below a filter of system calls that does not know this one.
            if let Err(Errno::NOSYS | Errno::PERM) = opened {
                opened = step_by_step(parent);
            }
        }
        Ok(MountPoint { parent: opened?, name: name.into() })
    }

    /// The number of the mount that one sees there. Asks nothing of the mount itself.
    pub(crate) fn number(&self) -> Option<MountNumber> {
        let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let look = |wanted| statx(&self.parent, &self.name, how, wanted);
        let found = match look(StatxFlags::from_bits_retain(MNT_ID | MNT_ID_UNIQUE)) {
            // A mount of FUSE that lets only its user in tells others only what was not asked for.
            Err(Errno::ACCESS) => match self.number_unasked() {
                Some(number) => return Some(MountNumber { number, is_unique: true }),
                None => look(StatxFlags::empty()),
            },
            found => found,
        };
        let found = found.ok()?;
        let is_unique = found.stx_mask & MNT_ID_UNIQUE != 0;
        let is_known = is_unique || found.stx_mask & MNT_ID != 0;
        is_known.then_some(MountNumber { number: found.stx_mnt_id, is_unique })
    }

    fn number_unasked(&self) -> Option<u64> {
        let name = CString::new(self.name.as_bytes()).ok()?;
        mount_number(&self.parent, &name).ok()
    }

    /// Unmounts what one sees there.
    pub(crate) fn unmount(&self, flags: UnmountFlags) -> Result<(), Errno> {
        let directory = format!("/proc/self/fd/{}", self.parent.as_raw_fd());
        rustix::mount::unmount(PathBuf::from(directory).join(&self.name), flags)
    }
}

/// Opens a directory by one part of its path after the other, and follows no link.
fn step_by_step(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = open("/", how, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::Normal(name) => dir = openat(&dir, name, how, Mode::empty())?,
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL),
        }
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_name_in_a_directory_and_no_link_leads_there() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("a")).unwrap();
        std::fs::create_dir(real.join("a/point")).unwrap();
        std::os::unix::fs::symlink("a", real.join("link")).unwrap();
        for lookup in [Lookup::Remembered, Lookup::Any] {
            let found = MountPoint::open(&real.join("a/point"), lookup).unwrap();
            assert_eq!(found.number(), found.number());
            assert!(found.number().is_some());
            let by_link = MountPoint::open(&real.join("link/point"), lookup).map(drop);
            assert_eq!(by_link, Err(Errno::LOOP));
            let none = MountPoint::open(&real.join("none/point"), Lookup::Any).map(drop);
            assert_eq!(none, Err(Errno::NOENT));
            assert!(MountPoint::open(Path::new("/"), lookup).is_err());
        }
        let [by_steps, at_once] = [
            step_by_step(&real.join("a")).unwrap(),
            open(real.join("a"), OFlags::PATH, Mode::empty()).unwrap(),
        ];
        let id =
            |of: &OwnedFd| rustix::fs::fstat(of).map(|found| (found.st_dev, found.st_ino)).unwrap();
        assert_eq!(id(&by_steps), id(&at_once));
        assert!(step_by_step(&real.join("link")).is_err());
        let point = MountPoint::open(&real.join("a/point"), Lookup::Any).unwrap();
        std::fs::rename(real.join("a"), real.join("b")).unwrap();
        assert!(point.number().is_some(), "it goes with its directory");
        assert_eq!(point.unmount(UnmountFlags::NOFOLLOW), Err(Errno::INVAL), "nothing is mounted");
    }
}
