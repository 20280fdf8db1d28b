//! A directory of any filesystem of the host as a target: ext4, tmpfs, or our own mount.
//!
//! Parents are resolved without following symbolic links and never outside the
//! directory. Special files are never opened. A host directory cannot be
//! unmounted or lose power by itself, so remount, crash and evict only close
//! what is open, unless [`Hooks`] know how to do better. Nor has it branches,
//! unless they have; one of them is there at a time, so going to another one
//! closes what is open. [`closing`] makes scripts that expect that.

mod attr;
mod bytes;
mod closing;
mod hooks;
mod names;

pub use closing::closing;
pub use hooks::{Hooks, NoHooks};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};

use crate::branch::{BranchOp, TreeName};
use crate::errno::Errno;
use crate::op::*;
use crate::outcome::{Answer, Outcome};
use crate::stat::FileKind;
use crate::target::{Handles, Target};

type Answered = Result<Answer, Errno>;

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno::from_raw(errno.raw_os_error())
    }
}

/// A directory of the host.
#[derive(Debug)]
pub struct Host<H: Hooks = NoHooks> {
    path: PathBuf,
    root: Option<OwnedFd>,
    handles: Handles<OwnedFd>,
    hooks: H,
}

impl Host {
    /// The directory `path`, which must exist and be empty. Sets the umask of the process to 0,
    /// because scripts say exactly which mode they want.
    pub fn new(path: impl Into<PathBuf>) -> Result<Host, Errno> {
        Host::with_hooks(path, NoHooks)
    }
}

impl<H: Hooks> Host<H> {
    /// Like [`Host::new`], with a way to remount.
    pub fn with_hooks(path: impl Into<PathBuf>, hooks: H) -> Result<Host<H>, Errno> {
        rustix::process::umask(Mode::empty());
        let mut host = Host { path: path.into(), root: None, handles: Handles::default(), hooks };
        host.enter()?;
        Ok(host)
    }

    /// The hooks, when the target is no longer needed. Everything is closed.
    pub fn into_hooks(self) -> H {
        self.hooks
    }

    fn enter(&mut self) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.root = Some(fs::open(&self.path, flags, Mode::empty())?);
        Ok(())
    }

    /// Closes everything, lets the hooks do something to the mount, and comes back.
    fn outside(&mut self, act: impl FnOnce(&mut H) -> Result<(), Errno>) -> Answered {
        self.handles.drain().for_each(drop);
        self.root = None;
        let acted = act(&mut self.hooks);
        self.enter()?;
        acted.map(|()| Answer::Done)
    }

    fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.root.as_ref().map(|root| root.as_fd()).ok_or(Errno::ENOTCONN)
    }

    /// The directory `path`, for finding names in it. Walks in pieces, so that a path may be
    /// longer than the kernel takes at once.
    fn dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names: Vec<&[u8]> = path.names().collect();
        let mut dir = fs::openat(self.root()?, c".", flags, Mode::empty())?;
        for piece in names.chunks(12) {
            let path = piece.join(&b'/');
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
            dir = fs::openat2(&dir, &path[..], flags, Mode::empty(), resolve)?;
        }
        Ok(dir)
    }

    /// The directory that holds a name. Names of the root cannot change: EBUSY.
    fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let (parent, name) = path.split().ok_or(Errno::EBUSY)?;
        Ok((self.dir(&parent)?, name))
    }

    /// Like [`Host::parent`] for operations that leave names alone: the root is its own `.`.
    fn locate<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a [u8]), Errno> {
        if path.is_root() { Ok((self.dir(path)?, b".")) } else { self.parent(path) }
    }

    /// Opens a regular file by path.
    fn open_file(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (dir, name) = self.locate(path)?;
        kind_at(&dir, name)?.refuses_bytes()?;
        Ok(fs::openat(&dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Runs `act` with the open file that `place` means.
    fn with_file(
        &self,
        place: &FileRef,
        flags: OFlags,
        act: impl FnOnce(BorrowedFd<'_>) -> Answered,
    ) -> Answered {
        match place {
            FileRef::Handle(handle) => act(self.handles.get(handle)?.as_fd()),
            FileRef::Path(path) => act(self.open_file(path, flags)?.as_fd()),
        }
    }

    fn open(&mut self, handle: &Handle, path: &Path, how: OpenHow) -> Answered {
        self.handles.check_free(handle)?;
        let (dir, name) = self.locate(path)?;
        match kind_at(&dir, name) {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Ok(kind) => kind.refuses_bytes()?,
            Err(Errno::ENOENT) if how.create => {}
            Err(errno) => return Err(errno),
        }
        let mut flags = match (how.read, how.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        for (set, flag) in [
            (how.append, OFlags::APPEND),
            (how.create, OFlags::CREATE),
            (how.exclusive, OFlags::EXCL),
            (how.truncate, OFlags::TRUNC),
            (how.sync, OFlags::SYNC),
            (how.dsync, OFlags::DSYNC),
            (true, OFlags::NOFOLLOW | OFlags::CLOEXEC),
        ] {
            flags.set(flag, set || flags.contains(flag));
        }
        let file = fs::openat(&dir, name, flags, Mode::from_raw_mode(0o644))?;
        self.handles.insert(handle, file);
        Ok(Answer::Done)
    }

    fn tmpfile(&mut self, handle: &Handle, dir: &Path, mode: u32) -> Answered {
        self.handles.check_free(handle)?;
        let dir = self.dir(dir)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::openat(&dir, c".", flags, Mode::from_raw_mode(mode))?;
        self.handles.insert(handle, file);
        Ok(Answer::Done)
    }

    fn fsync(&self, place: &FileRef, data_only: bool) -> Answered {
        let sync = |file: BorrowedFd<'_>| {
            if data_only { fs::fdatasync(file) } else { fs::fsync(file) }
        };
        if let FileRef::Path(path) = place {
            let (dir, name) = self.locate(path)?;
            if kind_at(&dir, name)? == FileKind::Dir {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                sync(fs::openat(&dir, name, flags, Mode::empty())?.as_fd())?;
                return Ok(Answer::Done);
            }
        }
        self.with_file(place, OFlags::RDONLY, |file| {
            sync(file)?;
            Ok(Answer::Done)
        })
    }

    fn fsync_dir(&self, path: &Path) -> Answered {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::fsync(fs::openat(self.dir(path)?, c".", flags, Mode::empty())?)?;
        Ok(Answer::Done)
    }

    fn sync(&mut self) -> Answered {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::syncfs(fs::openat(self.root()?, c".", flags, Mode::empty())?)?;
        self.hooks.sync()?;
        Ok(Answer::Done)
    }

    /// Everything that a snapshot holds.
    fn look(&mut self, name: &TreeName) -> Answered {
        self.outside(|hooks| hooks.look(name))?;
        let tree = self.everything();
        self.outside(H::look_away)?;
        tree
    }

    fn branches(&mut self, op: &BranchOp) -> Answered {
        match op {
            _ if !self.hooks.has_branches() => Err(Errno::EOPNOTSUPP),
            BranchOp::Switch { .. } => self.outside(|hooks| hooks.branch(op).map(drop)),
            BranchOp::Look { name } => self.look(name),
            op => self.hooks.branch(op),
        }
    }

    fn answer(&mut self, op: &Op) -> Answered {
        match op {
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Mkfile { path, mode } => self.mkfile(path, *mode),
            Op::Mknod { path, kind, mode } => self.mknod(path, *kind, *mode),
            Op::Symlink { target, path } => self.symlink(target, path),
            Op::Readlink { path } => self.readlink(path),
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path, AtFlags::empty()),
            Op::Rmdir { path } => self.unlink(path, AtFlags::REMOVEDIR),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { handle, path, how } => self.open(handle, path, *how),
            Op::Tmpfile { handle, dir, mode } => self.tmpfile(handle, dir, *mode),
            Op::Close { handle } => {
                drop(self.handles.remove(handle)?);
                Ok(Answer::Done)
            }
            Op::Write { place, offset, data } => {
                self.with_file(place, OFlags::WRONLY, |file| bytes::write(file, *offset, data))
            }
            Op::Append { path, data } => {
                let file = self.open_file(path, OFlags::WRONLY | OFlags::APPEND)?;
                bytes::write(file.as_fd(), 0, data)
            }
            Op::Read { place, offset, len } => {
                self.with_file(place, OFlags::RDONLY, |file| bytes::read(file, *offset, *len))
            }
            Op::Sum { place } => self.with_file(place, OFlags::RDONLY, bytes::sum),
            Op::Truncate { place, size } => {
                self.with_file(place, OFlags::WRONLY, |file| bytes::truncate(file, *size))
            }
            Op::Fallocate { place, how, offset, len } => {
                let allocate = |file: BorrowedFd<'_>| bytes::fallocate(file, *how, *offset, *len);
                self.with_file(place, OFlags::WRONLY, allocate)
            }
            Op::Seek { place, whence, offset } => {
                self.with_file(place, OFlags::RDONLY, |file| bytes::seek(file, *whence, *offset))
            }
            Op::Stat { place } => self.stat(place),
            Op::Chmod { place, mode } => self.chmod(place, *mode),
            Op::Chown { place, uid, gid } => self.chown(place, *uid, *gid),
            Op::Utimes { place, atime, mtime } => self.utimes(place, *atime, *mtime),
            Op::Setxattr { place, name, value, how } => self.setxattr(place, name, value, *how),
            Op::Getxattr { place, name } => self.getxattr(place, name),
            Op::Removexattr { place, name } => {
                self.xattr(
                    place,
                    |path| fs::removexattr(path, &name[..]),
                    |path| fs::lremovexattr(path, &name[..]),
                )?;
                Ok(Answer::Done)
            }
            Op::Listxattr { place } => self.listxattr(place),
            Op::Ls { path } => self.ls(path),
            Op::Fsync { place } => self.fsync(place, false),
            Op::Fdatasync { place } => self.fsync(place, true),
            Op::Fsyncdir { path } => self.fsync_dir(path),
            Op::Sync => self.sync(),
            Op::Grow { .. } => Ok(Answer::Done),
            Op::Evict => {
                // Open files stay open, so this is not done from outside.
                self.hooks.evict()?;
                Ok(Answer::Done)
            }
            Op::Remount | Op::Shrink { .. } => self.outside(H::remount),
            Op::Crash => self.outside(H::crash),
            Op::Tree | Op::Branch(_) => unreachable!("answered by apply"),
        }
    }
}

fn kind_at(dir: &OwnedFd, name: &[u8]) -> Result<FileKind, Errno> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    FileKind::from_mode(stat.st_mode).ok_or(Errno::EIO)
}

impl<H: Hooks> Target for Host<H> {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Tree => self.everything().into(),
            Op::Branch(op) => self.branch(op),
            op => self.answer(op).into(),
        }
    }

    fn branch(&mut self, op: &BranchOp) -> Outcome {
        self.branches(op).into()
    }
}
