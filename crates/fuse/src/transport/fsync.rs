//! Requests to make something durable, whose callers may be answered later.

use holdfast_base::InodeNo;
use holdfast_wire::Op;
use holdfast_wire::abi::{self, FSYNC_FDATASYNC};

use crate::interface::{Answer, Completion, FileId};
use crate::server::Server;

/// A request to make something durable.
pub(super) enum Fsync {
    File(FileId, bool),
    Directory(InodeNo),
    /// What lies in a snapshot, or the directory of snapshots, always is.
    Durable,
}

/// `op`, if it asks for that.
pub(super) fn fsync(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Option<Fsync> {
    let inode = InodeNo(header.nodeid);
    match op {
        Op::Fsync(_) | Op::Fsyncdir if server.lies_in_snapdir(inode) => Some(Fsync::Durable),
        Op::Fsync(how) => {
            let data_only = how.fsync_flags & FSYNC_FDATASYNC != 0;
            Some(Fsync::File(FileId { inode, fh: how.fh, flags: 0 }, data_only))
        }
        Op::Fsyncdir => Some(Fsync::Directory(inode)),
        _ => None,
    }
}

impl Fsync {
    /// Returns when it is durable.
    pub(super) fn call(self, server: &Server) -> Answer<()> {
        match self {
            Fsync::File(file, data_only) => server.fsync(file, data_only),
            Fsync::Directory(inode) => server.fsyncdir(inode),
            Fsync::Durable => Ok(()),
        }
    }

    /// Runs the completion callback `then` when it is durable: now, or on another thread.
    pub(super) fn call_then(self, server: &Server, then: impl Completion) {
        match self {
            Fsync::File(file, data_only) => server.fsync_then(file, data_only, then),
            Fsync::Directory(inode) => server.fsyncdir_then(inode, then),
            Fsync::Durable => then(Ok(())),
        }
    }
}
