//! Mounts with `sync` or `dirsync`: a change is durable before it is answered. With `handover` the host has it.
//!
//! On a mount with `sync` the kernel itself makes data durable that goes through the page cache, by an fsync after each
//! write; that finds nothing left to do.

use holdfast_base::InodeNo;
use holdfast_wire::{Op, abi};

use super::answer::Out;
use crate::interface::Answer;
use crate::server::{FlagsIoctl, Server};

/// Makes durable what `op` has changed, or gives it to the host, if that is asked for, and answers `done`.
pub(super) fn sync(server: &Server, header: &abi::InHeader, op: &Op<'_>, done: Out) -> Answer<Out> {
    let Some((inode, of_names)) = changed(header, op) else { return Ok(done) };
    let keep = |inode, of_names| match (server.is_synchronous(of_names), server.hands_over()) {
        (true, _) => server.sync_written(inode),
        (false, true) => server.hand_over_written(inode),
        (false, false) => Ok(()),
    };
    // A file that was there already has been cut, which changed nothing in its directory.
    let cut = is_cut(op).then(|| opened(&done)).flatten();
    let kept = keep(inode, of_names).and_then(|()| cut.map_or(Ok(()), |cut| keep(cut, false)));
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
        Op::Open(_) if is_cut(op) => (inode, false),
        Op::CopyFileRange(how) => (InodeNo(how.nodeid_out), false),
        Op::Ioctl { how, .. } if FlagsIoctl::of(how.cmd).is_some_and(|of| of.sets) => {
            (inode, false)
        }
        _ => return None,
    })
}

/// Whether O_TRUNC comes with it.
fn is_cut(op: &Op<'_>) -> bool {
    let flags = match op {
        Op::Open(how) => how.flags,
        Op::Create { how, .. } => how.flags,
        _ => return false,
    };
    flags.cast_signed() & libc::O_TRUNC != 0
}

/// The inode of a name that was opened, and made if it was not there.
fn opened(done: &Out) -> Option<InodeNo> {
    match done {
        Out::Created(entry, _) => Some(entry.attr.as_ref()?.inode),
        _ => None,
    }
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
    use std::sync::Arc;

    use holdfast_device::sim::{Call, Faults};
    use holdfast_device::{Device, MemoryDevice, SimDevice};
    use holdfast_posix::{FileSystem, MkfsOptions};

    use super::super::dispatch::call;
    use super::*;
    use crate::interface::Errno;
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

    /// `open(name, O_CREAT | more)` as the kernel sends it where it does not know the name.
    fn create(server: &Server, name: &[u8], more: i32) {
        let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
        let flags = (libc::O_CREAT | libc::O_WRONLY | more).cast_unsigned();
        let how = abi::CreateIn { flags, mode: libc::S_IFREG | 0o644, ..Default::default() };
        let done = call(server, &header, &Op::Create { how, name }).unwrap().unwrap();
        let Out::Created(_, opened) = done else { panic!("not made") };
        server.release(opened.fh);
    }

    #[test]
    fn a_file_that_is_cut_by_a_create_is_durable() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        create(&server, b"f", 0);
        server.fsyncdir(InodeNo::ROOT).unwrap();
        let make_longer = || {
            let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
            let found = call(&server, &header, &Op::Lookup { name: b"f" }).unwrap();
            let Ok(Out::Entry(found)) = found else { panic!("no entry") };
            let header = abi::InHeader { nodeid: found.attr.unwrap().inode.0, ..header };
            let how = abi::SetattrIn { valid: abi::fattr::SIZE, size: 4, ..Default::default() };
            call(&server, &header, &Op::Setattr(how)).unwrap().unwrap();
        };
        // Neither changes the directory.
        make_longer();
        assert!(!fs.is_durable());
        server.set_synchronous(false, true);
        create(&server, b"f", libc::O_TRUNC);
        assert!(!fs.is_durable(), "only names were asked to be");
        make_longer();
        server.set_synchronous(true, true);
        create(&server, b"f", libc::O_TRUNC);
        assert!(fs.is_durable());
        server.close();
    }

    #[test]
    fn a_device_that_fails_under_a_hand_over_ends_it_and_stops_the_volume() {
        let sim = Arc::new(SimDevice::new(&MemoryDevice::new(64 << 20)));
        let device: Arc<dyn Device> = sim.clone();
        let options = MkfsOptions { node_size: 4096, ..MkfsOptions::default() };
        FileSystem::mkfs(&device, &options).unwrap();
        let fs = fresh::mount(&device);
        let server = fresh::server(&fs);
        server.set_handover(true);
        let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
        let mkdir = |name| {
            let op = Op::Mkdir { new: abi::MkdirIn { mode: 0o755, umask: 0 }, name };
            call(&server, &header, &op).unwrap()
        };
        mkdir(b"handed").unwrap();
        assert!(!fs.is_durable(), "it needs no flush");
        sim.set_faults(Faults::fail_from(Call::Write, 1));
        assert_eq!(mkdir(b"refused").err(), Some(Errno(libc::EIO)));
        assert!(fs.stopped().is_some_and(|(_, why)| why.contains("write")));
        assert!(sim.faults_fired() > 0);
        // The device would take writes again, the volume makes none.
        sim.set_faults(Faults::none());
        let written = device.stats().writes;
        assert_eq!(mkdir(b"later").err(), Some(Errno(libc::EIO)));
        assert_eq!(device.stats().writes, written);
        server.close();
        drop((server, fs));
        // As after a kill of the program: what was answered is there.
        let fs = fresh::mount(&device);
        let server = fresh::server(&fs);
        let finds = |name: &'static [u8]| matches!(call(&server, &header, &Op::Lookup { name }), Some(Ok(Out::Entry(it))) if it.attr.is_some());
        assert!(finds(b"handed"), "it was answered");
        // A write that failed may have come to the device all the same.
        assert!(!finds(b"later"), "the volume had stopped");
        server.close();
    }

    #[test]
    fn a_synchronous_change_costs_a_flush_and_is_no_fsync() {
        assert_eq!(counted(false), [4, 0, 0]);
        assert_eq!(counted(true), [4, 0, 4]);
    }
}
