//! `mount -o remount`: what a mount can change while it is used.
//!
//! The kernel has bits for it: `ro`, access times, `sync`, and what programs may do with files. The daemon gets those
//! that it keeps itself. Everything else was decided when the volume was opened. fstab's options come along with each
//! remount, so an option that says the same as then is not refused.

use std::path::Path;
use std::time::Duration;

use holdfast::Atime;
use holdfast_daemon::dispatch::not_mounted;
use holdfast_daemon::mount_options::{DaemonOptions, as_shown, split};
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::{ask, report};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::outcome::MOUNT_FAILED;
use crate::outcome::{Context, Failure, Outcome, plain_words};

/// The attribute by which the daemon gets them.
const REMOUNT: &str = "system.holdfast.remount";
/// How long it gets to write everything when nothing may be written any more.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the kernel shows of a mount of this kind, and its own helper passes on. These cannot be asked for.
const SHOWN: [&str; 6] = ["user_id", "group_id", "rootmode", "fd", "max_read", "blksize"];

/// Changes the mount at `dir` as the lists say; with `sloppy` unknown options are ignored.
pub(super) fn remount(dir: &Path, lists: &[String], sloppy: bool) -> Outcome {
    let failed = |why: String| Failure::new(MOUNT_FAILED, format!("{}: {why}", dir.display()));
    let mount = at(dir)?;
    let report = report::ask(&mount).map_err(|error| failed(plain_words(&error)))?;
    let now = present(&mount, &report)?;
    let is_shown = |option: &&str| SHOWN.contains(&option.split('=').next().unwrap_or_default());
    let is_known = |option: &&str| DaemonOptions::parse([*option], false).is_ok();
    let options = lists.iter().flat_map(|list| split(list));
    let options: Vec<&str> =
        options.filter(|it| !is_shown(it) && (!sloppy || is_known(it))).collect();
    let usage = |why| Failure::new(1, why);
    let refused = now.not_to_be_changed(&options).map_err(usage)?;
    if !refused.is_empty() {
        let refused = refused.join(",");
        let why = "cannot change while it is mounted; unmount it and mount it again";
        return Err(failed(format!("{refused} {why}")));
    }
    let mut wanted = now.clone();
    for option in options {
        wanted.set(option).map_err(usage)?;
    }
    if report.read_only && !wanted.read_only {
        let why = "was opened read-only and stays so; unmount it and mount it again to write";
        return Err(failed(format!("{} {why}", mount.source.display())));
    }
    change(&mount, &now, &wanted).map(|()| 0)
}

/// Makes the mount at `dir` read-only.
pub(super) fn read_only(dir: &Path) -> Result<(), Failure> {
    remount(dir, &["ro".into()], false).map(drop)
}

fn at(dir: &Path) -> Result<Mount, Failure> {
    let real = mounts::real_path(dir);
    let mounts = mounts::list().context("/proc/self/mountinfo")?;
    let found = mounts.into_iter().rfind(|mount| mount.dir == real);
    found.ok_or_else(|| not_mounted(dir).with_code(MOUNT_FAILED))
}

/// The options as they are now: what the daemon was started with, and the kernel's bits.
fn present(mount: &Mount, report: &report::Report) -> Result<DaemonOptions, Failure> {
    let words = mounts::words(mount).context("/proc/self/mountinfo")?;
    let now = DaemonOptions::parse([as_shown(&report.options, &words).as_str()], true);
    let mut now = now.map_err(|why| Failure::new(MOUNT_FAILED, why))?;
    let is = |word: &str| words.iter().any(|it| it == word);
    now.allow_other = Some(is("allow_other"));
    now.nodefault_permissions = !is("default_permissions");
    Ok(now)
}

fn change(mount: &Mount, now: &DaemonOptions, wanted: &DaemonOptions) -> Result<(), Failure> {
    let dir = mount.dir.display();
    let told =
        |error: Errno| Failure::new(MOUNT_FAILED, format!("{dir}: {}", plain_words(&error.into())));
    // A mount that is read-only takes no request to change.
    if !now.read_only && wanted.read_only {
        tell(mount, wanted).map_err(told)?;
    }
    let bits = wanted.fuse(&mount.source);
    if let Err(error) = holdfast_fuse::remount(&mount.dir, &bits) {
        if !now.read_only && wanted.read_only {
            let _ = tell(mount, now);
        }
        let why = match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => "is busy: a program has files open for writing".into(),
            _ => plain_words(&error),
        };
        return Err(Failure::new(MOUNT_FAILED, format!("{dir} {why}")));
    }
    if !wanted.read_only {
        return tell(mount, wanted).map_err(told);
    }
    // A program that sees a read-only mount may take the volume to be at rest.
    ask::attribute(&mount.dir, ask::SYNC, PATIENCE).map(drop).map_err(|error| {
        let what = "is read-only now, but not everything could be written";
        Failure::new(MOUNT_FAILED, format!("{dir} {what}: {}", plain_words(&error)))
    })
}

/// Tells the daemon what it keeps itself. On a read-only mount reading changes nothing.
fn tell(mount: &Mount, options: &DaemonOptions) -> Result<(), Errno> {
    let atime = match options.atime {
        _ if options.read_only => "noatime",
        Some(Atime::Never) => "noatime",
        Some(Atime::Always) => "strictatime",
        _ => "relatime",
    };
    let directories = if options.nodiratime { ",nodiratime" } else { "" };
    let durable = match (options.sync, options.dirsync) {
        (true, _) => "sync",
        (_, true) => "dirsync",
        _ => "async",
    };
    let words = format!("{atime}{directories},{durable}");
    rustix::fs::setxattr(&mount.dir, REMOUNT, words.as_bytes(), XattrFlags::empty())
}
