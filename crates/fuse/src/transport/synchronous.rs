//! Mounts with `sync` or `dirsync`: a change is durable before it is answered. With `handover` the host has it.
//!
//! On a mount with `sync` the kernel itself makes data durable that goes through the page cache, by an fsync after each
//! write; that finds nothing left to do.

use holdfast_base::InodeNo;
use holdfast_wire::{Op, abi};

use super::answer::Out;
use crate::interface::Answer;
use crate::server::Server;

/// Makes durable what `op` has changed, or gives it to the host, if that is asked for, and answers `done`.
pub(super) fn sync(server: &Server, header: &abi::InHeader, op: &Op<'_>, done: Out) -> Answer<Out> {
    let Some((inode, of_names)) = changed(header, op) else { return Ok(done) };
    let kept = match (server.is_synchronous(of_names), server.hands_over()) {
        (true, _) => server.sync_written(inode),
        (false, true) => server.hand_over_written(inode),
        (false, false) => return Ok(done),
    };
    match kept {
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
        // O_TRUNC comes with it.
        Op::Open(how) if how.flags.cast_signed() & libc::O_TRUNC != 0 => (inode, false),
        Op::CopyFileRange(how) => (InodeNo(how.nodeid_out), false),
        _ => return None,
    })
}

/// The kernel gets an error instead of what it was to get a reference to.
fn give_back(server: &Server, done: &Out) {
    let entry = match done {
        Out::Entry(entry) => entry,
        Out::Opened(opened) => {
            server.release(opened.fh);
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::super::dispatch::call;
    use super::*;
    use crate::server::fresh;
    use crate::statistics::Operation;

    /// Creates of directories, and how often creates and fsyncs were counted: as operations, and by what they cost.
    fn counted(is_synchronous: bool) -> [u64; 3] {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        server.set_synchronous(false, is_synchronous);
        let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
        for name in [b"1", b"2", b"3", b"4"] {
            let op = Op::Mkdir { new: abi::MkdirIn { mode: 0o755, umask: 0 }, name };
            call(&server, &header, &op).unwrap().unwrap();
            assert_eq!(fs.is_durable(), is_synchronous);
        }
        let operations = server.requests().operations();
        let count = |kind| operations.latency(kind).count();
        let counted =
            [count(Operation::Create), count(Operation::Fsync), operations.fsyncs.count.get()];
        // What comes next on this thread is timed by itself.
        server.set_synchronous(false, false);
        server.fsyncdir(InodeNo::ROOT).unwrap();
        server.getattr(InodeNo::ROOT).unwrap();
        assert_eq!((count(Operation::Fsync), count(Operation::Stat)), (counted[1] + 1, 1));
        server.close();
        counted
    }

    #[test]
    fn a_file_that_is_cut_when_it_is_opened_is_durable() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
        let new = abi::MknodIn { mode: libc::S_IFREG | 0o644, ..Default::default() };
        let Ok(Out::Entry(made)) = call(&server, &header, &Op::Mknod { new, name: b"f" }).unwrap()
        else {
            panic!("no entry");
        };
        let nodeid = made.attr.unwrap().inode.0;
        let header = abi::InHeader { nodeid, ..Default::default() };
        let open = |flags: i32| {
            let how = abi::OpenIn { flags: flags.cast_unsigned(), open_flags: 0 };
            let opened = call(&server, &header, &Op::Open(how)).unwrap().unwrap();
            let Out::Opened(opened) = opened else { panic!("not opened") };
            server.release(opened.fh);
        };
        server.set_synchronous(true, true);
        open(libc::O_WRONLY);
        assert!(!fs.is_durable(), "nothing was asked to be");
        open(libc::O_WRONLY | libc::O_TRUNC);
        assert!(fs.is_durable());
        server.close();
    }

    #[test]
    fn a_synchronous_change_costs_a_flush_and_is_no_fsync() {
        assert_eq!(counted(false), [4, 0, 0]);
        assert_eq!(counted(true), [4, 0, 4]);
    }
}
