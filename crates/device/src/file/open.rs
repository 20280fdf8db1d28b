//! Opens what is at a path only if it is a file or a block device, and says what the host refuses.
//!
//! Another user may put something else at a path at any moment. A pipe would be waited for without an end, and some devices do something
//! because they were opened. So what is there is held first by a descriptor that opens nothing, then looked at, and then opened itself.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};

use super::HostFile;
use crate::DeviceError;

/// What is at a path, not opened.
pub(super) fn hold(path: &Path) -> io::Result<File> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(held.into())
}

/// Opens what is held, which was at `path`.
pub(super) fn held(held: &File, path: &Path, access: OFlags) -> io::Result<File> {
    let found = HostFile::of(held)?;
    // A lease of another user would be waited for as well.
    let access = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
    let opened = match rustix::fs::open(itself, access, Mode::empty()) {
        // There is no /proc.
        Err(rustix::io::Errno::NOENT) => rustix::fs::open(path, access, Mode::empty()),
        opened => opened,
    }?;
    if HostFile::of(&opened)? != found {
        return Err(io::Error::other("something else was put there meanwhile"));
    }
    fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    Ok(opened.into())
}

/// Opens the regular file or block device at `path`. Nothing else is opened, or waited for.
///
/// # Errors
/// `InvalidInput` for anything else; those of the host.
pub fn open_bytes(path: impl AsRef<Path>, access: OFlags) -> io::Result<File> {
    let path = path.as_ref();
    held(&hold(path)?, path, access)
}

pub(super) fn refused(path: &Path, why: impl Into<String>) -> DeviceError {
    DeviceError::Open { path: path.display().to_string(), why: why.into() }
}

/// What the host said, in words for people.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist".into(),
        io::ErrorKind::PermissionDenied => "permission denied; check its owner and mode".into(),
        io::ErrorKind::ReadOnlyFilesystem => {
            "is on a read-only filesystem; open it for reading only".into()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_was_looked_at_is_opened_and_nothing_that_is_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, pipe] = ["file", "other", "pipe"].map(|name| dir.path().join(name));
        std::fs::write(&file, "one").unwrap();
        std::fs::write(&other, "other").unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let kept = hold(&file).unwrap();
        std::fs::rename(&other, &file).unwrap();
        let mut text = String::new();
        held(&kept, &file, OFlags::RDONLY).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        assert!(
            !fcntl_getfl(open_bytes(&file, OFlags::RDWR).unwrap())
                .unwrap()
                .contains(OFlags::NONBLOCK)
        );
        for none in [pipe.as_path(), dir.path(), Path::new("/dev/null")] {
            let refused = open_bytes(none, OFlags::RDONLY).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", none.display());
        }
    }
}
