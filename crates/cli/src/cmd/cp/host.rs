//! Files of the host, as copying needs them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use holdfast_base::prng;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::work::files::message::{Attributes, Found, Time};

/// How often a name is drawn that nobody has.
const TRIES: usize = 16;
/// Zeros that are written at once.
const ZEROS: usize = 1 << 16;
/// Bits with which a program runs as the owner or group of its file: not as another one, who has got the copy.
const SET_ID: u32 = 0o6000;

/// Attributes; symbolic links followed or not.
pub(super) fn found(path: &Path, follow: bool) -> io::Result<Found> {
    let found = match follow {
        true => std::fs::metadata(path)?,
        false => std::fs::symlink_metadata(path)?,
    };
    let nanos = |nanos: i64| u32::try_from(nanos).unwrap_or(0);
    Ok(Found {
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        len: found.len(),
        nlink: found.nlink(),
        rdev: found.rdev(),
        inode: found.ino(),
        accessed: (found.atime(), nanos(found.atime_nsec())),
        modified: (found.mtime(), nanos(found.mtime_nsec())),
    })
}

/// Whether it is a directory; symbolic links followed or not.
pub(super) fn is_dir(path: &Path, follow: bool) -> bool {
    let found = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
    found.is_ok_and(|found| found.is_dir())
}

/// The filesystem of a path.
pub(super) fn device(path: &Path) -> io::Result<u64> {
    Ok(std::fs::symlink_metadata(path)?.dev())
}

/// Extended attributes; none where the filesystem has none.
pub(super) fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut list = Vec::with_capacity(65536);
    match rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
    let mut all = Vec::new();
    for name in names {
        let mut value = Vec::with_capacity(65536);
        match rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)) {
            Ok(_) => all.push((name.to_vec(), value)),
            // It has gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// The next stretch of data at or after `at`.
pub(super) fn data_after(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A filesystem that cannot say: all of it is data.
        Err(_) => return Ok((at < len).then_some((at, len))),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len);
    Ok((end > start).then_some((start, end)))
}

/// Makes a pipe, a socket or a device that its owner alone can use.
pub(super) fn make_node(path: &Path, mode: u32, rdev: u64) -> io::Result<()> {
    let kind = rustix::fs::FileType::from_raw_mode(mode);
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), rdev)?)
}

/// Makes something at `path` with attributes. What was there goes in the same step, unless it is a directory.
pub(super) fn make(
    path: &Path,
    attributes: &Attributes,
    make: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    at_place(path, |path| {
        make(path)?;
        set(path, attributes).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    })
}

/// Gives the file at `old` the name `new` as well.
pub(super) fn link(old: &Path, new: &Path) -> io::Result<()> {
    let id = |path: &Path| std::fs::symlink_metadata(path).map(|of| (of.dev(), of.ino()));
    // A name of a file that takes the place of another name of it would leave both.
    if id(new).is_ok_and(|there| id(old).is_ok_and(|of| of == there)) {
        return Ok(());
    }
    at_place(new, |path| std::fs::hard_link(old, path))
}

/// Makes something at `path`, or under a name that nobody has, which then takes the place of what is there.
fn at_place(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match make(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if std::fs::symlink_metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let free = dir.join(format!(".holdfast-new-{:016x}", prng::entropy()));
        match make(&free) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
            Ok(()) => {
                return std::fs::rename(&free, path).inspect_err(|_| {
                    let _ = std::fs::remove_file(&free);
                });
            }
        }
    }
    Err(last)
}

/// An owner that this user namespace has no number for is one that cannot be given.
fn known_here(given: rustix::io::Result<()>) -> rustix::io::Result<()> {
    given.map_err(|error| match error {
        Errno::INVAL => Errno::PERM,
        other => other,
    })
}

/// Sets attributes of what is at `path`, symbolic links themselves. Owner before mode, because a change of owner clears set-id
/// bits; times last.
pub(super) fn set(path: &Path, attributes: &Attributes) -> io::Result<()> {
    let mut is_given = true;
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let given = rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        is_given = unless_left_out(known_here(given))?;
    }
    for (name, value) in &attributes.xattrs {
        let flags = XattrFlags::empty();
        unless_left_out(rustix::fs::lsetxattr(path, &name[..], value, flags))?;
    }
    if let Some(mode) = attributes.mode {
        let mode = if is_given { mode } else { mode & !SET_ID };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    if let Some(times) = &attributes.times {
        rustix::fs::utimensat(CWD, path, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// A user without the right to give files away keeps them, and what the filesystem does not have is left out, as with cp(1). Says
/// whether it is set.
fn unless_left_out(set: rustix::io::Result<()>) -> io::Result<bool> {
    match set {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

fn timestamps((accessed, modified): &(Time, Time)) -> Timestamps {
    let of = |(secs, nanos): &Time| Timespec { tv_sec: *secs, tv_nsec: (*nanos).into() };
    Timestamps { last_access: of(accessed), last_modification: of(modified) }
}

/// A file that comes to its path when it is whole. One that is there and is no regular file, a device or a pipe, is written as
/// it is.
#[derive(Debug)]
pub(super) struct Writing {
    file: File,
    /// Where it comes to.
    to: PathBuf,
    place: Place,
    /// How far what is written as it is has come: a pipe and a terminal take bytes one behind the other.
    written: u64,
}

/// What a file is called that is written.
#[derive(Debug)]
enum Place {
    /// What it is to be called.
    Own,
    /// Nothing.
    Nothing,
    /// So, until it is whole: the filesystem has no files without a name.
    Temporary(PathBuf),
}

impl Writing {
    pub(super) fn begin(path: &Path, follow: bool) -> io::Result<Writing> {
        if let Ok(found) = std::fs::metadata(path)
            && follow
        {
            let kind = found.file_type();
            if kind.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket()
            {
                let file = File::options().write(true).open(path)?;
                return Ok(Writing { file, to: path.into(), place: Place::Own, written: 0 });
            }
        }
        // Through a link the file changes that it leads to.
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let to = if is_link && follow { target(path)? } else { path.into() };
        let dir = match to.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(Writing { file: file.into(), to, place: Place::Nothing, written: 0 }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let temporary = dir.join(format!(".holdfast-new-{:016x}", prng::entropy()));
                let file =
                    File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
                Ok(Writing { file, to, place: Place::Temporary(temporary), written: 0 })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        if !matches!(self.place, Place::Own) {
            return self.file.write_all_at(bytes, at);
        }
        self.write_zeros_to(at)?;
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// What is written as it is has no holes: what a device held there before is not in the file.
    fn write_zeros_to(&mut self, at: u64) -> io::Result<()> {
        let zeros = [0; ZEROS];
        while self.written < at {
            let some = (at - self.written).min(ZEROS as u64);
            self.file.write_all(&zeros[..some as usize])?;
            self.written += some;
        }
        Ok(())
    }

    pub(super) fn end(mut self, len: u64, attributes: &Attributes, sync: bool) -> io::Result<()> {
        if matches!(self.place, Place::Own) {
            return self.write_zeros_to(len);
        }
        if self.file.metadata()?.len() != len {
            self.file.set_len(len)?;
        }
        self.set(attributes)?;
        if sync {
            self.file.sync_all()?;
        }
        match std::mem::replace(&mut self.place, Place::Own) {
            Place::Temporary(temporary) => {
                std::fs::rename(&temporary, &self.to).inspect_err(|_| {
                    let _ = std::fs::remove_file(&temporary);
                })?
            }
            _ => at_place(&self.to, |path| self.link(path))?,
        }
        match (sync, self.to.parent()) {
            (true, Some(dir)) if dir != Path::new("") => File::open(dir)?.sync_all(),
            (true, _) => File::open(".")?.sync_all(),
            _ => Ok(()),
        }
    }

    fn link(&self, path: &Path) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let linked = match rustix::fs::linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            // Where no /proc is mounted. Older kernels let only root do so.
            Err(Errno::NOENT) => rustix::fs::linkat(&self.file, "", CWD, path, AtFlags::EMPTY_PATH),
            linked => linked,
        };
        linked.map_err(io::Error::from)
    }

    /// As [`set`], of the file.
    fn set(&self, attributes: &Attributes) -> io::Result<()> {
        let file = self.file.as_fd();
        let mut is_given = true;
        if let Some((uid, gid)) = attributes.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            is_given = unless_left_out(known_here(rustix::fs::fchown(file, uid, gid)))?;
        }
        for (name, value) in &attributes.xattrs {
            let set = rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty());
            unless_left_out(set)?;
        }
        if let Some(mode) = attributes.mode {
            let mode = if is_given { mode } else { mode & !SET_ID };
            self.file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        }
        if let Some(times) = &attributes.times {
            rustix::fs::futimens(file, &timestamps(times))?;
        }
        Ok(())
    }
}

/// What is not whole leaves nothing.
impl Drop for Writing {
    fn drop(&mut self) {
        if let Place::Temporary(temporary) = &self.place {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Where a link leads to, whether it is there or not.
fn target(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let target = std::fs::read_link(path)?;
            Ok(path.parent().unwrap_or(Path::new(".")).join(target))
        }
        found => found,
    }
}

/// The first directory above a path that is there, and those above it, without links.
pub(super) fn above(path: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let there = absolute.ancestors().skip(1).find_map(|dir| dir.canonicalize().ok());
    there.iter().flat_map(|dir| dir.ancestors()).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("file");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        std::fs::write(&at, "old").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut writing = Writing::begin(&link, true).unwrap();
        writing.write_all_at(b"new", 4).unwrap();
        assert_eq!((std::fs::read(&at).unwrap(), names()), (b"old".to_vec(), 2));
        let attributes = Attributes { mode: Some(0o640), ..Attributes::default() };
        writing.end(9, &attributes, true).unwrap();
        assert_eq!(std::fs::read(&at).unwrap(), b"\0\0\0\0new\0\0");
        assert_eq!(std::fs::metadata(&at).unwrap().mode() & 0o7777, 0o640);
        // What is given up leaves what was, and nothing else.
        drop(Writing::begin(&at, false).unwrap());
        assert_eq!((std::fs::metadata(&at).unwrap().len(), names()), (9, 2));
        assert!(Writing::begin(dir.path(), true).is_err());
        link_and_replace(dir.path(), &at);
    }

    fn link_and_replace(dir: &Path, at: &Path) {
        let other = dir.join("other");
        std::fs::write(&other, "other").unwrap();
        link(&other, at).unwrap();
        link(&other, at).unwrap();
        assert_eq!(std::fs::read(at).unwrap(), b"other");
        let none = Attributes::default();
        make(at, &none, |path| std::os::unix::fs::symlink("x", path)).unwrap();
        assert_eq!(std::fs::read_link(at).unwrap(), Path::new("x"));
        assert_eq!(std::fs::metadata(&other).unwrap().nlink(), 1);
        assert!(above(&dir.join("no/such")).contains(&dir.canonicalize().unwrap()));
        let names = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
        assert!(names.into_iter().all(|name| !name.as_bytes().starts_with(b".holdfast")));
    }
}
