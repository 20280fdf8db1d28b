//! Mounts whose daemon was killed and cannot end.

use std::io;
use std::time::Duration;

use holdfast_fuse::connection::{self, Connection};

use crate::daemon::ask::{self, REPORT};
use crate::mounts::{Mount, is_there};

/// How long a mount may take to answer before it counts as one that does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process that holds the volume of a mount, as far as that can be believed: the source that a stranger's mount names
/// may be any file in use, or one whose very name is never found.
pub(crate) fn daemon_of(mount: &Mount) -> Option<u32> {
    let believed = [0, rustix::process::geteuid().as_raw()].contains(&mount.owner);
    if believed { holdfast_device::holding_process(&mount.source) } else { None }
}

/// Aborts the connection of a mount whose daemon was killed and cannot end, because the kernel waits for the daemon's
/// answers. True if that is so: from then on it is a mount whose daemon is dead.
///
/// # Errors
/// It is so, and this user may not abort it.
pub(crate) fn end_if_dying(mount: &Mount) -> io::Result<bool> {
    if !daemon_of(mount).is_some_and(connection::is_dying) {
        return Ok(false);
    }
    // Any user that may read a file can hold a lock on it. A mount that answers is served, whatever has ended.
    let answer = ask::attribute(&mount.dir, REPORT, PATIENCE);
    if !answer.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        return Ok(false);
    }
    let connection = Connection::open(&mount.device)?;
    // The kernel reuses device numbers: only while the mount is still there is the number its own.
    if !is_there(mount)? {
        return Ok(false);
    }
    connection.abort().map(|()| true)
}
