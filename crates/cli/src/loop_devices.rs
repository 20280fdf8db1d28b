//! Which loop device stands on a file: what is written into the file behind its back is an unexpected change.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The block devices of this machine.
const DEVICES: &str = "/sys/block";

/// The first loop device over the file at `path`, as far as the system tells.
pub(crate) fn over(path: &Path) -> Option<PathBuf> {
    let file = path.canonicalize().ok()?;
    let devices = fs::read_dir(DEVICES).ok()?.flatten().filter(|device| {
        let behind = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        behind.strip_suffix(b"\n") == Some(file.as_os_str().as_bytes())
    });
    let mut names: Vec<_> = devices.map(|device| device.file_name()).collect();
    names.sort_unstable();
    names.first().map(|name| Path::new("/dev").join(name))
}
