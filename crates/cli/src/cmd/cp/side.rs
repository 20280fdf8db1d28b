//! A path on the host or in a volume, with the calls that copying needs on both.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::{FileTimes, FileType, OpenOptions, Permissions, Volume, XattrFlags};
use rustix::fs::{AtFlags, CWD, Gid, SeekFrom, Timespec, Timestamps, Uid};

/// A path on one of the two sides.
#[derive(Clone)]
pub(super) enum Side {
    Host(PathBuf),
    Volume(Arc<Image>, PathBuf),
}

/// An open volume, and the name that the user gave for it.
pub(super) struct Image {
    pub(super) name: String,
    pub(super) volume: Volume,
}

impl Deref for Image {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.volume
    }
}

/// What could not be done, and with which path.
pub(super) struct Failed {
    pub(super) what: Side,
    pub(super) error: io::Error,
}

/// Says which path an error is about.
pub(super) trait At<T> {
    fn at(self, side: &Side) -> Result<T, Failed>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, side: &Side) -> Result<T, Failed> {
        self.map_err(|error| Failed { what: side.clone(), error })
    }
}

/// What copying wants to know of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) file_type: FileType,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) len: u64,
    pub(super) nlink: u64,
    pub(super) rdev: u64,
    /// Tells files of one side apart.
    pub(super) id: (u64, u64),
    pub(super) accessed: SystemTime,
    pub(super) modified: SystemTime,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Host(path) => write!(f, "{}", path.display()),
            Side::Volume(image, path) => {
                write!(f, "{}:{}", image.name, path.display())
            }
        }
    }
}

impl Side {
    fn path(&self) -> &Path {
        match self {
            Side::Host(path) | Side::Volume(_, path) => path,
        }
    }

    pub(super) fn name(&self) -> Option<OsString> {
        self.path().file_name().map(OsStr::to_os_string)
    }

    pub(super) fn join(&self, name: &OsStr) -> Side {
        match self {
            Side::Host(path) => Side::Host(path.join(name)),
            Side::Volume(volume, path) => Side::Volume(volume.clone(), path.join(name)),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.found(true).is_ok_and(|found| found.file_type == FileType::Directory)
    }

    /// Attributes; symbolic links followed or not.
    pub(super) fn found(&self, follow: bool) -> io::Result<Found> {
        match self {
            Side::Host(path) => {
                let found = match follow {
                    true => std::fs::metadata(path)?,
                    false => std::fs::symlink_metadata(path)?,
                };
                let moment = |secs: i64, nanos: i64| {
                    let nanos = Duration::from_nanos(nanos.unsigned_abs());
                    let secs_abs = Duration::from_secs(secs.unsigned_abs());
                    match secs < 0 {
                        true => UNIX_EPOCH - secs_abs + nanos,
                        false => UNIX_EPOCH + secs_abs + nanos,
                    }
                };
                Ok(Found {
                    file_type: FileType::from_mode(found.mode())
                        .ok_or(io::ErrorKind::InvalidData)?,
                    mode: found.mode() & 0o7777,
                    uid: found.uid(),
                    gid: found.gid(),
                    len: found.len(),
                    nlink: found.nlink(),
                    rdev: found.rdev(),
                    id: (found.dev(), found.ino()),
                    accessed: moment(found.atime(), found.atime_nsec()),
                    modified: moment(found.mtime(), found.mtime_nsec()),
                })
            }
            Side::Volume(volume, path) => {
                let found = match follow {
                    true => volume.metadata(path)?,
                    false => volume.symlink_metadata(path)?,
                };
                Ok(Found {
                    file_type: found.file_type(),
                    mode: found.permissions().mode(),
                    uid: found.uid(),
                    gid: found.gid(),
                    len: found.len(),
                    nlink: found.nlink().into(),
                    rdev: found.rdev(),
                    id: (Arc::as_ptr(volume) as u64, found.ino()),
                    accessed: found.accessed(),
                    modified: found.modified(),
                })
            }
        }
    }

    /// Names in a directory, in no order.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        match self {
            Side::Host(path) => {
                std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
            }
            Side::Volume(volume, path) => {
                volume.read_dir(path)?.map(|entry| Ok(entry?.file_name().to_os_string())).collect()
            }
        }
    }

    pub(super) fn read_link(&self) -> io::Result<PathBuf> {
        match self {
            Side::Host(path) => std::fs::read_link(path),
            Side::Volume(volume, path) => volume.read_link(path),
        }
    }

    pub(super) fn open(&self) -> io::Result<Open> {
        match self {
            Side::Host(path) => std::fs::File::open(path).map(Open::Host),
            Side::Volume(volume, path) => volume.open_file(path).map(Open::Volume),
        }
    }

    /// Makes or empties a file; `private` until its permission bits are set.
    pub(super) fn create(&self) -> io::Result<Open> {
        match self {
            Side::Host(path) => {
                use std::os::unix::fs::OpenOptionsExt;
                std::fs::File::options()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(path)
                    .map(Open::Host)
            }
            Side::Volume(volume, path) => {
                let options = OpenOptions::new().write(true).create(true);
                volume.open_with(path, &options.truncate(true).mode(0o600)).map(Open::Volume)
            }
        }
    }

    /// Makes a directory that its owner can fill, unless there is one.
    pub(super) fn create_dir(&self) -> io::Result<()> {
        let made = match self {
            Side::Host(path) => std::fs::create_dir(path),
            Side::Volume(volume, path) => volume.create_dir_with_mode(path, 0o700),
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.is_dir() => Ok(()),
            other => other,
        }
    }

    pub(super) fn symlink(&self, target: &Path) -> io::Result<()> {
        match self {
            Side::Host(path) => std::os::unix::fs::symlink(target, path),
            Side::Volume(volume, path) => volume.symlink(target, path),
        }
    }

    pub(super) fn node(&self, found: &Found) -> io::Result<()> {
        match self {
            Side::Host(path) => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let kind = rustix::fs::FileType::from_raw_mode(found.file_type.mode_bits());
                Ok(rustix::fs::mknodat(CWD, path, kind, mode, found.rdev)?)
            }
            Side::Volume(volume, path) => {
                volume.create_node(path, found.file_type, 0o600, found.rdev)
            }
        }
    }

    /// Gives the file at `self` the name `new` as well, on the same side.
    pub(super) fn hard_link(&self, new: &Side) -> io::Result<()> {
        match (self, new) {
            (Side::Host(old), Side::Host(new)) => std::fs::hard_link(old, new),
            (Side::Volume(volume, old), Side::Volume(_, new)) => volume.hard_link(old, new),
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    pub(super) fn remove_file(&self) -> io::Result<()> {
        match self {
            Side::Host(path) => std::fs::remove_file(path),
            Side::Volume(volume, path) => volume.remove_file(path),
        }
    }

    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self {
            Side::Host(path) => {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            }
            Side::Volume(volume, path) => {
                volume.set_permissions(path, Permissions::from_mode(mode))
            }
        }
    }

    /// Owner; a user without the right to give files away keeps them, as with cp(1).
    pub(super) fn set_owner(&self, found: &Found) -> io::Result<()> {
        let set = match self {
            Side::Host(path) => rustix::fs::chownat(
                CWD,
                path,
                Some(Uid::from_raw(found.uid)),
                Some(Gid::from_raw(found.gid)),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(io::Error::from),
            Side::Volume(volume, path) => volume.chown(path, Some(found.uid), Some(found.gid)),
        };
        match set {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        }
    }

    pub(super) fn set_times(&self, found: &Found) -> io::Result<()> {
        match self {
            Side::Host(path) => {
                let times = Timestamps {
                    last_access: timespec(found.accessed),
                    last_modification: timespec(found.modified),
                };
                Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Side::Volume(volume, path) => {
                let times = FileTimes::new().set_accessed(found.accessed);
                volume.set_times(path, times.set_modified(found.modified))
            }
        }
    }

    /// Names and values of the extended attributes; none where the host has none.
    pub(super) fn xattrs(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let names: Vec<String> = match self {
            Side::Host(path) => host_xattr_names(path)?,
            Side::Volume(volume, path) => {
                let names = volume.xattrs(path)?;
                names.iter().filter_map(|n| n.to_str().map(String::from)).collect()
            }
        };
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let value = match self {
                Side::Host(path) => {
                    let mut value = Vec::with_capacity(65536);
                    rustix::fs::lgetxattr(path, &name, rustix::buffer::spare_capacity(&mut value))?;
                    value
                }
                Side::Volume(volume, path) => volume.xattr(path, &name)?,
            };
            all.push((name, value));
        }
        Ok(all)
    }

    /// Sets an attribute; one that this side does not have, or that is not for us to set, is left out.
    pub(super) fn set_xattr(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let set = match self {
            Side::Host(path) => {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::lsetxattr(path, name, value, flags).map_err(io::Error::from)
            }
            Side::Volume(volume, path) => volume.set_xattr(path, name, value, XattrFlags::empty()),
        };
        match set {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

fn host_xattr_names(path: &Path) -> io::Result<Vec<String>> {
    let mut list = Vec::with_capacity(65536);
    match rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    Ok(list
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| String::from_utf8(name.to_vec()).ok())
        .collect())
}

fn timespec(time: SystemTime) -> Timespec {
    let time = holdfast_base::Timestamp::from(time);
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() }
}

/// An open file of either side.
pub(super) enum Open {
    Host(std::fs::File),
    Volume(holdfast::File),
}

impl Open {
    pub(super) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Open::Host(file) => file.read_at(into, at),
            Open::Volume(file) => file.read_at(into, at),
        }
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Open::Host(file) => file.write_all_at(bytes, at),
            Open::Volume(file) => file.write_all_at(bytes, at),
        }
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            Open::Host(file) => file.set_len(len),
            Open::Volume(file) => file.set_len(len),
        }
    }

    /// The next stretch of data at or after `at`: its start and end. `None` if only a hole is left.
    pub(super) fn data_after(&self, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        match self {
            Open::Host(file) => {
                let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                    Ok(start) => start,
                    Err(rustix::io::Errno::NXIO) => return Ok(None),
                    // A host filesystem that cannot say: all of it is data.
                    Err(_) => return Ok((at < len).then_some((at, len))),
                };
                let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len);
                Ok(Some((start, end)))
            }
            Open::Volume(file) => match file.seek_data(at)? {
                Some(start) => Ok(Some((start, file.seek_hole(start)?))),
                None => Ok(None),
            },
        }
    }
}
