//! The transport over /dev/fuse, by the `fuser` crate.
//!
//! Decodes, chooses the thread, calls the server, replies. No type of the
//! crate is known outside of this file and `convert`.
//!
//! What the kernel is asked for at INIT is what keeps messages away: long
//! timeouts need no flag, but set-id bits (KILLPRIV_V2), truncating opens,
//! directory handles and symbolic links each have one. Locks stay in the
//! kernel, and so does no written data: without a writeback cache a write that
//! returned is in our hands, in order.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Config, CopyFileRangeFlags, FileHandle, Filesystem, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Session, SessionACL, TimeOrNow, WriteFlags,
};
use holdfast_base::InodeNo;
use holdfast_posix::SetAttr;

use super::convert::{Names, NamesPlus, errno, file_attr, fopen, from_time, no_such_attr, request};
use super::work::Work;
use crate::ops::{Answer, CopyRange, Errno, Kernel, Mode, Opened, Write, XattrReply};
use crate::requests::Kind;
use crate::server::Server;

/// Inode numbers are never used twice, so all are of one generation.
const GENERATION: Generation = Generation(0);
/// Most bytes of one write.
const MAX_WRITE: u32 = 1 << 20;
/// Readahead and asynchronous direct requests that the kernel sends before it waits for answers.
const MAX_BACKGROUND: u16 = 64;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;

thread_local! {
    /// Where a thread reads file data into, before it is sent.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Shakes hands with the kernel at the other end of `fd` and returns what then serves requests
/// on `readers` threads until the filesystem is unmounted.
pub(crate) fn connect(
    fd: OwnedFd,
    work: &Arc<Work>,
    readers: usize,
) -> io::Result<impl FnOnce() -> io::Result<()> + Send + use<>> {
    let mut config = Config::default();
    config.n_threads = Some(readers);
    let adapter = Adapter { work: Arc::clone(work), no_opendir: false };
    // Who may come in is the kernel's business (`allow_other`); it was told at mount.
    let session = Session::from_fd(adapter, fd, SessionACL::All, config)?;
    work.server().set_kernel(Box::new(ToKernel(session.notifier())));
    Ok(move || session.run())
}

struct ToKernel(Notifier);

impl Kernel for ToKernel {
    fn attr_changed(&self, inode: u64) {
        // A negative offset: attributes only, no pages.
        if let Err(error) = self.0.inval_inode(INodeNo(inode), -1, 0) {
            tracing::warn!("telling the kernel about inode {inode} failed: {error}");
        }
    }
}

struct Adapter {
    work: Arc<Work>,
    /// The kernel can do without directory handles.
    no_opendir: bool,
}

impl Adapter {
    fn here(&self, kind: Kind, body: impl FnOnce(&Server)) {
        self.work.count(kind);
        self.work.here(body);
    }

    fn there(&self, kind: Kind, body: impl FnOnce(&Server) + Send + 'static) {
        self.work.count(kind);
        self.work.there(body);
    }

    /// Here, unless this is the last free reader.
    fn somewhere(&self, kind: Kind, body: impl FnOnce(&Server) + Send + 'static) {
        self.work.count(kind);
        self.work.somewhere(body);
    }
}

macro_rules! reply {
    ($reply:ident, $answer:expr, $value:pat => $send:expr) => {
        match $answer {
            Ok($value) => $send,
            Err(error) => $reply.error(errno(error)),
        }
    };
}

fn send_entry(reply: ReplyEntry, answer: Answer<crate::ops::Entry>) {
    reply!(reply, answer, entry => {
        let attr = entry.attr.map_or(no_such_attr(), |attr| file_attr(&attr));
        reply.entry(&entry.ttl, &attr, GENERATION);
    });
}

fn send_empty(reply: ReplyEmpty, answer: Answer<()>) {
    reply!(reply, answer, () => reply.ok());
}

fn send_opened(reply: ReplyOpen, answer: Answer<Opened>) {
    reply!(reply, answer, opened => reply.opened(FileHandle(opened.fh), fopen(&opened)));
}

fn send_xattr(reply: ReplyXattr, answer: Answer<XattrReply>) {
    reply!(reply, answer, value => match value {
        XattrReply::Length(length) => reply.size(length),
        XattrReply::Bytes(bytes) => reply.data(&bytes),
    });
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_HAS_IOCTL_DIR,
        ];
        // The kernel obeys access control lists only if it checks permissions at all. Then it must
        // leave the umask to us, as a list of the directory takes its place.
        let lists = [InitFlags::FUSE_POSIX_ACL, InitFlags::FUSE_DONT_MASK];
        let lists = lists.iter().filter(|_| self.work.server().is_trusting());
        for flag in wanted.iter().chain(lists) {
            if config.add_capabilities(*flag).is_err() {
                tracing::debug!("the kernel does not offer {flag:?}");
            }
        }
        self.no_opendir = config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // Each of these takes the nearest possible value if ours is refused.
        if let Err(nearest) = config.set_max_write(MAX_WRITE) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(MAX_WRITE) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.here(Kind::Lookup, |server| {
            let answer = server.lookup(&request(req), InodeNo(parent.0), name.as_bytes());
            send_entry(reply, answer);
        });
    }

    fn forget(&self, _: &fuser::Request, inode: INodeNo, count: u64) {
        // The last reference of an unlinked file takes its blocks along.
        self.somewhere(Kind::Forget, move |server| {
            server.forget(InodeNo(inode.0), count);
        });
    }

    fn getattr(&self, _: &fuser::Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.here(Kind::GetAttr, |server| {
            reply!(reply, server.getattr(InodeNo(inode.0)), (attr, ttl) => {
                reply.attr(&ttl, &file_attr(&attr));
            });
        });
    }

    fn setattr(
        &self,
        req: &fuser::Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttr {
            perm: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(from_time),
            mtime: mtime.map(from_time),
            btime: None,
            kill_suid_sgid: false,
        };
        let request = request(req);
        let body = move |server: &Server| {
            let fh = fh.map(|fh| fh.0);
            let answer = server.setattr(&request, InodeNo(inode.0), fh, change);
            reply!(reply, answer, (attr, ttl) => reply.attr(&ttl, &file_attr(&attr)));
        };
        match size {
            Some(_) => self.somewhere(Kind::SetAttr, body),
            None => self.here(Kind::SetAttr, body),
        }
    }

    fn readlink(&self, _: &fuser::Request, inode: INodeNo, reply: ReplyData) {
        self.here(Kind::ReadLink, |server| {
            reply!(reply, server.readlink(InodeNo(inode.0)), target => reply.data(&target));
        });
    }

    fn mknod(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.here(Kind::MkNod, |server| {
            let (parent, name) = (InodeNo(parent.0), name.as_bytes());
            let mode = Mode { mode, umask };
            send_entry(reply, server.mknod(&request(req), parent, name, mode, rdev));
        });
    }

    fn mkdir(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.here(Kind::MkDir, |server| {
            let (parent, name) = (InodeNo(parent.0), name.as_bytes());
            let mode = Mode { mode, umask };
            send_entry(reply, server.mkdir(&request(req), parent, name, mode));
        });
    }

    fn unlink(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.here(Kind::Unlink, |server| {
            let answer = server.unlink(&request(req), InodeNo(parent.0), name.as_bytes());
            send_empty(reply, answer);
        });
    }

    fn rmdir(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.here(Kind::RmDir, |server| {
            let answer = server.rmdir(&request(req), InodeNo(parent.0), name.as_bytes());
            send_empty(reply, answer);
        });
    }

    fn symlink(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.here(Kind::Symlink, |server| {
            let target = target.as_os_str().as_bytes();
            let answer = server.symlink(&request(req), InodeNo(parent.0), name.as_bytes(), target);
            send_entry(reply, answer);
        });
    }

    fn rename(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // May wait for the data of the file that replaces another (P4).
        let request = request(req);
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.somewhere(Kind::Rename, move |server| {
            let from = (InodeNo(parent.0), name.as_bytes());
            let to = (InodeNo(new_parent.0), new_name.as_bytes());
            send_empty(reply, server.rename(&request, from, to, flags.bits()));
        });
    }

    fn link(
        &self,
        req: &fuser::Request,
        inode: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.here(Kind::Link, |server| {
            let (inode, parent) = (InodeNo(inode.0), InodeNo(parent.0));
            let answer = server.link(&request(req), inode, parent, name.as_bytes());
            send_entry(reply, answer);
        });
    }

    fn open(&self, req: &fuser::Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let request = request(req);
        let body = move |server: &Server| {
            send_opened(reply, server.open(&request, InodeNo(inode.0), flags.0));
        };
        match self.work.server().open_waits(&request, flags.0) {
            true => self.there(Kind::Open, body),
            false => self.here(Kind::Open, body),
        }
    }

    fn create(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.here(Kind::Create, |server| {
            let (parent, name) = (InodeNo(parent.0), name.as_bytes());
            let answer = server.create(&request(req), parent, name, Mode { mode, umask }, flags);
            reply!(reply, answer, (entry, opened) => match entry.attr {
                Some(attr) => reply.created(
                    &entry.ttl,
                    &file_attr(&attr),
                    GENERATION,
                    FileHandle(opened.fh),
                    fopen(&opened),
                ),
                None => reply.error(errno(Errno(libc::EIO))),
            });
        });
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.somewhere(Kind::Read, move |server| {
            BUFFER.with_borrow_mut(|buffer| {
                let size = size as usize;
                if buffer.len() < size {
                    buffer.resize(size, 0);
                }
                let answer = server.read(fh.0, offset, &mut buffer[..size]);
                reply!(reply, answer, got => reply.data(&buffer[..got.min(size)]));
            });
        });
    }

    fn write(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let request = request(req);
        let write = Write {
            fh: fh.0,
            offset,
            bytes,
            flags: flags.0,
            kill_suid_sgid: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        if !self.work.server().write_waits(&write) {
            self.here(Kind::Write, |server| {
                reply!(reply, server.write(&request, &write), count => reply.written(count));
            });
            return;
        }
        // The bytes are in the buffer of this thread, which goes on to the next request.
        let bytes = bytes.to_vec();
        let (flags, kill_suid_sgid) = (write.flags, write.kill_suid_sgid);
        self.there(Kind::Write, move |server| {
            let write = Write { fh: fh.0, offset, bytes: &bytes, flags, kill_suid_sgid };
            reply!(reply, server.write(&request, &write), count => reply.written(count));
        });
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Locks are the kernel's and close promises nothing (P7), so the kernel need not ask again:
        // after this answer it still writes back mapped pages on close, but sends no more of these.
        self.work.count(Kind::Flush);
        reply.error(errno(Errno(libc::ENOSYS)));
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.somewhere(Kind::Release, move |server| {
            server.release(fh.0);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.there(Kind::Fsync, move |server| {
            send_empty(reply, server.fsync(fh.0, data_only));
        });
    }

    fn opendir(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // There are no directory handles, and after this answer the kernel never asks again.
        self.work.count(Kind::OpenDir);
        match self.no_opendir {
            true => reply.error(errno(Errno(libc::ENOSYS))),
            false => reply.opened(FileHandle(0), fuser::FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        dir: INodeNo,
        _: FileHandle,
        cookie: u64,
        reply: ReplyDirectory,
    ) {
        self.here(Kind::ReadDir, |server| {
            let mut names = Names(reply);
            let answer = server.readdir(InodeNo(dir.0), cookie, false, &mut names);
            let reply = names.0;
            reply!(reply, answer, () => reply.ok());
        });
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        dir: INodeNo,
        _: FileHandle,
        cookie: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.here(Kind::ReadDirPlus, |server| {
            let mut names = NamesPlus(reply);
            let answer = server.readdir(InodeNo(dir.0), cookie, true, &mut names);
            let reply = names.0;
            reply!(reply, answer, () => reply.ok());
        });
    }

    fn releasedir(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.work.count(Kind::ReleaseDir);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _: &fuser::Request,
        dir: INodeNo,
        _: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.there(Kind::FsyncDir, move |server| {
            send_empty(reply, server.fsyncdir(InodeNo(dir.0)));
        });
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        self.here(Kind::StatFs, |server| {
            reply!(reply, server.statfs(), space => reply.statfs(
                space.blocks,
                space.blocks_free,
                space.blocks_available,
                space.inodes,
                space.inodes_free,
                space.block_size,
                space.name_max,
                space.block_size,
            ));
        });
    }

    fn setxattr(
        &self,
        req: &fuser::Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (request, inode) = (request(req), InodeNo(inode.0));
        if self.work.server().setxattr_waits(name.as_bytes()) {
            let (name, value) = (name.to_owned(), value.to_vec());
            self.there(Kind::SetXattr, move |server| {
                let answer = server.setxattr(&request, inode, name.as_bytes(), &value, flags);
                send_empty(reply, answer);
            });
        } else {
            self.here(Kind::SetXattr, |server| {
                let answer = server.setxattr(&request, inode, name.as_bytes(), value, flags);
                send_empty(reply, answer);
            });
        }
    }

    fn getxattr(
        &self,
        req: &fuser::Request,
        inode: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.here(Kind::GetXattr, |server| {
            let answer = server.getxattr(&request(req), InodeNo(inode.0), name.as_bytes(), size);
            send_xattr(reply, answer);
        });
    }

    fn listxattr(&self, req: &fuser::Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.here(Kind::ListXattr, |server| {
            let answer = server.listxattr(&request(req), InodeNo(inode.0), size);
            send_xattr(reply, answer);
        });
    }

    fn removexattr(&self, req: &fuser::Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.here(Kind::RemoveXattr, |server| {
            let answer = server.removexattr(&request(req), InodeNo(inode.0), name.as_bytes());
            send_empty(reply, answer);
        });
    }

    fn access(&self, req: &fuser::Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.here(Kind::Access, |server| {
            let answer = server.access(&request(req), InodeNo(inode.0), mask.bits());
            send_empty(reply, answer);
        });
    }

    fn bmap(&self, _: &fuser::Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(errno(Errno(libc::EOPNOTSUPP)));
    }

    fn ioctl(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        bytes: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.work.count(Kind::Ioctl);
        match command {
            // No flags are set: as many zeros as are wanted.
            FS_IOC_GETFLAGS | FS_IOC_FSGETXATTR => {
                reply.ioctl(0, &[0; 32][..(out_size as usize).min(32)]);
            }
            FS_IOC_SETFLAGS if bytes.iter().all(|byte| *byte == 0) => reply.ioctl(0, &[]),
            FS_IOC_SETFLAGS => reply.error(errno(Errno(libc::EOPNOTSUPP))),
            _ => reply.error(errno(Errno(libc::ENOTTY))),
        }
    }

    fn poll(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Regular files are always ready; the kernel need not ask again.
        reply.error(errno(Errno(libc::ENOSYS)));
    }

    fn fallocate(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let request = request(req);
        self.there(Kind::Fallocate, move |server| {
            send_empty(reply, server.fallocate(&request, fh.0, mode, offset, len));
        });
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.here(Kind::Seek, |server| {
            reply!(reply, server.seek(fh.0, offset, whence), found => reply.offset(found));
        });
    }

    fn copy_file_range(
        &self,
        req: &fuser::Request,
        _: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let request = request(req);
        self.there(Kind::CopyRange, move |server| {
            let copy = CopyRange { fh_in: fh_in.0, offset_in, fh_out: fh_out.0, offset_out, len };
            reply!(reply, server.copy_range(&request, &copy), count => reply.written(count));
        });
    }
}
