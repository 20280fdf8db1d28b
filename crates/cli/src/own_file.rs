//! Files that a command writes at a path which may lead through a directory where all users make names.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// A file to write lines behind what it has, which is made for this user alone: lines name what lies in a volume. What others have put
/// there is not followed, not written and not waited for.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let is_link = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && !is_ours(&found) => {
            return Err(refused("another user has put a symbolic link there"));
        }
        found => found.is_ok_and(|found| found.is_symlink()),
    };
    // A link of this user's is followed once, and not what takes its place.
    let real = if is_link { path.canonicalize()? } else { path.into() };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut how = File::options();
    how.create(true).append(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = how.open(real)?;
    let found = file.metadata()?;
    if found.file_type().is_char_device() {
        return Ok(file);
    }
    if !found.is_file() {
        return Err(refused("it is no file"));
    }
    if !is_ours(&found) {
        return Err(refused("it belongs to another user, who could read what is written"));
    }
    if found.nlink() > 1 {
        return Err(refused("it has other names, which another user may have made"));
    }
    Ok(file)
}

/// A new file for this user alone, or a terminal or pipe of this user that is there. Nothing that is there is overwritten, whatever its
/// name leads to: it may be what the command reads.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let takes_bytes = |found: &Metadata| {
        is_ours(found) && (found.file_type().is_char_device() || found.file_type().is_fifo())
    };
    if std::fs::symlink_metadata(path).is_ok_and(|found| is_ours(&found)) {
        // Held before it is judged: an open for writing would wait for a reader of a pipe that has taken its place.
        let flags = OFlags::PATH.bits().cast_signed();
        let held = File::options().read(true).custom_flags(flags).open(path)?;
        return match takes_bytes(&held.metadata()?) {
            true => File::options().write(true).open(format!("/proc/self/fd/{}", held.as_raw_fd())),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        };
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether no other user has made it.
fn is_ours(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}
