//! Names: look-up, new inodes, links, removal, renaming.

use holdfast_base::InodeNo;
use holdfast_posix::{Attr, Caller, FileSystem, FileType, FsError, NewNode};

use super::Server;
use super::xattrs::DEFAULT_ACL;
use crate::flags;
use crate::interface::{Answer, Entry, Errno, Mode, Request};
use crate::notices::Notice;
use crate::statistics::Operation;

impl Server {
    /// What `name` leads to. That it leads nowhere is an answer, too, and one that the kernel keeps.
    pub fn lookup(&self, request: &Request, parent: InodeNo, name: &[u8]) -> Answer<Entry> {
        let _timed = self.timed(Operation::Lookup);
        let fs = self.fs()?;
        let turn = fs.turns();
        let found = match name {
            // Whatever has this number, as file handles (name_to_handle_at, servers of network filesystems) name it. No
            // path asks for `.`, so the caller has not searched a directory.
            b"." => fs.getattr(parent),
            _ => fs.lookup(&self.caller(&fs, request)?, parent, name),
        };
        match found {
            Ok(attr) => Ok(self.entry(&fs, turn, attr)),
            // What is gone has no handle, unless a rollback brings it back.
            Err(FsError::NotFound) if name == b"." || name == b".." => Err(Errno(libc::ESTALE)),
            Err(FsError::NotFound) => Ok(Entry::none(self.ttl_since(&fs, turn))),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes back `count` references.
    pub fn forget(&self, inode: InodeNo, count: u64) {
        self.forget_all([(inode, count)]);
    }

    /// Takes back references of many inodes, as one request.
    pub(crate) fn forget_all(&self, counts: impl IntoIterator<Item = (InodeNo, u64)>) {
        if let Ok(fs) = self.fs() {
            for (inode, count) in counts {
                if fs.forget(inode, count) {
                    self.rolled_back.forgotten(inode);
                }
            }
        }
    }

    /// Makes a node other than a directory.
    pub fn mknod(
        &self,
        request: &Request,
        parent: InodeNo,
        name: &[u8],
        mode: Mode,
        rdev: u32,
    ) -> Answer<Entry> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        let mode = self.masked(&fs, parent, mode);
        let new = NewNode {
            file_type: match mode & libc::S_IFMT {
                0 => FileType::Regular,
                _ => FileType::from_mode(mode).ok_or(Errno(libc::EINVAL))?,
            },
            perm: mode & 0o7777,
            rdev: rdev.into(),
        };
        self.make(&fs, request, |caller| fs.mknod(caller, parent, name, new))
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        request: &Request,
        parent: InodeNo,
        name: &[u8],
        mode: Mode,
    ) -> Answer<Entry> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        let perm = self.masked(&fs, parent, mode) & 0o7777;
        self.make(&fs, request, |caller| fs.mkdir(caller, parent, name, perm))
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        request: &Request,
        parent: InodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Entry> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        self.make(&fs, request, |caller| fs.symlink(caller, parent, name, target))
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, inode: InodeNo) -> Answer<Vec<u8>> {
        let _timed = self.timed(Operation::Other);
        Ok(self.fs()?.readlink(inode)?)
    }

    /// One more name for an inode.
    pub fn link(
        &self,
        request: &Request,
        inode: InodeNo,
        parent: InodeNo,
        name: &[u8],
    ) -> Answer<Entry> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        self.make(&fs, request, |caller| fs.link(caller, inode, parent, name))
    }

    /// Gives an inode a name by `act`.
    fn make(
        &self,
        fs: &FileSystem,
        request: &Request,
        act: impl FnOnce(&Caller) -> holdfast_posix::Result<Attr>,
    ) -> Answer<Entry> {
        let turn = fs.turns();
        let attr = act(&self.caller(fs, request)?)?;
        Ok(self.entry(fs, turn, attr))
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, request: &Request, parent: InodeNo, name: &[u8]) -> Answer<()> {
        let _timed = self.timed(Operation::Remove);
        let fs = self.fs()?;
        Ok(fs.unlink(&self.caller(&fs, request)?, parent, name)?)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, request: &Request, parent: InodeNo, name: &[u8]) -> Answer<()> {
        let _timed = self.timed(Operation::Remove);
        let fs = self.fs()?;
        Ok(fs.rmdir(&self.caller(&fs, request)?, parent, name)?)
    }

    /// Moves a name; `flags` are those of renameat2.
    pub fn rename(
        &self,
        request: &Request,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        flags: u32,
    ) -> Answer<()> {
        let _timed = self.timed(Operation::Rename);
        let fs = self.fs()?;
        let flags = flags::rename(flags)?;
        fs.rename(&self.caller(&fs, request)?, from.0, from.1, to.0, to.1, flags)?;
        // The kernel had looked both up before, and now takes what it had found for what is there. If that was before a rollback of which
        // it has not heard of one of them, as it holds their directories, it is told of them behind this.
        if !self.notices.are_told() {
            let name = |(dir, name): (InodeNo, &[u8])| Notice::Name(dir.0, name.into());
            self.notices.note_all([from, to].map(name));
        }
        Ok(())
    }

    /// The mode of a new inode in `parent`: the umask does not count where a list says what is
    /// handed down. Nothing can change in between, as the kernel holds the directory.
    pub(super) fn masked(&self, fs: &FileSystem, parent: InodeNo, mode: Mode) -> u32 {
        let masked = mode.mode & !mode.umask;
        let has_list = || fs.getxattr(&Caller::root(), parent, DEFAULT_ACL).is_ok();
        let made = match masked != mode.mode && has_list() {
            true => mode.mode,
            false => masked,
        };
        // What nothing has here is not given either.
        self.options.owners.perm(FileType::Regular, made)
    }
}
