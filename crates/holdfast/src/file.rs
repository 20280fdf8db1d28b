//! An open file.
//!
//! Reads and writes go to and come from the volume's own buffer; `sync_all`
//! and `sync_data` make them durable. A write that was accepted and could not
//! be put on the device later is reported to each handle that was open, and
//! to all of them until its bytes were written again (P7). The file lives as long as the handle, whatever happens to its names.
//!
//! A [`Handle`] is what the kernel calls an open file description: clones of a
//! file share it, and with it the position and the lock.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdfast_base::{InodeNo, Receipt};
use holdfast_posix::{FallocateFlags, OpenFile, OpenFlags, SetAttr, WriteHow, XattrFlags};
use parking_lot::Mutex;

use crate::error::{Errno, Result};
use crate::handle::Shared;
use crate::metadata::{Attributes, FileTimes, Metadata, Permissions};
use crate::mounted;
use crate::path::Call;

/// Most bytes that one call of [`Write::write_vectored`] takes: they are put together, so that they are written in one step.
const VECTORED_MAX: usize = 1 << 20;

/// An open file. `Read`, `Write` and `Seek` work on it and on `&File`; they share one position.
/// [`File::read_at`] and [`File::write_at`] have none and may be called from many threads at once; so do those of
/// [`std::os::unix::fs::FileExt`].
#[derive(Debug)]
pub struct File {
    pub(crate) handle: Arc<Handle>,
}

/// What clones of a file share.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) open: Opened,
    position: Mutex<u64>,
    /// Whether it may have a lock, so that other files never ask when they are closed.
    pub(crate) locked: AtomicBool,
}

/// What holds a file open.
#[derive(Debug)]
pub(crate) enum Opened {
    Engine(Arc<OpenFile>),
    Mounted(mounted::OpenFile),
}

impl Handle {
    pub(crate) fn inode(&self) -> InodeNo {
        match &self.open {
            Opened::Engine(open) => open.inode(),
            Opened::Mounted(open) => open.inode(),
        }
    }

    /// Whether another handle is of the same file: also where both have come to it by mounts that were opened one by one.
    pub(crate) fn is_same_file(&self, other: &Handle) -> io::Result<bool> {
        Ok(match (&self.open, &other.open) {
            (Opened::Engine(_), Opened::Engine(_)) => {
                Arc::ptr_eq(&self.shared, &other.shared) && self.inode() == other.inode()
            }
            (Opened::Mounted(one), Opened::Mounted(other)) => {
                one.identity()? == other.identity()?
            }
            _ => false,
        })
    }

    fn appends(&self) -> bool {
        match &self.open {
            Opened::Engine(open) => open.flags().contains(OpenFlags::APPEND),
            Opened::Mounted(open) => open.appends(),
        }
    }

    /// Carries out a call by the engine, or by the mount. EBADF when the volume is closed.
    fn reach<T>(
        &self,
        engine: impl FnOnce(Call<'_>, &Arc<OpenFile>) -> Result<T>,
        mounted: impl FnOnce(&mounted::OpenFile) -> io::Result<T>,
    ) -> io::Result<T> {
        match &self.open {
            Opened::Engine(open) => self.shared.with(|call| engine(call, open)),
            Opened::Mounted(open) => self.shared.mount().and_then(|_| mounted(open)),
        }
    }
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, open: Opened) -> File {
        let (position, locked) = (Mutex::new(0), AtomicBool::new(false));
        File { handle: Arc::new(Handle { shared, open, position, locked }) }
    }

    /// The same open file once more: both have one position, and one lock, which is there until the last of them is dropped.
    pub fn try_clone(&self) -> io::Result<File> {
        Ok(File { handle: Arc::clone(&self.handle) })
    }

    /// Reads at `offset`; fewer bytes than asked only at the end. Bytes that fail their checksum are never
    /// returned (P6): EIO.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.handle.open {
            Opened::Engine(open) => {
                self.handle.shared.with(|call| Ok(call.fs.read(open, offset, into)?))
            }
            Opened::Mounted(open) => {
                self.handle.shared.mount().and_then(|_| open.read_at(into, offset))
            }
        }
    }

    /// Fills `into` from `offset`, or fails with `UnexpectedEof`.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(into, offset)? {
            len if len == into.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes at `offset`, or at the end if the file was opened to append. Whether there is space is
    /// decided now (P8); durable after a sync, or at once if it was opened with `sync` or `dsync`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let how = WriteHow::default();
        self.handle.reach(
            |call, open| Ok(call.fs.write(call.caller, open, offset, bytes, how)?),
            |open| open.write_at(bytes, offset),
        )
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => {
                    bytes = &bytes[len..];
                    offset += len as u64;
                }
            }
        }
        Ok(())
    }

    /// fsync: data, size, attributes and every name of the file survive any crash once this returns (P1).
    /// Costs nothing if nothing is undurable. A failed write of this file is reported here (P7).
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync(false)
    }

    /// As [`File::sync_all`], and says what it cost, and why. `Unsupported` through a mount, where `holdfast explain` says it.
    pub fn sync_all_with_receipt(&self) -> io::Result<Receipt> {
        self.handle.shared.has_receipts()?;
        self.handle.reach(
            |call, open| Ok(call.fs.fsync(open, false)?),
            |_| Err(Errno(libc::EOPNOTSUPP).into()),
        )
    }

    /// What the last sync of this file cost, by any caller; `None` if there was none since the file came
    /// into memory. A receipt prints as sentences. `Unsupported` through a mount, as [`File::sync_all_with_receipt`].
    pub fn last_receipt(&self) -> io::Result<Option<Receipt>> {
        self.handle.shared.has_receipts()?;
        self.handle.shared.with(|call| Ok(call.fs.last_receipt(self.handle.inode())?))
    }

    /// fdatasync: data and size survive any crash once this returns (P1).
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync(true)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.handle.reach(
            |call, open| Ok(call.fs.fsync(open, data_only).map(drop)?),
            |open| open.sync(data_only),
        )
    }

    /// The attributes.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.handle
            .reach(|call, open| Ok(call.fs.getattr(open.inode())?), mounted::OpenFile::attr)
            .map(Metadata)
    }

    fn set(&self, change: SetAttr) -> io::Result<()> {
        let by_engine = |call: Call<'_>, open: &Arc<OpenFile>| {
            call.fs.setattr(call.caller, open.inode(), Some(open), change)?;
            Ok(())
        };
        self.handle.reach(by_engine, |open| open.change(change))
    }

    /// Cuts or extends the file; what is added reads as zeros (P5). Cutting works on a full volume (P8).
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.set(SetAttr { size: Some(len), ..SetAttr::default() })
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.set(SetAttr { perm: Some(permissions.mode()), ..SetAttr::default() })
    }

    /// Sets times.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.set(times.change())
    }

    /// Sets owner, permission bits and times in one step.
    pub fn set_attributes(&self, attributes: Attributes) -> io::Result<()> {
        self.set(attributes.change())
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        self.handle.reach(
            |call, open| Ok(call.fs.fallocate(open, flags, offset, len)?),
            |open| open.fallocate(flags, offset, len),
        )
    }

    /// Takes space for `len` bytes at `offset` and extends the file to their end, so that writing there
    /// cannot fail for lack of space.
    pub fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::empty(), offset, len)
    }

    /// Like [`File::allocate`], with the size left as it is.
    pub fn allocate_keep_size(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// Makes a hole: the range reads as zeros and its blocks are free. The size stays.
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// Makes the range read as zeros and keeps its space.
    pub fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::ZERO_RANGE, offset, len)
    }

    /// Takes `len` bytes at `offset` out of the file: what follows moves to their place, and the file is that much shorter (as
    /// `fallocate` with `FALLOC_FL_COLLAPSE_RANGE`). Both are multiples of 4,096, and the range ends before the end of the file, or it is
    /// EINVAL. One step, and durable when this returns. It costs what moves: an entry for each 256 KiB, and a copy of
    /// what a snapshot has as well. EFBIG if that is more than 16,384 extents.
    pub fn collapse_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::COLLAPSE_RANGE, offset, len)
    }

    /// Puts a hole of `len` bytes in at `offset`: what was there moves behind it, and the file is that much longer (as `fallocate` with
    /// `FALLOC_FL_INSERT_RANGE`). As [`File::collapse_range`] in all else; `offset` lies before the end of the file. EFBIG as well
    /// if the file would be too large.
    pub fn insert_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::INSERT_RANGE, offset, len)
    }

    /// The next data at or after `offset`; `None` if only a hole is left before the end.
    /// ENXIO beyond the end is `None` as well.
    pub fn seek_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match self.seek_to(offset, holdfast_posix::Seek::Data) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The next hole at or after `offset`; the end of the file counts as one. ENXIO beyond the end.
    pub fn seek_hole(&self, offset: u64) -> io::Result<u64> {
        self.seek_to(offset, holdfast_posix::Seek::Hole)
    }

    fn seek_to(&self, offset: u64, whence: holdfast_posix::Seek) -> io::Result<u64> {
        self.handle.reach(
            |call, open| Ok(call.fs.seek(open, offset, whence)?),
            |open| open.seek(offset, whence),
        )
    }

    /// The value of an extended attribute; ENODATA if there is none.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.handle.reach(
            |call, open| Ok(call.fs.getxattr(call.caller, open.inode(), name)?),
            |open| open.xattr(name),
        )
    }

    /// The names of all extended attributes.
    pub fn xattrs(&self) -> io::Result<Vec<OsString>> {
        let names = self.handle.reach(
            |call, open| Ok(call.fs.listxattr(call.caller, open.inode())?),
            |open| open.xattrs(),
        )?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Sets an extended attribute, new or not.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8]) -> io::Result<()> {
        let (name, flags) = (name.as_ref().as_bytes(), XattrFlags::empty());
        self.handle.reach(
            |call, open| Ok(call.fs.setxattr(call.caller, open.inode(), name, value, flags)?),
            |open| open.set_xattr(name, value),
        )
    }
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let len = self.read_at(into, *position)?;
        *position += len as u64;
        Ok(len)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let mut total = 0;
        for into in into.iter_mut().filter(|into| !into.is_empty()) {
            let len = match self.read_at(into, *position) {
                // What was read before is not lost: the next call meets the error again.
                Err(_) if total > 0 => break,
                len => len?,
            };
            *position += len as u64;
            total += len;
            if len < into.len() {
                break;
            }
        }
        Ok(total)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let len = self.write_at(bytes, *position)?;
        *position =
            if self.handle.appends() { self.metadata()?.len() } else { *position + len as u64 };
        Ok(len)
    }

    /// One step of history (P3), also where others append; of more than 1 MiB the first bytes.
    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut all = bytes.iter().filter(|bytes| !bytes.is_empty());
        let first: &[u8] = all.next().map_or(&[], |first| first);
        if first.len() >= VECTORED_MAX || all.clone().next().is_none() {
            return self.write(first);
        }
        let mut together = first.to_vec();
        for bytes in all {
            let room = VECTORED_MAX - together.len();
            together.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        self.write(&together)
    }

    /// Does nothing, as for [`std::fs::File`]: [`File::sync_data`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.handle.position.lock();
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let target = target.filter(|&t| t <= i64::MAX as u64).ok_or(Errno(libc::EINVAL))?;
        *position = target;
        Ok(target)
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut &*self).read_vectored(into)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&mut &*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        File::write_at(self, bytes, offset)
    }
}
