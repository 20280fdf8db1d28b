//! What is asked becomes calls of the engine.
//!
//! The answer to each question fits one message: lists come in parts.

use std::fmt::Display;

use holdfast::{BranchInfo, FileSystem, SnapshotInfo};
use holdfast_base::units::BLOCK_BYTES;

use super::message::{Branch, Origin, Snapshot, nanoseconds};
use super::{Ask, Name, Reply};

/// Bytes of a part of a list, about. The longest entry has a few KiB, and a message 16,000 bytes.
const PART: usize = 8000;
/// Names of forks that a snapshot shows.
const FORKS: usize = 8;

/// A volume with an open branch or snapshot.
pub(crate) struct Open<'a> {
    /// What is open.
    pub(crate) fs: &'a FileSystem,
    /// It is mounted.
    pub(crate) is_mounted: bool,
    /// Takes the open branch back to a snapshot, and tells all who remember it.
    pub(crate) roll_back: RollBack<'a>,
}

/// See [`FileSystem::rollback`].
pub(crate) type RollBack<'a> = &'a dyn Fn(&[u8], Option<&[u8]>) -> Result<(), String>;

/// Carries out what is asked.
pub(crate) fn carry_out(open: &Open<'_>, ask: &Ask) -> Reply {
    let done = match ask {
        Ask::Branches { after } => branches(open, *after),
        Ask::Snapshots { branch, after } => snapshots(open, branch.as_ref(), *after),
        Ask::Snapshot { branch, name } => snapshot(open, branch.as_ref(), name),
        other => change(open, other).map(|(branch, number)| Reply::Done { branch, number }),
    };
    done.unwrap_or_else(|why| Reply::Refused { why })
}

type Done<T> = Result<T, String>;

fn words(error: impl Display) -> String {
    error.to_string()
}

/// Returns the branch, and the number of what was made.
fn change(open: &Open<'_>, ask: &Ask) -> Done<(Name, Option<u64>)> {
    let fs = open.fs;
    let branch_of = |branch: &Option<Name>| name_of(open, branch.as_ref());
    match ask {
        Ask::Take { branch, name } => {
            let branch = branch_of(branch)?;
            let number = fs.snapshot_of(&branch.0, &name.0).map_err(words)?;
            Ok((branch, Some(number)))
        }
        Ask::Fork { branch, snapshot, name } => {
            let from = snapshot.as_ref().map(|it| it.0.as_slice());
            let number = match branch {
                // Also out of a snapshot that is open.
                None => fs.fork(&name.0, from),
                Some(branch) => fs.fork_of(&name.0, &branch.0, from),
            };
            Ok((name.clone(), Some(number.map_err(words)?)))
        }
        Ask::RollBack { branch, to, keep } => {
            let branch = branch_of(branch)?;
            let keep = keep.as_ref().map(|keep| keep.0.as_slice());
            match is_open(open, &branch)? {
                true => (open.roll_back)(&to.0, keep)?,
                false => fs.rollback_of(&branch.0, &to.0, keep).map_err(words)?,
            }
            Ok((branch, None))
        }
        Ask::DeleteSnapshot { branch, name } => {
            let branch = branch_of(branch)?;
            fs.delete_snapshot(&branch.0, &name.0).map_err(words)?;
            Ok((branch, None))
        }
        Ask::RenameSnapshot { branch, name, new_name } => {
            let branch = branch_of(branch)?;
            fs.rename_snapshot(&branch.0, &name.0, &new_name.0).map_err(words)?;
            Ok((branch, None))
        }
        Ask::Hold { branch, name, held } => {
            let branch = branch_of(branch)?;
            match held {
                true => fs.hold(&branch.0, &name.0),
                false => fs.unhold(&branch.0, &name.0),
            }
            .map_err(words)?;
            Ok((branch, None))
        }
        Ask::DeleteBranch { name } => {
            fs.delete_branch(&name.0).map_err(words)?;
            Ok((name.clone(), None))
        }
        Ask::RenameBranch { name, new_name } => {
            fs.rename_branch(&name.0, &new_name.0).map_err(words)?;
            Ok((new_name.clone(), None))
        }
        Ask::LimitBranch { name, blocks } => {
            fs.limit(&name.0, *blocks).map_err(words)?;
            Ok((name.clone(), None))
        }
        Ask::Branches { .. } | Ask::Snapshots { .. } | Ask::Snapshot { .. } => {
            Err("this changes nothing".into())
        }
    }
}

/// The name of a branch; `None`: of the open one.
fn name_of(open: &Open<'_>, branch: Option<&Name>) -> Done<Name> {
    match branch {
        Some(branch) => Ok(branch.clone()),
        None => open.fs.branch_name().map(Name).map_err(words),
    }
}

/// Whether it is this branch that is open, and no snapshot of it.
fn is_open(open: &Open<'_>, branch: &Name) -> Done<bool> {
    let is_snapshot = open.fs.snapshot_name().map_err(words)?.is_some();
    Ok(!is_snapshot && open.fs.branch_name().map_err(words)? == branch.0)
}

/// The snapshot of another branch that a branch was made of. Its own snapshots lie between them.
fn origin<'a>(of: &BranchInfo, snapshots: &'a [SnapshotInfo]) -> Option<&'a SnapshotInfo> {
    let find = |number| {
        let at = snapshots.binary_search_by_key(&number, |it: &SnapshotInfo| it.number).ok()?;
        snapshots.get(at)
    };
    let mut parent = of.parent;
    // A parent is older, or the volume is damaged.
    while let Some(number) = parent {
        let found = find(number)?;
        if found.branch != of.number {
            return Some(found);
        }
        parent = found.parent.filter(|older| *older < number);
    }
    None
}

fn branches(open: &Open<'_>, after: u64) -> Done<Reply> {
    let all = open.fs.branches().map_err(words)?;
    let snapshots = open.fs.all_snapshots().map_err(words)?;
    let named = snapshots.iter().filter(|it| !it.name.is_empty());
    let (mut list, mut bytes, mut more) = (Vec::new(), 0, false);
    for of in all.iter().filter(|of| of.number > after) {
        let origin = origin(of, &snapshots);
        let branch_of = |number| all.iter().find(|it| it.number == number);
        let branch = Branch {
            name: Name(of.name.clone()),
            number: of.number,
            created_ns: Some(nanoseconds(of.created)).filter(|created| *created != 0),
            origin: origin.map(|it| Origin {
                number: it.number,
                branch: branch_of(it.branch).map(|it| Name(it.name.clone())),
                name: Name(it.name.clone()),
            }),
            snapshots: named.clone().filter(|it| it.branch == of.number).count() as u64,
            limit_bytes: of.limit.map(|blocks| blocks.saturating_mul(BLOCK_BYTES)),
            mounted: open.is_mounted && of.is_open,
        };
        bytes += length(&branch)?;
        list.push(branch);
        if bytes > PART {
            more = true;
            break;
        }
    }
    Ok(Reply::Branches { list, more })
}

fn snapshots(open: &Open<'_>, branch: Option<&Name>, after: u64) -> Done<Reply> {
    let name = name_of(open, branch)?;
    let branches = open.fs.branches().map_err(words)?;
    let all = open.fs.all_snapshots().map_err(words)?;
    let origins: Vec<_> = branches.iter().map(|it| (it, origin(it, &all))).collect();
    let snapshots = open.fs.snapshots_of(&name.0).map_err(words)?;
    let (mut list, mut bytes, mut more) = (Vec::new(), 0, false);
    for of in snapshots.into_iter().filter(|of| of.number > after) {
        let is_of = |it: Option<&SnapshotInfo>| it.is_some_and(|it| it.number == of.number);
        let forks = origins.iter().filter(|(_, origin)| is_of(*origin));
        let mut forks = forks.map(|(it, _)| Name(it.name.clone()));
        let snapshot = Snapshot {
            name: Name(of.name),
            number: of.number,
            created_ns: nanoseconds(of.created),
            lsn: of.lsn.0,
            parent: of.parent,
            holds: of.holds,
            inodes: of.inodes,
            forks: forks.by_ref().take(FORKS).collect(),
            more_forks: forks.next().is_some(),
            mounted: open.is_mounted && of.is_open,
        };
        bytes += length(&snapshot)?;
        list.push(snapshot);
        if bytes > PART {
            more = true;
            break;
        }
    }
    Ok(Reply::Snapshots { branch: name, list, more })
}

fn snapshot(open: &Open<'_>, branch: Option<&Name>, name: &Name) -> Done<Reply> {
    let mut after = 0;
    loop {
        let Reply::Snapshots { branch, list, more } = snapshots(open, branch, after)? else {
            return Err("no list of snapshots".into());
        };
        after = list.last().map_or(after, |last| last.number);
        if let Some(found) = list.into_iter().find(|it| it.name == *name) {
            return Ok(Reply::Snapshots { branch, list: vec![found], more: false });
        }
        if !more {
            return Err(format!("there is no `{}@{}`", branch.text(), name.text()));
        }
    }
}

/// Bytes of it in a message.
fn length(of: &impl serde::Serialize) -> Done<usize> {
    serde_json::to_vec(of).map(|bytes| bytes.len()).map_err(words)
}
