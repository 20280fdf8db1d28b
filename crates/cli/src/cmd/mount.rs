//! `holdfast mount`: the volume appears at a directory.
//!
//! In the background by default: this process starts the daemon, waits until
//! the mount can be used or has failed, and says why it failed. Exit codes
//! are those of mount(8): 0, 1 usage, 2 system, 32 mount failed.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_daemon::client::{is_there, join, name};
use holdfast_daemon::mount_options::{DaemonOptions, help};
use holdfast_daemon::mounts::{self, real_path};
use holdfast_daemon::opening::{IN_USE, file_id};
use holdfast_daemon::start::{self, Notice, Supervision};
use holdfast_daemon::{hung, report, uring};
use holdfast_service::json;
use rustix::process::geteuid;
use serde_json::Map;

use crate::branches::{TreeLocation, show};
use crate::cmd::remount;
use crate::outcome::{Context, Failure, MOUNT_FAILED, Outcome, complain, printable, with_help};

const FAILED: u8 = MOUNT_FAILED;
const USAGE: u8 = 1;
/// How often a daemon that has the volume is looked for, and how long each time: it listens a moment after it has the lock.
const TRIES: u32 = 10;
const SOON: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);

/// What stands in help before the options, and behind them.
const PLACES: &str = "\
A branch or a snapshot of the volume is mounted if it stands behind the volume:
  holdfast mount volume.img:work mnt             the branch `work`
  holdfast mount volume.img@monday mnt           the snapshot `monday` of `main`, read-only
  holdfast mount volume.img:work@monday mnt      the snapshot `monday` of `work`, read-only
If a file has the whole name, it is taken.

One process serves all mounts of a volume. The first starts it; others join it, each with a branch
or a snapshot and options of its own. Whoever may open the volume may join. A branch is mounted once
(mount --bind shows it elsewhere), a snapshot any number of times. The process ends with the last
mount. `holdfast list` shows them all.

Options for -o, separated by commas; of several the last one counts. SIZE is a number of bytes, or
one with k, M or G.

";
const FSTAB: &str = "
A line for /etc/fstab, with mount.holdfast linked to this program in /sbin:
  /srv/data.holdfast  /mnt/data  holdfast  rw,noatime,nofail  0 0

Exit codes are those of mount(8): 0, 1 usage, 2 the system gives no process or memory, 4 the daemon
has ended before the mount was ready, 32 it has failed.";

/// Mount a volume at a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{PLACES}{}{FSTAB}", help()))]
pub(crate) struct Args {
    /// Stay in the foreground until the volume is unmounted, and log to stderr.
    #[arg(long)]
    foreground: bool,
    /// Keep the filesystem process, with what it has in memory, when nothing of the volume is mounted any more: until
    /// `holdfast umount` of the volume, or SIGTERM.
    #[arg(long)]
    linger: bool,
    /// Print one JSON object, for programs: what is mounted where, and by which process.
    #[arg(long, conflicts_with = "foreground")]
    json: bool,
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
    /// The volume: a file or a block device, or a directory in which it is mounted; :BRANCH and @SNAPSHOT may stand behind it.
    target: PathBuf,
    /// An existing directory, at which the files appear.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let code = mounted(args)?;
    if args.json {
        told(&args.dir).map_err(|failure| failure.with_code(FAILED))?;
    }
    Ok(code)
}

/// Says what is mounted at a directory, if anything is: `nofail` may have left it as it was.
fn told(dir: &Path) -> Result<(), Failure> {
    let mount = mounts::find(dir).context("/proc/self/mountinfo")?;
    let Some(mount) = mount.filter(|mount| mount.dir == real_path(dir)) else { return Ok(()) };
    let report = report::ask(&mount).ok();
    let tree = report.as_ref().and_then(|report| report.mounted.as_ref());
    let [volume, dir] = name(&mount);
    let mut object = Map::new();
    json::put(&mut object, "volume", volume);
    json::put(&mut object, "directory", dir);
    object.extend([
        ("branch".into(), tree.map(|tree| tree.branch.clone()).into()),
        ("snapshot".into(), tree.and_then(|tree| tree.snapshot.clone()).into()),
        ("pid".into(), report.map(|report| report.pid).into()),
    ]);
    show::json(object).map(drop)
}

fn mounted(args: &Args) -> Outcome {
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
    let how = ServeOptions { foreground: args.foreground, linger: args.linger, json: args.json };
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
    /// A program reads standard output.
    pub(crate) json: bool,
}

/// Checks what a person can get wrong, then serves, joins the daemon that has the volume, or starts one.
pub(crate) fn mount(
    place: &TreeLocation,
    dir: &Path,
    options: &DaemonOptions,
    lists: &[String],
    how: ServeOptions,
) -> Outcome {
    let place = &mounted_place(place, options).map_err(|failure| failure.with_code(FAILED))?;
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
        match start::start(&volume, &dir, &options, lists, how.linger, &mut |it| tell(it, how.json))
        {
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

/// What is mounted in a directory stands for its volume, and for its branch or snapshot unless options name one.
fn mounted_place(place: &TreeLocation, options: &DaemonOptions) -> Result<TreeLocation, Failure> {
    let found = mounts::or_none(mounts::find(&place.path)).context("/proc/self/mountinfo")?;
    // What a stranger's mount says of its volume proves nothing.
    let is_meant = |mount: &mounts::Mount| {
        mount.dir == real_path(&place.path) && [0, geteuid().as_raw()].contains(&mount.owner)
    };
    let Some(mount) = found.filter(is_meant) else { return Ok(place.clone()) };
    let (dir, volume) = (mount.dir.display(), mount.source.display());
    if !mounts::is_whole(&mount).context(&dir)? {
        let why = format!("{dir} shows a part of a mount (mount --bind); name {volume}");
        return Err(Failure::new(FAILED, why));
    }
    let is_named = place.branch.is_some() || place.snapshot.is_some();
    if !is_named && (options.branch.is_some() || options.snapshot.is_some()) {
        return Ok(TreeLocation { path: mount.source, branch: None, snapshot: None });
    }
    let [branch, snapshot] = place.located()?.names();
    if branch.is_none() {
        let why = format!("the daemon of {dir} does not say what is mounted there; name {volume}");
        return Err(Failure::new(FAILED, why));
    }
    Ok(TreeLocation { path: mount.source, branch, snapshot })
}

/// Prints what a daemon says that starts. It need not be read, so errors are ignored.
fn tell(notice: Notice, as_json: bool) {
    match notice {
        Notice::Done(sentence) if !as_json => {
            drop(writeln!(io::stdout(), "holdfast: {}", printable(&sentence)));
        }
        Notice::Done(sentence) | Notice::Warning(sentence) => complain(&sentence),
    }
}
