//! Removing a directory of any depth, without recursion.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::dir::Dir;
use crate::error::Errno;
use crate::read_dir::ReadDir;

impl Dir {
    /// Removes a directory and everything under it; symbolic links are removed, not followed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if !self.symlink_metadata(path)?.is_dir() {
            return Err(Errno(libc::ENOTDIR).into());
        }
        empty(self.open_dir(path)?)?;
        self.remove_dir(path)
    }
}

/// Removes everything in `dir`. Stops at the first failure; what was removed stays removed.
/// ENOTEMPTY if others keep adding names.
fn empty(dir: Dir) -> io::Result<()> {
    // Each level: a directory that is being emptied, what is left to see of it, and its name in the level before.
    let mut levels: Vec<(Dir, ReadDir, OsString)> = vec![level(dir, OsString::new())];
    while let Some((dir, entries, _)) = levels.last_mut() {
        let Some(entry) = entries.next().transpose()? else {
            let (_, _, name) = levels.pop().expect("the loop saw a last level");
            if let Some((parent, _, _)) = levels.last() {
                parent.remove_dir(&name)?;
            }
            continue;
        };
        let name = entry.file_name();
        if entry.file_type().is_dir() {
            // Not by its name, at which a link may be by now that leads elsewhere.
            match entry.directory() {
                Ok(below) => levels.push(level(below, name.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        } else if let Err(error) = dir.remove_file(name)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(())
}

fn level(dir: Dir, name: OsString) -> (Dir, ReadDir, OsString) {
    let entries = dir.entries();
    (dir, entries, name)
}
