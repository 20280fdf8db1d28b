//! Where the volumes of a benchmark stand: in memory, or in a file that is there only meanwhile.
//!
//! A file must not exist before, and is removed when the place is dropped. It
//! is sparse and made anew for each volume, so that the host allocates under
//! the writes; or it is written once from end to end and used again, so that
//! the host has nothing to do but write.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_device::{Device, FileDevice, MemoryDevice, OpenMode};

use crate::outcome::Failure;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 4 << 20;

/// A place for one volume after the other.
#[derive(Debug)]
pub(crate) struct Place {
    path: Option<PathBuf>,
    bytes: u64,
    /// The file is written before it is used.
    written: bool,
}

impl Place {
    /// In the file `path`, which must not exist, or in memory without one.
    pub(crate) fn new(path: Option<&PathBuf>, bytes: u64) -> Result<Place, Failure> {
        if let Some(path) = path.filter(|path| path.exists()) {
            let why = format!("{} exists; name a file that does not", path.display());
            return Err(Failure::plain(why));
        }
        Ok(Place { path: path.cloned(), bytes, written: false })
    }

    /// The file is written from end to end before its first use, and stays for the next.
    pub(crate) fn written(mut self) -> Place {
        self.written = true;
        self
    }

    /// A device for the next volume. The one before is no longer used.
    pub(crate) fn device(&self) -> io::Result<Arc<dyn Device>> {
        let Some(path) = &self.path else {
            return Ok(Arc::new(MemoryDevice::new(self.bytes)));
        };
        if self.written {
            if !path.exists() {
                write(path, self.bytes)?;
            }
            let device = FileDevice::open(path, OpenMode::ReadWrite).map_err(io::Error::other)?;
            return Ok(Arc::new(device));
        }
        if path.exists() {
            std::fs::remove_file(path)?;
        }
        Ok(Arc::new(FileDevice::create(path, self.bytes).map_err(io::Error::other)?))
    }
}

fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    let zeros = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let len = left.min(CHUNK as u64);
        file.write_all(&zeros[..len as usize])?;
        left -= len;
    }
    file.sync_all()
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Missing if no volume was made.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_only_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        for written in [false, true] {
            let place = Place::new(Some(&path), 1 << 20).unwrap();
            let place = if written { place.written() } else { place };
            for _ in 0..2 {
                let device = place.device().unwrap();
                assert_eq!(device.len(), 1 << 20);
                assert!(path.exists());
            }
            assert!(Place::new(Some(&path), 1 << 20).is_err());
            drop(place);
            assert!(!path.exists());
        }
    }
}
