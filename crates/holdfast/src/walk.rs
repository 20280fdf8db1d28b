//! A directory with everything under it, without recursion.

use std::io;
use std::path::Path;

use crate::descent::{Descent, Order};
use crate::dir::Dir;
use crate::read_dir::DirEntry;

/// Everything under a directory, from [`Dir::walk`]: each directory before what is in it, names of one directory in no
/// particular order, symbolic links as themselves. What comes or goes meanwhile may be given or not. After an error it goes on with what
/// is left.
#[derive(Debug)]
pub struct WalkDir {
    descent: Descent,
    /// The directory that was given last, which is next to be gone into.
    next: Option<DirEntry>,
}

impl Dir {
    /// Everything under the directory at `path`, but not itself. A directory that lies in itself or in two others, which only damage can do,
    /// gives EIO and is not gone into; so it ends, and takes as much memory as a [`Descent`] may (P10).
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
        let path = path.as_ref();
        let mut descent = Descent::new(Order::AsTheyLie);
        descent.enter(self.open_dir(path)?, path)?;
        Ok(WalkDir { descent, next: None })
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
            let entered =
                Dir::of(&entry).and_then(|dir| self.descent.enter(dir, entry.file_name()));
            match entered {
                // It has gone since, or something else has its name.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Some(Err(error)),
                _ => {}
            }
        }
        loop {
            match self.descent.next_name() {
                None => drop(self.descent.leave()?),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => {
                    let entry = entry.below(self.descent.path());
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
