//! Names of the host: what makes, moves and removes them, and what lists them.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};

use super::{Answered, Hooks, Host, kind_at};
use crate::errno::Errno;
use crate::op::{FileRef, NodeKind, Path, RenameHow};
use crate::outcome::Answer;
use crate::stat::FileKind;

impl<H: Hooks> Host<H> {
    pub(super) fn mkdir(&self, path: &Path, mode: u32) -> Answered {
        let (dir, name) = self.parent(path)?;
        fs::mkdirat(&dir, name, Mode::from_raw_mode(mode))?;
        Ok(Answer::Done)
    }

    pub(super) fn mkfile(&self, path: &Path, mode: u32) -> Answered {
        let (dir, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::openat(&dir, name, flags, Mode::from_raw_mode(mode))?;
        Ok(Answer::Done)
    }

    pub(super) fn symlink(&self, target: &[u8], path: &Path) -> Answered {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        let (dir, name) = self.parent(path)?;
        fs::symlinkat(target, &dir, name)?;
        Ok(Answer::Done)
    }

    pub(super) fn unlink(&self, path: &Path, flags: AtFlags) -> Answered {
        let (dir, name) = self.parent(path)?;
        fs::unlinkat(&dir, name, flags)?;
        Ok(Answer::Done)
    }

    pub(super) fn mknod(&self, path: &Path, kind: NodeKind, mode: u32) -> Answered {
        let (dir, name) = self.parent(path)?;
        let (kind, (major, minor)) = kind.parts();
        let (file_type, device) =
            (FileType::from_raw_mode(kind.mode_bits()), fs::makedev(major, minor));
        fs::mknodat(&dir, name, file_type, Mode::from_raw_mode(mode), device)?;
        Ok(Answer::Done)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path, how: RenameHow) -> Answered {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let flags = match how {
            RenameHow::Replace => RenameFlags::empty(),
            RenameHow::NoReplace => RenameFlags::NOREPLACE,
            RenameHow::Exchange => RenameFlags::EXCHANGE,
        };
        fs::renameat_with(&old_dir, old_name, &new_dir, new_name, flags)?;
        Ok(Answer::Done)
    }

    pub(super) fn link(&self, from: &FileRef, to: &Path) -> Answered {
        match from {
            FileRef::Handle(handle) => {
                let file = self.handles.get(handle)?;
                let (dir, name) = self.parent(to)?;
                fs::linkat(file, c"", &dir, name, AtFlags::EMPTY_PATH)?;
            }
            FileRef::Path(path) => {
                let (old_dir, old_name) = self.locate(path)?;
                // Linux resolves the old path to the end before it looks at the new one.
                kind_at(&old_dir, old_name)?;
                let (dir, name) = self.parent(to)?;
                fs::linkat(&old_dir, old_name, &dir, name, AtFlags::empty())?;
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn readlink(&self, path: &Path) -> Answered {
        let (dir, name) = self.locate(path)?;
        if kind_at(&dir, name)? != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        let target = fs::readlinkat(&dir, name, Vec::new())?;
        Ok(Answer::Target(target.into_bytes()))
    }

    pub(super) fn ls(&self, path: &Path) -> Answered {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(self.dir(path)?, c".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = match FileKind::from_mode(entry.file_type().as_raw_mode()) {
                    Some(kind) => kind,
                    None => kind_at(&self.dir(path)?, name)?,
                };
                names.push((name.to_vec(), kind));
            }
        }
        names.sort();
        Ok(Answer::Names(names))
    }
}
