//! Names in the model: from paths to inodes, and every operation that adds, moves or removes a name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answered, Body, Inode, Model, NAME_MAX, Number, ROOT};
use crate::errno::Errno;
use crate::op::{FileRef, Path, RenameHow};
use crate::outcome::Answer;
use crate::stat::{FileKind, Mtime};

impl Model {
    /// One step of a walk.
    pub(super) fn lookup(&self, dir: Number, name: &[u8]) -> Result<Number, Errno> {
        match self.listing(dir)? {
            _ if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            entries => entries.get(name).copied().ok_or(Errno::ENOENT),
        }
    }

    pub(super) fn find(&self, path: &Path) -> Result<Number, Errno> {
        path.names().try_fold(ROOT, |dir, name| self.lookup(dir, name))
    }

    /// The directory that holds the last name, which need not exist. Names of the root cannot change: EBUSY.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> Result<(Number, &'a [u8]), Errno> {
        let (parent, name) = path.split().ok_or(Errno::EBUSY)?;
        let dir = self.find(&parent)?;
        self.listing(dir).map(|_| (dir, name))
    }

    /// A place for a new name.
    pub(super) fn vacancy<'a>(&self, path: &'a Path) -> Result<(Number, &'a [u8]), Errno> {
        let (dir, name) = self.parent(path)?;
        match self.lookup(dir, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => Ok((dir, name)),
            Err(errno) => Err(errno),
        }
    }

    /// A new inode in `dir`; a set-group-id directory hands its group on.
    pub(super) fn make(&mut self, dir: Number, body: Body, mode: u32) -> Number {
        let (parent_mode, parent_gid) = (self.inode(dir).mode, self.inode(dir).gid);
        let inherits = parent_mode & 0o2000 != 0;
        let is_dir = matches!(body, Body::Dir { .. });
        let inode = Inode {
            mode: if inherits && is_dir { mode | 0o2000 } else { mode },
            uid: 0,
            gid: if inherits { parent_gid } else { 0 },
            nlink: if is_dir { 2 } else { 1 },
            mtime: Mtime::Now,
            xattrs: BTreeMap::new(),
            linkable: false,
            body,
        };
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Arc::new(inode));
        number
    }

    /// Puts a name into a directory.
    pub(super) fn enter(&mut self, dir: Number, name: &[u8], number: Number) {
        self.entries(dir).insert(name.to_vec(), number);
        if let Body::Dir { parent, .. } = &mut self.inode_mut(number).body {
            *parent = dir;
            self.inode_mut(dir).nlink += 1;
        }
        self.changed(dir);
    }

    /// Takes a name out of a directory; the inode keeps its link count.
    pub(super) fn leave(&mut self, dir: Number, name: &[u8]) -> Number {
        let number = self.entries(dir).remove(name).expect("the name was just looked up");
        if self.inode(number).kind() == FileKind::Dir {
            self.inode_mut(dir).nlink -= 1;
        }
        self.changed(dir);
        number
    }

    pub(super) fn create(&mut self, path: &Path, body: Body, mode: u32) -> Result<Number, Errno> {
        let (dir, name) = self.vacancy(path)?;
        let number = self.make(dir, body, mode);
        self.enter(dir, name, number);
        Ok(number)
    }

    /// What a removed or replaced inode loses.
    pub(super) fn drop_link(&mut self, number: Number) {
        let inode = self.inode_mut(number);
        inode.nlink = if inode.kind() == FileKind::Dir { 0 } else { inode.nlink - 1 };
        self.reap(number);
    }

    pub(super) fn is_empty_dir(&self, number: Number) -> bool {
        matches!(&self.inode(number).body, Body::Dir { entries, .. } if entries.is_empty())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> Answered {
        let (dir, name) = self.parent(path)?;
        let number = self.lookup(dir, name)?;
        if self.inode(number).kind() == FileKind::Dir {
            return Err(Errno::EISDIR);
        }
        self.leave(dir, name);
        self.drop_link(number);
        Ok(Answer::Done)
    }

    pub(super) fn rmdir(&mut self, path: &Path) -> Answered {
        let (dir, name) = self.parent(path)?;
        let number = self.lookup(dir, name)?;
        if self.inode(number).kind() != FileKind::Dir {
            return Err(Errno::ENOTDIR);
        }
        if !self.is_empty_dir(number) {
            return Err(Errno::ENOTEMPTY);
        }
        self.leave(dir, name);
        self.drop_link(number);
        Ok(Answer::Done)
    }

    pub(super) fn link(&mut self, from: &FileRef, to: &Path) -> Answered {
        let number = self.place(from)?;
        let (dir, name) = self.vacancy(to)?;
        let inode = self.inode(number);
        if inode.kind() == FileKind::Dir {
            return Err(Errno::EPERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return Err(Errno::ENOENT);
        }
        let inode = self.inode_mut(number);
        inode.nlink += 1;
        inode.linkable = false;
        self.enter(dir, name, number);
        Ok(Answer::Done)
    }

    /// Whether `dir` is `above` or lies below it.
    pub(super) fn is_below(&self, mut dir: Number, above: Number) -> bool {
        loop {
            match &self.inode(dir).body {
                _ if dir == above => return true,
                Body::Dir { parent, .. } if dir != ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, how: RenameHow) -> Answered {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let moved = self.lookup(old_dir, old_name)?;
        let target = match self.lookup(new_dir, new_name) {
            Ok(_) if how == RenameHow::NoReplace => return Err(Errno::EEXIST),
            Ok(number) => Some(number),
            Err(Errno::ENOENT) if how != RenameHow::Exchange => None,
            Err(errno) => return Err(errno),
        };
        if self.is_below(new_dir, moved) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            if self.is_below(old_dir, target) {
                return Err(match how {
                    RenameHow::Exchange => Errno::EINVAL,
                    _ => Errno::ENOTEMPTY,
                });
            }
            if target == moved {
                return Ok(Answer::Done);
            }
        }
        match (target, how) {
            (Some(target), RenameHow::Exchange) => {
                self.leave(old_dir, old_name);
                self.leave(new_dir, new_name);
                self.enter(old_dir, old_name, target);
                self.enter(new_dir, new_name, moved);
                return Ok(Answer::Done);
            }
            (Some(target), _) => {
                match (self.inode(moved).kind(), self.inode(target).kind()) {
                    (FileKind::Dir, FileKind::Dir) if !self.is_empty_dir(target) => {
                        return Err(Errno::ENOTEMPTY);
                    }
                    (FileKind::Dir, FileKind::Dir) => {}
                    (FileKind::Dir, _) => return Err(Errno::ENOTDIR),
                    (_, FileKind::Dir) => return Err(Errno::EISDIR),
                    _ => {}
                }
                self.leave(new_dir, new_name);
                self.drop_link(target);
            }
            (None, _) => {}
        }
        self.leave(old_dir, old_name);
        self.enter(new_dir, new_name, moved);
        Ok(Answer::Done)
    }
}
