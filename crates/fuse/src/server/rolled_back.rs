//! What the kernel still believes of files that it knew when their branch was rolled back.
//!
//! - Pages that a program has stored into through a mapping are written when the kernel drops them: it is told that they are void, and
//!   first hands them over. They belong to the head that is gone, so until the kernel has dropped them what it writes from
//!   its cache is accepted and thrown away.
//! - The kernel puts an append where it believes that the file ends, which it asks for at a look at the attributes and not at
//!   a write. So appends go to the end here, until one comes that was right, or the kernel forgets the file. (An answer that
//!   tells it the size proves nothing: an append that is on its way may have its place from before.)
//! - The kernel remembers that a file has no capabilities, and then takes none away when it is written. Behind a rollback it may have some, so they
//!   are taken away here, once.
//!
//! A write that came before the rollback and has its turn behind it is judged again: see [`WriteHow::turn`](holdfast_posix::WriteHow).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::InodeNo;
use parking_lot::Mutex;

/// What is to be done with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes where it says.
    Fine,
    /// It goes to the end of the file, which may be elsewhere.
    Append,
    /// It is of a head that is gone.
    Void,
}

#[derive(Clone, Copy, Debug)]
struct File {
    /// The rollback, by the number of turns behind it, of which the kernel is being told.
    void: Option<u64>,
    /// The rollback since which the kernel may not know the end.
    misplaced: Option<u64>,
    /// The rollback since which the kernel may not know that it has capabilities.
    capable: Option<u64>,
}

/// Those files.
#[derive(Debug, Default)]
pub(super) struct RolledBack {
    /// Read without the lock: mostly there are none.
    any: AtomicBool,
    files: Mutex<HashMap<InodeNo, File>>,
}

impl RolledBack {
    /// The branch was rolled back, the turn of this number, and the kernel may have pages of these.
    pub(super) fn turned(&self, inodes: impl Iterator<Item = InodeNo>, turn: u64) {
        let file = File { void: Some(turn), misplaced: Some(turn), capable: Some(turn) };
        let mut files = self.files.lock();
        // Of others the kernel may not have heard of the rollback before this one.
        files.extend(inodes.map(|inode| (inode, file)));
        self.any.store(!files.is_empty(), Ordering::Release);
    }

    /// The kernel has no page of it any more that is older than this turn.
    pub(super) fn told(&self, inode: InodeNo, turn: u64) {
        self.change(inode, |file| file.void = file.void.filter(|void| *void != turn));
    }

    /// The kernel knows where the file ended before the next rollback behind this turn.
    pub(super) fn is_right(&self, inode: InodeNo, turn: u64) {
        self.change(inode, |file| file.misplaced = file.misplaced.filter(|since| *since > turn));
    }

    /// Whether a file may have capabilities that the kernel does not take away.
    pub(super) fn may_have_capabilities(&self, inode: InodeNo) -> bool {
        let of = |files: &HashMap<InodeNo, File>| {
            files.get(&inode).is_some_and(|it| it.capable.is_some())
        };
        self.any.load(Ordering::Acquire) && of(&self.files.lock())
    }

    /// They were taken away behind this turn.
    pub(super) fn has_no_capabilities(&self, inode: InodeNo, turn: u64) {
        self.change(inode, |file| file.capable = file.capable.filter(|since| *since > turn));
    }

    /// The kernel does not know it any more.
    pub(super) fn forgotten(&self, inode: InodeNo) {
        if self.any.load(Ordering::Acquire) {
            let mut files = self.files.lock();
            files.remove(&inode);
            self.any.store(!files.is_empty(), Ordering::Release);
        }
    }

    /// Whether the kernel may have pages of it that are of a head that is gone.
    pub(super) fn is_void(&self, inode: InodeNo) -> bool {
        self.judge(inode, true, false) == Verdict::Void
    }

    /// How many files are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.files.lock().len()
    }

    fn change(&self, inode: InodeNo, change: impl FnOnce(&mut File)) {
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&inode) else { return };
        change(file);
        if file.void.or(file.misplaced).or(file.capable).is_none() {
            files.remove(&inode);
        }
        self.any.store(!files.is_empty(), Ordering::Release);
    }

    /// What becomes of a write; `is_cached`: of pages that were mapped; `is_append`: the kernel has chosen its place.
    pub(super) fn judge(&self, inode: InodeNo, is_cached: bool, is_append: bool) -> Verdict {
        if !self.any.load(Ordering::Acquire) {
            return Verdict::Fine;
        }
        match self.files.lock().get(&inode) {
            Some(file) if is_cached && file.void.is_some() => Verdict::Void,
            Some(file) if is_append && !is_cached && file.misplaced.is_some() => Verdict::Append,
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_void_until_the_kernel_has_dropped_those_of_the_last_head() {
        let rolled_back = RolledBack::default();
        let file = InodeNo(5);
        let cached = || rolled_back.judge(file, true, false);
        assert_eq!(cached(), Verdict::Fine);
        rolled_back.turned([file].into_iter(), 1);
        assert_eq!(
            (cached(), rolled_back.judge(InodeNo(6), true, true)),
            (Verdict::Void, Verdict::Fine)
        );
        assert_eq!(rolled_back.judge(file, false, false), Verdict::Fine);
        rolled_back.turned([file].into_iter(), 2);
        rolled_back.told(file, 1);
        assert_eq!(cached(), Verdict::Void, "there may be pages of the second head");
        rolled_back.told(file, 2);
        assert_eq!(cached(), Verdict::Fine);
    }

    #[test]
    fn appends_go_to_the_end_until_one_was_right_and_pages_never() {
        let rolled_back = RolledBack::default();
        let file = InodeNo(5);
        rolled_back.turned([file].into_iter(), 1);
        rolled_back.told(file, 1);
        assert_eq!(rolled_back.judge(file, false, true), Verdict::Append);
        assert_eq!(rolled_back.judge(file, true, true), Verdict::Fine);
        rolled_back.is_right(file, 0);
        assert_eq!(rolled_back.judge(file, false, true), Verdict::Append, "it was right before");
        rolled_back.is_right(file, 1);
        assert_eq!(rolled_back.judge(file, false, true), Verdict::Fine);
        rolled_back.has_no_capabilities(file, 0);
        assert!(rolled_back.may_have_capabilities(file));
        rolled_back.has_no_capabilities(file, 1);
        assert!(!rolled_back.may_have_capabilities(file));
        assert!(!rolled_back.any.load(Ordering::Acquire) && rolled_back.files.lock().is_empty());
    }
}
