//! What a stream needs: its base, a branch to go to, and a fork to be obeyed in.

use std::io::Read;

use holdfast::{Branch, Snapshot, Volume};
use holdfast_base::InodeNo;
use holdfast_posix::{SetAttr, SetTime, judge_branch_name};

use super::state::{self, Headway};
use super::tree::{Parts, Tree};
use super::{Goal, Received, of_volume};
use crate::error::Doing;
use crate::files::{Parking, make_parking};
use crate::frame::FrameReader;
use crate::record::{Begin, IDS_MAX, Named, Resume};
use crate::{Result, StreamError, origin, partial};

/// How a receive begins.
pub(super) enum Start<'a> {
    /// There is nothing to do.
    WasHere(Received),
    Ready(Box<Prepared<'a>>),
}

/// A fork and where it goes.
pub(super) struct Prepared<'a> {
    pub(super) goal: Goal,
    pub(super) tree: Tree<'a>,
}

/// Fails if the begin of a stream makes no sense.
pub(super) fn judge(begin: &Begin) -> Result<()> {
    let named = |of: &Named| {
        let names = [&of.branch, &of.snapshot];
        let are_names = names.iter().all(|name| judge_branch_name(name.as_bytes()).is_ok());
        are_names && (1..=IDS_MAX).contains(&of.ids.len())
    };
    if !named(&begin.snapshot) || !begin.base.as_ref().is_none_or(named) {
        return StreamError::refused("the stream names snapshots as none can be named");
    }
    if begin.stream != begin.stream_id() {
        return StreamError::refused("the stream is not of the snapshots that it names");
    }
    if partial::is_receiving(&begin.snapshot.branch) {
        return StreamError::refused("the stream is of a receive that is not whole");
    }
    Ok(())
}

/// Finds the base and the goal, and makes the fork, or goes on with one.
pub(super) fn prepare<'a, R: Read>(
    volume: &Volume,
    from: &mut FrameReader<R>,
    begin: &'a Begin,
    wanted: Option<&str>,
) -> Result<Start<'a>> {
    state::sweep(volume)?;
    if let Some(here) = origin::find(volume, &begin.snapshot.ids)? {
        // Or the sender's pipe would break, and it would tell of an error.
        from.drain()?;
        let snapshot = format!("{}@{}", here.branch().name(), here.name());
        return Ok(Start::WasHere(Received { snapshot, was_here: true, kept: None }));
    }
    let base = match &begin.base {
        None => None,
        Some(base) => {
            Some(origin::find(volume, &base.ids)?.ok_or_else(|| wrong_base(begin, base))?)
        }
    };
    let goal = goal(volume, begin, base.as_ref(), wanted)?;
    let name = partial::branch(&begin.stream);
    let left = find_branch(volume, &name)?;
    let tree = match begin.resume {
        Some(resume) => go_on(from, begin, base.as_ref(), (left, resume))?,
        None => {
            if let Some(left) = left {
                left.delete().doing(|| format!("what is left in {name}"))?;
            }
            let fork = match (&base, &goal) {
                (Some(base), _) => base.fork(&name).doing(|| format!("branch {name}"))?,
                // An empty one. Both begin with the same, and what programs write meanwhile is told from it.
                (None, Goal::Branch(to)) => to.fork(&name).doing(|| format!("branch {name}"))?,
                (None, Goal::New(_)) => new_branch(volume, &name)?,
            };
            let to = match &goal {
                Goal::Branch(to) => to.name(),
                Goal::New(to) => to,
            };
            fresh(fork, begin, base.as_ref(), to)?
        }
    };
    Ok(Start::Ready(Box::new(Prepared { goal, tree })))
}

fn wrong_base(begin: &Begin, base: &Named) -> StreamError {
    StreamError::Refused(format!(
        "this stream continues {}@{} (number {} of volume {}), and this volume has no copy of that; \
         receive {}@{} first, or send {} without -i",
        base.branch,
        base.snapshot,
        base.ids.first().map_or(0, |id| id.number),
        base.ids.first().map_or_else(String::new, |id| uuid(&id.volume)),
        base.branch,
        base.snapshot,
        begin.snapshot(),
    ))
}

/// As people write it.
fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| hex.get(part).unwrap_or_default().to_owned()).join("-")
}

fn find_branch(volume: &Volume, name: &str) -> Result<Option<Branch>> {
    match volume.branch(name) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some).doing(|| format!("branch {name}")),
    }
}

/// Where the snapshot goes.
fn goal(
    volume: &Volume,
    begin: &Begin,
    base: Option<&Snapshot>,
    wanted: Option<&str>,
) -> Result<Goal> {
    let name = match (wanted, base) {
        (Some(wanted), _) => wanted,
        (None, Some(base)) => base.branch().name(),
        (None, None) => &begin.snapshot.branch,
    };
    // At the end, when all had come, would be too late.
    if let Err(why) = judge_branch_name(name.as_bytes()) {
        return StreamError::refused(format!("{name:?} cannot be the name of a branch: {why}"));
    }
    if partial::is_receiving(name) {
        return StreamError::refused(format!(
            "{name} is the name of a receive that is not whole; receive into another branch with --branch"
        ));
    }
    let Some(branch) = find_branch(volume, name)? else { return Ok(Goal::New(name.to_owned())) };
    let taken = branch.snapshot_named(&begin.snapshot.snapshot).is_ok();
    if taken {
        return StreamError::refused(format!(
            "{name}@{} is there, and is another snapshot; rename it, or receive into another branch with --branch",
            begin.snapshot.snapshot
        ));
    }
    let is_fit = match base {
        Some(base) => base.branch().number() == branch.number(),
        None => of_volume(branch.snapshots())?.is_empty() && is_empty(&branch)?,
    };
    match is_fit {
        true => Ok(Goal::Branch(branch)),
        false => not_continued(name),
    }
}

fn not_continued<T>(name: &str) -> Result<T> {
    StreamError::refused(format!(
        "there is a branch {name}, and this stream does not continue it; receive into another branch with --branch"
    ))
}

/// Whether a branch has no files, as it is now: it may be open elsewhere.
fn is_empty(branch: &Branch) -> Result<bool> {
    let now = of_volume(branch.view())?;
    let empty = of_volume(now.read_dir("/")).map(|mut names| names.next().is_none());
    of_volume(now.close())?;
    empty
}

/// A branch with nothing in it, which shares nothing with others.
fn new_branch(volume: &Volume, name: &str) -> Result<Branch> {
    let what = || format!("branch {name}");
    of_volume(volume.engine())?.new_branch(name.as_bytes()).doing(what)?;
    volume.branch(name).doing(what)
}

/// A fork in which nothing was done, for the branch `to`.
fn fresh<'a>(
    branch: Branch,
    begin: &'a Begin,
    base: Option<&Snapshot>,
    to: &str,
) -> Result<Tree<'a>> {
    let made = try_fresh(&branch, begin, base, to);
    if made.is_err() {
        // It can be deleted by hand as well.
        let _ = branch.delete();
    }
    made
}

fn try_fresh<'a>(
    branch: &Branch,
    begin: &'a Begin,
    base: Option<&Snapshot>,
    to: &str,
) -> Result<Tree<'a>> {
    let volume = of_volume(branch.open())?;
    let what = || format!("branch {}", branch.name());
    if base.is_none() {
        if volume.read_dir("/").doing(what)?.next().is_some() {
            // Since it was looked at.
            return not_continued(to);
        }
        // What an empty branch says of its root is not the stream's.
        for name in volume.xattrs("/").doing(what)? {
            volume.remove_xattr("/", &*name.to_string_lossy()).doing(what)?;
        }
    }
    let root = {
        let fs = of_volume(volume.engine())?;
        let attr = fs.getattr(InodeNo::ROOT).doing(what)?;
        SetAttr {
            perm: Some(attr.perm),
            uid: Some(attr.uid),
            gid: Some(attr.gid),
            atime: Some(SetTime::At(attr.atime)),
            mtime: Some(SetTime::At(attr.mtime)),
            btime: Some(attr.btime),
            ..SetAttr::default()
        }
    };
    let parking = make_parking(&volume, partial::directory(&begin.stream)).doing(what)?;
    let branch = branch.clone();
    Tree::new(Parts { branch, volume, base, begin, parking }, root)
}

/// What is left of a stream that was cut.
fn go_on<'a, R: Read>(
    from: &mut FrameReader<R>,
    begin: &'a Begin,
    base: Option<&Snapshot>,
    (left, resume): (Option<Branch>, Resume),
) -> Result<Tree<'a>> {
    let nothing = || {
        StreamError::Refused(format!(
            "this is the rest of a stream, and nothing is here of its begin; send {} anew",
            begin.snapshot()
        ))
    };
    let branch = left.ok_or_else(nothing)?;
    let (state, kept) = Headway::last(&branch)?.ok_or_else(nothing)?;
    if !begin.goes_on(&state.begin) {
        return StreamError::refused(format!(
            "this is the rest of another stream; send {} anew",
            begin.snapshot()
        ));
    }
    if state.resume != resume {
        return StreamError::refused(format!(
            "this is the rest of a stream from byte {} on, and byte {} is wanted; ask again with --resume-token",
            resume.position, state.resume.position
        ));
    }
    if state.base != base.map(Snapshot::number) {
        // Files have other numbers there.
        return StreamError::refused(format!(
            "what came of this stream continues another copy of its base, which is not here any more; send {} anew",
            begin.snapshot()
        ));
    }
    // All that came behind comes again.
    let what = || format!("branch {}", branch.name());
    branch.rollback_to(&kept, None).doing(what)?;
    for snapshot in of_volume(branch.snapshots())? {
        if snapshot.number() != kept.number() {
            snapshot.delete().doing(what)?;
        }
    }
    let open = of_volume(branch.open())?;
    let name = partial::directory(&begin.stream);
    let inode = InodeNo(open.metadata(format!("/{name}")).doing(what)?.ino());
    let parking = Parking { inode, name: name.into_bytes() };
    let parts = Parts { branch: branch.clone(), volume: open, base, begin, parking };
    let mut tree = Tree::new(parts, SetAttr::default())?;
    from.resume(resume, state.records);
    tree.restore(&state, kept);
    Ok(tree)
}
