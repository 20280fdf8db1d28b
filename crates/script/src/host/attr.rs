//! Attributes of files of the host.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::{Answered, Hooks, Host, kind_at};
use crate::bytes::Data;
use crate::errno::Errno;
use crate::op::{FileRef, SetTime, XattrHow};
use crate::outcome::Answer;
use crate::stat::{FileKind, Mtime, Stat};

impl<H: Hooks> Host<H> {
    pub(super) fn stat(&self, place: &FileRef) -> Answered {
        let stat = match place {
            FileRef::Handle(handle) => fs::fstat(self.handles.get(handle)?)?,
            FileRef::Path(path) => {
                let (dir, name) = self.locate(path)?;
                fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?
            }
        };
        let kind = FileKind::from_mode(stat.st_mode).ok_or(Errno::EIO)?;
        let is_device = matches!(kind, FileKind::Char | FileKind::Block);
        Ok(Answer::Stat(Stat {
            kind,
            mode: stat.st_mode & 0o7777,
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: if kind == FileKind::Dir { 0 } else { stat.st_size as u64 },
            device: match is_device {
                true => (fs::major(stat.st_rdev), fs::minor(stat.st_rdev)),
                false => (0, 0),
            },
            mtime: Mtime::seen(stat.st_mtime, stat.st_mtime_nsec as u32),
            inode: stat.st_ino,
        }))
    }

    pub(super) fn chmod(&self, place: &FileRef, mode: u32) -> Answered {
        let mode = Mode::from_raw_mode(mode);
        match place {
            FileRef::Handle(handle) => fs::fchmod(self.handles.get(handle)?, mode)?,
            FileRef::Path(path) => {
                let (dir, name) = self.locate(path)?;
                if kind_at(&dir, name)? == FileKind::Symlink {
                    return Err(Errno::EOPNOTSUPP);
                }
                fs::chmodat(&dir, name, mode, AtFlags::empty())?;
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn chown(&self, place: &FileRef, uid: Option<u32>, gid: Option<u32>) -> Answered {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match place {
            FileRef::Handle(handle) => fs::fchown(self.handles.get(handle)?, uid, gid)?,
            FileRef::Path(path) => {
                let (dir, name) = self.locate(path)?;
                fs::chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn utimes(&self, place: &FileRef, atime: SetTime, mtime: SetTime) -> Answered {
        let time = |time| match time {
            SetTime::Omit => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            SetTime::Now => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
            SetTime::At { secs, nanos } => Timespec { tv_sec: secs, tv_nsec: nanos.into() },
        };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        match place {
            FileRef::Handle(handle) => fs::futimens(self.handles.get(handle)?, &times)?,
            FileRef::Path(path) => {
                let (dir, name) = self.locate(path)?;
                // Linux does not even look for the file if no time is to change.
                kind_at(&dir, name)?;
                fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(Answer::Done)
    }

    /// A path for the attribute calls, which take no directory: through the parent, kept open by the first value.
    pub(super) fn xattr_path(&self, place: &FileRef) -> Result<(Option<OwnedFd>, CString), Errno> {
        let (dir, path) = match place {
            FileRef::Handle(handle) => {
                let path = format!("/proc/self/fd/{}", self.handles.get(handle)?.as_raw_fd());
                (None, path.into_bytes())
            }
            FileRef::Path(path) => {
                let (dir, name) = self.locate(path)?;
                let path = format!("/proc/self/fd/{}/", dir.as_raw_fd());
                (Some(dir), [path.as_bytes(), name].concat())
            }
        };
        Ok((dir, CString::new(path).map_err(|_| Errno::EINVAL)?))
    }

    /// Calls `follow` for a handle (its entry in /proc is a link) and `nofollow` for a path.
    pub(super) fn xattr<T>(
        &self,
        place: &FileRef,
        follow: impl FnOnce(&CString) -> rustix::io::Result<T>,
        nofollow: impl FnOnce(&CString) -> rustix::io::Result<T>,
    ) -> Result<T, Errno> {
        let (_dir, path) = self.xattr_path(place)?;
        Ok(match place {
            FileRef::Handle(_) => follow(&path)?,
            FileRef::Path(_) => nofollow(&path)?,
        })
    }

    pub(super) fn setxattr(
        &self,
        place: &FileRef,
        name: &[u8],
        value: &Data,
        how: XattrHow,
    ) -> Answered {
        let value = value.bytes();
        let flags = match how {
            XattrHow::Any => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        self.xattr(
            place,
            |path| fs::setxattr(path, name, &value, flags),
            |path| fs::lsetxattr(path, name, &value, flags),
        )?;
        Ok(Answer::Done)
    }

    pub(super) fn getxattr(&self, place: &FileRef, name: &[u8]) -> Answered {
        let mut follow = vec![0; 65536];
        let mut nofollow = vec![0; 65536];
        let count = self.xattr(
            place,
            |path| fs::getxattr(path, name, &mut follow[..]),
            |path| fs::lgetxattr(path, name, &mut nofollow[..]),
        )?;
        let value = if matches!(place, FileRef::Handle(_)) { follow } else { nofollow };
        Ok(Answer::Bytes(value[..count].to_vec()))
    }

    pub(super) fn listxattr(&self, place: &FileRef) -> Answered {
        let mut follow = vec![0; 65536];
        let mut nofollow = vec![0; 65536];
        let count = self.xattr(
            place,
            |path| fs::listxattr(path, &mut follow[..]),
            |path| fs::llistxattr(path, &mut nofollow[..]),
        )?;
        let list = if matches!(place, FileRef::Handle(_)) { follow } else { nofollow };
        // Other families belong to the host: labels, capabilities, access lists.
        let ours = |name: &&[u8]| name.starts_with(b"user.") || name.starts_with(b"trusted.");
        let mut names: Vec<Vec<u8>> =
            list[..count].split(|&byte| byte == 0).filter(ours).map(<[u8]>::to_vec).collect();
        names.sort();
        Ok(Answer::Attributes(names))
    }
}
