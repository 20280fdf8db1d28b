//! A file that comes to its place when it is whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_service::work::files::message::Attributes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::set;
use super::place::{EntryStat, HostEntry, Made, There, free_name};

/// Zeros that are written at once.
const ZEROS: usize = 1 << 16;

/// A file that is written. One that the user has named and that is no regular file, a device or a pipe, is written as it is.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    /// Where it comes to.
    to: HostEntry,
    name: Name,
    /// How far what is written as it is has come: a pipe and a terminal take bytes one behind the other.
    written: u64,
}

/// What a file is called that is written.
#[derive(Debug)]
enum Name {
    /// What it is to be called.
    Own,
    /// Nothing.
    Nothing,
    /// So, until it is whole: the filesystem has no files without a name.
    Temporary(OsString),
}

impl NewFile {
    /// Begins the file for a place; through a link that is there, if `follow`.
    pub(crate) fn begin(place: &HostEntry, follow: bool) -> io::Result<NewFile> {
        if !follow {
            return NewFile::begin_at(place.clone());
        }
        if let Ok(seen) = place.look(true) {
            match FileType::from_raw_mode(seen.found.mode) {
                FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
                FileType::RegularFile => {}
                _ => {
                    let (held, _) = place.hold(&seen, true)?;
                    let file = place.reopen(&held, OFlags::WRONLY, true)?;
                    return Ok(NewFile { file, to: place.clone(), name: Name::Own, written: 0 });
                }
            }
        }
        let is_link =
            |seen: EntryStat| FileType::from_raw_mode(seen.found.mode) == FileType::Symlink;
        // Through a link the file changes that it leads to.
        match place.look(false).is_ok_and(is_link) {
            true => NewFile::begin_at(HostEntry::named(&target(&place.path())?)),
            false => NewFile::begin_at(place.clone()),
        }
    }

    fn begin_at(to: HostEntry) -> io::Result<NewFile> {
        let dir = to.dir.fd()?;
        let (how, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
        let (file, name) = match rustix::fs::openat(&*dir, ".", how | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = free_name();
                (HostEntry::of(&to.dir, &name).create()?, Name::Temporary(name))
            }
            file => (file?.into(), Name::Nothing),
        };
        Ok(NewFile { file, to, name, written: 0 })
    }

    pub(crate) fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        if !matches!(self.name, Name::Own) {
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

    /// It is whole: it gets its length, its attributes, and its name; durable, if `sync`.
    pub(crate) fn end(mut self, len: u64, attributes: &Attributes, sync: bool) -> io::Result<Made> {
        let seen = EntryStat::of(&rustix::fs::fstat(&self.file)?);
        let mut made = Made { id: seen.id, left_out: Vec::new() };
        if matches!(self.name, Name::Own) {
            return self.write_zeros_to(len).map(|()| made);
        }
        if seen.found.len != len {
            self.file.set_len(len)?;
        }
        let (left_out, done) = set(&self.file, attributes);
        done?;
        made.left_out = left_out;
        if sync {
            self.file.sync_all()?;
        }
        match std::mem::replace(&mut self.name, Name::Own) {
            Name::Temporary(name) => self.to.replace(&name)?,
            _ => self.to.put_name_of(self.file.as_fd(), There::Goes)?,
        }
        if sync {
            self.to.dir.sync()?;
        }
        Ok(made)
    }
}

/// What is not whole leaves nothing.
impl Drop for NewFile {
    fn drop(&mut self) {
        if let (Name::Temporary(name), Ok(dir)) = (&self.name, self.to.dir.fd()) {
            let _ = rustix::fs::unlinkat(&*dir, &**name, AtFlags::empty());
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
