//! Open files: open, create, release, durability.

use std::sync::Arc;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{InodeNo, Receipt};
use holdfast_posix::{FileSystem, OpenFile};

use super::{Handle, Server};
use crate::flags;
use crate::fsyncs::What;
use crate::ops::{Answer, Entry, Mode, Opened, Request};

impl Server {
    /// Opens a regular file.
    pub fn open(&self, request: &Request, inode: InodeNo, flags: i32) -> Answer<Opened> {
        let fs = self.fs()?;
        let file = fs.open(&self.caller(request), inode, flags::open(flags)?)?;
        if flags & libc::O_TRUNC != 0 && request.uid != 0 {
            self.drop_privileges(&fs, inode)?;
        }
        Ok(self.opened(file, flags))
    }

    /// Makes a regular file and opens it.
    pub fn create(
        &self,
        request: &Request,
        parent: InodeNo,
        name: &[u8],
        mode: Mode,
        flags: i32,
    ) -> Answer<(Entry, Opened)> {
        let fs = self.fs()?;
        let (attr, file) = fs.create(
            &self.caller(request),
            parent,
            name,
            self.masked(&fs, parent, mode) & 0o7777,
            flags::open(flags)?,
            flags & libc::O_EXCL != 0,
        )?;
        Ok((self.entry(&fs, attr), self.opened(file, flags)))
    }

    /// Makes a regular file without a name in a directory and opens it.
    pub fn tmpfile(
        &self,
        request: &Request,
        parent: InodeNo,
        mode: Mode,
        flags: i32,
    ) -> Answer<(Entry, Opened)> {
        let fs = self.fs()?;
        let perm = self.masked(&fs, parent, mode) & 0o7777;
        let caller = self.caller(request);
        let (attr, file) = fs.tmpfile(&caller, parent, perm, flags::open(flags)?)?;
        Ok((self.entry(&fs, attr), self.opened(file, flags)))
    }

    /// Closes a handle. What is freed by this is freed before it returns.
    pub fn release(&self, fh: u64) {
        drop(self.handles.remove(fh));
    }

    /// fsync, or fdatasync with `data_only` (P1). Waits for the device.
    pub fn fsync(&self, fh: u64, data_only: bool) -> Answer<()> {
        let fs = self.fs()?;
        let file = &self.handles.get(fh)?.file;
        self.durable(&fs, file.inode(), What::Fsync, || fs.fsync(file, data_only))
    }

    /// fsync of a directory (P2), the root as any other: nobody waits for a stranger's data. Waits for the device.
    pub fn fsyncdir(&self, inode: InodeNo) -> Answer<()> {
        let fs = self.fs()?;
        self.durable(&fs, inode, What::Fsync, || fs.fsync_inode(inode))
    }

    /// Makes something durable and remembers what that cost.
    pub(super) fn durable(
        &self,
        fs: &FileSystem,
        inode: InodeNo,
        what: What,
        call: impl FnOnce() -> holdfast_posix::Result<Receipt>,
    ) -> Answer<()> {
        let time = Stopwatch::start();
        let done = call();
        if self.fsyncs.note(inode, what, time, &done) {
            fs.counters().slow_fsyncs.increment();
        }
        Ok(done.map(drop)?)
    }

    fn opened(&self, file: Arc<OpenFile>, flags: i32) -> Opened {
        let direct = flags & libc::O_DIRECT != 0;
        Opened {
            fh: self.handles.insert(Arc::new(Handle { file, direct })),
            direct,
            keep_cache: true,
        }
    }
}
