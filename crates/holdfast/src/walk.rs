//! A directory with everything under it, without recursion.

use std::io;
use std::path::Path;

use crate::dir::Dir;
use crate::read_dir::{DirEntry, ReadDir};

/// Everything under a directory, from [`Dir::walk`]: each directory before what is in it, names of one directory in no
/// particular order, symbolic links as themselves. What comes or goes meanwhile may be given or not. After an error it goes on with what
/// is left.
#[derive(Debug)]
pub struct WalkDir {
    levels: Vec<ReadDir>,
    /// The directory that was given last, which is next to be gone into.
    next: Option<DirEntry>,
}

impl Dir {
    /// Everything under the directory at `path`, but not itself.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let volume = holdfast::Volume::in_memory(64 << 20)?;
    /// volume.create_dir_all("/a/b")?;
    /// volume.write("/a/b/c", "x")?;
    /// let paths: Vec<_> = volume.walk("/a")?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    /// assert_eq!(paths, ["/a/b", "/a/b/c"].map(std::path::PathBuf::from));
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> io::Result<WalkDir> {
        Ok(WalkDir { levels: vec![self.read_dir(path)?], next: None })
    }
}

impl WalkDir {
    /// The directory that was given last is not gone into.
    pub fn skip_directory(&mut self) {
        self.next = None;
    }
}

impl Iterator for WalkDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if let Some(entry) = self.next.take() {
            match entry.directory() {
                Ok(dir) => self.levels.push(ReadDir::new(dir.held().clone(), &entry.path())),
                // It has gone since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            match self.levels.last_mut()?.next() {
                None => drop(self.levels.pop()),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => {
                    self.next = entry.file_type().is_dir().then(|| entry.clone());
                    return Some(Ok(entry));
                }
            }
        }
    }
}
