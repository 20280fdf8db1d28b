//! `holdfast mount`: the volume appears at a directory.
//!
//! In the background by default: this process starts the daemon, waits until
//! the mount can be used or has failed, and says why it failed. Exit codes
//! are those of mount(8): 0, 1 usage, 2 system, 32 mount failed.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_daemon::client::{is_there, join};
use holdfast_daemon::mount_options::DaemonOptions;
use holdfast_daemon::mounts::{self, real_path};
use holdfast_daemon::opening::{IN_USE, file_id};
use holdfast_daemon::start::{self, Notice, Supervision};
use holdfast_daemon::{hung, uring};

use crate::branches::TreeLocation;
use crate::cmd::remount;
use crate::outcome::{Context, Failure, MOUNT_FAILED, Outcome, complain, printable, with_help};

const FAILED: u8 = MOUNT_FAILED;
const USAGE: u8 = 1;
/// How often a daemon that has the volume is looked for, and how long each time: it listens a moment after it has the lock.
const TRIES: u32 = 10;
const SOON: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);

/// Mount a volume at a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A branch or a snapshot of the volume is mounted if it stands behind the volume:
  holdfast mount volume.img:work mnt             the branch `work`
  holdfast mount volume.img@monday mnt           the snapshot `monday` of `main`, read-only
  holdfast mount volume.img:work@monday mnt      the snapshot `monday` of `work`, read-only
If a file has the whole name, it is taken.

One process serves all mounts of a volume. The first starts it; others join it, each with a branch
or a snapshot and options of its own. Whoever may open the volume may join. A branch is
mounted once (mount --bind shows it elsewhere), a snapshot any number of times. commit=, cache=,
recover= and log= hold for the volume: what a later mount says of them must be the same. The process
ends with the last mount. `holdfast list` shows them all.

Options for -o, separated by commas; of several the last one counts. SIZE is a number of bytes, or
one with k, M or G.

Safety and speed:
  commit=SECONDS      a power cut takes at most the changes of the last SECONDS that no fsync made
                      durable (default 5). More saves writes; 0: time alone makes nothing durable
  recover=SECONDS     about how long mounting may take after a crash, fractions allowed (default 1).
                      Less means more writes in the background
  log_data=SIZE       an fsync with at most this much new data is one write; more data is written to
                      its place first (default 16k, less on volumes below 64M; at most 512k). Raise
                      it if programs fsync larger pieces on a device whose writes take long to begin
  slow_fsync=MS       an fsync that takes longer than MS milliseconds gets a line in the log of the
                      mount (default 1000; 0: none does)
  sync                every change is durable before its call returns: as slow as an fsync each time
  async               end that (default)
  dirsync             changes of names (create, rename, remove) are durable before the call returns
  handover            the host has every change before its call returns: a daemon that is killed
                      loses none, a power cut may take them as without. One write for each change
  nohandover          end that (default)
  supervised          a second process keeps the mounts of the volume when their filesystem process
                      dies, and starts another one: programs see a pause. It means handover
  nosupervised        end that (default)

What is mounted, for fstab; the same as behind the volume:
  branch=NAME         this branch (default main)
  snapshot=NAME       this snapshot of the branch, read-only. Quotes keep the commas of a name
                      together: branch=\"a,b\"

Memory:
  cache=SIZE          for names, attributes and other metadata (default 256M). Raise it if
                      `holdfast stats` shows a low share of look-ups answered from memory
  dirty_bytes=SIZE    for written data that is not on the device yet (default 256M, at least 4M).
                      Programs that write faster than the device wait when it is full

Free space:
  discard             some seconds after it was used last, it becomes holes of the file, or is
                      discarded on the block device (default for files with holes)
  nodiscard           it stays with the volume until `holdfast trim` (default for block devices)

Reading and access times:
  ro, rw              write nothing at all, or allow it (default rw)
  noatime             reading never changes access times
  relatime            it does so once a day, and after each change of the file (default)
  strictatime         it always does so
  nodiratime          reading a directory never changes its access time

Users and permissions:
  allow_other         other users may use the mount (default if root mounts)
  noallow_other       they may not (default if another user mounts)
  nodefault_permissions  the kernel leaves the check of permissions to the filesystem process. Then
                      only the user who mounts may use the mount. For tests
  uid=USER, gid=GROUP  everything is shown as this user's or group's, and what is made belongs to
                      the owner of the volume's root directory. Set-id bits and access control
                      lists mean nothing then
  umask=OCTAL         nothing has these permission bits
  squash=WHO          root, or all: they act as the owner of the root directory, as with NFS
                      (default none)
  nodev, nosuid, noexec, nosymfollow  as in mount(8)

How the kernel and the filesystem process talk; the defaults suit nearly everything:
  threads=N           threads that take requests at the same time, 1 to 64 (default: processors, but
                      2 to 16). More if many programs read at once from a fast device
  spin=MICROSECONDS   how long a thread looks for the next request before it sleeps (default 50,
                      above four processors 0; at most 10000). 0 saves processor time and makes
                      requests slower
  transport=WAY       how requests come: auto (default), device (/dev/fuse), or rings (io_uring;
                      saves time where several threads do not fsync). Where root has not
                      allowed rings, the mount says on a terminal how to allow them for good
  noxattr             no extended attributes, access control lists or file capabilities: a fifth
                      fewer requests while files are unpacked
  open=SIDE           what opens files: server (default), or kernel, which opens and closes files
                      without a request. Faster for programs that open the same files again and
                      again; errors of lost data are then kept for a file, not for each program
                      that has it open

Snapshots:
  snapdir=WHO         .snapshots in the root of the mount has the snapshots of the branch: mkdir
                      takes one, rmdir deletes one, mv renames one. hidden (default: it is there,
                      and not listed), visible (listed), or off

Mounting:
  remount             change a mount in use: ro, rw, access times, sync, nodev, nosuid, noexec and
                      nosymfollow. Nothing else can change, and what was opened read-only stays so
  nofail              a missing volume is no error
  log=FILE            the messages of the filesystem process go here instead of the system log; only
                      the owner reads a file that is new, as lines name files
context= and its kin go to SELinux, if there is one. user and users mean noexec,nosuid,nodev,
owner and group nosuid,nodev, unless later options say otherwise. auto, noauto, defaults, _netdev,
loop, fsname=, subtype= and x-* are accepted and mean nothing here; so do lazytime, norelatime,
silent, acl, user_xattr and iversion, since it is so anyway. bind, move, shared and their kin,
offset=, quotas and mand are refused: the error says what does that.

A line for /etc/fstab, with mount.holdfast linked to this program in /sbin:
  /srv/data.holdfast  /mnt/data  holdfast  rw,noatime,nofail  0 0")]
pub(crate) struct Args {
    /// Stay in the foreground until the volume is unmounted, and log to stderr.
    #[arg(long)]
    foreground: bool,
    /// Keep the filesystem process, with what it has in memory, when nothing of the volume is mounted any more: until
    /// `holdfast umount` of the volume, or SIGTERM.
    #[arg(long)]
    linger: bool,
    /// Options, separated by commas; they are listed below.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// This process is the daemon and its stdout leads to the one that waits.
    #[arg(long, hide = true)]
    detached: bool,
    /// The standard input of the daemon leads to its supervisor.
    #[arg(long, hide = true, requires = "detached")]
    supervised: bool,
    /// The branch, for the daemon.
    #[arg(long, hide = true, requires = "detached")]
    branch: Option<String>,
    /// The snapshot, for the daemon.
    #[arg(long, hide = true, requires = "detached")]
    snapshot: Option<String>,
    /// The volume: a file or a block device; :BRANCH and @SNAPSHOT may stand behind it.
    target: PathBuf,
    /// An existing directory, at which the files appear.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = DaemonOptions::parse(args.options.iter().map(String::as_str), false)
        .map_err(|why| Failure::new(USAGE, why))?;
    if options.remount {
        return remount::remount(&args.dir, &args.options, false);
    }
    if args.detached {
        let mut options = options;
        options.branch = args.branch.clone();
        options.snapshot = args.snapshot.clone();
        options.read_only |= options.snapshot.is_some();
        let stands = match (args.supervised, options.supervised) {
            (true, _) => Supervision::Below,
            (false, true) => Supervision::Above,
            (false, false) => Supervision::Alone,
        };
        return start::detached(&args.target, &args.dir, &options, args.linger, stands);
    }
    let place = TreeLocation::parse(args.target.as_os_str());
    let how = ServeOptions { foreground: args.foreground, linger: args.linger };
    match mount(&place, &args.dir, &options, &args.options, how) {
        Err(failure) if options.nofail && !place.path.exists() => {
            complain(&format!("{} (nofail)", with_help(failure).sentence));
            Ok(0)
        }
        other => other,
    }
}

/// How a volume is served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServeOptions {
    /// By this process.
    pub(crate) foreground: bool,
    /// Also when nothing is mounted any more.
    pub(crate) linger: bool,
}

/// Checks what a person can get wrong, then serves, joins the daemon that has the volume, or starts one.
pub(crate) fn mount(
    place: &TreeLocation,
    dir: &Path,
    options: &DaemonOptions,
    lists: &[String],
    how: ServeOptions,
) -> Outcome {
    let target = place.path.as_path();
    let mut options = options.clone();
    options
        .choose(place.branch.as_ref(), place.snapshot.as_ref())
        .map_err(|why| Failure::new(USAGE, why))?;
    for path in [target, dir] {
        // A daemon that was killed and cannot end keeps the volume, and makes every process that looks at its mount
        // wait. What it has left says so below.
        if let Ok(Some(mount)) = mounts::find(path) {
            let _ = hung::end_if_hung(&mount);
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
    if dir.parent().is_none() {
        let why = "a mount over / hides all that is there, and no program would be found any more: name another directory";
        return Err(Failure::new(FAILED, why));
    }
    if let Some(log) = &options.log
        && file_id(log).is_some_and(|id| Some(id) == file_id(&volume))
    {
        let why = format!("log={}: that is the volume itself; name another file", log.display());
        return Err(Failure::new(USAGE, why));
    }
    if how.foreground && options.supervised {
        let why = "a supervisor stands in the background: leave out --foreground, or supervised";
        return Err(Failure::new(USAGE, why));
    }
    if how.foreground {
        return start::foreground(&volume, &dir, &options, how.linger);
    }
    let mut tries = 0;
    loop {
        if join(&volume, &dir, &options, lists, how.linger, || Ok(()))? {
            return Ok(0);
        }
        match start::start(&volume, &dir, &options, lists, how.linger, &mut tell) {
            Ok(()) => {
                if io::stderr().is_terminal()
                    && let Some(hint) = uring::hint(&options)
                {
                    complain(&hint);
                }
                return Ok(0);
            }
            // Another daemon was faster, and has its control socket in a moment; or what has the volume is none.
            Err(failure) if failure.code == IN_USE => {
                tries += 1;
                let waiting = Stopwatch::start();
                while tries <= TRIES && waiting.elapsed() < SOON && !is_there(&volume) {
                    std::thread::sleep(PAUSE);
                }
                if tries > TRIES || !is_there(&volume) {
                    return Err(failure.with_code(FAILED));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Prints what a daemon says that starts. It need not be read, so errors are ignored.
fn tell(notice: Notice) {
    match notice {
        Notice::Done(sentence) => {
            drop(writeln!(io::stdout(), "holdfast: {}", printable(&sentence)));
        }
        Notice::Warning(sentence) => complain(&sentence),
    }
}
