//! Attributes.

use holdfast_base::Timestamp;
use holdfast_posix::{FileType, SetAttr, SetTime as EngineTime, XattrFlags};
use holdfast_script::{Answer, Errno, FileRef, Mtime, Op, SetTime, Stat, XattrHow};

use super::names::unpack;
use super::{Answered, Engine, kind};

impl Engine {
    pub(super) fn attributes(&mut self, op: &Op) -> Answered {
        match op {
            Op::Stat { place } => self.stat(place),
            Op::Chmod { place, mode } => {
                let found = self.place(place)?;
                // The kernel refuses before it asks.
                if found.file_type == FileType::Symlink {
                    return Err(Errno::EOPNOTSUPP.into());
                }
                self.set(place, SetAttr { perm: Some(*mode), ..SetAttr::default() })
            }
            Op::Chown { place, uid, gid } => {
                self.set(place, SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() })
            }
            Op::Utimes { place, atime, mtime } => {
                let time = |time: &SetTime| match *time {
                    SetTime::Omit => None,
                    SetTime::Now => Some(EngineTime::Now),
                    SetTime::At { secs, nanos } => Some(EngineTime::At(Timestamp { secs, nanos })),
                };
                let change =
                    SetAttr { atime: time(atime), mtime: time(mtime), ..SetAttr::default() };
                self.set(place, change)
            }
            Op::Setxattr { place, name, value, how } => {
                let flags = match how {
                    XattrHow::Any => XattrFlags::empty(),
                    XattrHow::Create => XattrFlags::CREATE,
                    XattrHow::Replace => XattrFlags::REPLACE,
                };
                let inode = self.place(place)?.inode;
                self.filesystem()?.setxattr(&self.caller, inode, name, &value.bytes(), flags)?;
                Ok(Answer::Done)
            }
            Op::Getxattr { place, name } => {
                let inode = self.place(place)?.inode;
                let value = self.filesystem()?.getxattr(&self.caller, inode, name)?;
                Ok(Answer::Bytes(value))
            }
            Op::Removexattr { place, name } => {
                let inode = self.place(place)?.inode;
                self.filesystem()?.removexattr(&self.caller, inode, name)?;
                Ok(Answer::Done)
            }
            Op::Listxattr { place } => {
                let inode = self.place(place)?.inode;
                let mut names = self.filesystem()?.listxattr(&self.caller, inode)?;
                names.sort();
                Ok(Answer::Attributes(names))
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    fn set(&self, place: &FileRef, change: SetAttr) -> Answered {
        let inode = self.place(place)?.inode;
        self.filesystem()?.setattr(&self.caller, inode, None, change)?;
        Ok(Answer::Done)
    }

    fn stat(&self, place: &FileRef) -> Answered {
        let attr = self.place(place)?;
        let is_device = matches!(attr.file_type, FileType::CharDevice | FileType::BlockDevice);
        Ok(Answer::Stat(Stat {
            kind: kind(attr.file_type),
            mode: attr.perm,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: if attr.file_type == FileType::Directory { 0 } else { attr.size },
            device: if is_device { unpack(attr.rdev) } else { (0, 0) },
            mtime: Mtime::seen(attr.mtime.secs, attr.mtime.nanos),
            inode: attr.inode.0,
        }))
    }
}
