//! Opens what is at a path only if it is a file or a block device, makes files, and says what the host refuses.
//!
//! Another user may put something else at a path at any moment. A pipe would be waited for without an end, and some devices do something
//! because they were opened. So what is there is held first by a descriptor that opens nothing, then looked at, and then opened itself.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};

use super::{HostFile, OpenMode, SMALLEST, lock};
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

/// Opens what must exist and be a file or block device. Looks first: opening a pipe would wait.
pub(super) fn open_host(path: &Path, mode: OpenMode) -> Result<File, DeviceError> {
    let failed = |error: io::Error| refused(path, reason(&error));
    let found = hold(path).map_err(failed)?;
    let kind = found.metadata().map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(refused(path, "is a directory; a file or a block device is needed"));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refused(path, "is neither a file nor a block device"));
    }
    let access = match (mode, kind.is_block_device()) {
        (OpenMode::ReadOnly, _) => OFlags::RDONLY,
        (OpenMode::ReadWrite, false) => OFlags::RDWR,
        (OpenMode::ReadWrite, true) => OFlags::RDWR | OFlags::EXCL,
    };
    let opened = lock::patiently(|| held(&found, path, access));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => lock::in_use(path),
        _ => failed(error),
    })
}

/// Makes a regular file larger, never smaller.
pub(super) fn make_longer(file: &File, path: &Path, bytes: u64) -> Result<(), DeviceError> {
    let present = file.metadata().map_err(|error| refused(path, reason(&error)))?;
    if !present.is_file() {
        return Err(refused(path, "is a block device, whose size cannot be chosen"));
    }
    if present.len() > bytes {
        let why = format!(
            "already has {} bytes and is not cut to {bytes}; remove it or choose a larger size",
            present.len()
        );
        return Err(refused(path, why));
    }
    file.set_len(bytes)
        .map_err(|error| refused(path, format!("cannot have {bytes} bytes: {}", reason(&error))))
}

/// Makes a new name durable: an fsync inside a volume whose file vanishes would promise nothing (P1).
pub(super) fn keep_name(path: &Path) {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Err(error) = File::open(parent).and_then(|dir| dir.sync_all()) {
        tracing::warn!(path = %path.display(), %error, "cannot make the new file's name durable");
    }
}

pub(super) fn refused(path: &Path, why: impl Into<String>) -> DeviceError {
    DeviceError::Open { path: path.display().to_string(), why: why.into() }
}

pub(super) fn too_small(bytes: u64) -> String {
    format!("is too small ({bytes} bytes; at least {SMALLEST} are needed)")
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
