//! Which file or block device a descriptor leads to, and what may be done through it.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};

/// A regular file or a block device, the same by all its paths. Not to be compared with that of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The device of its filesystem, or the block device itself.
    pub device: u64,
    /// The inode; 0 of a block device, which may have several.
    pub inode: u64,
    /// Which of the two it is.
    pub is_block_device: bool,
}

impl HostFile {
    /// That of an open file.
    ///
    /// # Errors
    /// It is neither, or the host does not say.
    pub fn of(file: impl AsFd) -> io::Result<HostFile> {
        let found = fstat(file)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                Ok(HostFile { device: found.st_dev, inode: found.st_ino, is_block_device: false })
            }
            FileType::BlockDevice => {
                Ok(HostFile { device: found.st_rdev, inode: 0, is_block_device: true })
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither file nor block device")),
        }
    }

    /// Whether a descriptor leads to it, and can be read: then whether it can be written as well.
    pub fn proven_by(&self, file: impl AsFd) -> Option<bool> {
        if HostFile::of(file.as_fd()).ok()? != *self {
            return None;
        }
        let how = fcntl_getfl(file).ok()?;
        // One that only names a file is opened without any right to it.
        if how.contains(OFlags::PATH) {
            return None;
        }
        match how & OFlags::ACCMODE {
            OFlags::RDWR => Some(true),
            OFlags::RDONLY => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn a_descriptor_proves_what_it_was_opened_for_and_its_own_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["volume", "other"].map(|name| dir.path().join(name));
        std::fs::write(&path, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let proof = |read: bool, write: bool, flags: OFlags| {
            let mut how = OpenOptions::new();
            how.read(read).write(write).custom_flags(flags.bits().cast_signed());
            let id = HostFile::of(how.open(&path).unwrap());
            let file = how.open(&path).unwrap();
            (id.map_or(None, |id| id.proven_by(&file)), file)
        };
        assert_eq!(proof(true, true, OFlags::empty()).0, Some(true));
        assert_eq!(proof(true, false, OFlags::empty()).0, Some(false));
        assert_eq!(proof(false, true, OFlags::empty()).0, None);
        assert_eq!(proof(true, false, OFlags::PATH).0, None, "that takes no right to read");
        let id = HostFile::of(std::fs::File::open(&other).unwrap()).unwrap();
        assert_eq!(id.proven_by(proof(true, true, OFlags::empty()).1), None);
        assert!(HostFile::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
