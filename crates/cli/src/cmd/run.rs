//! `holdfast run`: a command runs in a fork of its own.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use holdfast_base::prng;
use holdfast_daemon::mounts::{self, real_path};
use holdfast_daemon::private_mount::{self, Ended, Prepared, Signals};
use holdfast_service::branches::temporary::Purpose;
use rustix::fs::{Mode, mkdir};

use crate::branches::{Ask, Name, Origin, TreeLocation, arguments, place};
use crate::outcome::{Context, Failure, Outcome, complain};
use crate::txn::base::Base;
use crate::txn::sweep;

/// Run a command in a fork of a branch or snapshot, and throw the fork away.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fork is mounted for COMMAND, and all that it starts, alone: at the directory that --at names, or
at one that is made for it. There COMMAND begins. When it has ended, the fork goes with all that it
did, and processes that it leaves behind get errors; --keep NAME makes it a branch that stays, also
if COMMAND fails, but not if it never begins. PLACE is a mounted directory, or a volume that is
mounted; without it, the mount around the working directory. :BRANCH or @SNAPSHOT behind it mean the
same as --fork.

An ordinary user needs user namespaces and /dev/fuse; sudo and the like do not work in COMMAND then.

Exit code: that of COMMAND, 128+N if signal N has ended it; 125 if holdfast itself fails; 126 or 127
if COMMAND cannot be run or is not there.

  holdfast run mnt -- make test
  holdfast run --fork main@monday --at /srv/app volume.img -- /srv/app/start
  holdfast run --fork base --keep agent-17 mnt -- agent --task 17")]
pub(crate) struct Args {
    /// What the fork begins with (default: what is mounted, as it is now).
    #[arg(long, value_name = "BRANCH[@SNAPSHOT]", value_parser = place::origin)]
    fork: Option<Origin>,
    /// Mount the fork at this directory, which exists.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// Keep the fork as a branch of this name.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    keep: Option<Name>,
    /// A mounted directory, or a volume that is mounted.
    #[arg(value_parser = arguments::place())]
    place: Option<TreeLocation>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    in_fork(args).map_err(private_mount::told)
}

fn in_fork(args: &Args) -> Outcome {
    let signals = Signals::catch().context("signals")?;
    let prepared = Prepared::start(&args.command)?;
    let (base, mut fork) = fork(args)?;
    if let Some(signal) = signals.came() {
        return Ok(signal);
    }
    let made = match &args.at {
        Some(_) => None,
        None => Some(OwnDirectory::new()?),
    };
    let dir = args.at.as_deref().or(made.as_ref().map(|made| made.0.as_path()));
    let dir = real_path(dir.unwrap_or(Path::new(".")));
    let mounted = prepared.mount(&base.wanted(&fork.name, &dir, Some(&dir)));
    // A terminal ends the process that mounts as well, which has nothing to say then.
    if let Some(signal) = signals.came() {
        return Ok(signal);
    }
    let ready = mounted?;
    if let Some(name) = &args.keep {
        fork.keep(name)?;
    }
    let mut running = match ready.begin() {
        Ok(running) => running,
        Err(failure) => {
            fork.keep_not();
            return signals.came().ok_or(failure);
        }
    };
    let code = match running.wait(&signals)? {
        Ended::Code(code) => code,
        Ended::NotRun(failure) => {
            fork.keep_not();
            return Err(failure);
        }
    };
    if args.keep.is_some() {
        // What was to be kept is durable, as far as it is known.
        running.sync().context("what the command has written could not be made durable")?;
    }
    Ok(code)
}

/// Makes the fork. Its mount has the options of one of the mounts of the volume.
fn fork(args: &Args) -> Result<(Base, Fork), Failure> {
    let place = match &args.place {
        Some(place) => place.clone(),
        None => TreeLocation { path: ".".into(), branch: None, snapshot: None },
    };
    let found = mounts::find_all(&place.path).context("/proc/self/mountinfo")?;
    let base = match found.first() {
        Some(mount) => Base::of(mount.clone())?,
        None if place.path.is_dir() => Base::around(&place.path)?,
        None => {
            return Err(Failure::plain(format!(
                "{} is not mounted; mount it, or a branch of it, first",
                place.path.display()
            )));
        }
    };
    let (branch, snapshot) = place.forked(args.fork.as_ref(), "--fork")?;
    let path = match place.path.is_dir() {
        true => base.mount.dir.clone(),
        false => place.path,
    };
    let place = TreeLocation { path, branch: None, snapshot: None };
    sweep::before_run(&place, &base);
    let name = Purpose::Run.new_name().0;
    let question = Ask::Fork { branch, snapshot, name: name.clone() };
    let in_use = File::open(&base.mount.dir).context(base.mount.dir.display())?;
    place.done(&question)?;
    Ok((base, Fork { place, name, kept: None, _in_use: in_use }))
}

/// A fork that goes when it is dropped, unless it is kept.
struct Fork {
    place: TreeLocation,
    name: Name,
    /// The name that it has instead, and under which it stays.
    kept: Option<Name>,
    /// The mount by which it is deleted is not unmounted before.
    _in_use: File,
}

impl Fork {
    /// Gives it a name under which it stays.
    ///
    /// # Errors
    /// There is a branch of this name.
    fn keep(&mut self, name: &Name) -> Result<(), Failure> {
        let rename = Ask::RenameBranch { name: (&self.name).into(), new_name: name.clone() };
        self.place.done(&rename)?;
        self.kept = Some(name.clone());
        Ok(())
    }

    /// It goes after all: no command has begun in it.
    fn keep_not(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        let rename = Ask::RenameBranch { name: (&kept).into(), new_name: self.name.clone() };
        if let Err(failure) = self.place.done(&rename) {
            let why = failure.sentence;
            complain(&format!("the fork {kept}, in which nothing ran, is left: {why}"));
            self.kept = Some(kept);
        }
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        if self.kept.is_some() {
            return;
        }
        let delete = Ask::DeleteBranch { name: (&self.name).into(), number: None };
        let gone = self
            .place
            .done(&Ask::Release { name: self.name.clone() })
            .and_then(|_| self.place.done(&delete));
        if let Err(failure) = gone {
            let (name, why) = (&self.name, failure.sentence);
            complain(&format!("the fork {name} could not be deleted yet: {why}"));
        }
    }
}

/// An empty directory of this user, which goes when it is dropped.
struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn new() -> Result<OwnDirectory, Failure> {
        let path = std::env::temp_dir().join(format!("holdfast-run-{:016x}", prng::entropy()));
        mkdir(&path, Mode::RWXU).map_err(std::io::Error::from).context(path.display())?;
        Ok(OwnDirectory(path))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
