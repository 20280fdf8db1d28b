//! A volume that cannot be opened because another process has it: the refusal says how its files are reached.

use std::io;
use std::path::Path;

use crate::mounted::newest;

/// How refusals name a daemon.
const DAEMON: &str = "(holdfast)";

/// Adds to the refusal of what is in use at `path` how its files are reached; `why` they are not reached through a mount, where that was tried.
pub(crate) fn with_mount(path: &Path, error: io::Error, why: Option<&str>) -> io::Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return error;
    }
    let is_daemon = error.to_string().contains(DAEMON);
    let how = match (newest(path), why) {
        (Some(dir), None) => {
            let dir = dir.display();
            format!("it is mounted at {dir}: use its files there, or run `holdfast umount {dir}`")
        }
        (_, why) if is_daemon => {
            let path = path.display();
            let why = why.map(|why| format!("{why}; ")).unwrap_or_default();
            format!("{why}`holdfast mount {path} DIR` and `holdfast cp` work on it meanwhile")
        }
        (Some(_), Some(why)) => why.into(),
        (None, _) => return error,
    };
    io::Error::new(error.kind(), format!("{error} ({how})"))
}
