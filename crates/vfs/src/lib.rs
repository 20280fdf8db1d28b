//! Floor 5: a volume as a [`FileSystem`] of the `vfs` crate, for programs that ask for a filesystem and not for a place.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use holdfast::Volume;
//! use holdfast_vfs::HoldfastFs;
//! use vfs::VfsPath;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A real program says Volume::create_new("data.holdfast", 8 << 30) once, and Volume::open(...) later.
//! let volume = Arc::new(Volume::in_memory(64 << 20)?);
//! let root: VfsPath = HoldfastFs::new(volume.clone()).into();
//! root.join("letters")?.create_dir()?;
//! write!(root.join("letters/draft")?.create_file()?, "Dear reader,")?;
//! root.join("letters/draft")?.move_file(&root.join("letters/final")?)?; // one step, whatever happens (P4)
//! assert_eq!(root.join("letters/final")?.read_to_string()?, "Dear reader,");
//! volume.sync()?; // the interface has no fsync: this makes all of it durable
//! # Ok(())
//! # }
//! ```
//!
//! The interface knows no fsync, no links and no permissions. What it changes is there after a crash as far as the volume says, a prefix of
//! what was done (P3), and by [`Volume::sync`] to the end. Symbolic links are followed, within the volume; one that leads to a
//! directory counts as a file. Names that are no UTF-8 are
//! not listed.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use holdfast::{Dir, FileTimes, OpenOptions, RenameFlags, Volume};
use vfs::error::VfsErrorKind;
use vfs::{FileSystem, SeekAndRead, SeekAndWrite, VfsFileType, VfsMetadata, VfsResult};

/// A volume, or one of its directories.
#[derive(Clone, Debug)]
pub struct HoldfastFs {
    /// The volume stays open as long as this is there.
    volume: Arc<Volume>,
    root: Dir,
}

impl HoldfastFs {
    /// All of a volume.
    pub fn new(volume: Arc<Volume>) -> HoldfastFs {
        HoldfastFs { root: Dir::clone(&volume), volume }
    }

    /// A directory of a volume. Symbolic links in it may lead out of it, and not out of the volume.
    pub fn in_directory(
        volume: Arc<Volume>,
        path: impl AsRef<std::path::Path>,
    ) -> io::Result<HoldfastFs> {
        Ok(HoldfastFs { root: volume.open_dir(path)?, volume })
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    fn set_times(&self, path: &str, times: FileTimes) -> VfsResult<()> {
        Ok(self.root.set_times(inside(path), times)?)
    }

    /// Moves what is there, and replaces nothing.
    fn rename(&self, from: &str, to: &str) -> VfsResult<()> {
        let moved =
            self.root.rename_with(inside(from), &self.root, inside(to), RenameFlags::NOREPLACE);
        moved.map_err(|error| self.exists_already(to, error))
    }

    /// What is in the way, if that is what an error says.
    fn exists_already(&self, path: &str, error: io::Error) -> vfs::VfsError {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return error.into();
        }
        let is_dir = self.root.metadata(inside(path)).is_ok_and(|found| found.is_dir());
        if is_dir { VfsErrorKind::DirectoryExists.into() } else { VfsErrorKind::FileExists.into() }
    }
}

/// The path that the interface means, from the root: it says "" for that, and puts a slash before everything else.
fn inside(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    }
}

impl FileSystem for HoldfastFs {
    fn read_dir(&self, path: &str) -> VfsResult<Box<dyn Iterator<Item = String> + Send>> {
        let names =
            self.root.read_dir(inside(path))?.map(|entry| Ok(entry?.file_name().to_owned()));
        let names: Vec<_> = names.collect::<io::Result<_>>()?;
        Ok(Box::new(names.into_iter().filter_map(|name| name.into_string().ok())))
    }

    fn create_dir(&self, path: &str) -> VfsResult<()> {
        self.root.create_dir(inside(path)).map_err(|error| self.exists_already(path, error))
    }

    fn open_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndRead + Send>> {
        Ok(Box::new(self.root.open_file(inside(path))?))
    }

    fn create_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndWrite + Send>> {
        Ok(Box::new(self.root.create(inside(path))?))
    }

    fn append_file(&self, path: &str) -> VfsResult<Box<dyn SeekAndWrite + Send>> {
        Ok(Box::new(self.root.open_with(inside(path), &OpenOptions::new().append(true))?))
    }

    fn metadata(&self, path: &str) -> VfsResult<VfsMetadata> {
        let itself = self.root.symlink_metadata(inside(path))?;
        // A link to a directory is none: a removal of all that is in a directory would go through it, and out of here.
        let found = match itself.is_symlink().then(|| self.root.metadata(inside(path))) {
            Some(Ok(target)) if !target.is_dir() => target,
            _ => itself,
        };
        let (file_type, len) = match found.is_dir() {
            true => (VfsFileType::Directory, 0),
            false => (VfsFileType::File, found.len()),
        };
        Ok(VfsMetadata {
            file_type,
            len,
            created: Some(found.created()),
            modified: Some(found.modified()),
            accessed: Some(found.accessed()),
        })
    }

    fn set_creation_time(&self, path: &str, time: SystemTime) -> VfsResult<()> {
        self.set_times(path, FileTimes::new().set_created(time))
    }

    fn set_modification_time(&self, path: &str, time: SystemTime) -> VfsResult<()> {
        self.set_times(path, FileTimes::new().set_modified(time))
    }

    fn set_access_time(&self, path: &str, time: SystemTime) -> VfsResult<()> {
        self.set_times(path, FileTimes::new().set_accessed(time))
    }

    fn exists(&self, path: &str) -> VfsResult<bool> {
        Ok(self.root.exists(inside(path))?)
    }

    fn remove_file(&self, path: &str) -> VfsResult<()> {
        Ok(self.root.remove_file(inside(path))?)
    }

    fn remove_dir(&self, path: &str) -> VfsResult<()> {
        Ok(self.root.remove_dir(inside(path))?)
    }

    fn copy_file(&self, from: &str, to: &str) -> VfsResult<()> {
        self.root.copy(inside(from), inside(to))?;
        Ok(())
    }

    fn move_file(&self, from: &str, to: &str) -> VfsResult<()> {
        self.rename(from, to)
    }

    fn move_dir(&self, from: &str, to: &str) -> VfsResult<()> {
        self.rename(from, to)
    }
}
