//! Operations on names.

use holdfast_posix::{FileType, NewNode, RenameFlags};
use holdfast_script::{Answer, Errno, FileRef, Op, Path, RenameHow};

use super::{Answered, Engine, Refused, expect_dir, kind};

/// Names read before readdir is left and entered again with its cookie, so that cookies are tried.
const NAMES_AT_ONCE: usize = 7;

/// A device number as the kernel packs it for FUSE.
pub(super) fn pack(major: u32, minor: u32) -> u64 {
    u64::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// The two halves of a packed device number.
pub(super) fn unpack(device: u64) -> (u32, u32) {
    let device = device as u32;
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & !0xff))
}

impl Engine {
    pub(super) fn names(&mut self, op: &Op) -> Answered {
        let caller = self.caller.clone();
        match op {
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.vacancy(path)?;
                // The kernel hands only these bits on.
                let mode = mode & 0o1777;
                self.filesystem()?.mkdir(&caller, dir, name, mode)?;
            }
            Op::Mkfile { path, mode } => self.make(path, FileType::Regular, *mode, 0)?,
            Op::Mknod { path, kind, mode } => {
                let (kind, (major, minor)) = kind.parts();
                let file_type =
                    FileType::from_mode(kind.mode_bits()).expect("the engine knows all types");
                self.make(path, file_type, *mode, pack(major, minor))?;
            }
            Op::Symlink { target, path } => {
                if target.is_empty() {
                    return Err(Errno::ENOENT.into());
                }
                let (dir, name) = self.vacancy(path)?;
                self.filesystem()?.symlink(&caller, dir, name, target)?;
            }
            Op::Readlink { path } => {
                let inode = self.find(path)?.inode;
                let target = self.filesystem()?.readlink(inode)?;
                return Ok(Answer::Target(target));
            }
            Op::Link { from, to } => {
                let inode = match from {
                    FileRef::Path(path) => self.find(path)?.inode,
                    FileRef::Handle(handle) => self.handle(handle)?.inode(),
                };
                let (dir, name) = self.parent(to)?;
                self.filesystem()?.link(&caller, inode, dir.inode, name)?;
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                self.filesystem()?.unlink(&caller, dir.inode, name)?;
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                self.filesystem()?.rmdir(&caller, dir.inode, name)?;
            }
            Op::Rename { from, to, how } => {
                let (old_dir, old_name) = self.parent(from)?;
                let (new_dir, new_name) = self.parent(to)?;
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                self.filesystem()?.rename(
                    &caller,
                    old_dir.inode,
                    old_name,
                    new_dir.inode,
                    new_name,
                    flags,
                )?;
            }
            Op::Ls { path } => return self.ls(path),
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(Answer::Done)
    }

    /// Where a new name goes. The engine itself says whether it is taken.
    fn vacancy<'a>(&self, path: &'a Path) -> Result<(holdfast_base::InodeNo, &'a [u8]), Refused> {
        let (dir, name) = self.parent(path)?;
        Ok((dir.inode, name))
    }

    fn make(&self, path: &Path, file_type: FileType, perm: u32, rdev: u64) -> Result<(), Refused> {
        let (dir, name) = self.vacancy(path)?;
        let new = NewNode { file_type, perm, rdev };
        self.filesystem()?.mknod(&self.caller, dir, name, new)?;
        Ok(())
    }

    fn ls(&self, path: &Path) -> Answered {
        let dir = self.find(path)?;
        expect_dir(&dir)?;
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let before = cookie;
            let mut seen = 0;
            self.filesystem()?.readdir(dir.inode, cookie, &mut |entry| {
                cookie = entry.cookie;
                seen += 1;
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), kind(entry.file_type)));
                }
                seen < NAMES_AT_ONCE
            })?;
            if seen == 0 || cookie == before {
                break;
            }
        }
        names.sort();
        Ok(Answer::Names(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_packing() {
        for (major, minor) in [(1, 3), (259, 299), (8, 0), (4095, 1_048_575)] {
            assert_eq!(unpack(pack(major, minor)), (major, minor));
        }
    }
}
