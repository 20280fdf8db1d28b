//! What a volume has: lists of branches and snapshots, each in parts that fit a message.

use holdfast::{BranchInfo, FileSystem, SnapshotInfo};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_control::{Branch, CopyOf, Failed, HeldBy, Origin, Snapshot};
use rustix::io::Errno;

use super::{Done, Open, Refusal, branch_of, engines};
use crate::branches::by_time::{self, Purpose};
use crate::branches::{Name, Reply, Which};

/// Bytes of a message besides the entries of a list and the name of a branch.
const FRAME: usize = 200;
/// Names of forks that a snapshot shows, and their bytes: a name that is no text takes four times its length.
const FORKS: usize = 8;
const FORK_BYTES: usize = 4000;
/// Failed deletions that a list shows, and letters of the reason of each: as JSON one may take six bytes.
const FAILED: usize = 4;
const WHY: usize = 160;

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

/// The snapshot that a refused transaction began with, whose branch this is, unless other branches have grown out of it as well; and the
/// branch that it was taken of.
pub(super) fn base_of_transaction(
    fs: &FileSystem,
    branch: u64,
    name: &Name,
) -> Done<Option<(u64, u64)>> {
    if by_time::read(name) != Some(Purpose::Transaction) {
        return Ok(None);
    }
    let (all, snapshots) = fs.lineage()?;
    let number = |of: &BranchInfo| origin(of, &snapshots).map(|base| base.number);
    let of = all.iter().find(|it| it.number == branch);
    let base = of.and_then(|of| origin(of, &snapshots)).filter(|base| base.name == name.0);
    let base = base.filter(|base| {
        all.iter().all(|other| other.number == branch || number(other) != Some(base.number))
    });
    Ok(base.map(|base| (base.branch, base.number)))
}

pub(super) fn branches(open: &Open<'_>, after: u64) -> Done<Reply> {
    let (all, snapshots) = open.fs.lineage()?;
    let failed = if after == 0 { failed(open.fs, &all, None) } else { Vec::new() };
    let mut part = Part::of(open.most, None, &failed)?;
    for of in all.iter().filter(|of| of.number > after) {
        if !part.add(listed(open, of, &all, &snapshots))? {
            break;
        }
    }
    Ok(Reply::Branches { list: part.list, more: part.more, failed })
}

pub(super) fn branch(open: &Open<'_>, which: &Which) -> Done<Reply> {
    let (_, number) = branch_of(open, Some(which))?;
    let (all, snapshots) = open.fs.lineage()?;
    match all.iter().find(|it| it.number == number) {
        Some(of) => {
            let list = vec![listed(open, of, &all, &snapshots)];
            Ok(Reply::Branches { list, more: false, failed: Vec::new() })
        }
        None => Err(Refusal::new(Errno::NOENT, format!("there is no branch `{which}` any more"))),
    }
}

/// A branch as a list has it, among these branches and snapshots.
fn listed(
    open: &Open<'_>,
    of: &BranchInfo,
    all: &[BranchInfo],
    snapshots: &[SnapshotInfo],
) -> Branch {
    let branch_of = |number| all.iter().find(|it| it.number == number);
    let is_its = |it: &&SnapshotInfo| it.branch == of.number && !it.name.is_empty();
    Branch {
        name: Name(of.name.clone()),
        number: of.number,
        created_ns: Some(of.created.nanoseconds()).filter(|created| *created != 0),
        origin: origin(of, snapshots).map(|it| Origin {
            number: it.number,
            branch: branch_of(it.branch).map(|it| Name(it.name.clone())),
            name: Name(it.name.clone()),
        }),
        snapshots: snapshots.iter().filter(is_its).count() as u64,
        referenced_bytes: of.referenced.saturating_mul(BLOCK_BYTES),
        limit_bytes: of.limit.map(|blocks| blocks.saturating_mul(BLOCK_BYTES)),
        mounted: open.is_mounted && of.is_open,
    }
}

/// Deletions that have failed: of all branches and those that are gone, or of one.
fn failed(fs: &FileSystem, branches: &[BranchInfo], branch: Option<&Name>) -> Vec<Failed> {
    let name_of = |number| branches.iter().find(|it| it.number == number).map(|it| &it.name);
    let failed = fs.failed_deletions().into_iter().map(|of| Failed {
        number: of.number,
        branch: of.branch.and_then(name_of).map(|name| Name(name.clone())),
        why: of.why.chars().take(WHY).collect(),
    });
    let is_meant = |of: &Failed| branch.is_none() || of.branch.as_ref() == branch;
    failed.filter(is_meant).take(FAILED).collect()
}

pub(super) fn snapshots(open: &Open<'_>, branch: Option<&Which>, after: u64) -> Done<Reply> {
    let (name, number) = branch_of(open, branch)?;
    let (branches, all) = open.fs.lineage()?;
    let origins = origins(&branches, &all);
    let snapshots = open.fs.snapshots_of(number)?;
    let failed = if after == 0 { failed(open.fs, &branches, Some(&name)) } else { Vec::new() };
    let mut part = Part::of(open.most, Some(&name), &failed)?;
    for of in snapshots.into_iter().filter(|of| of.number > after) {
        if !part.add(listed_snapshot(open, of, &origins)?)? {
            break;
        }
    }
    Ok(Reply::Snapshots { branch: name, list: part.list, more: part.more, failed })
}

pub(super) fn snapshot(open: &Open<'_>, branch: Option<&Which>, which: &Which) -> Done<Reply> {
    let (branch, number) = branch_of(open, branch)?;
    let of = open.fs.find_snapshot(number, engines(which)).map_err(|error| {
        match error.errno() == Errno::NOENT.raw_os_error() {
            true => Refusal::new(
                Errno::NOENT,
                format!(
                    "there is no snapshot `{}@{}`; `holdfast snapshot list` shows them",
                    branch.text(),
                    shown(which)
                ),
            ),
            false => error.into(),
        }
    })?;
    let (branches, all) = open.fs.lineage()?;
    let list = vec![listed_snapshot(open, of, &origins(&branches, &all))?];
    Ok(Reply::Snapshots { branch, list, more: false, failed: Vec::new() })
}

fn shown(which: &Which) -> String {
    match which {
        Which::Number(number) => format!("number {number}"),
        Which::Name(name) => name.text().into_owned(),
    }
}

/// Each branch, and the number of the snapshot that it was made of.
fn origins<'a>(
    branches: &'a [BranchInfo],
    snapshots: &[SnapshotInfo],
) -> Vec<(&'a BranchInfo, Option<u64>)> {
    branches.iter().map(|it| (it, origin(it, snapshots).map(|of| of.number))).collect()
}

/// A snapshot as a list has it.
fn listed_snapshot(
    open: &Open<'_>,
    of: SnapshotInfo,
    origins: &[(&BranchInfo, Option<u64>)],
) -> Done<Snapshot> {
    let forks = origins.iter().filter(|(_, origin)| *origin == Some(of.number));
    let (forks, more_forks) = some_names(forks.map(|(it, _)| Name(it.name.clone())))?;
    Ok(Snapshot {
        name: Name(of.name),
        number: of.number,
        created_ns: of.created.nanoseconds(),
        lsn: of.lsn.0,
        parent: of.parent,
        holds: of.holds.into_iter().map(listed_hold).collect(),
        received: of.origins.into_iter().map(listed_origin).collect(),
        inodes: of.inodes,
        forks,
        more_forks,
        mounted: open.is_mounted && of.is_open,
    })
}

fn listed_hold(of: holdfast::HoldItem) -> HeldBy {
    HeldBy { tag: Name(of.tag), created_ns: of.created.nanoseconds() }
}

fn listed_origin(of: holdfast::OriginItem) -> CopyOf {
    let created_ns = of.created.nanoseconds();
    CopyOf { volume: of.volume, number: of.number, lsn: of.lsn, created_ns }
}

/// A part of a list: as many entries as fit a message.
struct Part<T> {
    list: Vec<T>,
    room: usize,
    more: bool,
}

impl<T: serde::Serialize> Part<T> {
    /// A part of a list of this branch, in a message with these deletions.
    fn of(most: usize, branch: Option<&Name>, failed: &[Failed]) -> Done<Part<T>> {
        let room = most.saturating_sub(FRAME + length(&branch)? + length(&failed)?);
        Ok(Part { list: Vec::new(), room, more: false })
    }

    /// Adds an entry; false: there is no room, it comes with the next part. The longest has less than half of a message.
    fn add(&mut self, entry: T) -> Done<bool> {
        // And a comma.
        let bytes = length(&entry)? + 1;
        self.more = bytes > self.room && !self.list.is_empty();
        if !self.more {
            self.room = self.room.saturating_sub(bytes);
            self.list.push(entry);
        }
        Ok(!self.more)
    }
}

/// The first of these names, and whether there are more.
fn some_names(names: impl Iterator<Item = Name>) -> Done<(Vec<Name>, bool)> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    for name in names {
        bytes += length(&name)?;
        if some.len() == FORKS || bytes > FORK_BYTES {
            return Ok((some, true));
        }
        some.push(name);
    }
    Ok((some, false))
}

/// Bytes of it in a message.
fn length(of: &impl serde::Serialize) -> Done<usize> {
    Ok(serde_json::to_vec(of).map_err(|error| error.to_string())?.len())
}
