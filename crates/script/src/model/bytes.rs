//! Open files of the model, and what is done to their bytes.

use super::{Answered, Body, Model, Number, Open, ROOT, SIZE_MAX};
use crate::bytes::{BLOCK, Data};
use crate::content::Content;
use crate::errno::Errno;
use crate::op::{Fallocate, FileRef, Handle, OpenHow, Path, Whence};
use crate::outcome::Answer;
use crate::stat::Mtime;

impl Model {
    pub(super) fn open(&mut self, handle: &Handle, path: &Path, how: OpenHow) -> Answered {
        self.handles.check_free(handle)?;
        let found = match path.split() {
            None => Ok(ROOT),
            Some(_) => {
                let (dir, name) = self.parent(path)?;
                self.lookup(dir, name)
            }
        };
        let number = match found {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Ok(number) => {
                self.inode(number).kind().refuses_bytes()?;
                if how.truncate {
                    self.file(number).truncate(0);
                    self.changed(number);
                }
                number
            }
            Err(Errno::ENOENT) if how.create => {
                self.create(path, Body::File(Content::default()), 0o644)?
            }
            Err(errno) => return Err(errno),
        };
        self.handles.insert(handle, Open { inode: number, how });
        *self.open.entry(number).or_default() += 1;
        Ok(Answer::Done)
    }

    pub(super) fn tmpfile(&mut self, handle: &Handle, dir: &Path, mode: u32) -> Answered {
        self.handles.check_free(handle)?;
        let dir = self.find(dir)?;
        self.listing(dir)?;
        let number = self.make(dir, Body::File(Content::default()), mode);
        let inode = self.inode_mut(number);
        inode.nlink = 0;
        inode.linkable = true;
        let how = OpenHow { read: true, write: true, ..OpenHow::default() };
        self.handles.insert(handle, Open { inode: number, how });
        self.open.insert(number, 1);
        Ok(Answer::Done)
    }

    pub(super) fn closed(&mut self, number: Number) {
        match self.open.get_mut(&number) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.open.remove(&number);
                self.reap(number);
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        for open in self.handles.drain() {
            self.closed(open.inode);
        }
    }

    /// The inode that an operation on attributes means.
    pub(super) fn place(&self, place: &FileRef) -> Result<Number, Errno> {
        match place {
            FileRef::Path(path) => self.find(path),
            FileRef::Handle(handle) => Ok(self.handles.get(handle)?.inode),
        }
    }

    /// The regular file that an operation on bytes means, opened as if for everything.
    pub(super) fn opened(&self, place: &FileRef) -> Result<Open, Errno> {
        match place {
            FileRef::Handle(handle) => Ok(*self.handles.get(handle)?),
            FileRef::Path(path) => {
                let inode = self.find(path)?;
                self.inode(inode).kind().refuses_bytes()?;
                let how = OpenHow { read: true, write: true, ..OpenHow::default() };
                Ok(Open { inode, how })
            }
        }
    }

    pub(super) fn write(&mut self, open: Open, offset: u64, data: &Data) -> Answered {
        if !open.how.write {
            return Err(Errno::EBADF);
        }
        let content = self.file(open.inode);
        let offset = if open.how.append { content.size() } else { offset };
        if data.is_empty() {
            return Ok(Answer::Done);
        }
        if offset.checked_add(data.len()).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        content.write(offset, &data.bytes());
        self.changed(open.inode);
        Ok(Answer::Done)
    }

    pub(super) fn read(&mut self, place: &FileRef, offset: u64, len: u64) -> Answered {
        let open = self.opened(place)?;
        if !open.how.read {
            return Err(Errno::EBADF);
        }
        Ok(Answer::Bytes(self.file(open.inode).read(offset, len)))
    }

    pub(super) fn sum(&mut self, place: &FileRef) -> Answered {
        let open = self.opened(place)?;
        if !open.how.read {
            return Err(Errno::EBADF);
        }
        let content = self.file(open.inode);
        Ok(Answer::Sum(content.size(), content.digest()))
    }

    pub(super) fn truncate(&mut self, place: &FileRef, size: u64) -> Answered {
        let open = self.opened(place)?;
        if !open.how.write {
            return Err(Errno::EINVAL);
        }
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        self.file(open.inode).truncate(size);
        self.changed(open.inode);
        Ok(Answer::Done)
    }

    pub(super) fn fallocate(
        &mut self,
        place: &FileRef,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Answered {
        let open = self.opened(place)?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        if !open.how.write {
            return Err(Errno::EBADF);
        }
        if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        if matches!(how, Fallocate::Collapse | Fallocate::Insert) {
            self.shift(open, how == Fallocate::Insert, offset, len)?;
            self.inode_mut(open.inode).mtime = Mtime::Unsure;
            return Ok(Answer::Done);
        }
        let content = self.file(open.inode);
        if matches!(how, Fallocate::Punch | Fallocate::Zero | Fallocate::ZeroKeep) {
            content.zero(offset, len);
        }
        if matches!(how, Fallocate::Allocate | Fallocate::Zero) && offset + len > content.size() {
            content.truncate(offset + len);
        }
        // tmpfs leaves the time alone where ext4 sets it.
        self.inode_mut(open.inode).mtime = Mtime::Unsure;
        Ok(Answer::Done)
    }

    /// Takes whole blocks out of a file, or puts a hole in.
    fn shift(&mut self, open: Open, insert: bool, offset: u64, len: u64) -> Result<(), Errno> {
        if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            return Err(Errno::EINVAL);
        }
        let content = self.file(open.inode);
        let size = content.size();
        if insert {
            if offset >= size {
                return Err(Errno::EINVAL);
            }
            if size.checked_add(len).is_none_or(|size| size > SIZE_MAX) {
                return Err(Errno::EFBIG);
            }
            content.insert(offset, len);
        } else {
            if offset + len >= size {
                return Err(Errno::EINVAL);
            }
            content.collapse(offset, len);
        }
        Ok(())
    }

    pub(super) fn seek(&mut self, place: &FileRef, whence: Whence, offset: u64) -> Answered {
        let open = self.opened(place)?;
        let content = self.file(open.inode);
        if offset >= content.size() {
            return Err(Errno::ENXIO);
        }
        match whence {
            Whence::Data => content.next_data(offset).map(Answer::Position).ok_or(Errno::ENXIO),
            Whence::Hole => Ok(Answer::Position(content.next_hole(offset))),
        }
    }
}
