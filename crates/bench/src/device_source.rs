//! Where the library's volumes stand: in memory, or in a file that is there only meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_device::{Device, FileDevice, MemoryDevice, OpenMode};

use crate::work::{named, zeros};

/// A place for one volume after the other. Its file is written from end to end before its first use, so that the
/// host has nothing to do but write then, and removed when this is dropped.
#[derive(Debug)]
pub struct DeviceSource {
    path: Option<PathBuf>,
    bytes: u64,
}

impl DeviceSource {
    /// In the file `path`, which must not exist, or in memory without one.
    pub fn new(path: Option<PathBuf>) -> io::Result<DeviceSource> {
        if let Some(path) = path.as_ref().filter(|path| path.exists()) {
            return Err(named(path, &io::ErrorKind::AlreadyExists.into()));
        }
        Ok(DeviceSource { path, bytes: 0 })
    }

    /// A device of so many bytes for the next volume. The one before is no longer used.
    pub fn device(&mut self, bytes: u64) -> io::Result<Arc<dyn Device>> {
        let Some(path) = &self.path else { return Ok(Arc::new(MemoryDevice::new(bytes))) };
        if self.bytes != bytes && path.exists() {
            std::fs::remove_file(path)?;
        }
        if !path.exists() {
            zeros(path, bytes)?;
            self.bytes = bytes;
        }
        Ok(Arc::new(FileDevice::open(path, OpenMode::ReadWrite).map_err(io::Error::other)?))
    }
}

impl Drop for DeviceSource {
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
        let mut place = DeviceSource::new(Some(path.clone())).unwrap();
        for bytes in [1 << 20, 1 << 20, 2 << 20] {
            assert_eq!(place.device(bytes).unwrap().len(), bytes);
            assert!(path.exists());
        }
        assert!(DeviceSource::new(Some(path.clone())).is_err());
        drop(place);
        assert!(!path.exists());
    }
}
