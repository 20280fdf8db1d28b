//! `holdfast txn`: what a command does in a mounted directory is done as a whole, or not at all.

use std::ffi::OsString;
use std::path::PathBuf;

use holdfast_daemon::descriptors;
use holdfast_daemon::private_mount::{self, Ended, Prepared, Signals};
use holdfast_service::branches::by_time::Purpose;
use holdfast_service::branches::not_forgotten;
use holdfast_service::work::merge;

use crate::branches::{Name, arguments};
use crate::outcome::{Context, Failure, Outcome, complain, plain_words};
use crate::txn::base::Base;
use crate::txn::fork::Fork;
use crate::txn::input::Input;
use crate::txn::sweep;

/// The exit code where the branch has changed meanwhile: try again.
const CHANGED: u8 = 75;
/// How often what others did is carried over, while they go on.
const MERGES: u32 = 10;

/// Run a command whose changes to a mounted directory happen as a whole, or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
DIR is a directory in a mount of a branch. COMMAND, and all that it starts, sees a fork of the
branch there; others see the branch as ever. If COMMAND exits with 0, the branch becomes the fork in
one durable step, and its mount shows it; otherwise nothing has happened to it. It is the same after
a crash, and after SIGKILL of whatever takes part: all or nothing.

If others have changed the branch meanwhile, that is refused: what COMMAND made is kept as a branch
`txn-` and the time, with the snapshot of the same name that it began with. Reading is no change,
nor are access times. With --retry COMMAND runs again. With --theirs-if-disjoint what both did is
put together, in one step, if they have touched no common path: not the same file, under whatever
name, not the same name, and nothing below a directory that the other one has renamed or removed.
New names in one directory are fine. What COMMAND has read may be another by then; that is not
looked at.

The fork is mounted where the branch is mounted, for COMMAND alone. Other mounts of the branch
(mount --bind), what is mounted below DIR, and files that were open before are outside. The
transaction ends when COMMAND does: processes that it leaves behind get errors from then on.
Branches that COMMAND makes (holdfast fork) stay, whatever becomes of the transaction.
An ordinary user needs user namespaces and /dev/fuse; sudo and the like do not work in COMMAND then.

Exit code: that of COMMAND, 128+N if signal N has ended it; 75 if the branch has changed; 125 if
holdfast itself fails; 126 or 127 if COMMAND cannot be run or is not there.

  holdfast txn mnt -- make -C mnt install
  holdfast txn . -- sh -c 'apply-patches && run-tests'
  holdfast txn --retry mnt -- ./migrate mnt/app.db
  holdfast txn --theirs-if-disjoint mnt -- agent --task 17
  holdfast txn --dry-run mnt -- rm -rf mnt/old
  holdfast txn --keep failed mnt -- agent --task 17")]
pub(crate) struct Args {
    /// If the branch has changed meanwhile, run the command again in a new fork, up to N times; not with a pipe as its input.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_value_t = 0, default_missing_value = "10", hide_default_value = true)]
    retry: u32,
    /// If the branch has changed meanwhile elsewhere than the command has changed it, do both.
    #[arg(long, conflicts_with = "dry_run")]
    theirs_if_disjoint: bool,
    /// If the command succeeds, show what it would change, as `holdfast diff` does, and change nothing.
    #[arg(long, conflicts_with = "retry")]
    dry_run: bool,
    /// If the command fails, keep what it made as a branch of this name, and the snapshot that it began with.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    keep: Option<Name>,
    /// A directory in a mount of a branch.
    dir: PathBuf,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    transaction(args).map_err(|failure| match failure.code {
        CHANGED => failure,
        _ => private_mount::told(failure),
    })
}

fn transaction(args: &Args) -> Outcome {
    let input = match args.retry {
        0 => None,
        _ => {
            // Before this process opens any itself.
            descriptors::pass_on_descriptors();
            Some(Input::to_be_read_again()?)
        }
    };
    let signals = Signals::catch().context("signals")?;
    let mut prepared = Prepared::start(&args.command)?;
    let base = Base::around(&args.dir)?;
    sweep::before_transaction(&base);
    let mut tries = args.retry;
    loop {
        if let Some(signal) = signals.came() {
            return Ok(signal);
        }
        let mut fork = Fork::of(&base)?;
        let mut attempt = attempt(args, &base, &mut fork, prepared, &signals)?;
        let mut why = None;
        if args.theirs_if_disjoint && attempt.is_none() {
            match merged(&base, &mut fork, &signals)? {
                Ok(code) => attempt = Some(code),
                Err(because) => why = Some(because),
            }
        }
        match attempt {
            Some(code) => return Ok(code),
            None if tries > 0 => {
                tries -= 1;
                complain(&format!("{} has changed meanwhile; trying again", fork.branch()));
                drop(fork);
                input.iter().try_for_each(Input::again)?;
                prepared = Prepared::start(&args.command)?;
            }
            None => return Err(changed(&base, fork, why.as_deref())),
        }
    }
}

/// Runs the command in a fork, and returns the exit code; `None`: the branch has changed, and nothing is done. On each other way out
/// the fork is settled, or goes when it is dropped.
fn attempt(
    args: &Args,
    base: &Base,
    fork: &mut Fork,
    prepared: Prepared,
    signals: &Signals,
) -> Result<Option<u8>, Failure> {
    let working_dir = base.working_dir()?;
    let wanted = base.wanted(fork.name(), &base.mount.dir, working_dir.as_deref());
    let mounted = prepared.mount(&wanted);
    // Before the command has begun it decides nothing. A terminal ends the process that mounts as well, which has nothing to say
    // then.
    if let Some(signal) = signals.came() {
        return Ok(Some(signal));
    }
    let mut running = match mounted?.begin() {
        Ok(running) => running,
        Err(failure) => return signals.came().map(Some).ok_or(failure),
    };
    let code = match running.wait(signals)? {
        Ended::NotRun(failure) => return Err(failure),
        Ended::Code(code) => code,
    };
    if code != 0 {
        drop(running);
        if let Some(name) = &args.keep
            && let Err(failure) = fork.keep(name)
        {
            let (other, why) = (Purpose::Transaction.new_name(), failure.sentence);
            fork.keep(&other)?;
            complain(&format!("what the command made is kept as {other}, not as {name}: {why}"));
        }
        return Ok(Some(code));
    }
    if let Some(signal) = signals.came_too_late() {
        return Ok(Some(signal));
    }
    running.sync().map_err(|error| {
        let why = plain_words(&error);
        Failure::plain(format!(
            "what the command has written could not be made durable ({why}); nothing of it is done"
        ))
    })?;
    drop(running);
    if let Some(signal) = signals.came() {
        return Ok(Some(signal));
    }
    if args.dry_run {
        fork.show_difference()?;
        return Ok(Some(0));
    }
    match fork.promote() {
        Ok(Some(forgotten)) => {
            told_of(fork.branch(), forgotten);
            Ok(Some(0))
        }
        Ok(None) => Ok(None),
        Err(failure) => Err(not_promoted(fork, &failure.sentence)),
    }
}

/// Forks the branch as it is by now, does there what was done in the fork, and has the branch become that: again, while others go on
/// changing the branch. Returns the exit code, that of a signal if one has ended it before; or within it why it is not done.
fn merged(base: &Base, fork: &mut Fork, signals: &Signals) -> Result<Result<u8, String>, Failure> {
    for _ in 0..MERGES {
        if let Some(signal) = signals.came() {
            return Ok(Ok(signal));
        }
        let mut both = Fork::of(base)?;
        match both.take_over(fork) {
            Ok(()) => {}
            Err(failure) if failure.code == merge::OVERLAP => {
                return Ok(Err(failure.sentence));
            }
            Err(failure) => {
                drop(both);
                return Err(not_promoted(fork, &failure.sentence));
            }
        }
        if let Some(signal) = signals.came() {
            return Ok(Ok(signal));
        }
        match both.promote() {
            Ok(Some(forgotten)) => {
                told_of(fork.branch(), forgotten);
                return Ok(Ok(0));
            }
            Ok(None) => {}
            Err(failure) => return Err(perhaps_merged(both, fork, &failure.sentence)),
        }
    }
    Ok(Err(format!("others have gone on changing it while that was put together {MERGES} times")))
}

/// Says it if the branch is what it is to be, and programs may not see it yet.
fn told_of(branch: &Name, forgotten: bool) {
    if !forgotten {
        complain(&not_forgotten(&format!("the transaction is done in {branch}")).sentence);
    }
}

/// The fork is kept, as what the command made may be dear.
fn changed(base: &Base, mut fork: Fork, why: Option<&str>) -> Failure {
    let name = Purpose::Transaction.new_name();
    let (branch, dir) = (fork.branch().clone(), base.mount.dir.display());
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let what =
        format!("{branch} has changed since the transaction began{why}, so nothing of it is done");
    match fork.keep(&name) {
        Ok(()) => Failure::new(
            CHANGED,
            format!(
                "{what}; what the command made is kept as the branch {name}, which began with {branch}@{name}. To \
                 have it all the same: holdfast branch promote --force {dir} {name}"
            ),
        ),
        Err(failure) => {
            let why = failure.sentence;
            Failure::new(CHANGED, format!("{what}; what the command made is not kept ({why})"))
        }
    }
}

/// If the fork can be kept, it is there, and has not become the branch.
fn not_promoted(fork: &mut Fork, why: &str) -> Failure {
    let (branch, name) = (fork.branch().clone(), Purpose::Transaction.new_name());
    Failure::plain(match fork.keep(&name) {
        Ok(()) => format!(
            "{why}; nothing of the transaction is done, and what the command made is kept as the branch {name}"
        ),
        Err(_) => format!(
            "{why}; whether the transaction is done is not known: look at {branch} when it is mounted again. It is there \
             as a whole, or not at all"
        ),
    })
}

/// As [`not_promoted`], of the fork `both`: if that can be had still, it has not become the branch. What the command made is kept
/// in any case.
fn perhaps_merged(both: Fork, fork: &mut Fork, why: &str) -> Failure {
    let is_there = both.is_there();
    drop(both);
    let failure = not_promoted(fork, why);
    match is_there {
        true => failure,
        false => Failure::plain(format!(
            "{}; or the branch has it and what others did by now: look at {} when it is mounted again",
            failure.sentence,
            fork.branch()
        )),
    }
}
