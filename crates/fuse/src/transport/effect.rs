//! What a request changes, in one table: what mounts with `sync` and `handover` keep before the answer, what may be carried out only
//! once, and what a panic leaves half done.

use holdfast_base::InodeNo;
use holdfast_wire::{Op, abi};

use crate::server::FlagsIoctl;

/// What becomes of the volume by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that becomes durable. An access time is no more than a note.
    Looks,
    /// Nothing that its caller is promised to find again: what is let go of may be removed with it, or what was changed before becomes
    /// durable.
    Settles,
    Changes(Change),
}

/// What is another one behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// An inode that was changed last, which stands for all; `None`: the one that is made.
    pub(super) inode: Option<InodeNo>,
    /// Names were changed.
    pub(super) of_names: bool,
    /// It can be carried out only once. All else gives what it gave before: the same bytes at the same place, the same permissions.
    pub(super) is_once: bool,
}

/// What `op` does. A rename changes both directories at once.
pub(super) fn effect(header: &abi::InHeader, op: &Op<'_>) -> Effect {
    let inode = Some(InodeNo(header.nodeid));
    let change = Change { inode, of_names: false, is_once: false };
    match op {
        Op::Symlink { .. }
        | Op::Mknod { .. }
        | Op::Mkdir { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::Link { .. } => Effect::Changes(Change { of_names: true, is_once: true, ..change }),
        // Where a process may die, files are made by MKNOD.
        Op::Create { .. } => Effect::Changes(Change { of_names: true, ..change }),
        // One that is made twice goes when the volume is left.
        Op::Tmpfile(_) => Effect::Changes(Change { inode: None, ..change }),
        Op::Setxattr { .. } | Op::Removexattr { .. } => {
            Effect::Changes(Change { is_once: true, ..change })
        }
        // The kernel lets no fallocate(2) through that moves data.
        Op::Setattr(_) | Op::Write { .. } | Op::Fallocate(_) => Effect::Changes(change),
        Op::Open(_) if is_cut(op) => Effect::Changes(change),
        Op::CopyFileRange(how) => {
            Effect::Changes(Change { inode: Some(InodeNo(how.nodeid_out)), ..change })
        }
        Op::Ioctl { how, .. } if FlagsIoctl::of(how.cmd).is_some_and(|of| of.sets) => {
            Effect::Changes(change)
        }
        Op::Lookup { .. }
        | Op::Getattr
        | Op::Statx(_)
        | Op::Readlink
        | Op::Open(_)
        | Op::Read(_)
        | Op::Statfs
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Opendir
        | Op::Readdir(_)
        | Op::Readdirplus(_)
        | Op::Access { .. }
        | Op::Lseek(_)
        | Op::Ioctl { .. } => Effect::Looks,
        Op::Forget(_)
        | Op::BatchForget(_)
        | Op::Release(_)
        | Op::Releasedir
        | Op::Flush
        | Op::Fsync(_)
        | Op::Fsyncdir
        | Op::Syncfs
        | Op::Init(_)
        | Op::Interrupt(_)
        | Op::Destroy
        | Op::Other(_) => Effect::Settles,
    }
}

/// Whether O_TRUNC comes with it.
pub(super) fn is_cut(op: &Op<'_>) -> bool {
    let flags = match op {
        Op::Open(how) => how.flags,
        Op::Create { how, .. } => how.flags,
        _ => return false,
    };
    flags.cast_signed() & libc::O_TRUNC != 0
}

#[cfg(test)]
mod tests;
