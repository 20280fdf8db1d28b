//! `rename_log=directory`: what a rename cost before names were logged one by one (M2), to be measured.
//!
//! A directory whose changes an fsync made durable since the last commit is
//! logged as a whole when a name moves out of it or into it: its entries are
//! walked in the tree, and every name that changed since that commit, or is
//! gone since then, joins the log once more. Nothing in the tree changes by
//! that: each is put with the value that it has. With `rename_log=names`
//! nothing is remembered and nothing is done.
//!
//! Knows nothing of what a rename checks and changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::ControlFlow;

use holdfast_base::counters::Counters;
use holdfast_base::switch::RenameLog;
use holdfast_base::{InodeNo, Lsn};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Branch, Need, Reservation, Transaction};
use parking_lot::Mutex;

use crate::Result;

/// Names of one transaction. Logging a name again changes nothing, so that transactions need not come as one.
const NAMES_AT_ONCE: usize = 512;

/// The names that changed since the last commit, for each directory.
#[derive(Debug)]
pub(crate) struct DirectoryLog(Option<Mutex<Changes>>);

#[derive(Debug, Default)]
struct Changes {
    dirs: HashMap<InodeNo, DirChanges>,
    /// The commit up to which everything was forgotten.
    committed: Lsn,
}

/// A directory changes only under the write lock of its state, so its operations come in order.
#[derive(Debug, Default)]
struct DirChanges {
    /// The operations that changed a name, the oldest first.
    operations: VecDeque<Lsn>,
    /// Key offsets of those names, with the last operation that changed each.
    names: BTreeMap<u64, Lsn>,
}

impl DirChanges {
    /// Forgets what a commit made durable; answers whether anything is left.
    fn forget(&mut self, committed: Lsn) -> bool {
        self.operations.retain(|lsn| *lsn > committed);
        self.names.retain(|_, lsn| *lsn > committed);
        !self.operations.is_empty()
    }

    /// Whether an fsync made a change durable that no commit has.
    fn is_logged(&self, committed: Lsn, durable: Lsn) -> bool {
        // A change that was remembered only after its commit may still stand in front.
        self.operations.iter().find(|lsn| **lsn > committed).is_some_and(|first| *first <= durable)
    }
}

impl Changes {
    fn changed(&mut self, committed: Lsn, dir: InodeNo, offset: u64, lsn: Lsn) {
        if committed > self.committed {
            self.committed = committed;
            self.dirs.retain(|_, changes| changes.forget(committed));
        }
        let changes = self.dirs.entry(dir).or_default();
        changes.operations.push_back(lsn);
        changes.names.insert(offset, lsn);
    }

    fn is_logged(&self, committed: Lsn, durable: Lsn, dir: InodeNo) -> bool {
        self.dirs.get(&dir).is_some_and(|changes| changes.is_logged(committed, durable))
    }

    /// Key offsets of the names that changed since the last commit, upwards.
    fn names(&self, committed: Lsn, dir: InodeNo) -> Vec<u64> {
        let names = self.dirs.get(&dir).into_iter().flat_map(|changes| &changes.names);
        names.filter(|(_, lsn)| **lsn > committed).map(|(offset, _)| *offset).collect()
    }
}

impl DirectoryLog {
    pub(crate) fn new(switch: RenameLog) -> DirectoryLog {
        DirectoryLog((switch == RenameLog::Directory).then(Mutex::default))
    }

    /// Remembers that the operation `lsn` put or deleted the name at `offset` of `dir`, whose state is locked.
    pub(crate) fn changed(&self, store: &Branch, dir: InodeNo, offset: u64, lsn: Lsn) {
        if let Some(changes) = &self.0 {
            changes.lock().changed(store.committed(), dir, offset, lsn);
        }
    }

    /// Space to log those of `dirs` once more that were logged since the last commit. Called before
    /// anything is locked. Without space there is no second time: it adds nothing that must be there.
    pub(crate) fn prepare(&self, store: &Branch, dirs: &[InodeNo]) -> Again {
        let logged = self.0.as_ref().is_some_and(|changes| {
            let changes = changes.lock();
            let (durable, committed) = (store.durable(), store.committed());
            dirs.iter().any(|dir| changes.is_logged(committed, durable, *dir))
        });
        let need = Need::Grow { changes: NAMES_AT_ONCE as u32, blocks: 0 };
        Again(logged.then(|| store.reserve(need).ok()).flatten())
    }

    /// The names of `dir` to log once more, if it was logged since the last commit.
    fn names(&self, store: &Branch, dir: InodeNo) -> Option<Vec<u64>> {
        let changes = self.0.as_ref()?.lock();
        let (durable, committed) = (store.durable(), store.committed());
        changes.is_logged(committed, durable, dir).then(|| changes.names(committed, dir))
    }
}

/// The right to log directories once more.
pub(crate) struct Again(Option<Reservation>);

impl Again {
    /// Logs those of `dirs` once more that were logged since the last commit. Their states are locked for writing.
    pub(crate) fn log(
        &mut self,
        of: &DirectoryLog,
        store: &Branch,
        counters: &Counters,
        dirs: &[InodeNo],
    ) -> Result<()> {
        let Some(reservation) = &mut self.0 else {
            return Ok(());
        };
        for (at, dir) in dirs.iter().enumerate() {
            let names = of.names(store, *dir);
            if let Some(names) = names.filter(|_| !dirs[..at].contains(dir)) {
                log_names(store, *dir, &names, reservation)?;
                counters.log_directories.increment();
            }
        }
        Ok(())
    }
}

/// Puts each of `names` that `dir` has, and deletes each that it has not. They ascend.
fn log_names(
    store: &Branch,
    dir: InodeNo,
    names: &[u64],
    reservation: &mut Reservation,
) -> Result<()> {
    let mut present: Vec<(u64, Vec<u8>)> = Vec::new();
    let (from, to) = Key::span(dir, ItemKind::Dentry);
    store.scan(&from, &to, |key, value| {
        if names.binary_search(&key.offset).is_ok() {
            present.push((key.offset, value.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    let mut present = present.into_iter().peekable();
    for part in names.chunks(NAMES_AT_ONCE) {
        let mut transaction = Transaction::new();
        for offset in part {
            let key = Key::new(dir, ItemKind::Dentry, *offset);
            match present.next_if(|(at, _)| at == offset) {
                Some((_, value)) => transaction.put(key, value),
                None => transaction.delete(key),
            }
        }
        store.apply(transaction, reservation)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeNo = InodeNo(9);

    fn changes(of: &[(u64, u64)]) -> Changes {
        let mut changes = Changes::default();
        for &(offset, lsn) in of {
            changes.changed(Lsn(0), DIR, offset, Lsn(lsn));
        }
        changes
    }

    #[test]
    fn a_directory_is_logged_when_an_fsync_reached_a_change_that_no_commit_has() {
        let changes = changes(&[(500, 3), (300, 5)]);
        for (committed, durable, logged) in
            [(0, 2, false), (0, 3, true), (0, 9, true), (3, 4, false), (3, 5, true), (5, 5, false)]
        {
            let seen = changes.is_logged(Lsn(committed), Lsn(durable), DIR);
            assert_eq!(seen, logged, "committed {committed}, durable {durable}");
        }
        assert!(!changes.is_logged(Lsn(0), Lsn(9), InodeNo(8)));
        assert_eq!(changes.names(Lsn(0), DIR), [300, 500]);
        assert_eq!(changes.names(Lsn(3), DIR), [300]);
    }

    #[test]
    fn a_name_that_changed_again_counts_by_its_last_change() {
        let mut changes = changes(&[(500, 3), (300, 5), (500, 7)]);
        assert_eq!(changes.names(Lsn(6), DIR), [500]);
        changes.changed(Lsn(6), InodeNo(8), 256, Lsn(8));
        let left = &changes.dirs[&DIR];
        assert_eq!((left.operations.len(), left.names.len()), (1, 1));
        changes.changed(Lsn(8), InodeNo(8), 257, Lsn(9));
        assert!(!changes.dirs.contains_key(&DIR), "a commit has all of it");
    }

    #[test]
    fn a_change_remembered_after_its_commit_is_none_that_was_logged() {
        let mut changes = changes(&[]);
        changes.changed(Lsn(6), DIR, 256, Lsn(6));
        assert!(!changes.is_logged(Lsn(6), Lsn(6), DIR));
        changes.changed(Lsn(6), DIR, 512, Lsn(7));
        assert!(!changes.is_logged(Lsn(6), Lsn(6), DIR));
        assert!(changes.is_logged(Lsn(6), Lsn(7), DIR));
        assert_eq!(changes.names(Lsn(6), DIR), [512]);
    }

    #[test]
    fn names_are_not_remembered_for_nothing() {
        assert!(DirectoryLog::new(RenameLog::Names).0.is_none());
        assert!(DirectoryLog::new(RenameLog::Directory).0.is_some());
    }
}
