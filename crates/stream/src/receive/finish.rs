//! The last steps: the fork becomes what was sent, and that becomes the branch's.

use std::io::ErrorKind;

use holdfast::{Branch, Volume};
use holdfast_base::Timestamp;

use super::tree::Tree;
use super::{Goal, Received};
use crate::error::Doing;
use crate::record::Begin;
use crate::{Result, StreamError, origin};

pub(super) fn finish(
    volume: &Volume,
    begin: &Begin,
    goal: Goal,
    mut tree: Tree<'_>,
) -> Result<Received> {
    let taken = tree.files.leave_parking().and_then(|()| take(&tree, begin));
    let branch = tree.branch.clone();
    if let Err(error) = taken {
        tree.leave(false);
        return Err(error);
    }
    let resume_point = tree.kept.clone();
    tree.close()?;
    let (branch, kept) = last_step(volume, begin, goal, branch)?;
    // Not before: until then a crash leaves what can go on. One that stays goes with the next receive.
    if let Some(point) = resume_point
        && let Ok(found) = branch.snapshot_named(point.name())
        && found.number() == point.number()
    {
        let _ = found.delete();
    }
    let snapshot = format!("{}@{}", branch.name(), begin.snapshot.snapshot);
    Ok(Received { snapshot, was_here: false, kept })
}

/// The fork becomes the branch, which is returned, with the name of what that was if it had changes of its own.
fn last_step(
    volume: &Volume,
    begin: &Begin,
    goal: Goal,
    mut fork: Branch,
) -> Result<(Branch, Option<String>)> {
    let name = fork.name().to_owned();
    match goal {
        Goal::New(to) => {
            fork.rename(&to)
                .doing(|| format!("branch {to}"))
                .map_err(|error| left(error, &name))?;
            Ok((fork, None))
        }
        Goal::Branch(to) => {
            let kept = turn(volume, begin, &to, fork).map_err(|error| left(error, &name))?;
            Ok((to, kept))
        }
    }
}

/// All has come, and cannot become the branch's: says where it is.
fn left(error: StreamError, name: &str) -> StreamError {
    match error {
        StreamError::Volume { what, source } => {
            let what = format!(
                "the snapshot has come and is kept as branch {name} (rename that, or receive the stream again), and could not become more: {what}"
            );
            StreamError::Volume { what, source }
        }
        other => other,
    }
}

/// The branch becomes what the fork is. What programs have written there is kept, also if they write until this happens: returns
/// the name of the snapshot that has it, `None` if they have written nothing.
fn turn(volume: &Volume, begin: &Begin, to: &Branch, fork: Branch) -> Result<Option<String>> {
    let what = || format!("branch {}", to.name());
    // The engine would not ask for more than the youngest snapshot that both have grown out of. Behind a rollback that is another one.
    if !has_changes(volume, begin, to)? {
        match to.promote(fork.clone(), None) {
            // A write came since.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done.map(|()| None).doing(what),
        }
    }
    let now = Timestamp::now();
    let keep = format!("before-receive-{}.{:09}", now.secs, now.nanos);
    to.replace_by(fork, Some(&keep)).doing(what)?;
    Ok(Some(keep))
}

/// Takes the snapshot, with the word where it comes from.
fn take(tree: &Tree<'_>, begin: &Begin) -> Result<()> {
    tree.files.end_root()?;
    let (branch, sent) = (tree.branch.number(), &begin.snapshot);
    origin::take(&tree.files.fs, branch, &sent.snapshot, &sent.ids)
}

/// Whether a branch is not what the stream continues, as far as that is still here.
fn has_changes(volume: &Volume, begin: &Begin, branch: &Branch) -> Result<bool> {
    let Some(base) = &begin.base else { return Ok(false) };
    let Some(base) = origin::find(volume, &base.ids)? else { return Ok(false) };
    let what = || format!("what has changed in {}", branch.name());
    let mut changes = volume.diff(base.moment(), branch.moment(), false).doing(what)?;
    Ok(changes.next().transpose().doing(what)?.is_some())
}
