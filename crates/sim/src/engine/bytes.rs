//! Open files and their bytes.

use std::sync::Arc;

use holdfast_posix::{
    FallocateFlags, FileType, FsError, OpenFile, OpenFlags, Seek, SetAttr, WriteHow,
};
use holdfast_script::{
    Answer, Data, Digest, Errno, Fallocate, FileRef, Handle, Op, OpenHow, Path, Whence,
};

use super::{Answered, Engine, Refused, expect_dir, kind};

impl Engine {
    pub(super) fn bytes(&mut self, op: &Op) -> Answered {
        match op {
            Op::Open { handle, path, how } => self.open_handle(handle, path, *how),
            Op::Tmpfile { handle, dir, mode } => {
                self.here()?.handles.check_free(handle)?;
                let dir = self.find(dir)?;
                expect_dir(&dir)?;
                let flags = OpenFlags::READ | OpenFlags::WRITE;
                let (_, file) =
                    self.filesystem()?.tmpfile(&self.caller, dir.inode, *mode, flags)?;
                self.handles()?.insert(handle, file);
                Ok(Answer::Done)
            }
            Op::Close { handle } => {
                self.handles()?.remove(handle)?;
                Ok(Answer::Done)
            }
            Op::Write { place, offset, data } => {
                let file = self.opened(place, OpenFlags::WRITE)?;
                self.write(&file, *offset, data)
            }
            Op::Append { path, data } => {
                let file = self.open_path(path, OpenFlags::WRITE | OpenFlags::APPEND)?;
                self.write(&file, 0, data)
            }
            Op::Read { place, offset, len } => self.read(place, *offset, *len),
            Op::Sum { place } => self.sum(place),
            Op::Truncate { place, size } => self.truncate(place, *size),
            Op::Fallocate { place, how, offset, len } => {
                let file = self.opened(place, OpenFlags::WRITE)?;
                let flags = match how {
                    Fallocate::Allocate => FallocateFlags::empty(),
                    Fallocate::Keep => FallocateFlags::KEEP_SIZE,
                    Fallocate::Punch => FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                    Fallocate::Zero => FallocateFlags::ZERO_RANGE,
                    Fallocate::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                    Fallocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
                    Fallocate::Insert => FallocateFlags::INSERT_RANGE,
                };
                self.filesystem()?.fallocate(&file, flags, *offset, *len)?;
                Ok(Answer::Done)
            }
            Op::Seek { place, whence, offset } => {
                let file = self.opened(place, OpenFlags::READ)?;
                let whence = match whence {
                    Whence::Data => Seek::Data,
                    Whence::Hole => Seek::Hole,
                };
                let found = self.filesystem()?.seek(&file, *offset, whence)?;
                Ok(Answer::Position(found))
            }
            Op::Fsync { place } => self.fsync(place, false),
            Op::Fdatasync { place } => self.fsync(place, true),
            Op::Fsyncdir { path } => {
                let dir = self.find(path)?;
                expect_dir(&dir)?;
                self.filesystem()?.fsync_inode(dir.inode)?;
                Ok(Answer::Done)
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    fn open_handle(&mut self, handle: &Handle, path: &Path, how: OpenHow) -> Answered {
        self.here()?.handles.check_free(handle)?;
        let mut flags = OpenFlags::empty();
        for (set, flag) in [
            (how.read, OpenFlags::READ),
            (how.write, OpenFlags::WRITE),
            (how.append, OpenFlags::APPEND),
            (how.truncate, OpenFlags::TRUNCATE),
            (how.sync, OpenFlags::SYNC),
            (how.dsync, OpenFlags::DSYNC),
        ] {
            flags.set(flag, set);
        }
        let file = match self.find(path) {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST.into()),
            Ok(found) => {
                kind(found.file_type).refuses_bytes()?;
                self.filesystem()?.open(&self.caller, found.inode, flags)?
            }
            Err(Refused(Errno::ENOENT)) if how.create => {
                let (dir, name) = self.parent(path)?;
                let filesystem = self.filesystem()?;
                filesystem.create(&self.caller, dir.inode, name, 0o644, flags, how.exclusive)?.1
            }
            Err(refused) => return Err(refused),
        };
        self.handles()?.insert(handle, file);
        Ok(Answer::Done)
    }

    /// Opens a regular file by path.
    fn open_path(&self, path: &Path, flags: OpenFlags) -> Result<Arc<OpenFile>, Refused> {
        let found = self.find(path)?;
        kind(found.file_type).refuses_bytes()?;
        Ok(self.filesystem()?.open(&self.caller, found.inode, flags)?)
    }

    /// The open file that an operation on bytes means.
    fn opened(&self, place: &FileRef, flags: OpenFlags) -> Result<Arc<OpenFile>, Refused> {
        match place {
            FileRef::Handle(handle) => Ok(Arc::clone(self.handle(handle)?)),
            FileRef::Path(path) => self.open_path(path, flags),
        }
    }

    fn write(&mut self, file: &OpenFile, offset: u64, data: &Data) -> Answered {
        let bytes = data.bytes();
        let mut done = 0;
        self.written = 0;
        loop {
            let count = self.filesystem()?.write(
                &self.caller,
                file,
                offset + done as u64,
                &bytes[done..],
                WriteHow::default(),
            )?;
            done += count;
            self.written = done;
            if done == bytes.len() {
                return Ok(Answer::Done);
            }
            if count == 0 {
                return Err(Errno::EIO.into());
            }
        }
    }

    fn read(&self, place: &FileRef, offset: u64, len: u64) -> Answered {
        let file = self.opened(place, OpenFlags::READ)?;
        // What the buffer held before must not be taken for content.
        let mut bytes = vec![0xee; len as usize];
        let count = self.filesystem()?.read(&file, offset, &mut bytes)?;
        bytes.truncate(count);
        Ok(Answer::Bytes(bytes))
    }

    fn sum(&self, place: &FileRef) -> Answered {
        let file = self.opened(place, OpenFlags::READ)?;
        let filesystem = self.filesystem()?;
        let size = filesystem.getattr(file.inode())?.size;
        // A handle that cannot read says so even if there is nothing to read.
        filesystem.read(&file, 0, &mut [0; 1])?;
        let errno = |error: FsError| Refused::from(error).0;
        let digest = Digest::of_file(
            size,
            |offset, into| filesystem.read(&file, offset, into).map_err(errno),
            |offset| match filesystem.seek(&file, offset, Seek::Data).map_err(errno) {
                Ok(data) => Ok(Some(data)),
                Err(Errno::ENXIO) => Ok(None),
                Err(errno) => Err(errno),
            },
        )?;
        Ok(Answer::Sum(size, digest))
    }

    fn truncate(&self, place: &FileRef, size: u64) -> Answered {
        let file = self.opened(place, OpenFlags::WRITE)?;
        if !file.flags().contains(OpenFlags::WRITE) {
            return Err(Errno::EINVAL.into());
        }
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.filesystem()?.setattr(&self.caller, file.inode(), Some(&file), change)?;
        Ok(Answer::Done)
    }

    fn fsync(&self, place: &FileRef, data_only: bool) -> Answered {
        if let FileRef::Path(path) = place {
            let found = self.find(path)?;
            if found.file_type == FileType::Directory {
                self.filesystem()?.fsync_inode(found.inode)?;
                return Ok(Answer::Done);
            }
        }
        let file = self.opened(place, OpenFlags::READ)?;
        let filesystem = self.filesystem()?;
        let shown = filesystem.getattr(file.inode())?;
        filesystem.fsync(&file, data_only)?;
        // A cache of attributes does not hear of it.
        let now = filesystem.getattr(file.inode())?;
        assert_eq!(now, shown, "fsync {place} changed what stat shows");
        Ok(Answer::Done)
    }
}
