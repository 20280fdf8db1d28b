//! An open file of a mount.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Deadline;
use holdfast_posix::{Attr, FallocateFlags, OpenFlags, Seek, SetAttr, XattrFlags};
use rustix::fs::FlockOperation;
use rustix::io::{Errno, retry_on_intr};

use super::{Mount, attributes, errno};

/// Longest time between two looks at a lock that is waited for until a deadline: flock(2) waits for ever, or not at all.
const LOOK: Duration = Duration::from_millis(10);

/// A descriptor of a regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(super) file: File,
    pub(super) mount: Arc<Mount>,
    pub(super) inode: InodeNo,
    pub(super) flags: OpenFlags,
}

impl OpenFile {
    pub(crate) fn inode(&self) -> InodeNo {
        self.inode
    }

    /// Every write goes to the end.
    pub(crate) fn appends(&self) -> bool {
        self.flags.contains(OpenFlags::APPEND)
    }

    /// Fewer bytes than asked only at the end.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was read before is not lost: the next call meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.write_at(bytes, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    pub(crate) fn sync(&self, data_only: bool) -> io::Result<()> {
        match data_only {
            true => self.file.sync_data(),
            false => self.file.sync_all(),
        }
    }

    pub(crate) fn attr(&self) -> io::Result<Attr> {
        Ok(attributes::status(&self.file)?.attr)
    }

    pub(crate) fn change(&self, change: SetAttr) -> io::Result<()> {
        self.mount.change()?;
        if let Some(size) = change.size {
            if !self.flags.contains(OpenFlags::WRITE) {
                // ftruncate(2) says EINVAL.
                return Err(errno(libc::EBADF));
            }
            retry_on_intr(|| rustix::fs::ftruncate(&self.file, size))?;
        }
        attributes::change(&self.file, change)
    }

    pub(crate) fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::from_bits_retain(flags.bits());
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }

    /// The position of the descriptor is used by this alone.
    pub(crate) fn seek(&self, offset: u64, whence: Seek) -> io::Result<u64> {
        let to = match whence {
            Seek::Data => rustix::fs::SeekFrom::Data(offset),
            Seek::Hole => rustix::fs::SeekFrom::Hole(offset),
        };
        Ok(rustix::fs::seek(&self.file, to)?)
    }

    pub(crate) fn xattr(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        attributes::get(&attributes::by_descriptor(&self.file), name)
    }

    /// The device and inode that the kernel knows it by.
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        let is = attributes::status(&self.file)?;
        Ok((is.device, is.attr.inode.0))
    }

    pub(crate) fn xattrs(&self) -> io::Result<Vec<Vec<u8>>> {
        attributes::list(&attributes::by_descriptor(&self.file))
    }

    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.mount.change()?;
        let path = attributes::by_descriptor(&self.file);
        attributes::set(&path, name, value, XattrFlags::empty())
    }

    /// Waits for a lock of the whole file, which all programs of this machine see. Whether it has it: without a deadline it does.
    pub(crate) fn lock_until(&self, exclusive: bool, until: Option<Deadline>) -> io::Result<bool> {
        let Some(until) = until else {
            let how = match exclusive {
                true => FlockOperation::LockExclusive,
                false => FlockOperation::LockShared,
            };
            retry_on_intr(|| rustix::fs::flock(&self.file, how))?;
            return Ok(true);
        };
        let mut pause = Duration::from_micros(100);
        loop {
            if self.try_lock(exclusive)? {
                return Ok(true);
            }
            if until.is_over() {
                // As for a waiter: what it had is gone.
                self.unlock()?;
                return Ok(false);
            }
            std::thread::sleep(pause.min(until.left()));
            pause = (pause * 2).min(LOOK);
        }
    }

    /// Whether it has it.
    pub(crate) fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        let how = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match retry_on_intr(|| rustix::fs::flock(&self.file, how)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.file, FlockOperation::Unlock)?)
    }
}
