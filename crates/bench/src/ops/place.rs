//! The calls that the rows make, on a directory of the host and on a volume of the library.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::{Dir, File, OpenOptions, Volume};

/// Where a row works. Paths are relative to it.
#[derive(Clone)]
pub(super) enum Place {
    /// A directory.
    Host(PathBuf),
    /// A volume.
    Library(Arc<Volume>),
}

/// An open file or directory.
pub(super) enum Handle {
    /// Of the host, a file or a directory.
    Host(fs::File),
    /// A file of the library.
    File(File),
    /// A directory of the library.
    Dir(Dir),
}

impl Place {
    /// The directory, for a program that works there.
    pub(super) fn host(&self) -> io::Result<&PathBuf> {
        match self {
            Place::Host(dir) => Ok(dir),
            Place::Library(_) => Err(io::Error::other("a library has no directory of the host")),
        }
    }

    pub(super) fn create(&self, path: &str) -> io::Result<Handle> {
        match self {
            Place::Host(dir) => fs::File::create_new(dir.join(path)).map(Handle::Host),
            Place::Library(volume) => volume.create(inside(path)).map(Handle::File),
        }
    }

    pub(super) fn open(&self, path: &str) -> io::Result<Handle> {
        match self {
            Place::Host(dir) => {
                let mut options = fs::File::options();
                options.read(true).write(true).open(dir.join(path)).map(Handle::Host)
            }
            Place::Library(volume) => {
                let options = OpenOptions::new();
                options.read(true).write(true).open(volume, inside(path)).map(Handle::File)
            }
        }
    }

    pub(super) fn open_dir(&self, path: &str) -> io::Result<Handle> {
        match self {
            Place::Host(dir) => fs::File::open(dir.join(path)).map(Handle::Host),
            Place::Library(volume) => volume.open_dir(inside(path)).map(Handle::Dir),
        }
    }

    pub(super) fn create_dir(&self, path: &str) -> io::Result<()> {
        match self {
            Place::Host(dir) => fs::create_dir(dir.join(path)),
            Place::Library(volume) => volume.create_dir(inside(path)),
        }
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self {
            Place::Host(dir) => fs::rename(dir.join(from), dir.join(to)),
            Place::Library(volume) => volume.rename(inside(from), inside(to)),
        }
    }

    pub(super) fn unlink(&self, path: &str) -> io::Result<()> {
        match self {
            Place::Host(dir) => fs::remove_file(dir.join(path)),
            Place::Library(volume) => volume.remove_file(inside(path)),
        }
    }
}

fn inside(path: &str) -> String {
    format!("/{path}")
}

impl Handle {
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.write_all_at(bytes, at),
            Handle::File(file) => file.write_all_at(bytes, at),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn sync_all(&self) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.sync_all(),
            Handle::File(file) => file.sync_all(),
            Handle::Dir(dir) => dir.sync_all(),
        }
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.sync_data(),
            Handle::File(file) => file.sync_data(),
            Handle::Dir(dir) => dir.sync_all(),
        }
    }

    pub(super) fn chmod(&self, mode: u32) -> io::Result<()> {
        match self {
            Handle::Host(file) => file.set_permissions(Permissions::from_mode(mode)),
            Handle::File(file) => file.set_permissions(holdfast::Permissions::from_mode(mode)),
            Handle::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}
