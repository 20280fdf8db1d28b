//! The plain filesystem in memory that is obviously right.
//!
//! Inodes in a map, directories as maps, everything done in the order in which
//! Linux checks it, called by root. Tests run hundreds of random scripts on it
//! and on filesystems of the host: that is how we know that it is right.
//!
//! Clones are cheap (unchanged inodes are shared), so an oracle can keep the
//! state after every operation. A crash loses nothing here but the handles: the
//! model shows the latest state that a crash may leave, and
//! the clones show the earlier ones.

mod attr;
mod bytes;
mod names;
mod volume;

pub use volume::VolumeModel;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::content::Content;
use crate::errno::Errno;
use crate::op::*;
use crate::outcome::{Answer, Outcome};
use crate::stat::{FileKind, Mtime, Stat};
use crate::target::{Handles, Target};

type Answered = Result<Answer, Errno>;
type Number = u64;

const ROOT: Number = 1;
const NAME_MAX: usize = 255;
/// Largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64 - 4095;
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: u64 = 65536;

/// What an inode is.
#[derive(Clone, Debug)]
enum Body {
    File(Content),
    Dir { entries: BTreeMap<Vec<u8>, Number>, parent: Number },
    Symlink(Vec<u8>),
    Special(FileKind, (u32, u32)),
}

#[derive(Clone, Debug)]
struct Inode {
    body: Body,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Names; for directories 2 and one for each directory in it.
    nlink: u32,
    mtime: Mtime,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A file without a name that may still get its first (O_TMPFILE).
    linkable: bool,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
struct Open {
    inode: Number,
    how: OpenHow,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<Number, Arc<Inode>>,
    next: Number,
    handles: Handles<Open>,
    open: BTreeMap<Number, u32>,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// An empty filesystem: a root directory of mode 755.
    pub fn new() -> Model {
        let root = Inode {
            body: Body::Dir { entries: BTreeMap::new(), parent: ROOT },
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            mtime: Mtime::Now,
            xattrs: BTreeMap::new(),
            linkable: false,
        };
        Model {
            inodes: BTreeMap::from([(ROOT, Arc::new(root))]),
            next: ROOT + 1,
            handles: Handles::default(),
            open: BTreeMap::new(),
        }
    }

    /// Inodes that are in use, those without a name included.
    pub fn inode_count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// The type of what `path` names.
    pub fn kind(&self, path: &Path) -> Result<FileKind, Errno> {
        Ok(self.inode(self.find(path)?).kind())
    }

    /// The content that `path` names, if it is a regular file.
    pub fn content(&self, path: &Path) -> Option<&Content> {
        match &self.inode(self.find(path).ok()?).body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    fn inode(&self, number: Number) -> &Inode {
        &self.inodes[&number]
    }

    fn inode_mut(&mut self, number: Number) -> &mut Inode {
        Arc::make_mut(self.inodes.get_mut(&number).expect("a number that was just looked up"))
    }

    fn entries(&mut self, dir: Number) -> &mut BTreeMap<Vec<u8>, Number> {
        match &mut self.inode_mut(dir).body {
            Body::Dir { entries, .. } => entries,
            _ => unreachable!("only directories are looked into"),
        }
    }

    fn file(&mut self, number: Number) -> &mut Content {
        match &mut self.inode_mut(number).body {
            Body::File(content) => content,
            _ => unreachable!("only regular files are opened"),
        }
    }

    /// The names in a directory.
    fn listing(&self, dir: Number) -> Result<&BTreeMap<Vec<u8>, Number>, Errno> {
        match &self.inode(dir).body {
            Body::Dir { entries, .. } => Ok(entries),
            Body::Symlink(_) => Err(Errno::ELOOP),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Forgets an inode that has neither a name nor a handle.
    fn reap(&mut self, number: Number) {
        if self.inode(number).nlink == 0 && !self.open.contains_key(&number) {
            self.inodes.remove(&number);
        }
    }

    fn changed(&mut self, number: Number) {
        self.inode_mut(number).mtime = Mtime::Now;
    }

    fn ls(&self, path: &Path) -> Answered {
        let entries = self.listing(self.find(path)?)?.iter();
        let names = entries.map(|(name, &number)| (name.clone(), self.inode(number).kind()));
        Ok(Answer::Names(names.collect()))
    }

    /// Files, directories and handles can be made durable.
    fn fsync(&self, place: &FileRef) -> Answered {
        match self.inode(self.place(place)?).kind() {
            FileKind::Dir => Ok(Answer::Done),
            kind => kind.refuses_bytes().map(|()| Answer::Done),
        }
    }

    fn answer(&mut self, op: &Op) -> Answered {
        let dir = || Body::Dir { entries: BTreeMap::new(), parent: ROOT };
        let done = |_| Answer::Done;
        match op {
            // The kernel takes the set-id bits of mkdir's mode away.
            Op::Mkdir { path, mode } => self.create(path, dir(), mode & 0o1777).map(done),
            Op::Mkfile { path, mode } => {
                self.create(path, Body::File(Content::default()), *mode).map(done)
            }
            Op::Mknod { path, kind, mode } => {
                let (kind, device) = kind.parts();
                self.create(path, Body::Special(kind, device), *mode).map(done)
            }
            Op::Symlink { target, path } => {
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                if target.len() > 4095 {
                    return Err(Errno::ENAMETOOLONG);
                }
                self.create(path, Body::Symlink(target.clone()), 0o777).map(done)
            }
            Op::Readlink { path } => match &self.inode(self.find(path)?).body {
                Body::Symlink(target) => Ok(Answer::Target(target.clone())),
                _ => Err(Errno::EINVAL),
            },
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { handle, path, how } => self.open(handle, path, *how),
            Op::Tmpfile { handle, dir, mode } => self.tmpfile(handle, dir, *mode),
            Op::Close { handle } => {
                let open = self.handles.remove(handle)?;
                self.closed(open.inode);
                Ok(Answer::Done)
            }
            Op::Write { place, offset, data } => self.write(self.opened(place)?, *offset, data),
            Op::Append { path, data } => {
                let mut open = self.opened(&FileRef::Path(path.clone()))?;
                open.how.append = true;
                self.write(open, 0, data)
            }
            Op::Read { place, offset, len } => self.read(place, *offset, *len),
            Op::Sum { place } => self.sum(place),
            Op::Truncate { place, size } => self.truncate(place, *size),
            Op::Fallocate { place, how, offset, len } => self.fallocate(place, *how, *offset, *len),
            Op::Seek { place, whence, offset } => self.seek(place, *whence, *offset),
            Op::Stat { place } => {
                let number = self.place(place)?;
                Ok(Answer::Stat(self.inode(number).stat(number)))
            }
            Op::Chmod { place, mode } => self.chmod(place, *mode),
            Op::Chown { place, uid, gid } => self.chown(place, *uid, *gid),
            Op::Utimes { place, mtime, .. } => self.utimes(place, *mtime),
            Op::Setxattr { place, name, value, how } => self.setxattr(place, name, value, *how),
            Op::Getxattr { place, name } => self.getxattr(place, name),
            Op::Removexattr { place, name } => self.removexattr(place, name),
            Op::Listxattr { place } => {
                let inode = self.inode(self.place(place)?);
                Ok(Answer::Attributes(inode.xattrs.keys().cloned().collect()))
            }
            Op::Ls { path } => self.ls(path),
            Op::Fsync { place } | Op::Fdatasync { place } => self.fsync(place),
            Op::Fsyncdir { path } => self.listing(self.find(path)?).map(|_| Answer::Done),
            Op::Sync | Op::Grow { .. } | Op::Evict => Ok(Answer::Done),
            Op::Remount | Op::Shrink { .. } | Op::Crash => {
                self.close_all();
                Ok(Answer::Done)
            }
            Op::Tree | Op::Branch(_) => unreachable!("answered by apply"),
        }
    }
}

impl Inode {
    fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::File,
            Body::Dir { .. } => FileKind::Dir,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    fn stat(&self, number: Number) -> Stat {
        let (size, device) = match &self.body {
            Body::File(content) => (content.size(), (0, 0)),
            Body::Symlink(target) => (target.len() as u64, (0, 0)),
            Body::Special(_, device) => (0, *device),
            Body::Dir { .. } => (0, (0, 0)),
        };
        Stat {
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size,
            device,
            mtime: self.mtime,
            inode: number,
        }
    }
}

impl Target for Model {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Tree => self.everything().into(),
            Op::Branch(op) => self.branch(op),
            op => self.answer(op).into(),
        }
    }
}
