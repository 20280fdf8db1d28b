//! Mounts with `sync` or `dirsync`: a change is durable before it is answered.
//!
//! On a mount with `sync` the kernel itself makes data durable that goes through the page cache, by an fsync after each
//! write; that finds nothing left to do.

use holdfast_base::InodeNo;
use holdfast_wire::{Op, abi};

use super::answer::Out;
use crate::ops::Answer;
use crate::server::Server;

/// Makes durable what `op` has changed, if that is asked for, and answers `done`.
pub(super) fn sync(server: &Server, header: &abi::InHeader, op: &Op<'_>, done: Out) -> Answer<Out> {
    let Some((inode, of_names)) = changed(header, op) else { return Ok(done) };
    if !server.is_synchronous(of_names) {
        return Ok(done);
    }
    match server.sync_written(inode) {
        Ok(()) => Ok(done),
        Err(error) => {
            give_back(server, &done);
            Err(error)
        }
    }
}

/// An inode that was changed last by `op`, and whether that changed names. A rename changes both directories at once.
fn changed(header: &abi::InHeader, op: &Op<'_>) -> Option<(InodeNo, bool)> {
    let inode = InodeNo(header.nodeid);
    Some(match op {
        Op::Symlink { .. }
        | Op::Mknod { .. }
        | Op::Mkdir { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Create { .. } => (inode, true),
        Op::Setattr(_)
        | Op::Setxattr { .. }
        | Op::Removexattr { .. }
        | Op::Write { .. }
        | Op::Fallocate(_) => (inode, false),
        Op::CopyFileRange(how) => (InodeNo(how.nodeid_out), false),
        _ => return None,
    })
}

/// The kernel gets an error instead of what it was to get a reference to.
fn give_back(server: &Server, done: &Out) {
    let entry = match done {
        Out::Entry(entry) => entry,
        Out::Created(entry, opened) => {
            server.release(opened.fh);
            entry
        }
        _ => return,
    };
    if let Some(attr) = &entry.attr {
        server.forget(attr.inode, 1);
    }
}
