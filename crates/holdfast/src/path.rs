//! From paths to inodes.
//!
//! A path starts at the root of the volume if it begins with `/`, otherwise at
//! the directory whose method was called. `..` goes to the parent as it is at
//! that moment and stays at the root; symbolic links are followed everywhere
//! except, where the call says so, at the end. More than [`LINKS_MAX`] links
//! in one walk are a loop (ELOOP). Paths have no length limit, names do.

use std::borrow::Cow;

use holdfast_base::InodeNo;
use holdfast_format::item::FileType;
use holdfast_posix::{Attr, Caller, FileSystem, FsError};

use crate::error::{Errno, Result};

/// Symbolic links followed in one walk before it is called a loop; the kernel's number.
pub(crate) const LINKS_MAX: u32 = 40;

/// Directories that may lie in each other before they are taken for a circle.
const DEPTH_MAX: usize = 1 << 20;

/// A filesystem and the caller.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) fs: &'a FileSystem,
    pub(crate) caller: &'a Caller,
}

/// The last name of a path and the directory it is in. Whether it exists was not asked.
#[derive(Debug)]
pub(crate) struct ParentAndName<'p> {
    pub(crate) parent: InodeNo,
    pub(crate) name: Cow<'p, [u8]>,
    /// The path ended in `/`: only a directory will do.
    pub(crate) slash: bool,
}

/// Where a walk that may end at nothing ended.
pub(crate) enum End<'p> {
    Found(Attr),
    Missing(ParentAndName<'p>),
}

/// What is done with a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    Yes,
    No,
}

/// A path on its way: the directory reached and what is left. Directories are known by `D`.
pub(crate) struct Walk<'p, D = InodeNo> {
    root: D,
    pub(crate) at: D,
    rest: Cow<'p, [u8]>,
    from: usize,
    links: u32,
}

/// The next name of a walk.
pub(crate) struct Step<'p> {
    pub(crate) name: Cow<'p, [u8]>,
    pub(crate) last: bool,
    pub(crate) slash: bool,
}

impl<'p, D: Clone> Walk<'p, D> {
    pub(crate) fn new(root: D, base: D, path: &'p [u8]) -> Result<Walk<'p, D>> {
        if path.is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        if path.contains(&0) {
            return Err(Errno(libc::EINVAL));
        }
        let at = if path[0] == b'/' { root.clone() } else { base };
        Ok(Walk { root, at, rest: Cow::Borrowed(path), from: 0, links: 0 })
    }

    pub(crate) fn next(&mut self) -> Option<Step<'p>> {
        let rest = &self.rest[self.from..];
        let start = rest.iter().position(|&b| b != b'/')?;
        let name = &rest[start..];
        let len = name.iter().position(|&b| b == b'/').unwrap_or(name.len());
        let tail = &name[len..];
        let (last, slash) = (tail.iter().all(|&b| b == b'/'), !tail.is_empty());
        let name = self.from + start..self.from + start + len;
        self.from = name.end;
        // A name of the caller's path is not copied, one of a link's target must be.
        let name = match &self.rest {
            Cow::Borrowed(path) => Cow::Borrowed(&path[name]),
            Cow::Owned(path) => Cow::Owned(path[name].to_vec()),
        };
        Some(Step { name, last, slash })
    }

    /// Puts the target of a link in front of what is left.
    pub(crate) fn enter_link(&mut self, mut target: Vec<u8>) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno(libc::ELOOP));
        }
        if target.is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        if target[0] == b'/' {
            self.at = self.root.clone();
        }
        target.extend_from_slice(&self.rest[self.from..]);
        self.rest = Cow::Owned(target);
        self.from = 0;
        Ok(())
    }
}

impl Call<'_> {
    /// The inode at the end of `path`.
    pub(crate) fn node(&self, base: InodeNo, path: &[u8], follow: Follow) -> Result<Attr> {
        match self.end(base, path, follow)? {
            End::Found(attr) => Ok(attr),
            End::Missing(_) => Err(Errno(libc::ENOENT)),
        }
    }

    /// The directory at the end of `path`.
    pub(crate) fn directory(&self, base: InodeNo, path: &[u8]) -> Result<Attr> {
        let attr = self.node(base, path, Follow::Yes)?;
        match attr.file_type {
            FileType::Directory => Ok(attr),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// The inode at the end of `path`, or the place where it would be.
    pub(crate) fn end<'p>(&self, base: InodeNo, path: &'p [u8], follow: Follow) -> Result<End<'p>> {
        let mut walk = Walk::new(InodeNo::ROOT, base, path)?;
        while let Some(step) = walk.next() {
            let attr = match self.fs.lookup(self.caller, walk.at, &step.name) {
                Err(FsError::NotFound) if step.last => {
                    return Ok(End::Missing(ParentAndName {
                        parent: walk.at,
                        name: step.name,
                        slash: step.slash,
                    }));
                }
                found => found?,
            };
            let keep_link = step.last && !step.slash && follow == Follow::No;
            if attr.file_type == FileType::Symlink && !keep_link {
                walk.enter_link(self.fs.readlink(attr.inode)?)?;
                continue;
            }
            let must_be_directory = !step.last || step.slash;
            if must_be_directory && attr.file_type != FileType::Directory {
                return Err(Errno(libc::ENOTDIR));
            }
            if step.last {
                return Ok(End::Found(attr));
            }
            walk.at = attr.inode;
        }
        Ok(End::Found(self.fs.getattr(walk.at)?))
    }

    /// Where `path` leads, from the root on, without links, `.` and `..`.
    pub(crate) fn real_path(&self, base: InodeNo, path: &[u8]) -> Result<Vec<u8>> {
        let mut walk = Walk::new(InodeNo::ROOT, base, path)?;
        let mut names = self.names_of(walk.at)?;
        while let Some(step) = walk.next() {
            let attr = self.fs.lookup(self.caller, walk.at, &step.name)?;
            match attr.file_type {
                FileType::Symlink => {
                    walk.enter_link(self.fs.readlink(attr.inode)?)?;
                    if walk.at == InodeNo::ROOT {
                        names.clear();
                    }
                    continue;
                }
                FileType::Directory => {}
                _ if step.last && !step.slash => {}
                _ => return Err(Errno(libc::ENOTDIR)),
            }
            match &*step.name {
                b"." => {}
                b".." => drop(names.pop()),
                name => names.push(name.to_vec()),
            }
            walk.at = attr.inode;
        }
        let mut path = Vec::new();
        for name in &names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// The names that lead from the root to a directory.
    fn names_of(&self, directory: InodeNo) -> Result<Vec<Vec<u8>>> {
        let (mut at, mut names) = (directory, Vec::new());
        while at != InodeNo::ROOT {
            let (parent, name) = self.fs.place_of(at)?.ok_or(Errno(libc::ENOENT))?;
            names.push(name);
            // Directories of a damaged volume may lead in a circle.
            if names.len() > DEPTH_MAX {
                return Err(Errno(libc::ELOOP));
            }
            at = parent;
        }
        names.reverse();
        Ok(names)
    }

    /// The place that `path` names, whether or not anything is there; links at its end are not followed.
    /// A path that ends in `.` or `..` or is `/` names no place: `special` is the answer then.
    pub(crate) fn place<'p>(
        &self,
        base: InodeNo,
        path: &'p [u8],
        special: i32,
    ) -> Result<ParentAndName<'p>> {
        let mut walk = Walk::new(InodeNo::ROOT, base, path)?;
        while let Some(step) = walk.next() {
            if step.last {
                if *step.name == *b"." || *step.name == *b".." {
                    return Err(Errno(special));
                }
                return Ok(ParentAndName { parent: walk.at, name: step.name, slash: step.slash });
            }
            let attr = self.fs.lookup(self.caller, walk.at, &step.name)?;
            match attr.file_type {
                FileType::Symlink => walk.enter_link(self.fs.readlink(attr.inode)?)?,
                FileType::Directory => walk.at = attr.inode,
                _ => return Err(Errno(libc::ENOTDIR)),
            }
        }
        Err(Errno(special))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(path: &[u8]) -> Vec<(String, bool, bool)> {
        let mut walk = Walk::new(InodeNo::ROOT, InodeNo(7), path).expect("a path");
        std::iter::from_fn(|| walk.next())
            .map(|s| (String::from_utf8(s.name.into_owned()).unwrap(), s.last, s.slash))
            .collect()
    }

    #[test]
    fn a_path_is_cut_at_slashes_however_many() {
        let step = |name: &str, last, slash| (name.to_string(), last, slash);
        assert_eq!(steps(b"//a///b/"), [step("a", false, true), step("b", true, true)]);
        assert_eq!(steps(b"a/."), [step("a", false, true), step(".", true, false)]);
        assert_eq!(steps(b"/"), []);
    }

    #[test]
    fn a_link_is_put_before_the_rest_and_the_forty_first_is_a_loop() {
        let mut walk = Walk::new(InodeNo::ROOT, InodeNo(7), b"link/x").unwrap();
        walk.next().unwrap();
        walk.enter_link(b"/t/u".to_vec()).unwrap();
        assert_eq!(walk.at, InodeNo::ROOT);
        assert_eq!(&walk.rest[walk.from..], b"/t/u/x");
        for _ in 1..LINKS_MAX {
            walk.enter_link(b"l".to_vec()).unwrap();
        }
        assert_eq!(walk.enter_link(b"l".to_vec()), Err(Errno(libc::ELOOP)));
    }

    #[test]
    fn empty_paths_and_zero_bytes_are_refused() {
        assert!(Walk::new(InodeNo::ROOT, InodeNo(1), b"").is_err());
        assert!(Walk::new(InodeNo::ROOT, InodeNo(1), b"a\0b").is_err());
    }
}
