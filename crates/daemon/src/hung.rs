//! Mounts whose daemon was killed and cannot end.

use std::fs;
use std::io;
use std::time::Duration;

use holdfast_fuse::connection::{self, Connection};

use crate::ask::{self, REPORT};
use crate::mounts::{Mount, is_there};

/// How long a mount may take to answer before it counts as one that does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process that serves the volume of a mount, as far as that can be believed: the source that a stranger's mount names
/// may be any file in use, or one whose very name is never found.
pub fn daemon_of(mount: &Mount) -> Option<u32> {
    let believed = [0, rustix::process::geteuid().as_raw()].contains(&mount.owner);
    let holder = if believed { holdfast_device::holding_process(&mount.source) } else { None };
    holder.map(|holder| daemon_below(holder).unwrap_or(holder))
}

/// The daemon of a supervisor, which is what holds the volume then. A daemon that is dying has no arguments any more, but its
/// supervisor has.
fn daemon_below(holder: u32) -> Option<u32> {
    let arguments = fs::read(format!("/proc/{holder}/cmdline")).ok()?;
    let mut words = arguments.split(|byte| *byte == 0);
    let has_option = |list: &[u8]| list.split(|byte| *byte == b',').any(|it| it == b"supervised");
    if !words.any(has_option) {
        return None;
    }
    let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).ok()?;
    children.split_whitespace().next_back()?.parse().ok()
}

/// Aborts the connection of a mount whose daemon was killed and cannot end, because the kernel waits for the daemon's
/// answers. True if that is so: from then on it is a mount whose daemon is dead.
///
/// # Errors
/// It is so, and this user may not abort it.
pub fn end_if_hung(mount: &Mount) -> io::Result<bool> {
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
