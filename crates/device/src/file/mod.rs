//! A device in a regular file or on a block device of the host.
//!
//! Bytes go past the host's page cache (O_DIRECT) where the host agrees, and
//! through it where not (tmpfs, some overlays); slices that direct I/O cannot
//! take are copied through a small pool of aligned buffers. All calls are
//! positioned, so threads do not meet. Dropping a device writes nothing.
//!
//! Always true: the descriptor holds a lock on the volume (see [`lock`]) from
//! before the first byte is read until it is closed, exclusive when opened for
//! writing; so do others on the files behind a block device (`behind`). The
//! length is a multiple of the sector and never becomes less.

mod behind;
mod cached;
mod existing;
mod host_file;
pub mod lock;
mod open;
mod probe;
mod physical;
mod transfer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use existing::{keep_name, make_longer, open_host, too_small};
pub use host_file::HostFile;
pub use open::open_bytes;
use open::{reason, refused};
use parking_lot::Mutex;
pub use physical::{PhysicalSector, Source};
pub use probe::data_from;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, fstatvfs, seek};
use rustix::io::Errno;

use crate::buffer::BufferPool;
use crate::range;
use crate::tally::Tally;
use crate::{Device, DeviceError, DeviceStats, Discards, Flushed, Reach};
use behind::Behind;

/// Bytes of a buffer through which unaligned slices are copied.
const BOUNCE_BYTES: usize = 1 << 20;
/// Idle buffers kept for that.
const BOUNCE_BUFFERS: usize = 8;
/// Below this nothing useful fits.
const SMALLEST: u64 = 4096;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading, beside other readers; refused while another process has it open for writing.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}

/// A regular file or block device of the host.
#[derive(Debug)]
pub struct FileDevice {
    /// Dropped first: a process that finds this device free finds what is behind it free as well.
    behind: Behind,
    file: File,
    path: PathBuf,
    mode: OpenMode,
    len: AtomicU64,
    /// Held while it is made longer.
    growing: Mutex<()>,
    sector_size: u32,
    physical: PhysicalSector,
    direct: bool,
    block_device: bool,
    /// Bytes that the host gives back together.
    discard_unit: u64,
    /// Set when the host said that it cannot discard; it is not asked again.
    cannot_discard: AtomicBool,
    /// The same for space that is taken ahead of need.
    cannot_take_room: AtomicBool,
    pool: BufferPool,
    tally: Tally,
}

impl FileDevice {
    /// Opens an existing file or block device and locks it.
    ///
    /// # Errors
    /// [`DeviceError::InUse`] when another process holds it, [`DeviceError::Open`] when it is missing, not allowed,
    /// neither file nor block device, or below 4 KiB. Nothing is written.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<FileDevice, DeviceError> {
        FileDevice::open_existing(path.as_ref(), mode, true)
    }

    /// As [`FileDevice::open`], but through the host's page cache even where it takes direct I/O.
    pub fn open_buffered(
        path: impl AsRef<Path>,
        mode: OpenMode,
    ) -> Result<FileDevice, DeviceError> {
        FileDevice::open_existing(path.as_ref(), mode, false)
    }

    /// Descriptors that hold locks on what is behind the device, beside its own ([`AsFd`]).
    pub fn locks_behind(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.behind.held.iter().map(AsFd::as_fd)
    }

    /// What another process has opened and locked: `file` is a duplicate of its descriptor ([`AsFd`]), and `behind` those of
    /// [`FileDevice::locks_behind`]. A lock ends with the last duplicate. Of all that use it at a time only one may write.
    ///
    /// # Errors
    /// As of [`FileDevice::open`], but for the lock.
    pub fn inherited(
        (file, behind): (OwnedFd, Vec<OwnedFd>),
        path: impl AsRef<Path>,
        mode: OpenMode,
    ) -> Result<FileDevice, DeviceError> {
        let (file, path) = (File::from(file), path.as_ref());
        let held = behind.into_iter().map(File::from).collect();
        let behind = Behind { held, ..behind::look(&file, path, mode)? };
        FileDevice::start((file, behind), path, mode, true)
    }

    /// Makes a sparse regular file of `bytes` bytes (rounded down to whole sectors when used),
    /// readable by its owner alone, and opens it for writing. An existing file is made larger, its
    /// content stays.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; also when the existing file is larger than `bytes` (nothing is
    /// ever cut off) or a block device. A file that was new and could not be sized is removed.
    pub fn create(path: impl AsRef<Path>, bytes: u64) -> Result<FileDevice, DeviceError> {
        let path = path.as_ref();
        if bytes < SMALLEST {
            return Err(refused(path, too_small(bytes)));
        }
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let (file, new) = match made {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (open_host(path, OpenMode::ReadWrite)?, false)
            }
            Err(error) => return Err(refused(path, reason(&error))),
        };
        // A process that was faster than this lock uses the file now, even if it was new: leave it alone.
        let file = lock::take(file, path, OpenMode::ReadWrite)?;
        let device = make_longer(&file, path, bytes)
            .and_then(|()| behind::take(&file, path, OpenMode::ReadWrite))
            .and_then(|behind| FileDevice::start((file, behind), path, OpenMode::ReadWrite, true));
        if device.is_err() && new {
            // Ours, empty, and of no use; the first error matters more than this one.
            let _ = std::fs::remove_file(path);
        }
        if new {
            keep_name(path);
        }
        device
    }

    fn open_existing(path: &Path, mode: OpenMode, direct: bool) -> Result<FileDevice, DeviceError> {
        let file = open_host(path, mode)?;
        let file = lock::take(file, path, mode)?;
        let behind = behind::take(&file, path, mode)?;
        FileDevice::start((file, behind), path, mode, direct)
    }

    /// Measures an open, locked file.
    fn start(
        (file, behind): (File, Behind),
        path: &Path,
        mode: OpenMode,
        direct: bool,
    ) -> Result<FileDevice, DeviceError> {
        let found = probe::probe(&file, direct).map_err(|error| refused(path, reason(&error)))?;
        if found.len < SMALLEST {
            return Err(refused(path, too_small(found.len)));
        }
        let physical = PhysicalSector::of(&file, found.sector_size);
        tracing::debug!(path = %path.display(), ?found, ?physical, "opened");
        if let Some(danger) = physical.danger()
            && mode == OpenMode::ReadWrite
        {
            tracing::warn!(path = %path.display(), "{danger}");
        }
        let unit = probe::discard_unit(&file, found.block_device);
        let (discard_unit, cannot_discard) = (unit.unwrap_or(SMALLEST), unit.is_none());
        Ok(FileDevice {
            file,
            behind,
            path: path.to_path_buf(),
            mode,
            len: AtomicU64::new(found.len - found.len % u64::from(found.sector_size)),
            growing: Mutex::new(()),
            sector_size: found.sector_size,
            physical,
            direct: found.direct,
            block_device: found.block_device,
            discard_unit,
            cannot_discard: AtomicBool::new(cannot_discard),
            cannot_take_room: AtomicBool::new(false),
            pool: BufferPool::new(BOUNCE_BYTES, BOUNCE_BUFFERS),
            tally: Tally::default(),
        })
    }

    /// Which file or block device was opened, whatever its path leads to by now.
    ///
    /// # Errors
    /// The host does not say.
    pub fn id(&self) -> io::Result<HostFile> {
        HostFile::of(&self.file)
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The physical sectors below, and how they are known.
    pub fn physical_sector(&self) -> PhysicalSector {
        self.physical
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Whether bytes go past the host's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Whether the host holds written data for all of a range. Allocated and never written counts as a hole, too.
    fn has_no_hole(&self, at: u64, len: u64) -> bool {
        seek(&self.file, SeekFrom::Hole(at)).is_ok_and(|hole| hole >= at + len)
    }

    /// Bytes that the filesystem below has for this user.
    fn host_room(&self) -> Option<u64> {
        let host = fstatvfs(&self.file).ok()?;
        Some(host.f_bavail.saturating_mul(host.f_frsize))
    }

    fn check_mode(&self, call: &'static str, at: u64, len: u64) -> Result<(), DeviceError> {
        match self.mode {
            OpenMode::ReadWrite => Ok(()),
            OpenMode::ReadOnly => Err(DeviceError::Io {
                call,
                at,
                len,
                source: io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"),
            }),
        }
    }

    /// Asks the host to discard whole sectors.
    fn forget(&self, at: u64, len: u64) -> io::Result<()> {
        if self.block_device {
            return probe::block_discard(&self.file, at, len);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            return match fallocate(&self.file, flags, at, len) {
                Err(Errno::INTR) => continue,
                done => Ok(done?),
            };
        }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Device for FileDevice {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let len = into.len();
        self.tally.read(len);
        range::inside("read", at, len as u64, self.len())?;
        let done = if self.direct && !self.fits_direct(at, into) {
            self.read_bounced(at, into)
        } else {
            self.read_all(at, into)
        };
        done.map_err(|source| failed("read", at, len, source))
    }

    /// Filesystems of the host that know no holes name every byte, and a block device is not asked.
    fn data_from(&self, at: u64) -> u64 {
        let end = self.len();
        if self.block_device || at >= end { at } else { data_from(&self.file, at, end) }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let len = bytes.len();
        self.tally.write(len);
        self.check_mode("write", at, len as u64)?;
        range::writable(at, len as u64, self.len(), self.sector_size)?;
        let done = if self.direct && !self.fits_direct(at, bytes) {
            self.write_bounced(at, bytes)
        } else {
            self.write_all(at, bytes)
        };
        done.map_err(|source| failed("write", at, len, source))
    }

    /// fdatasync: the file's size and block map are kept as well.
    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.tally.flush();
        match self.file.sync_data() {
            Ok(()) => Ok(Flushed::new()),
            Err(source) => Err(failed("flush", 0, 0, source)),
        }
    }

    /// Punches a hole, or discards. A host that has said no is not asked again.
    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.tally.discard();
        self.check_mode("discard", at, len)?;
        range::inside("discard", at, len, self.len())?;
        let sector = u64::from(self.sector_size);
        let first = at.next_multiple_of(sector);
        let end = (at + len) - (at + len) % sector;
        if first >= end {
            return Ok(());
        }
        let done = match self.cannot_discard.load(Ordering::Relaxed) {
            true => Err(Errno::OPNOTSUPP.into()),
            false => self.forget(first, end - first),
        };
        done.map_err(|source| {
            let error = failed("discard", at, len as usize, source);
            if error.is_unsupported() {
                self.cannot_discard.store(true, Ordering::Relaxed);
            }
            error
        })
    }

    fn discards(&self) -> Discards {
        let unit = self.discard_unit;
        if self.cannot_discard.load(Ordering::Relaxed) || self.mode == OpenMode::ReadOnly {
            return Discards::Refused;
        }
        // A host that gives nothing ahead of need has nothing to be asked for again.
        match self.block_device || self.cannot_take_room.load(Ordering::Relaxed) {
            true => Discards::OfDevice { unit },
            false => Discards::OfHost { unit },
        }
    }

    fn room(&self) -> Option<u64> {
        if self.block_device || self.mode == OpenMode::ReadOnly {
            return None;
        }
        if self.given() >= self.len() || self.cannot_take_room.load(Ordering::Relaxed) {
            return None;
        }
        self.host_room()
    }

    fn room_to_grow(&self) -> Option<u64> {
        let is_given_ahead = !self.block_device && !self.cannot_take_room.load(Ordering::Relaxed);
        is_given_ahead.then(|| self.host_room()).flatten()
    }

    fn given(&self) -> u64 {
        fstat(&self.file).map_or(0, |found| u64::try_from(found.st_blocks).unwrap_or(0) * 512)
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        let call = "reservation";
        self.check_mode(call, at, len)?;
        range::inside(call, at, len, self.len())?;
        if self.block_device || len == 0 || self.cannot_take_room.load(Ordering::Relaxed) {
            return Ok(());
        }
        loop {
            // Not beyond the end, and NFS knows only this mode.
            return match fallocate(&self.file, FallocateFlags::empty(), at, len) {
                Ok(()) => Ok(()),
                Err(Errno::INTR) => continue,
                // Then the host gives space with each write, or refuses it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.cannot_take_room.store(true, Ordering::Relaxed);
                    Ok(())
                }
                // XFS wants the room once more, also where all of it was written.
                Err(Errno::NOSPC | Errno::DQUOT) if self.has_no_hole(at, len) => Ok(()),
                Err(error) => Err(failed(call, at, len as usize, error.into())),
            };
        }
    }

    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        let call = "growth";
        self.check_mode(call, 0, bytes)?;
        let _one = self.growing.lock();
        let whole = |len: u64| len - len % u64::from(self.sector_size);
        let bytes = bytes.next_multiple_of(u64::from(self.sector_size));
        let ask = || probe::length(&self.file).map(whole);
        let refused = |source| failed(call, 0, bytes as usize, source);
        let mut len = ask().map_err(refused)?;
        if len < bytes && !self.block_device {
            self.file.set_len(bytes).map_err(refused)?;
            len = ask().map_err(refused)?;
        }
        self.len.fetch_max(len, Ordering::Relaxed);
        range::inside(call, 0, bytes, len)
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn physical_sector_size(&self) -> u32 {
        self.physical.bytes
    }

    fn reach(&self) -> Reach {
        self.behind.reach
    }

    fn drop_cache(&self, at: u64, len: u64) {
        if !self.direct {
            self.drop_pages(at, len);
        }
    }

    fn stats(&self) -> DeviceStats {
        self.tally.stats()
    }
}

fn failed(call: &'static str, at: u64, len: usize, source: io::Error) -> DeviceError {
    DeviceError::Io { call, at, len: len as u64, source }
}

#[cfg(test)]
mod behind_tests;
#[cfg(test)]
mod tests;
