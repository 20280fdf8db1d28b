//! What is asked becomes calls of the engine.
//!
//! The answer to each question fits one message: lists come in parts.

use std::fmt::Display;

use holdfast::{BranchInfo, FileSystem, FsError, SnapshotInfo, Which};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_fuse::{NewHead, PIECE, Told};

use super::message::{Branch, Failed, Origin, Snapshot, nanoseconds};
use super::{Ask, Name, Reply};

/// Bytes of a message besides the entries of a list and the name of a branch.
const FRAME: usize = 200;
/// Names of forks that a snapshot shows, and their bytes: a name that is no text takes four times its length.
const FORKS: usize = 8;
const FORK_BYTES: usize = 4000;
/// Failed deletions that a list shows, and letters of the reason of each: as JSON one may take six bytes.
const FAILED: usize = 4;
const WHY: usize = 160;

/// A volume with an open branch or snapshot.
pub(crate) struct Open<'a> {
    /// What is open.
    pub(crate) fs: &'a FileSystem,
    /// It is mounted.
    pub(crate) is_mounted: bool,
    /// Gives a branch another head, and tells all who remember the one that it had.
    pub(crate) give_head: GiveHead<'a>,
}

/// See [`NewHead::give`], of the branch of a number, and what the kernel knows of it.
pub(crate) type GiveHead<'a> = &'a dyn Fn(u64, NewHead<'_>) -> Result<Told, String>;

/// Carries out what is asked.
pub(crate) fn carry_out(open: &Open<'_>, ask: &Ask) -> Reply {
    let done = match ask {
        Ask::RollBack { branch, to, keep } => {
            let keep = keep.as_ref().map(|keep| keep.0.as_slice());
            give_head(open, branch.as_ref(), NewHead::Snapshot { to: &to.0, keep })
        }
        Ask::Promote { branch, fork, keep, unchanged } => {
            let keep = keep.as_ref().map(|keep| keep.0.as_slice());
            let head = NewHead::Fork { fork: Which::Named(&fork.0), keep, unchanged: *unchanged };
            give_head(open, branch.as_ref(), head)
        }
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
                Some(branch) => fs.fork_of(&name.0, &branch.0, from.map(Which::from)),
            };
            Ok((name.clone(), Some(number.map_err(words)?)))
        }
        Ask::DeleteSnapshot { branch, name, number } => {
            let branch = branch_of(branch)?;
            let Some(number) = *number else {
                fs.delete_snapshot(&branch.0, &name.0).map_err(words)?;
                return Ok((branch, None));
            };
            let found = fs.find_snapshot(&branch.0, &name.0).map_err(words)?;
            if found.number != number {
                return Err("another snapshot has this name by now; it stays".into());
            }
            fs.delete_snapshot(&branch.0, number).map_err(words)?;
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
        // Nothing is mounted where this is asked.
        Ask::Release { name } => Ok((name.clone(), None)),
        Ask::RollBack { .. }
        | Ask::Promote { .. }
        | Ask::Branches { .. }
        | Ask::Snapshots { .. }
        | Ask::Snapshot { .. } => Err("this is answered elsewhere".into()),
    }
}

fn give_head(open: &Open<'_>, branch: Option<&Name>, head: NewHead<'_>) -> Done<Reply> {
    let branch = name_of(open, branch)?;
    // It may get another name meanwhile.
    let number = open.fs.find_branch(&branch.0).map_err(words)?.number;
    // As the engine says it, so that no other refusal is taken for it.
    let diverged = FsError::Diverged(holdfast_base::show::name(&branch.0)).to_string();
    match (open.give_head)(number, head) {
        Ok(told) => Ok(Reply::RolledBack { branch, forgotten: told == Told::All }),
        Err(why) if why == diverged => Ok(Reply::Diverged { why }),
        Err(why) => Err(why),
    }
}

/// The name of a branch; `None`: of the open one.
fn name_of(open: &Open<'_>, branch: Option<&Name>) -> Done<Name> {
    match branch {
        Some(branch) => Ok(branch.clone()),
        None => open.fs.branch_name().map(Name).map_err(words),
    }
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
    let (all, snapshots) = open.fs.lineage().map_err(words)?;
    let named = snapshots.iter().filter(|it| !it.name.is_empty());
    let failed = if after == 0 { failed(open.fs, &all, None) } else { Vec::new() };
    let mut part = Part::of(None, &failed)?;
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
            referenced_bytes: of.referenced.saturating_mul(BLOCK_BYTES),
            limit_bytes: of.limit.map(|blocks| blocks.saturating_mul(BLOCK_BYTES)),
            mounted: open.is_mounted && of.is_open,
        };
        if !part.add(branch)? {
            break;
        }
    }
    Ok(Reply::Branches { list: part.list, more: part.more, failed })
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

fn snapshots(open: &Open<'_>, branch: Option<&Name>, after: u64) -> Done<Reply> {
    let name = name_of(open, branch)?;
    let (branches, all) = open.fs.lineage().map_err(words)?;
    let origins: Vec<_> = branches.iter().map(|it| (it, origin(it, &all))).collect();
    let snapshots = open.fs.snapshots_of(&name.0).map_err(words)?;
    let failed = if after == 0 { failed(open.fs, &branches, Some(&name)) } else { Vec::new() };
    let mut part = Part::of(Some(&name), &failed)?;
    for of in snapshots.into_iter().filter(|of| of.number > after) {
        let is_of = |it: Option<&SnapshotInfo>| it.is_some_and(|it| it.number == of.number);
        let forks = origins.iter().filter(|(_, origin)| is_of(*origin));
        let (forks, more_forks) = some_names(forks.map(|(it, _)| Name(it.name.clone())))?;
        let snapshot = Snapshot {
            name: Name(of.name),
            number: of.number,
            created_ns: nanoseconds(of.created),
            lsn: of.lsn.0,
            parent: of.parent,
            holds: of.holds,
            inodes: of.inodes,
            forks,
            more_forks,
            mounted: open.is_mounted && of.is_open,
        };
        if !part.add(snapshot)? {
            break;
        }
    }
    Ok(Reply::Snapshots { branch: name, list: part.list, more: part.more, failed })
}

fn snapshot(open: &Open<'_>, branch: Option<&Name>, name: &Name) -> Done<Reply> {
    let mut after = 0;
    loop {
        let Reply::Snapshots { branch, list, more, .. } = snapshots(open, branch, after)? else {
            return Err("no list of snapshots".into());
        };
        after = list.last().map_or(after, |last| last.number);
        if let Some(found) = list.into_iter().find(|it| it.name == *name) {
            let list = vec![found];
            return Ok(Reply::Snapshots { branch, list, more: false, failed: Vec::new() });
        }
        if !more {
            return Err(format!("there is no `{}@{}`", branch.text(), name.text()));
        }
    }
}

/// A part of a list: as many entries as fit a message.
struct Part<T> {
    list: Vec<T>,
    room: usize,
    more: bool,
}

impl<T: serde::Serialize> Part<T> {
    /// A part of a list of this branch, in a message with these deletions.
    fn of(branch: Option<&Name>, failed: &[Failed]) -> Done<Part<T>> {
        let room = (PIECE - FRAME - length(&branch)?).saturating_sub(length(&failed)?);
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
    serde_json::to_vec(of).map(|bytes| bytes.len()).map_err(words)
}

#[cfg(test)]
mod tests {
    use holdfast::Volume;

    use super::*;

    /// The longest name there is in a message: it is no text.
    fn long(n: u8) -> Name {
        Name([vec![b'A' + n], vec![0xff; 254]].concat())
    }

    /// A snapshot was chosen from a list, and by now another one has its name.
    #[test]
    fn a_snapshot_that_was_chosen_by_its_number_is_deleted_or_none() {
        let volume = Volume::in_memory(64 << 20).unwrap();
        let fs = volume.engine().unwrap();
        let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
        let open = Open { fs: &fs, is_mounted: true, give_head: &none };
        let name = Name(b"auto".to_vec());
        let first = fs.snapshot(&name.0).unwrap();
        fs.delete_snapshot(&b"main"[..], first).unwrap();
        let second = fs.snapshot(&name.0).unwrap();
        let delete = |number| {
            let name = name.clone();
            carry_out(&open, &Ask::DeleteSnapshot { branch: None, name, number: Some(number) })
        };
        assert!(matches!(delete(first), Reply::Refused { .. }));
        assert_eq!(fs.snapshots().unwrap().len(), 1);
        assert!(matches!(delete(second), Reply::Done { .. }));
        assert!(fs.snapshots().unwrap().is_empty());
        drop(fs);
        volume.close().unwrap();
    }

    /// While a fork is looked at, a snapshot without a name lies between it and what it has grown out of. Who removes what is left of
    /// killed commands finds a fork by its snapshot, and would remove that alone.
    #[test]
    fn a_fork_that_is_looked_at_is_still_one_of_its_snapshot() {
        let volume = Volume::in_memory(64 << 20).unwrap();
        let fs = volume.engine().unwrap();
        let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
        let open = Open { fs: &fs, is_mounted: true, give_head: &none };
        fs.snapshot(b"s").unwrap();
        fs.fork(b"fork", Some(b"s")).unwrap();
        let expect_fork = |what: &str| {
            let ask = Ask::Snapshot { branch: None, name: Name(b"s".to_vec()) };
            let Reply::Snapshots { list, .. } = carry_out(&open, &ask) else { panic!("{what}") };
            assert_eq!(list[0].forks, [Name(b"fork".to_vec())], "{what}");
            let Reply::Branches { list, .. } = carry_out(&open, &Ask::Branches { after: 0 }) else {
                panic!("{what}")
            };
            assert_eq!(
                list[1].origin.as_ref().map(|it| it.name.clone()),
                Some(Name(b"s".to_vec()))
            );
        };
        expect_fork("before");
        let branch = volume.branch("fork").unwrap();
        branch.open().unwrap().write("/file", b"x").unwrap();
        let view = branch.view().unwrap();
        expect_fork("meanwhile");
        view.close().unwrap();
        expect_fork("behind");
        drop(fs);
        volume.close().unwrap();
    }

    #[test]
    fn the_longest_entries_fit_their_messages() {
        let volume = Volume::in_memory(64 << 20).unwrap();
        let fs = volume.engine().unwrap();
        let none = |_: u64, _: NewHead<'_>| Ok(Told::All);
        let open = Open { fs: &fs, is_mounted: true, give_head: &none };
        let done = |ask: Ask| {
            let reply = carry_out(&open, &ask);
            let bytes = serde_json::to_vec(&reply).unwrap().len();
            assert!(bytes <= PIECE, "{bytes} bytes: {ask:?}");
            reply
        };
        let change = |ask| assert!(matches!(done(ask), Reply::Done { .. }));
        let branch = Some(long(0));
        change(Ask::Fork { branch: None, snapshot: None, name: long(0) });
        for n in 0..6 {
            change(Ask::Take { branch: branch.clone(), name: long(n) });
            for fork in 0..if n < 2 { 12 } else { 0 } {
                let name = long(1 + n * 16 + fork);
                change(Ask::Fork { branch: branch.clone(), snapshot: Some(long(n)), name });
            }
        }
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let ask = Ask::Snapshots { branch: branch.clone(), after };
            let Reply::Snapshots { list, more, .. } = done(ask) else { panic!() };
            after = list.last().unwrap().number;
            assert!(list.iter().all(|it| it.more_forks != it.forks.is_empty()));
            seen.extend(list.into_iter().map(|it| it.name).filter(|name| !name.0.is_empty()));
            if !more {
                break;
            }
        }
        assert_eq!(seen, (0..6).map(long).collect::<Vec<_>>());
        let (mut after, mut count) = (0, 0);
        loop {
            let Reply::Branches { list, more, .. } = done(Ask::Branches { after }) else {
                panic!()
            };
            after = list.last().unwrap().number;
            count += list.len();
            if !more {
                break;
            }
        }
        assert_eq!(count, 26);
        done(Ask::Snapshot { branch, name: long(1) });
        drop(fs);
        volume.close().unwrap();
    }
}
