//! The last steps: the fork becomes what was sent, and that becomes the branch's.

use holdfast::{Branch, Volume};
use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{FileType, FsError};

use super::tree::Tree;
use super::{Goal, Received};
use crate::error::Doing;
use crate::record::Begin;
use crate::{Result, StreamError, origin, partial};

/// Names that are removed at once.
const PORTION: usize = 256;

pub(super) fn finish(
    volume: &Volume,
    begin: &Begin,
    goal: Goal,
    mut tree: Tree<'_>,
) -> Result<Received> {
    let taken = leave_parking(&mut tree).and_then(|()| take(&tree, begin));
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
    match goal {
        Goal::New(to) => {
            fork.rename(&to).doing(|| format!("branch {to}"))?;
            Ok((fork, None))
        }
        Goal::Branch(to) => {
            let kept = changes_of_its_own(volume, begin, &to)?;
            to.replace_by(fork, kept.as_deref()).doing(|| format!("branch {}", to.name()))?;
            Ok((to, kept))
        }
    }
}

/// What is still parked is gone. Then the root is what it was at the sender.
fn leave_parking(tree: &mut Tree<'_>) -> Result<()> {
    tree.open = None;
    let (fs, caller) = (&tree.fs, &tree.caller);
    let what = || "what is parked".to_string();
    loop {
        let mut names = Vec::new();
        fs.readdir(tree.parking, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.file_type));
            }
            names.len() < PORTION
        })
        .doing(what)?;
        if names.is_empty() {
            break;
        }
        for (name, file_type) in names {
            let done = match file_type {
                FileType::Directory => fs.rmdir(caller, tree.parking, &name),
                _ => fs.unlink(caller, tree.parking, &name),
            };
            match done {
                Err(FsError::NotEmpty) => {
                    return StreamError::refused(
                        "the stream removes a directory and leaves names in it",
                    );
                }
                done => done.doing(what)?,
            }
        }
    }
    let directory = partial::directory(&tree.begin.stream);
    fs.rmdir(caller, InodeNo::ROOT, directory.as_bytes()).doing(what)
}

/// Takes the snapshot, with the word where it comes from.
fn take(tree: &Tree<'_>, begin: &Begin) -> Result<()> {
    let name = &begin.snapshot.snapshot;
    let put = |tree: &Tree<'_>, number: u64| {
        origin::put(&tree.fs, number, &begin.snapshot.ids)?;
        let set = tree.fs.setattr(&tree.caller, InodeNo::ROOT, None, tree.root);
        set.map(drop).doing(|| format!("snapshot {name}"))
    };
    tree.take(name, put).map(drop)
}

/// The name for what a branch is, if it is not what the stream continues.
fn changes_of_its_own(volume: &Volume, begin: &Begin, branch: &Branch) -> Result<Option<String>> {
    let Some(base) = &begin.base else { return Ok(None) };
    let Some(base) = origin::find(volume, &base.ids)? else { return Ok(None) };
    let what = || format!("what has changed in {}", branch.name());
    let mut changes = volume.diff(base.moment(), branch.moment(), false).doing(what)?;
    let first = changes.next().transpose().doing(what)?;
    let now = Timestamp::now();
    Ok(first.map(|_| format!("before-receive-{}.{:09}", now.secs, now.nanos)))
}
