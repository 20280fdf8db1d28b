//! What a stream needs: its base, a branch to go to, and a fork to be obeyed in.

use std::io::Read;

use holdfast::{Branch, Snapshot, Volume};
use holdfast_base::InodeNo;
use holdfast_posix::{Caller, SetAttr, SetTime};

use super::state::{State, is_kept};
use super::tree::{Parts, Tree};
use super::{Goal, Received, of_volume};
use crate::error::Doing;
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
        let are_names = names.iter().all(|name| {
            (1..=255).contains(&name.len())
                && !name.contains(['/', '@', ':'])
                && !name.contains(char::is_control)
        });
        are_names && (1..=IDS_MAX).contains(&of.ids.len())
    };
    if !named(&begin.snapshot) || !begin.base.as_ref().is_none_or(named) {
        return StreamError::refused("the stream names snapshots as none can be named");
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
    if let Some(here) = origin::find(volume, &begin.snapshot.ids)? {
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
        Some(resume) => go_on(volume, from, begin, base.as_ref(), (left, resume))?,
        None => {
            if let Some(left) = left {
                left.delete().doing(|| format!("what is left in {name}"))?;
            }
            let fork = match (&base, &goal) {
                (Some(base), _) => base.fork(&name),
                (None, Goal::Branch(branch)) => branch.fork(&name),
                (None, Goal::New(_)) => least(volume)?.fork(&name),
            };
            fresh(fork.doing(|| format!("branch {name}"))?, begin, base.as_ref())?
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
        false => StreamError::refused(format!(
            "there is a branch {name}, and this stream does not continue it; receive into another branch with --branch"
        )),
    }
}

/// Whether a branch has no files, as it is now: it may be open elsewhere.
fn is_empty(branch: &Branch) -> Result<bool> {
    let now = of_volume(branch.view())?;
    let empty = of_volume(now.read_dir("/")).map(|mut names| names.next().is_none());
    of_volume(now.close())?;
    empty
}

/// A branch out of which an empty one is made soonest.
fn least(volume: &Volume) -> Result<Branch> {
    let branches = of_volume(volume.branches())?;
    let of = |branch: &Branch| branch.number();
    branches
        .into_iter()
        .min_by_key(of)
        .ok_or_else(|| StreamError::Refused("the volume has no branch".into()))
}

/// A fork in which nothing was done.
fn fresh<'a>(branch: Branch, begin: &'a Begin, base: Option<&Snapshot>) -> Result<Tree<'a>> {
    let made = try_fresh(&branch, begin, base);
    if made.is_err() {
        // It can be deleted by hand as well.
        let _ = branch.delete();
    }
    made
}

fn try_fresh<'a>(branch: &Branch, begin: &'a Begin, base: Option<&Snapshot>) -> Result<Tree<'a>> {
    let volume = of_volume(branch.open())?;
    let directory = format!("/{}", partial::directory(&begin.stream));
    let what = || format!("branch {}", branch.name());
    let root = {
        let fs = of_volume(volume.engine())?;
        let caller = Caller::root();
        let attr = fs.getattr(InodeNo::ROOT).doing(what)?;
        if base.is_none() {
            clear(&volume).doing(what)?;
            for name in fs.listxattr(&caller, InodeNo::ROOT).doing(what)? {
                fs.removexattr(&caller, InodeNo::ROOT, &name).doing(what)?;
            }
        }
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
    volume.create_dir_with_mode(&directory, 0o700).doing(what)?;
    // What it inherits would come to all that is parked.
    for name in volume.xattrs(&directory).doing(what)? {
        let name = name.to_string_lossy();
        volume.remove_xattr(&directory, &*name).doing(what)?;
    }
    let parking = InodeNo(volume.metadata(&directory).doing(what)?.ino());
    let branch = branch.clone();
    Tree::new(Parts { branch, volume, base, begin, parking }, root)
}

/// Removes all files.
fn clear(volume: &Volume) -> std::io::Result<()> {
    for entry in volume.read_dir("/")? {
        let entry = entry?;
        match entry.file_type() == holdfast::FileType::Directory {
            true => volume.remove_dir_all(entry.path())?,
            false => volume.remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// What is left of a stream that was cut.
fn go_on<'a, R: Read>(
    volume: &Volume,
    from: &mut FrameReader<R>,
    begin: &'a Begin,
    base: Option<&Snapshot>,
    (left, resume): (Option<Branch>, Resume),
) -> Result<Tree<'a>> {
    let _ = volume;
    let nothing = || {
        StreamError::Refused(format!(
            "this is the rest of a stream, and nothing is here of its begin; send {} anew",
            begin.snapshot()
        ))
    };
    let branch = left.ok_or_else(nothing)?;
    let (state, kept) = State::last(&branch)?.ok_or_else(nothing)?;
    if state.resume != resume {
        return StreamError::refused(format!(
            "this is the rest of a stream from byte {} on, and byte {} is wanted; ask again with --resume-token",
            resume.position, state.resume.position
        ));
    }
    // All that came behind comes again.
    let what = || format!("branch {}", branch.name());
    branch.rollback_to(&kept, None).doing(what)?;
    for snapshot in of_volume(branch.snapshots())? {
        if !is_kept(&snapshot) || snapshot.number() != kept.number() {
            snapshot.delete().doing(what)?;
        }
    }
    let open = of_volume(branch.open())?;
    let directory = format!("/{}", partial::directory(&begin.stream));
    let parking = InodeNo(open.metadata(&directory).doing(what)?.ino());
    let parts = Parts { branch: branch.clone(), volume: open, base, begin, parking };
    let mut tree = Tree::new(parts, SetAttr::default())?;
    from.resume(resume, state.records);
    tree.restore(&state, kept);
    Ok(tree)
}
