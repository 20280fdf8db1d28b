//! The end of the mount of a fork that lives as long as a command.
//!
//! Such a mount lies in a namespace of the command, and ends with that. Processes that the command has left behind may keep it; they
//! get errors from then on. No other mount can be ended so.

use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use holdfast::FileSystem;
use holdfast_base::wait;
use holdfast_control::Name;
use holdfast_service::branches::answer::Refusal;
use holdfast_service::branches::temporary;
use rustix::io::Errno;

use crate::mounts;
use crate::table::{Event, Table};

/// How long a branch may take to be closed.
const CLOSING: Duration = Duration::from_secs(110);

/// Ends the mount of a fork, and returns when the fork is closed and everything of it written.
///
/// # Errors
/// It is no such fork, it is mounted where others see it or where this is asked, or it takes too long.
pub(super) fn release(table: &Weak<Table>, fs: &FileSystem, name: &Name) -> Result<(), Refusal> {
    if temporary::read(name).is_none() {
        let why = format!("`{}` is no fork of a command", name.text());
        return Err(Refusal::new(Errno::INVAL, why));
    }
    let branch = fs.find_branch(&name.0)?.number;
    // The request would wait for the end of the mount, and that for the end of the request.
    if fs.branch_number().is_ok_and(|asked| asked == branch) {
        let why = format!("`{name}` is mounted where this is asked; unmount it");
        return Err(Refusal::new(Errno::BUSY, why));
    }
    let table = table.upgrade().ok_or_else(|| Refusal::new(Errno::BUSY, "the daemon ends"))?;
    // One that is to go on for a process that has died does so in a moment. This thread serves requests, some of which that may need.
    wait::will_wait();
    table.wait_until_settled(branch, CLOSING);
    if let Some((number, true)) = table.mount_of(branch) {
        let seen = table.device_of(branch).and_then(|device| seen_at(&device));
        // If the mount has gone meanwhile, another one may have its device number.
        let is_there = matches!(table.mount_of(branch), Some((_, true)));
        if let Some(dir) = seen.filter(|_| is_there) {
            let dir = dir.display();
            let why = format!("`{name}` is mounted at {dir}, and not for a command; unmount it");
            return Err(Refusal::new(Errno::BUSY, why));
        }
        tracing::info!("{name} is still in use by what its command has left behind");
        // The thread that owns the mounts lets it go as one that has ended, and then the connection is torn away.
        table.tell(Event::Ended(number));
    }
    match table.is_closed(branch, CLOSING) {
        true => Ok(()),
        false => Err(Refusal::new(Errno::BUSY, format!("`{}` is still being closed", name.text()))),
    }
}

/// Where this process sees a device mounted. The mount of a command lies in a namespace of its own.
fn seen_at(device: &str) -> Option<PathBuf> {
    mounts::list().ok()?.into_iter().find(|mount| mount.device == device).map(|mount| mount.dir)
}
