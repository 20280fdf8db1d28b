//! `holdfast sync`: everything done in a volume so far, in any of its mounts, is durable when this returns.
//!
//! The kernel does not forward sync(2) to FUSE servers, and an fsync is for one file or directory. So for the server a
//! read of the attribute `system.holdfast.sync` asks for a sync of the whole volume. As with sync(2), every user may.
//!
//! What programs have stored into mappings the kernel keeps for each mount. Other processes make it hand that over: a mount that
//! names this volume may be another user's who answers nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_daemon::ask;
use holdfast_daemon::ask_all::each;
use holdfast_daemon::mounts::{self, Mount};
use rustix::process::geteuid;

use crate::outcome::{Context, Failure, Outcome, complain};
use crate::waiting::Waiting;

/// A sync may take what it takes.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// But not because of a mount that another user has made.
const OF_OTHERS: Duration = Duration::from_secs(5);

/// Make everything done in a mounted volume durable, in all of its branches.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A mounted directory, anything in it, or a volume that is mounted.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let found = mounts::around(&args.dir).and_then(|mount| match mount {
        Some(mount) => Ok(Some(mount)),
        None => mounts::find(&args.dir),
    });
    let mount = found.context("/proc/self/mountinfo")?.ok_or_else(|| {
        Failure::plain(format!("{} is not in a mounted Holdfast volume", args.dir.display()))
    })?;
    // A name below the mount that is not there is a slip.
    if mount.dir != mounts::real_path(&args.dir) {
        args.dir.symlink_metadata().context(args.dir.display())?;
    }
    let others = mounts::beside(&mount).context("/proc/self/mountinfo")?;
    let handed = each(others, |other| hand_over(other, &mount));
    // Whatever the others say.
    Waiting::new(false).sync(&mount.dir, FOR_EVER).context(args.dir.display())?;
    for (other, handed) in handed {
        match handed {
            Err(error) if is_of_another(&other, &mount) => complain(&format!(
                "{}: {error}; what is mapped into memory there may not be durable",
                other.dir.display()
            )),
            handed => handed.context(other.dir.display())?,
        }
    }
    Ok(0)
}

/// Has the kernel hand over what programs have stored into mappings of files of `other`.
fn hand_over(other: &Mount, named: &Mount) -> io::Result<()> {
    let patience = if is_of_another(other, named) { OF_OTHERS } else { FOR_EVER };
    match ask::hand_over_pages(&other.dir, patience) {
        // One that an earlier daemon has left.
        Err(error) if mounts::is_dead(&error) => Ok(()),
        handed => handed,
    }
}

/// Whether neither root nor this user has mounted it, nor the one whose mount was named.
fn is_of_another(other: &Mount, named: &Mount) -> bool {
    ![0, geteuid().as_raw(), named.owner].contains(&other.owner)
}
