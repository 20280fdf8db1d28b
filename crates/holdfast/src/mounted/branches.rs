//! Branches and snapshots of a mounted volume: its daemon is asked, as the commands do it.
//!
//! A handle means a number, and the daemon is told of numbers alone: whatever has got the name meanwhile is another one.

use std::io;
use std::sync::Arc;

use holdfast_base::{Lsn, Timestamp};
use holdfast_control::{Ask, Branch, CopyOf, HeldBy, Name, Reply, Snapshot, in_parts};
use holdfast_posix::{Caller, HoldItem, MountOptions, OriginItem, SnapshotInfo, Which};

use super::daemon::{judged, nonsense, refused};
use super::{Mount, TreeId, Wanted};

/// How often a snapshot is looked up again that has got another name while it was opened.
const TRIES: usize = 16;

impl Mount {
    /// Has it carried out; the number of what was made.
    pub(crate) fn done(&self, ask: &Ask) -> io::Result<Option<u64>> {
        match self.ask(ask)? {
            Reply::Done { number, .. } => Ok(number),
            _ => Err(nonsense()),
        }
    }

    /// All branches, in the order in which they were made.
    pub(crate) fn branches(&self) -> io::Result<Vec<Branch>> {
        in_parts(|after| match self.ask(&Ask::Branches { after })? {
            Reply::Branches { list, more, .. } => {
                list.iter().try_for_each(|it| judged(&it.name))?;
                Ok((list, more))
            }
            _ => Err(nonsense()),
        })
    }

    /// One of them.
    pub(crate) fn find_branch(&self, which: Which<'_>) -> io::Result<Branch> {
        match self.ask(&Ask::Branch { branch: asked(which) })? {
            Reply::Branches { list, .. } => one(which, list, |it| (&it.name, it.number)),
            _ => Err(nonsense()),
        }
    }

    /// The snapshots of a branch that have a name, in the order in which they were taken.
    pub(crate) fn snapshots_of(&self, branch: u64) -> io::Result<Vec<SnapshotInfo>> {
        let all = in_parts(|after| {
            match self.ask(&Ask::Snapshots { branch: Some(branch.into()), after })? {
                Reply::Snapshots { list, more, .. } => {
                    let mut named = list.iter().filter(|it| !it.name.bytes().is_empty());
                    named.try_for_each(|it| judged(&it.name))?;
                    Ok((list, more))
                }
                _ => Err(nonsense()),
            }
        })?;
        let named = all.into_iter().filter(|it| !it.name.bytes().is_empty());
        Ok(named.map(|it| info(it, branch)).collect())
    }

    /// One of them.
    pub(crate) fn find_snapshot(&self, branch: u64, which: Which<'_>) -> io::Result<SnapshotInfo> {
        let ask = Ask::Snapshot { branch: Some(branch.into()), name: asked(which) };
        match self.ask(&ask)? {
            Reply::Snapshots { list, .. } => {
                Ok(info(one(which, list, |it| (&it.name, it.number))?, branch))
            }
            _ => Err(nonsense()),
        }
    }

    /// Makes a branch out of another one or its snapshot, or out of what is open here. Returns its number.
    pub(crate) fn fork(&self, from: Option<TreeId>, name: &str) -> io::Result<u64> {
        let here = || self.inside.map(|snapshot| TreeId::snapshot(self.shown.branch, snapshot));
        let (branch, snapshot) = match from.or_else(here) {
            Some(from) => (Some(from.branch.into()), from.snapshot.map(Into::into)),
            // The daemon knows what the mount shows.
            None => (None, None),
        };
        let ask = Ask::Fork { branch, snapshot, name: Name(name.into()) };
        self.done(&ask)?.ok_or_else(nonsense)
    }

    /// Has a branch get another head. It has it when this returns, also where the kernel has not forgotten all of the one before.
    pub(crate) fn give_head(&self, ask: &Ask) -> io::Result<()> {
        match self.ask(ask)? {
            Reply::RolledBack { .. } => Ok(()),
            Reply::Diverged { why } => Err(refused(&why, Some(libc::EAGAIN))),
            _ => Err(nonsense()),
        }
    }

    /// The branch that is open here; of a snapshot, the one that it was taken of.
    pub(crate) fn branch_here(&self) -> u64 {
        self.shown.branch
    }

    /// Another branch or snapshot of the volume, where a mount shows it.
    ///
    /// # Errors
    /// `Unsupported` where none does, with the command that mounts it.
    pub(crate) fn beside(
        self: &Arc<Self>,
        what: TreeId,
        options: &MountOptions,
        caller: &Caller,
    ) -> io::Result<Mount> {
        let read_only = self.changes_nothing || options.read_only;
        let present_name = || match what.snapshot {
            Some(number) => Ok(Some(self.find_snapshot(what.branch, number.into())?.name)),
            None => Ok::<_, io::Error>(None),
        };
        let mut snapshot = present_name()?;
        for _ in 0..TRIES {
            let wanted = Wanted::by_number(options, caller, what, snapshot.as_deref());
            let why = match Mount::of(&self.source, &wanted, read_only) {
                Ok(mount) => return Ok(mount),
                Err(why) => why,
            };
            // `.snapshots` has it under its name of now.
            let by_now = present_name()?;
            if by_now == snapshot {
                let branch = self.find_branch(what.branch.into())?.name;
                return Err(self.shown_nowhere(&why, &branch, snapshot.map(Name)));
            }
            snapshot = by_now;
        }
        let why = "the snapshot gets one name after the other; try again";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
    }

    fn shown_nowhere(&self, why: &str, branch: &Name, snapshot: Option<Name>) -> io::Error {
        let source = self.source.display();
        let snapshot = snapshot.map(|name| format!("@{name}")).unwrap_or_default();
        let sentence = format!("{why}; `holdfast mount {source}:{branch}{snapshot} DIR` shows it");
        io::Error::new(io::ErrorKind::Unsupported, sentence)
    }
}

/// As a question has it.
fn asked(which: Which<'_>) -> holdfast_control::Which {
    match which {
        Which::Named(name) => Name(name.into()).into(),
        Which::Numbered(number) => number.into(),
    }
}

/// What was asked for, which is all that there is in the answer.
fn one<T>(which: Which<'_>, mut list: Vec<T>, of: impl Fn(&T) -> (&Name, u64)) -> io::Result<T> {
    let found = list.pop().filter(|_| list.is_empty()).ok_or_else(nonsense)?;
    let (name, number) = of(&found);
    judged(name)?;
    let is_it = match which {
        Which::Named(wanted) => name.bytes() == wanted,
        Which::Numbered(wanted) => number == wanted,
    };
    if is_it { Ok(found) } else { Err(nonsense()) }
}

fn time(ns: i64) -> Timestamp {
    Timestamp { secs: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 }
}

fn hold(of: HeldBy) -> HoldItem {
    HoldItem { tag: of.tag.0, created: time(of.created_ns) }
}

fn origin(of: CopyOf) -> OriginItem {
    let CopyOf { volume, number, lsn, created_ns } = of;
    OriginItem { volume, number, lsn, created: time(created_ns), reserved: [0; 4] }
}

fn info(of: Snapshot, branch: u64) -> SnapshotInfo {
    SnapshotInfo {
        name: of.name.0,
        number: of.number,
        branch,
        created: time(of.created_ns),
        lsn: Lsn(of.lsn),
        parent: of.parent,
        holds: of.holds.into_iter().map(hold).collect(),
        origins: of.received.into_iter().map(origin).collect(),
        inodes: of.inodes,
        is_open: of.mounted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &[u8], number: u64) -> Snapshot {
        Snapshot {
            name: Name(name.into()),
            number,
            created_ns: -1,
            lsn: 1,
            parent: None,
            holds: Vec::new(),
            received: Vec::new(),
            inodes: 1,
            forks: Vec::new(),
            more_forks: false,
            mounted: false,
        }
    }

    #[test]
    fn an_answer_about_another_one_is_not_taken() {
        let found = |which, list| one(which, list, |it: &Snapshot| (&it.name, it.number)).is_ok();
        let s = || snapshot(b"s", 7);
        assert!(found(Which::Numbered(7), vec![s()]) && found(Which::Named(b"s"), vec![s()]));
        assert!(!found(Which::Numbered(8), vec![s()]));
        assert!(!found(Which::Named(b"t"), vec![s()]));
        assert!(!found(Which::Numbered(7), vec![]));
        assert!(!found(Which::Numbered(7), vec![s(), s()]));
        for bad in [&b""[..], b"../s", b"a\0"] {
            assert!(!found(Which::Numbered(7), vec![snapshot(bad, 7)]), "{bad:?}");
        }
    }

    #[test]
    fn times_before_1970_are_times() {
        let read = info(snapshot(b"s", 1), 7);
        assert_eq!(read.created, Timestamp { secs: -1, nanos: 999_999_999 });
    }
}
