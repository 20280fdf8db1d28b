//! A directory of the host, or of a volume that the library has opened: what workloads do in either of them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use holdfast::{Dir, OpenOptions};

/// A directory. Paths are relative to it.
#[derive(Clone)]
pub(crate) enum Folder {
    /// Of the host.
    Host(PathBuf),
    /// Of a volume.
    Library(Dir),
}

/// An open file or directory.
pub(crate) enum Handle {
    /// Of the host, a file or a directory.
    Host(fs::File),
    /// A file of the library.
    File(holdfast::File),
    /// A directory of the library.
    Dir(Dir),
}

impl Folder {
    /// The directory, for a program that works there.
    pub(crate) fn host(&self) -> io::Result<&PathBuf> {
        match self {
            Folder::Host(dir) => Ok(dir),
            Folder::Library(_) => Err(io::Error::other("a library has no directory of the host")),
        }
    }

    pub(crate) fn create(&self, path: &str) -> io::Result<Handle> {
        match self {
            Folder::Host(dir) => fs::File::create_new(dir.join(path)).map(Handle::Host),
            Folder::Library(dir) => dir.create(path).map(Handle::File),
        }
    }

    pub(crate) fn open(&self, path: &str) -> io::Result<Handle> {
        match self {
            Folder::Host(dir) => {
                let mut options = fs::File::options();
                options.read(true).write(true).open(dir.join(path)).map(Handle::Host)
            }
            Folder::Library(dir) => {
                let options = OpenOptions::new();
                options.read(true).write(true).open(dir, path).map(Handle::File)
            }
        }
    }

    pub(crate) fn open_dir(&self, path: &str) -> io::Result<Handle> {
        match self {
            Folder::Host(dir) => fs::File::open(dir.join(path)).map(Handle::Host),
            Folder::Library(dir) => dir.open_dir(path).map(Handle::Dir),
        }
    }

    pub(crate) fn create_dir(&self, path: &str) -> io::Result<()> {
        match self {
            Folder::Host(dir) => fs::create_dir(dir.join(path)),
            Folder::Library(dir) => dir.create_dir(path),
        }
    }

    /// Makes a directory, and answers with it.
    pub(crate) fn folder(&self, path: &str) -> io::Result<Folder> {
        self.create_dir(path)?;
        match self {
            Folder::Host(dir) => Ok(Folder::Host(dir.join(path))),
            Folder::Library(dir) => dir.open_dir(path).map(Folder::Library),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self {
            Folder::Host(dir) => fs::rename(dir.join(from), dir.join(to)),
            Folder::Library(dir) => dir.rename(from, to),
        }
    }

    pub(crate) fn unlink(&self, path: &str) -> io::Result<()> {
        match self {
            Folder::Host(dir) => fs::remove_file(dir.join(path)),
            Folder::Library(dir) => dir.remove_file(path),
        }
    }

    /// Makes the directory itself durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Folder::Host(dir) => fs::File::open(dir)?.sync_all(),
            Folder::Library(dir) => dir.sync_all(),
        }
    }
}

impl FileExt for Handle {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Handle::Host(file) => file.read_at(into, at),
            Handle::File(file) => file.read_at(into, at),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        match self {
            Handle::Host(file) => file.write_at(bytes, at),
            Handle::File(file) => file.write_at(bytes, at),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl Handle {
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.sync_all(),
            Handle::File(file) => file.sync_all(),
            Handle::Dir(dir) => dir.sync_all(),
        }
    }

    pub(crate) fn sync_data(&self) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.sync_data(),
            Handle::File(file) => file.sync_data(),
            Handle::Dir(dir) => dir.sync_all(),
        }
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.set_len(bytes),
            Handle::File(file) => file.set_len(bytes),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(crate) fn chmod(&self, mode: u32) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.set_permissions(Permissions::from_mode(mode)),
            Handle::File(file) => file.set_permissions(holdfast::Permissions::from_mode(mode)),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}
