//! A request becomes a call of the server that answers for its inode, and the outcome of that call.

use holdfast_base::InodeNo;
use holdfast_wire::Op;
use holdfast_wire::abi::{
    self, OPEN_KILL_SUIDGID, SETXATTR_ACL_KILL_SGID, WRITE_CACHE, WRITE_KILL_SUIDGID, opcode,
};
use holdfast_wire::ask::ASK;

use super::answer::Out;
use super::convert::{self, set_attr};
use super::fsync::fsync;
use super::kind::kind;
use crate::interface::{
    Answer, CopyRange, Errno, FileId, Mode, Opened, Request, Write, XattrReply,
};
use crate::server::{CHANGE_XATTR, FlagsIoctl, REMOUNT_XATTR, Server};

const FITRIM: u32 = 0xc018_5879;

/// The answer, with a line in the log if it is EIO. What makes something durable has had its line.
pub(super) fn told<T>(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
    answer: Answer<T>,
) -> Answer<T> {
    if let Err(Errno(libc::EIO)) = answer
        && !matches!(op, Op::Fsync(_) | Op::Fsyncdir)
        && let Some(kind) = kind(op)
    {
        server.fails(kind.name(), InodeNo(header.nodeid));
    }
    answer
}

/// One line for each kind of request, and no request without one: what takes more is a function below.
pub(super) fn act(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Answer<Out> {
    let request = &convert::request(header);
    let inode = InodeNo(header.nodeid);
    let done = |()| Out::Nothing;
    match *op {
        Op::Lookup { name } => server.lookup(request, inode, name).map(Out::Entry),
        Op::Getattr => server.getattr(inode).map(|(attr, ttl)| Out::Attr(attr, ttl)),
        Op::Statx(_) => server.getattr(inode).map(|(attr, ttl)| Out::Statx(attr, ttl)),
        Op::Setattr(ref how) => setattr(server, request, inode, how),
        Op::Readlink => server.readlink(inode).map(Out::Bytes),
        Op::Symlink { name, target } => {
            server.symlink(request, inode, name, target).map(Out::Entry)
        }
        Op::Mknod { ref new, name } => mknod(server, request, inode, new, name),
        Op::Mkdir { ref new, name } => mkdir(server, request, inode, new, name),
        Op::Unlink { name } => server.unlink(request, inode, name).map(done),
        Op::Rmdir { name } => server.rmdir(request, inode, name).map(done),
        Op::Rename { how, name, new_name } => {
            let to = (InodeNo(how.newdir), new_name);
            server.rename(request, (inode, name), to, how.flags).map(done)
        }
        Op::Link { old, name } => server.link(request, InodeNo(old), inode, name).map(Out::Entry),
        Op::Open(ref how) => open(server, request, inode, how),
        Op::Create { ref how, name } => create(server, request, inode, how, name),
        Op::Tmpfile(ref how) => tmpfile(server, request, inode, how),
        Op::Write { ref how, bytes } => {
            server.write(request, &write(inode, how, bytes)).map(Out::Written)
        }
        Op::Release(release) => {
            server.release(release.fh);
            Ok(Out::Nothing)
        }
        Op::Fsync(_) | Op::Fsyncdir => {
            fsync(server, header, op).ok_or(Errno(libc::EIO))?.call(server).map(done)
        }
        Op::Statfs => server.statfs().map(Out::StatFs),
        Op::Setxattr { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Removexattr { .. } => xattr(server, request, inode, op),
        Op::Access { mask } => server.access(request, inode, mask as i32).map(done),
        Op::Fallocate(ref how) => fallocate(server, request, inode, how),
        Op::Lseek(ref how) => seek(server, inode, how),
        Op::CopyFileRange(ref how) => copy_range(server, request, inode, how),
        Op::Ioctl { how, bytes } if how.cmd == ASK => {
            server.ask(request, inode, bytes).map(Out::IoctlBytes)
        }
        Op::Ioctl { how, bytes } if how.cmd == FITRIM => {
            server.trim(request, header.unique, bytes).map(Out::IoctlBytes)
        }
        Op::Ioctl { how, bytes } => {
            let of = FlagsIoctl::of(how.cmd).ok_or(Errno(libc::ENOTTY))?;
            let done = server.flags_ioctl(request, inode, of, (bytes, how.out_size));
            done.map(Out::IoctlBytes)
        }
        // There are no directory handles, and after ENOSYS the kernel never asks again; one that cannot do
        // without them gets a number that means nothing.
        Op::Opendir if server.kernel_needs_opendir() => {
            Ok(Out::Opened(Opened { fh: 0, direct: false, keep_cache: true }))
        }
        Op::Releasedir | Op::Destroy => Ok(Out::Nothing),
        Op::Other(opcode::BMAP) => Err(Errno(libc::EOPNOTSUPP)),
        // Never again: locks are the kernel's and close promises nothing (P7), so no flush; regular files are
        // always ready, so no poll. What no kernel of today sends through this mount is refused the same way.
        Op::Flush | Op::Opendir | Op::Syncfs | Op::Other(_) => Err(Errno(libc::ENOSYS)),
        Op::Init(_) | Op::Interrupt(_) | Op::Forget(_) | Op::BatchForget(_) => {
            Err(Errno(libc::EIO))
        }
        Op::Read(_) | Op::Readdir(_) | Op::Readdirplus(_) => Err(Errno(libc::EIO)),
    }
}

fn setattr(
    server: &Server,
    request: &Request,
    inode: InodeNo,
    how: &abi::SetattrIn,
) -> Answer<Out> {
    let (change, fh) = set_attr(how);
    server.setattr(request, inode, fh, change).map(|(attr, ttl)| Out::Attr(attr, ttl))
}

fn mknod(
    server: &Server,
    request: &Request,
    dir: InodeNo,
    new: &abi::MknodIn,
    name: &[u8],
) -> Answer<Out> {
    let mode = Mode { mode: new.mode, umask: new.umask };
    server.mknod(request, dir, name, mode, new.rdev).map(Out::Entry)
}

fn mkdir(
    server: &Server,
    request: &Request,
    dir: InodeNo,
    new: &abi::MkdirIn,
    name: &[u8],
) -> Answer<Out> {
    let mode = Mode { mode: new.mode, umask: new.umask };
    server.mkdir(request, dir, name, mode).map(Out::Entry)
}

fn open(server: &Server, request: &Request, inode: InodeNo, how: &abi::OpenIn) -> Answer<Out> {
    let kill_set_id = how.open_flags & OPEN_KILL_SUIDGID != 0;
    server.open(request, inode, how.flags as i32, kill_set_id).map(Out::Opened)
}

fn create(
    server: &Server,
    request: &Request,
    dir: InodeNo,
    how: &abi::CreateIn,
    name: &[u8],
) -> Answer<Out> {
    let mode = Mode { mode: how.mode, umask: how.umask };
    let (flags, kill_set_id) = (how.flags as i32, how.open_flags & OPEN_KILL_SUIDGID != 0);
    let answer = server.create(request, dir, name, mode, flags, kill_set_id);
    answer.map(|(entry, opened)| Out::Created(entry, opened))
}

fn tmpfile(server: &Server, request: &Request, dir: InodeNo, how: &abi::CreateIn) -> Answer<Out> {
    let mode = Mode { mode: how.mode, umask: how.umask };
    let answer = server.tmpfile(request, dir, mode, how.flags as i32);
    answer.map(|(entry, opened)| Out::Created(entry, opened))
}

/// A request about an extended attribute.
fn xattr(server: &Server, request: &Request, inode: InodeNo, op: &Op<'_>) -> Answer<Out> {
    let reply = |reply| match reply {
        XattrReply::Length(length) => Out::Length(length),
        XattrReply::Bytes(bytes) => Out::Bytes(bytes),
    };
    let done = |()| Out::Nothing;
    let has_xattrs = server.has_xattrs();
    match *op {
        // What the kernel says of a remount must come through, and what it lets through before a command.
        Op::Setxattr { name, .. }
            if !has_xattrs && name != REMOUNT_XATTR && name != CHANGE_XATTR =>
        {
            Err(Errno(libc::EOPNOTSUPP))
        }
        Op::Setxattr { how, name, value } => {
            let kill_sgid = how.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
            server.setxattr(request, inode, name, value, how.flags as i32, kill_sgid).map(done)
        }
        // The kernel never asks for one again.
        _ if !has_xattrs => Err(Errno(libc::ENOSYS)),
        Op::Getxattr { size, name } => server.getxattr(request, inode, name, size).map(reply),
        Op::Listxattr { size } => server.listxattr(request, inode, size).map(reply),
        Op::Removexattr { name } => server.removexattr(request, inode, name).map(done),
        _ => Err(Errno(libc::EIO)),
    }
}

fn fallocate(
    server: &Server,
    request: &Request,
    inode: InodeNo,
    how: &abi::FallocateIn,
) -> Answer<Out> {
    let (file, mode) = (file(inode, how.fh, 0), how.mode as i32);
    server.fallocate(request, file, mode, how.offset, how.length).map(|()| Out::Nothing)
}

fn seek(server: &Server, inode: InodeNo, how: &abi::LseekIn) -> Answer<Out> {
    let file = file(inode, how.fh, 0);
    server.seek(file, how.offset as i64, how.whence as i32).map(Out::Offset)
}

fn copy_range(
    server: &Server,
    request: &Request,
    inode: InodeNo,
    how: &abi::CopyFileRangeIn,
) -> Answer<Out> {
    let copy = CopyRange {
        from: file(inode, how.fh_in, 0),
        offset_in: how.off_in,
        to: file(InodeNo(how.nodeid_out), how.fh_out, 0),
        offset_out: how.off_out,
        len: how.len,
    };
    server.copy_range(request, &copy).map(Out::Written)
}

pub(super) fn file(inode: InodeNo, fh: u64, flags: u32) -> FileId {
    FileId { inode, fh, flags: flags as i32 }
}

fn write<'a>(inode: InodeNo, how: &abi::WriteIn, bytes: &'a [u8]) -> Write<'a> {
    Write {
        file: file(inode, how.fh, how.flags),
        offset: how.offset,
        bytes,
        kill_suid_sgid: how.write_flags & WRITE_KILL_SUIDGID != 0,
        is_cached: how.write_flags & WRITE_CACHE != 0,
    }
}
