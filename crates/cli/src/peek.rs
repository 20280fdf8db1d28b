//! A look at a volume without its lock, for commands that must work while it is mounted.
//!
//! It can only read. What it reads may be half new and half old if the volume is written meanwhile; commands that use
//! it say so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast::device::{Device, DeviceError, DeviceStats};
use holdfast_daemon::dispatch::not_mounted;
use holdfast_device::file::{PhysicalSector, data_from};
use holdfast_device::{Discards, Flushed, open_bytes};
use rustix::fs::OFlags;

use crate::outcome::{Context, Failure};

/// A file or block device that is only looked at.
#[derive(Debug)]
pub struct Peek {
    file: File,
    len: u64,
}

impl Peek {
    /// Opens it for reading, whichever process holds it.
    pub fn open(path: &Path) -> Result<Peek, Failure> {
        let found = std::fs::metadata(path).context(path.display())?;
        if !crate::branches::place::holds_bytes(path) {
            return Err(match found.is_dir() {
                true => not_mounted(path),
                false => Failure::plain(format!(
                    "{} is neither a file nor a block device",
                    path.display()
                )),
            });
        }
        let file = open_bytes(path, OFlags::RDONLY).context(path.display())?;
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(io::Error::from)
            .context(path.display())?;
        Ok(Peek { file, len })
    }

    /// The file underneath.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Device for Peek {
    holdfast_device::private!();

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let len = into.len() as u64;
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            let end = self.len;
            return Err(DeviceError::BeyondEnd { call: "read", at, len, end });
        }
        self.file.read_exact_at(into, at).map_err(|source| DeviceError::Io {
            call: "read",
            at,
            len,
            source,
        })
    }

    fn data_from(&self, at: u64) -> u64 {
        data_from(&self.file, at, self.len)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        Err(refused("write", at, bytes.len() as u64))
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        Err(refused("flush", 0, 0))
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        Err(refused("discard", at, len))
    }

    fn discards(&self) -> Discards {
        Discards::Refused
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn physical_sector_size(&self) -> u32 {
        PhysicalSector::of(&self.file, 512).bytes
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

fn refused(call: &'static str, at: u64, len: u64) -> DeviceError {
    let source = io::ErrorKind::ReadOnlyFilesystem.into();
    DeviceError::Io { call, at, len, source }
}
