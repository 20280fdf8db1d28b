//! Removing a directory of any depth, without recursion.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use holdfast_base::InodeNo;

use crate::descent::{Descent, Order};
use crate::dir::Dir;
use crate::error::Errno;
use crate::handle::Held;
use crate::mounted::Directory;
use crate::path::Call;
use crate::read_dir::bytes;

impl Dir {
    /// Removes a directory and everything under it; symbolic links are removed, not followed. What is moved out of it meanwhile stays, except
    /// for a directory that is being emptied at that moment. Stops at the first failure; what was removed stays removed.
    ///
    /// # Errors
    /// ENOTDIR for anything but a directory, also for a link to one; EBUSY for `/`, `.` and `..`, and ENOTEMPTY if others keep adding names.
    /// EIO if a directory lies in itself or in two others, which only damage can do (P10).
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name, inode) = self.holder_of(bytes(path.as_ref()))?;
        let mut emptying = Emptying::new(parent.enter(&name, inode)?)?;
        while emptying.step()? {}
        gone(parent.remove_dir(name))
    }

    /// The directory that the last name of `path` is in, held, so that a link which is swapped in later on the way there changes nothing; that
    /// name, and what it leads to.
    fn holder_of(&self, path: &[u8]) -> io::Result<(Dir, OsString, InodeNo)> {
        let shared = self.held().shared.clone();
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), path, libc::EBUSY)?;
            let attr = call.fs.lookup(call.caller, place.parent, &place.name)?;
            Ok((place.parent, OsStr::from_bytes(&place.name).to_os_string(), attr.inode))
        };
        if self.held().there.is_some() {
            let by_mount = |there: &Directory| there.parent_of(path, libc::EBUSY);
            let found = self.held().reach(|_| Err(Errno(libc::EBADF)), by_mount)?;
            let (parent, name, inode) = found;
            return Ok((Dir::new(Held::in_mount(shared, parent)), OsString::from_vec(name), inode));
        }
        let (parent, name, inode) = self.with(by_engine)?;
        Ok((Dir::new(Held::new(shared, parent)?), name, inode))
    }
}

/// The removal of everything in a directory.
struct Emptying(Descent);

impl Emptying {
    fn new(dir: Dir) -> io::Result<Emptying> {
        let mut descent = Descent::new(Order::AsTheyLie);
        descent.enter(dir, "")?;
        Ok(Emptying(descent))
    }

    /// Removes one name or goes into one directory; whether there may be more.
    fn step(&mut self) -> io::Result<bool> {
        let entry = match self.0.next_name().transpose() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => found?,
        };
        let Some(entry) = entry else {
            let Some((_, name)) = self.0.leave() else { return Ok(false) };
            if let Some(parent) = self.0.dir() {
                gone(parent.remove_dir(name))?;
            }
            return Ok(true);
        };
        let name = entry.file_name();
        if !entry.file_type().is_dir() {
            if let Some(dir) = self.0.dir() {
                gone(dir.remove_file(name))?;
            }
            return Ok(true);
        }
        // What another thread has moved away since the names were read stays, and so does what has come in its place.
        gone(Dir::of(&entry).and_then(|below| self.0.enter(below, name))).map(|()| true)
    }
}

/// What is not there is as good as removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;

    /// A volume with /top/a/f and /top/b/f, and a removal of /top that has gone into one of both: its name and the other's.
    fn half_way() -> (Volume, Emptying, String, String) {
        let v = Volume::in_memory(32 << 20).unwrap();
        for name in ["a", "b"] {
            v.create_dir_all(format!("/top/{name}")).unwrap();
            v.write(format!("/top/{name}/f"), name).unwrap();
        }
        let mut emptying = Emptying::new(v.open_dir("/top").unwrap()).unwrap();
        assert!(emptying.step().unwrap());
        let now = emptying.0.path().to_str().unwrap().to_string();
        let later = if now == "a" { "b" } else { "a" }.to_string();
        (v, emptying, now, later)
    }

    #[test]
    fn what_was_moved_away_since_its_name_was_read_is_not_emptied() {
        let (v, mut emptying, now, later) = half_way();
        v.create_dir("/keep").unwrap();
        v.rename(format!("/top/{later}"), "/keep/x").unwrap();
        while emptying.step().unwrap() {}
        assert_eq!(v.read("/keep/x/f").unwrap(), later.as_bytes());
        assert!(!v.exists(format!("/top/{now}")).unwrap());
        v.remove_dir("/top").unwrap();
    }

    #[test]
    fn what_has_taken_the_name_is_not_gone_into() {
        let (v, mut emptying, _, later) = half_way();
        v.create_dir("/elsewhere").unwrap();
        v.write("/elsewhere/f", "kept").unwrap();
        v.rename(format!("/top/{later}"), "/away").unwrap();
        v.symlink("/elsewhere", format!("/top/{later}")).unwrap();
        while emptying.step().unwrap() {}
        assert_eq!(v.read("/elsewhere/f").unwrap(), b"kept");
        assert_eq!(v.read("/away/f").unwrap(), later.as_bytes());
    }

    #[test]
    fn what_others_have_removed_meanwhile_is_no_failure() {
        let (v, mut emptying, now, _) = half_way();
        v.remove_file(format!("/top/{now}/f")).unwrap();
        v.remove_dir(format!("/top/{now}")).unwrap();
        while emptying.step().unwrap() {}
        assert_eq!(v.read_dir("/top").unwrap().count(), 0);
    }

    #[test]
    fn a_link_to_a_directory_is_refused() {
        let v = Volume::in_memory(32 << 20).unwrap();
        v.create_dir("/d").unwrap();
        v.write("/d/f", "x").unwrap();
        v.symlink("/d", "/link").unwrap();
        for (path, number) in [
            ("/link", libc::ENOTDIR),
            ("/link/", libc::ENOTDIR),
            ("/d/f", libc::ENOTDIR),
            ("/d/.", libc::EBUSY),
            ("/", libc::EBUSY),
            ("/none", libc::ENOENT),
        ] {
            let refused = v.remove_dir_all(path).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(number), "{path}");
        }
        assert_eq!(v.read("/d/f").unwrap(), b"x");
        v.remove_dir_all("/link/../d/").unwrap();
        assert!(!v.exists("/d").unwrap());
    }
}
