//! Open files: open, create, release, durability.
//!
//! The kernel reads what it has in memory without a word. So an open for reading counts as the access, and the kernel hears of
//! the time that has moved before it is answered.

use std::sync::Arc;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{InodeNo, Receipt};
use holdfast_posix::{FileSystem, OpenFile, OpenFlags};

use super::{Handle, Server};
use crate::flags;
use crate::fsyncs::SyncKind;
use crate::interface::{Answer, Completion, Entry, Errno, FileId, Mode, Opened, Request};
use crate::statistics::Operation;

impl Server {
    /// Opens a regular file. With `kill_set_id` truncating it takes its set-id bits away.
    pub fn open(
        &self,
        request: &Request,
        inode: InodeNo,
        flags: i32,
        kill_set_id: bool,
    ) -> Answer<Opened> {
        self.expect_to_open()?;
        let _timed = self.timed(Operation::Open);
        let fs = self.fs()?;
        let file = fs.open(&self.caller(&fs, request)?, inode, flags::open(flags)?)?;
        if flags & libc::O_TRUNC != 0 {
            self.drop_unseen_capabilities(&fs, inode)?;
        }
        if flags & libc::O_TRUNC != 0 && kill_set_id {
            self.drop_privileges(&fs, inode)?;
        }
        // Reads of what the kernel has are no message. It hears of the new time before it has the file.
        if fs.accessed(&file) {
            self.tell_attr_changed(inode);
        }
        Ok(self.opened(file, flags))
    }

    /// Makes a regular file and opens it, or opens one that was made since the kernel looked, as [`Server::open`] does.
    pub fn create(
        &self,
        request: &Request,
        parent: InodeNo,
        name: &[u8],
        mode: Mode,
        flags: i32,
        kill_set_id: bool,
    ) -> Answer<(Entry, Opened)> {
        self.expect_to_open()?;
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        let perm = self.masked(&fs, parent, mode) & 0o7777;
        let (caller, exclusive) = (self.caller(&fs, request)?, flags & libc::O_EXCL != 0);
        let how = flags::open(flags)?;
        let turn = fs.turns();
        let (mut attr, file) = fs.create(&caller, parent, name, perm, how, exclusive)?;
        if flags & libc::O_TRUNC != 0 && attr.ctime != attr.btime {
            self.drop_unseen_capabilities(&fs, attr.inode)?;
        }
        // What was just made keeps the bits that it was made with.
        if flags & libc::O_TRUNC != 0 && kill_set_id && attr.ctime != attr.btime {
            self.drop_privileges(&fs, attr.inode)?;
            attr = fs.getattr(attr.inode)?;
        }
        Ok((self.entry(&fs, turn, attr), self.opened(file, flags)))
    }

    /// Makes a regular file without a name in a directory and opens it.
    pub fn tmpfile(
        &self,
        request: &Request,
        parent: InodeNo,
        mode: Mode,
        flags: i32,
    ) -> Answer<(Entry, Opened)> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        let perm = self.masked(&fs, parent, mode) & 0o7777;
        let caller = self.caller(&fs, request)?;
        let turn = fs.turns();
        let (attr, file) = fs.tmpfile(&caller, parent, perm, flags::open(flags)?)?;
        Ok((self.entry(&fs, turn, attr), self.opened(file, flags)))
    }

    /// Closes a handle. What is freed by this is freed before it returns.
    pub fn release(&self, fh: u64) {
        drop(self.handles.remove(fh));
    }

    /// The open file that a request is about: the one with this handle, or one for the time of the request.
    pub(super) fn file(&self, fs: &FileSystem, id: FileId) -> Answer<Arc<Handle>> {
        if !self.kernel_opens() {
            return self.handles.get(id.fh);
        }
        let mut flags = OpenFlags::READ | OpenFlags::WRITE;
        flags.set(OpenFlags::NOATIME, id.flags & libc::O_NOATIME != 0);
        flags.set(OpenFlags::APPENDS, id.flags & libc::O_APPEND != 0);
        let direct = id.flags & libc::O_DIRECT != 0;
        Ok(Arc::new(Handle { file: fs.lend(id.inode, flags)?, direct }))
    }

    /// fsync, or fdatasync with `data_only` (P1). Waits for the device.
    pub fn fsync(&self, file: FileId, data_only: bool) -> Answer<()> {
        let fs = self.fs()?;
        let file = &self.file(&fs, file)?.file;
        self.durable(&fs, file.inode(), SyncKind::Fsync, || fs.fsync(file, data_only))
    }

    /// As [`Server::fsync`], with the completion callback `then`, run now or on another thread. This thread may make
    /// batches for others meanwhile.
    pub(crate) fn fsync_then(&self, file: FileId, data_only: bool, then: impl Completion) {
        // Keeps only the file of the handle, and only until the answer, so that a close after the answer frees its
        // blocks.
        let asked = self.fs().and_then(|fs| {
            let file = Arc::clone(&self.file(&fs, file)?.file);
            Ok((fs, file))
        });
        let (fs, file) = match asked {
            Ok(asked) => asked,
            Err(error) => return then(Err(error)),
        };
        let noted = self.noted(&fs, file.inode(), SyncKind::Fsync);
        fs.fsync_then(file, data_only, |done| then(noted(done)));
    }

    /// As [`Server::fsyncdir`], with a completion callback as in [`Server::fsync_then`].
    pub(crate) fn fsyncdir_then(&self, inode: InodeNo, then: impl Completion) {
        let fs = match self.fs() {
            Ok(fs) => fs,
            Err(error) => return then(Err(error)),
        };
        let noted = self.noted(&fs, inode, SyncKind::Fsync);
        fs.fsync_inode_then(inode, |done| then(noted(done)));
    }

    /// fsync of a directory (P2), the root as any other: no caller waits for a stranger's data. Waits for the device.
    pub fn fsyncdir(&self, inode: InodeNo) -> Answer<()> {
        self.durable_inode(inode, SyncKind::Fsync)
    }

    /// Makes everything durable that was done to an inode without a handle.
    pub(super) fn durable_inode(&self, inode: InodeNo, what: SyncKind) -> Answer<()> {
        let fs = self.fs()?;
        self.durable(&fs, inode, what, || fs.fsync_inode(inode))
    }

    /// Makes something durable and remembers what that cost.
    pub(super) fn durable(
        &self,
        fs: &FileSystem,
        inode: InodeNo,
        what: SyncKind,
        call: impl FnOnce() -> holdfast_posix::Result<Receipt>,
    ) -> Answer<()> {
        let noted = self.noted(fs, inode, what);
        noted(call())
    }

    /// What is to get the outcome of a call that begins now.
    fn noted(
        &self,
        fs: &FileSystem,
        inode: InodeNo,
        what: SyncKind,
    ) -> impl FnOnce(holdfast_posix::Result<Receipt>) -> Answer<()> + Send + use<> {
        let (fsyncs, counters) = (Arc::clone(&self.fsyncs), Arc::clone(fs.counters()));
        let (notices, requests) = (Arc::clone(&self.notices), Arc::clone(self.requests()));
        let (names, troubles) = (fs.names(), Arc::clone(&self.troubles));
        let time = Stopwatch::start();
        move |done| {
            let operations = requests.operations();
            operations.fsyncs.add(done.as_ref().ok());
            // What is synchronous is measured as what it is.
            if matches!(what, SyncKind::Fsync | SyncKind::Sync) {
                operations.record(Operation::Fsync, time.nanos());
            }
            if fsyncs.note(inode, (what, &names), time, &done) {
                counters.slow_fsyncs.increment();
            }
            if let Err(error) = &done {
                if error.errno() == libc::EIO && !error.is_of_stopped() {
                    let place = || names.whereabouts(inode);
                    troubles.failed(what.name(), inode, &error.to_string(), place);
                }
                // A program that gets the error and reads finds what is there.
                notices.drain();
            }
            Ok(done.map(drop)?)
        }
    }

    /// Refuses what the kernel does itself; it makes files by [`Server::mknod`] then.
    fn expect_to_open(&self) -> Answer<()> {
        match self.kernel_opens() {
            true => Err(Errno(libc::ENOSYS)),
            false => Ok(()),
        }
    }

    fn opened(&self, file: Arc<OpenFile>, flags: i32) -> Opened {
        // Before the kernel knows that it opens files itself, and for files without a name.
        if self.kernel_opens() {
            return Opened { fh: 0, direct: false, keep_cache: true };
        }
        let direct = flags & libc::O_DIRECT != 0;
        let keep_cache = !self.rolled_back.is_void(file.inode());
        let fh = self.handles.insert(Arc::new(Handle { file, direct }));
        Opened { fh, direct, keep_cache }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Write;
    use crate::server::fresh;

    /// P1: no fsync follows an asynchronous write, whether the kernel or the server has opened the file.
    #[test]
    fn a_direct_synchronous_write_is_durable_when_it_is_answered() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        server.set_kernel_opens();
        let request = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        assert_eq!(server.open(&request, InodeNo::ROOT, 0, false), Err(Errno(libc::ENOSYS)));
        let entry = server.mknod(&request, InodeNo::ROOT, b"f", mode, 0).unwrap();
        let inode = entry.attr.unwrap().inode;
        let write = |flags, offset| {
            let file = FileId { inode, fh: 0, flags };
            let write =
                Write { file, offset, bytes: &[7; 4096], kill_suid_sgid: false, is_cached: false };
            assert_eq!(server.write(&request, &write), Ok(4096));
            fs.is_durable() && fs.counters().clean_fsyncs.get() == 0
        };
        assert!(!write(libc::O_DIRECT, 0), "nobody has asked");
        assert!(write(libc::O_DIRECT | libc::O_DSYNC, 4096));
        assert!(write(libc::O_DIRECT | libc::O_SYNC, 0));
        let file = FileId { inode, fh: 17, flags: 0 };
        assert_eq!(server.fsync(file, false), Ok(()));
        assert_eq!(fs.counters().clean_fsyncs.get(), 1, "all of it was durable");
        server.release(17);
        server.close();
    }

    /// P1, P2: the same for a caller with a completion callback. A refused caller gets the error.
    #[test]
    fn a_completion_callback_gets_the_same_answer() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let request = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let (entry, opened) =
            server.create(&request, InodeNo::ROOT, b"f", mode, libc::O_WRONLY, false).unwrap();
        let file = FileId { inode: entry.attr.unwrap().inode, fh: opened.fh, flags: 0 };
        let write =
            Write { file, offset: 0, bytes: &[7; 100], kill_suid_sgid: false, is_cached: false };
        let told = |of: FileId| {
            let (tell, hear) = std::sync::mpsc::channel();
            match of.inode {
                InodeNo::ROOT => {
                    server.fsyncdir_then(of.inode, move |done| tell.send(done).unwrap())
                }
                _ => server.fsync_then(of, false, move |done| tell.send(done).unwrap()),
            }
            hear.recv().unwrap()
        };
        let root = FileId { inode: InodeNo::ROOT, fh: 0, flags: 0 };
        for of in [file, root] {
            assert_eq!(server.write(&request, &write), Ok(100));
            assert_eq!(server.mkdir(&request, InodeNo::ROOT, b"d", mode).map(drop), Ok(()));
            assert!(!fs.is_durable());
            assert_eq!((told(of), fs.is_durable()), (Ok(()), true));
            let words = server.fsyncs.describe(of.inode, None).unwrap();
            assert!(words.contains("what fsync\n"), "{words}");
            assert_eq!(server.rmdir(&request, InodeNo::ROOT, b"d"), Ok(()));
        }
        assert_eq!(told(FileId { fh: opened.fh + 1, ..file }), Err(Errno(libc::EBADF)));
        server.release(opened.fh);
        server.close();
        assert_eq!([told(file), told(root)], [Err(Errno(libc::EIO)); 2]);
    }
}
