//! Requests about `.snapshots` and what lies in it: what answers them, and under which numbers.
//!
//! A request names one inode, in its header, and some name another one. Where both are of one branch nothing is different. Where one
//! lies in a snapshot, nothing can be linked or moved (EXDEV, EROFS), so that such requests never come to a server.

use holdfast_base::InodeNo;
use holdfast_base::switch::SnapDir;
use holdfast_posix::{DirEntry, FileType};
use holdfast_wire::Op;
use holdfast_wire::abi;
use holdfast_wire::ask::ASK;
use holdfast_wire::dirents::Dirents;

use super::act::{act, file, told};
use super::answer::Out;
use super::convert::{self, Inside, Names, node_inside};
use super::stale;
use crate::interface::{Answer, DirSink, Entry, Errno};
use crate::server::{FlagsIoctl, SNAPSHOT_XATTR, STATS_XATTR, Server};
use crate::snapdir::NAME;
use crate::snapdir::number::{self, Node, SHOWN_DIRECTORY, Slot};

/// Where to go on behind the directory in a listing of the root, whose last entry it is: no entry of a directory has this place.
const BEHIND: u64 = i64::MAX as u64;
/// Attributes of the mount, not of a file, begin so.
const OF_MOUNT: &[u8] = b"system.holdfast.";

/// The answer, if the request concerns the directory or what lies in it.
pub(super) fn answer(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Option<Answer<Out>> {
    server.snapdir()?;
    match number::node(header.nodeid) {
        Node::Live(inode) => live(server, header, inode, op),
        Node::Directory => {
            Some(told(server, header, op, stale::judged(op, directory(server, header, op))))
        }
        Node::In(slot, inode) => Some(inside(server, header, op, slot, inode)),
    }
}

/// Takes back references to what lies in a snapshot; false: it does not. One that was closed meanwhile has forgotten them itself.
pub(super) fn forget(server: &Server, number: u64, count: u64) -> bool {
    if server.snapdir().is_none() {
        return false;
    }
    match number::node(number) {
        Node::Live(_) => return false,
        Node::Directory => {}
        Node::In(slot, inode) => server.forget_in_snapshot(slot, inode, count),
    }
    true
}

/// Fills `out`, if the request concerns the directory or what lies in it.
pub(super) fn fill(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
    out: &mut [u8],
) -> Option<Answer<usize>> {
    let shown = server.snapdir()?.shown;
    match number::node(header.nodeid) {
        Node::Live(InodeNo::ROOT) if shown == SnapDir::Visible => {
            list(server, op, out, None, |offset, plus, names| {
                if offset == BEHIND {
                    return Ok(());
                }
                server.expect_to_list(&convert::request(header), InodeNo::ROOT)?;
                server.readdir(InodeNo::ROOT, offset, plus, names)?;
                if !names.is_full() && !server.is_snapdir_hidden_by_an_entry()? {
                    let (inode, file_type) = (SHOWN_DIRECTORY, FileType::Directory);
                    names.add(&DirEntry { inode, file_type, name: NAME, cookie: BEHIND }, None);
                }
                Ok(())
            })
        }
        Node::Live(_) => None,
        Node::Directory => {
            let done = list(server, op, out, None, |offset, _, names| {
                server.list_snapshots(offset, names)
            });
            Some(done.unwrap_or(Err(Errno(libc::EISDIR))))
        }
        Node::In(slot, inode) => Some(server.snapshot(slot).and_then(|of| {
            let header = abi::InHeader { nodeid: inode.0, ..*header };
            let done = match op {
                Op::Read(how) => {
                    let most = out.len().min(how.size as usize);
                    of.read(file(inode, how.fh, how.flags), how.offset, &mut out[..most])
                }
                op => {
                    let inside = Inside { slot, snapshot: of.tree_number()?, dir: inode };
                    list(server, op, out, Some(inside), |offset, plus, names| {
                        of.expect_to_list(&convert::request(&header), inode)?;
                        of.readdir(inode, offset, plus, names)
                    })
                    .unwrap_or(Err(Errno(libc::EIO)))
                }
            };
            told(&of, &header, op, stale::judged(op, done))
        })),
    }
}

/// Lists a directory; `None` if that is not what is asked.
fn list(
    server: &Server,
    op: &Op<'_>,
    out: &mut [u8],
    of: Option<Inside>,
    entries: impl FnOnce(u64, bool, &mut Names<'_>) -> Answer<()>,
) -> Option<Answer<usize>> {
    let (how, plus) = match op {
        Op::Readdir(how) => (how, false),
        Op::Readdirplus(how) => (how, true),
        _ => return None,
    };
    let most = out.len().min(how.size as usize);
    let mut names = Names::of(Dirents::new(&mut out[..most]), plus, server, of);
    let done = entries(how.offset, plus, &mut names).and_then(|()| names.used());
    if let (Some(of), true) = (of, done.is_ok()) {
        server.refer_to_snapshot(of.slot, names.referred());
    }
    Some(done)
}

/// A request about an inode of the branch, which concerns the directory only by its name, or by another inode.
fn live(
    server: &Server,
    header: &abi::InHeader,
    inode: InodeNo,
    op: &Op<'_>,
) -> Option<Answer<Out>> {
    let is_directory = |dir: InodeNo, name: &[u8]| dir == InodeNo::ROOT && name == NAME;
    let is_live = |number| matches!(number::node(number), Node::Live(_));
    let refused = match *op {
        Op::Link { old, .. } if !is_live(old) => return Some(Err(Errno(libc::EXDEV))),
        Op::Rename { how, .. } if !is_live(how.newdir) => return Some(Err(Errno(libc::EXDEV))),
        Op::CopyFileRange(how) if !is_live(how.nodeid_out) => {
            return Some(Err(Errno(libc::EROFS)));
        }
        Op::Lookup { name } if is_directory(inode, name) => {
            return match server.is_snapdir_hidden_by_an_entry() {
                Ok(true) => None,
                Ok(false) => Some(server.snapdir_entry().map(Out::Entry)),
                Err(error) => Some(told(server, header, op, Err(error))),
            };
        }
        Op::Mkdir { name, .. }
        | Op::Mknod { name, .. }
        | Op::Symlink { name, .. }
        | Op::Create { name, .. }
        | Op::Link { name, .. }
            if is_directory(inode, name) =>
        {
            libc::EEXIST
        }
        Op::Unlink { name } if is_directory(inode, name) => libc::EISDIR,
        Op::Rmdir { name } if is_directory(inode, name) => libc::EBUSY,
        Op::Rename { how, name, new_name }
            if is_directory(inode, name) || is_directory(InodeNo(how.newdir), new_name) =>
        {
            libc::EBUSY
        }
        _ => return None,
    };
    match server.is_snapdir_hidden_by_an_entry() {
        Ok(true) => None,
        Ok(false) => Some(Err(Errno(refused))),
        Err(error) => Some(Err(error)),
    }
}

/// A request about the directory.
fn directory(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Answer<Out> {
    if is_of_mount(op) {
        return of_mount(server, header, op);
    }
    let request = &convert::request(header);
    match *op {
        Op::Lookup { name: b"." } => server.snapdir_entry().map(Out::Entry),
        Op::Lookup { name: b".." } => server.lookup(request, InodeNo::ROOT, b".").map(Out::Entry),
        Op::Lookup { name } => server.lookup_snapshot(name).map(Out::Entry),
        Op::Getattr => server.snapdir_attr().map(|(attr, ttl)| Out::Attr(attr, ttl)),
        Op::Statx(_) => server.snapdir_attr().map(|(attr, ttl)| Out::Statx(attr, ttl)),
        Op::Access { mask } => server.access_snapdir(request, mask as i32).map(|()| Out::Nothing),
        Op::Mkdir { name, .. } => server.take_snapshot(request, name).map(Out::Entry),
        Op::Rmdir { name } => server.delete_snapshot(request, name).map(|()| Out::Nothing),
        Op::Unlink { .. } => Err(Errno(libc::EISDIR)),
        Op::Rename { how, name, new_name } => match number::node(how.newdir) {
            Node::Directory => {
                server.rename_snapshot(request, name, new_name, how.flags).map(|()| Out::Nothing)
            }
            _ => Err(Errno(libc::EXDEV)),
        },
        Op::Link { old, .. } if number::node(old) != Node::Directory => Err(Errno(libc::EXDEV)),
        // By that it is asked only of which snapshot it is.
        Op::Getxattr { .. } | Op::Ioctl { .. } => Err(Errno(libc::ENODATA)),
        Op::Listxattr { size: 0 } => Ok(Out::Length(0)),
        Op::Listxattr { .. } => Ok(Out::Bytes(Vec::new())),
        // As of all directories.
        Op::Opendir | Op::Releasedir => act(server, header, op),
        Op::Fsync(_) | Op::Fsyncdir => Ok(Out::Nothing),
        Op::Flush | Op::Syncfs | Op::Other(_) => act(server, header, op),
        _ => Err(Errno(libc::EPERM)),
    }
}

/// A request about what lies in a snapshot.
fn inside(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
    slot: Slot,
    inode: InodeNo,
) -> Answer<Out> {
    if is_of_mount(op) {
        return of_mount(server, header, op);
    }
    match *op {
        // Of the mount.
        Op::Opendir | Op::Flush | Op::Syncfs => return act(server, header, op),
        // Also of a file that the kernel has opened itself.
        Op::Write { .. } | Op::Fallocate(_) => return Err(Errno(libc::EROFS)),
        Op::Lookup { name: b".." } if inode == InodeNo::ROOT => {
            return server.snapdir_entry().map(Out::Entry);
        }
        Op::Link { old, .. } => {
            return Err(Errno(match number::node(old) {
                Node::In(other, _) if other == slot => libc::EROFS,
                _ => libc::EXDEV,
            }));
        }
        Op::Rename { how, .. } => {
            return Err(Errno(match number::node(how.newdir) {
                Node::In(other, _) if other == slot => libc::EROFS,
                _ => libc::EXDEV,
            }));
        }
        Op::CopyFileRange(how) => {
            return Err(Errno(match number::node(how.nodeid_out) {
                Node::Live(_) => libc::EXDEV,
                Node::Directory | Node::In(..) => libc::EROFS,
            }));
        }
        _ => {}
    }
    let of = server.snapshot(slot)?;
    let header = abi::InHeader { nodeid: inode.0, ..*header };
    let done = stale::judged(op, act(&of, &header, op));
    let out = told(&of, &header, op, done).and_then(|out| numbered(out, server, &of, slot))?;
    if let Out::Entry(Entry { attr: Some(_), .. }) | Out::Created(Entry { attr: Some(_), .. }, _) =
        &out
    {
        server.refer_to_snapshot(slot, 1);
    }
    Ok(out)
}

/// Whether it asks the mount, wherever in it.
fn is_of_mount(op: &Op<'_>) -> bool {
    match op {
        // Of which snapshot something is says the server of that.
        Op::Ioctl { how, bytes } if how.cmd == ASK => !Server::asks_for_snapshot(bytes),
        Op::Getxattr { name, .. } if *name == SNAPSHOT_XATTR => false,
        Op::Ioctl { how, .. } if FlagsIoctl::of(how.cmd).is_some() => false,
        Op::Statfs | Op::Ioctl { .. } => true,
        Op::Getxattr { name, .. } | Op::Setxattr { name, .. } => {
            name.starts_with(OF_MOUNT) || *name == STATS_XATTR
        }
        _ => false,
    }
}

fn of_mount(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Answer<Out> {
    act(server, &abi::InHeader { nodeid: InodeNo::ROOT.0, ..*header }, op)
}

/// An answer of the server of a snapshot, with the numbers that its inodes have in the mount.
fn numbered(mut out: Out, mount: &Server, of: &Server, slot: Slot) -> Answer<Out> {
    match &mut out {
        Out::Entry(entry) | Out::Created(entry, _) => {
            if let Some(attr) = &mut entry.attr {
                entry.node = node_inside(slot, of.tree_number()?, attr.inode)?;
                attr.inode = mount.shown_in_snapshot(slot, attr.inode)?;
            }
        }
        Out::Attr(attr, _) | Out::Statx(attr, _) => {
            attr.inode = mount.shown_in_snapshot(slot, attr.inode)?;
        }
        _ => {}
    }
    Ok(out)
}
