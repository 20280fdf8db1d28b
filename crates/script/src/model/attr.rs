//! Attributes of the model: modes, owners, times and extended attributes.

use super::{Answered, Model, Number, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use crate::bytes::Data;
use crate::errno::Errno;
use crate::op::{FileRef, SetTime, XattrHow};
use crate::outcome::Answer;
use crate::stat::{FileKind, Mtime};

impl Model {
    pub(super) fn chmod(&mut self, place: &FileRef, mode: u32) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        if inode.kind() == FileKind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.mode = mode;
        Ok(Answer::Done)
    }

    pub(super) fn chown(
        &mut self,
        place: &FileRef,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        if inode.kind() != FileKind::Dir {
            // Set-group-id without group execution once meant mandatory locking and stays.
            let group = if inode.mode & 0o2010 == 0o2010 { 0o2000 } else { 0 };
            inode.mode &= !(0o4000 | group);
        }
        Ok(Answer::Done)
    }

    pub(super) fn utimes(&mut self, place: &FileRef, mtime: SetTime) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        inode.mtime = match mtime {
            SetTime::Omit => inode.mtime,
            SetTime::Now => Mtime::Now,
            SetTime::At { secs, nanos } => Mtime::seen(secs, nanos),
        };
        Ok(Answer::Done)
    }

    /// Checks what Linux checks of an attribute's name. `absent` is said where the file cannot have user attributes.
    pub(super) fn xattr(
        &self,
        place: &FileRef,
        name: &[u8],
        absent: Errno,
    ) -> Result<Number, Errno> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        let number = self.place(place)?;
        let kind = self.inode(number).kind();
        if name.starts_with(b"user.") && !matches!(kind, FileKind::File | FileKind::Dir) {
            return Err(absent);
        }
        if !name.starts_with(b"user.") && !name.starts_with(b"trusted.") {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(number)
    }

    pub(super) fn setxattr(
        &mut self,
        place: &FileRef,
        name: &[u8],
        value: &Data,
        how: XattrHow,
    ) -> Answered {
        if name.len() <= XATTR_NAME_MAX && value.len() > XATTR_VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let number = self.xattr(place, name, Errno::EPERM)?;
        let inode = self.inode_mut(number);
        match how {
            XattrHow::Create if inode.xattrs.contains_key(name) => return Err(Errno::EEXIST),
            XattrHow::Replace if !inode.xattrs.contains_key(name) => return Err(Errno::ENODATA),
            _ => inode.xattrs.insert(name.to_vec(), value.bytes()),
        };
        Ok(Answer::Done)
    }

    pub(super) fn getxattr(&mut self, place: &FileRef, name: &[u8]) -> Answered {
        let number = self.xattr(place, name, Errno::ENODATA)?;
        self.inode(number).xattrs.get(name).cloned().map(Answer::Bytes).ok_or(Errno::ENODATA)
    }

    pub(super) fn removexattr(&mut self, place: &FileRef, name: &[u8]) -> Answered {
        let number = self.xattr(place, name, Errno::EPERM)?;
        self.inode_mut(number).xattrs.remove(name).map(|_| Answer::Done).ok_or(Errno::ENODATA)
    }
}
