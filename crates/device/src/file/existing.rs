//! Opens a file or block device that is there, makes one longer, and keeps its name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::open::{held, hold, reason, refused};
use super::{OpenMode, SMALLEST, lock};
use crate::DeviceError;

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

pub(super) fn too_small(bytes: u64) -> String {
    format!("is too small for a volume ({bytes} bytes; at least {SMALLEST} are needed)")
}
