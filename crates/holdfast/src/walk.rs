//! A directory with everything under it, without recursion.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use holdfast_base::InodeNo;

use crate::dir::Dir;
use crate::error::Errno;
use crate::read_dir::{DirEntry, ReadDir};

/// Everything under a directory, from [`Dir::walk`]: each directory before what is in it, names of one directory in no
/// particular order, symbolic links as themselves. What comes or goes meanwhile may be given or not. After an error it goes on with what
/// is left.
#[derive(Debug)]
pub struct WalkDir {
    levels: Vec<ReadDir>,
    /// The directories of `levels`.
    open: HashSet<InodeNo>,
    /// The directory that was given last, which is next to be gone into.
    next: Option<DirEntry>,
}

impl Dir {
    /// Everything under the directory at `path`, but not itself. A directory that leads to one above it, which only damage can do, gives ELOOP
    /// and is not gone into (P10).
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
        let mut walk = WalkDir { levels: Vec::new(), open: HashSet::new(), next: None };
        walk.push(self.read_dir(path)?);
        Ok(walk)
    }
}

impl WalkDir {
    /// Goes into a directory, unless it has been gone into on the way here.
    fn push(&mut self, level: ReadDir) -> bool {
        let is_new = self.open.insert(level.held.inode);
        if is_new {
            self.levels.push(level);
        }
        is_new
    }

    /// The directory that was given last is not gone into.
    pub fn skip_directory(&mut self) {
        self.next = None;
    }
}

impl Iterator for WalkDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if let Some(entry) = self.next.take() {
            match Dir::of(&entry) {
                Ok(dir) => {
                    if !self.push(ReadDir::new(dir.held().clone(), &entry.path())) {
                        return Some(Err(Errno(libc::ELOOP).into()));
                    }
                }
                // It has gone since, or something else has its name.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            match self.levels.last_mut()?.next() {
                None => {
                    let done = self.levels.pop()?;
                    self.open.remove(&done.held.inode);
                }
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => {
                    self.next = entry.file_type().is_dir().then(|| entry.clone());
                    return Some(Ok(entry));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;

    #[test]
    fn a_directory_that_leads_to_one_above_it_is_told_once_and_not_gone_into() {
        let v = Volume::in_memory(32 << 20).unwrap();
        v.create_dir_all("/a/b").unwrap();
        v.write("/a/b/f", "").unwrap();
        let mut walk = v.walk("/a").unwrap();
        let above = walk.levels[0].held.inode;
        assert!(walk.push(v.read_dir("/a/b").unwrap().leading_up_to(above)));
        assert_eq!(walk.next().unwrap().unwrap().path(), Path::new("/a/b/.."));
        assert_eq!(walk.next().unwrap().unwrap_err().raw_os_error(), Some(libc::ELOOP));
        // It goes on with what is left, and a directory that was left may come again.
        let rest: Vec<_> = walk.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(rest, ["/a/b/f", "/a/b", "/a/b/f"].map(Path::new));
    }

    #[test]
    fn what_was_moved_away_since_its_name_was_read_is_not_gone_into() {
        let v = Volume::in_memory(32 << 20).unwrap();
        v.create_dir_all("/a/b").unwrap();
        v.write("/a/b/f", "").unwrap();
        let mut walk = v.walk("/a").unwrap();
        assert_eq!(walk.next().unwrap().unwrap().path(), Path::new("/a/b"));
        v.rename("/a/b", "/away").unwrap();
        assert!(walk.next().is_none());
    }
}
