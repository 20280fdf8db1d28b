//! `holdfast mount`: the volume appears at a directory.
//!
//! In the background by default: this process starts the daemon, waits until
//! the mount can be used or has failed, and says why it failed. Exit codes
//! are those of mount(8): 0, 1 usage, 2 system, 32 mount failed.

use std::path::{Path, PathBuf};

use crate::cmd::remount;
use crate::daemon;
use crate::mount_options::MountOptions;
use crate::mounts::{self, real_path};
use crate::outcome::MOUNT_FAILED;
use crate::outcome::{Context, Failure, Outcome, complain};

const FAILED: u8 = MOUNT_FAILED;
const USAGE: u8 = 1;

/// Mount a volume at a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Options for -o, separated by commas; later ones win:
  ro, rw              write nothing; or do (default rw)
  noatime             reading never updates access times
  relatime            it does so at most once a day or after a change (default)
  strictatime         it always does so
  commit=SECONDS      with no fsync at all, at most this much is lost (default 5)
  threads=N           threads that read requests at the same time (default: CPUs, 2 to 16)
  spin=MICROSECONDS   how long one of them looks for the next request before it sleeps (default
                      50, above four CPUs 0); 0 saves processor time
  transport=WAY       how the kernel's requests come: auto (default), device (/dev/fuse), or rings
                      (io_uring, faster; root allows them in the module fuse: enable_uring)
  open=WHO            who opens files: server (default) or kernel, which asks nobody: what it has in
                      memory is opened and closed for free, but of several programs with a
                      file open only the first to fsync it hears that data of it was lost
  cache=SIZE          memory for tree nodes (default 256M)
  dirty_bytes=SIZE    memory for data not yet written (default 256M)
  recover=SECONDS     how long mounting may take after a crash (default 1); less means more
                      checkpoints
  log_data=SIZE       so much data of its file an fsync puts into the fsync log (default 16k,
                      less on small volumes)
  slow_fsync=MS       an fsync that takes longer gets a line in the daemon's log (default 1000;
                      0: none does)
  allow_other         other users may use the mount (default for root)
  noallow_other       they may not (default for everybody else)
  nodefault_permissions  the kernel does not check permission bits; then nobody but the user who
                      mounts may use the mount
  nodiratime          reading never updates access times of directories
  sync                every change is durable before the call returns
  dirsync             changes of names are
  nodev, nosuid, noexec, nosymfollow  as in mount(8)
  remount             change these of a mount: ro, rw, access times, sync, nodev and the like; what
                      was opened read-only stays so, and nothing else can change
  nofail              a missing volume is no error
  log=FILE            the daemon's log goes here instead of the system log
context= and its kin go to SELinux, if there is one. auto, noauto, user, users, owner, group,
defaults, _netdev, fsname=, subtype= and x-* are accepted and mean nothing here; so do lazytime,
nostrictatime, norelatime, silent, acl, user_xattr and iversion, since it is so anyway.

A line for /etc/fstab, with mount.holdfast linked to this program in /sbin:
  /srv/data.holdfast  /mnt/data  holdfast  rw,noatime,nofail  0 0")]
pub(crate) struct Args {
    /// Do not go into the background; log to stderr.
    #[arg(long)]
    foreground: bool,
    /// Options, separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// This process is the daemon and its stdout leads to the one that waits.
    #[arg(long, hide = true)]
    detached: bool,
    /// The volume: a file or a block device.
    target: PathBuf,
    /// An existing directory.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = MountOptions::parse(args.options.iter().map(String::as_str), false)
        .map_err(|why| Failure::new(USAGE, why))?;
    if options.remount {
        return remount::remount(&args.dir, &args.options, false);
    }
    if args.detached {
        return daemon::detached(&args.target, &args.dir, &options);
    }
    match mount(&args.target, &args.dir, &options, &args.options, args.foreground) {
        Err(failure) if options.nofail && !args.target.exists() => {
            complain(&format!("{} (nofail)", failure.sentence));
            Ok(0)
        }
        other => other,
    }
}

/// Checks what a person can get wrong, then serves or starts the daemon.
pub(crate) fn mount(
    target: &Path,
    dir: &Path,
    options: &MountOptions,
    lists: &[String],
    foreground: bool,
) -> Outcome {
    for path in [target, dir] {
        // A daemon that was killed and cannot end keeps the volume, and makes every process that looks at its mount
        // wait. What it has left says so below.
        if let Ok(Some(mount)) = mounts::find(path) {
            let _ = mounts::end_if_dying(&mount);
        }
    }
    let volume = target
        .canonicalize()
        .context(target.display())
        .map_err(|failure| failure.with_code(FAILED))?;
    let found = std::fs::metadata(dir)
        .context(dir.display())
        .map_err(|failure| failure.with_code(FAILED))?;
    if !found.is_dir() {
        let sentence = format!("{} is not a directory", dir.display());
        return Err(Failure::new(FAILED, sentence));
    }
    let dir = real_path(dir);
    if foreground {
        daemon::foreground(&volume, &dir, options)
    } else {
        daemon::start(&volume, &dir, lists)
    }
}
