//! Up to four inodes locked at once, each with the item that an operation is about to put.
//!
//! Inodes are locked in ascending order of their numbers, and each once, even
//! if an operation names it twice. An operation changes the drafts, puts them
//! into its transaction, applies it, and then lets the states take the drafts over.

use holdfast_base::{InodeNo, Lsn};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_store::Transaction;
use parking_lot::RwLockWriteGuard;

use super::{Inode, InodeState};

/// Most inodes of one operation: two directories and what two names lead to.
const HELD_MAX: usize = 4;

/// One locked inode.
pub(crate) struct Held<'a> {
    no: InodeNo,
    /// What it is now.
    pub(crate) state: RwLockWriteGuard<'a, InodeState>,
    /// What it is to become.
    pub(crate) draft: InodeItem,
    /// Its item leaves the tree with this operation.
    pub(crate) removed: bool,
}

impl Held<'_> {
    /// The name at `slot` of `parent` goes. If it is the one that the inode knows, it knows none until it gets another: to
    /// find one of the others would take a search. A directory has no other, and its `..` stays while it is open.
    pub(crate) fn forget_name(&mut self, parent: InodeNo, slot: u64) {
        let known = (self.draft.parent, self.draft.parent_slot);
        if known == (parent, slot) && self.draft.file_type() != FileType::Directory {
            (self.draft.parent, self.draft.parent_slot) = (InodeNo(0), 0);
        }
    }
}

/// Several locked inodes.
pub(crate) struct Locked<'a> {
    held: [Option<Held<'a>>; HELD_MAX],
}

impl<'a> Locked<'a> {
    /// Locks `inodes`, at most four.
    pub(crate) fn of(inodes: &[&'a Inode]) -> Locked<'a> {
        let mut order: [Option<&'a Inode>; HELD_MAX] = [None; HELD_MAX];
        for (place, inode) in order.iter_mut().zip(inodes) {
            *place = Some(inode);
        }
        // Places without an inode sort last.
        order.sort_unstable_by_key(|place| place.map_or(u64::MAX, |inode| inode.no.0));
        let mut held = [const { None }; HELD_MAX];
        let mut last = None;
        for (place, inode) in held.iter_mut().zip(order.into_iter().flatten()) {
            if last == Some(inode.no) {
                continue;
            }
            last = Some(inode.no);
            let state = inode.state.write();
            *place = Some(Held { no: inode.no, draft: state.next_disk(), state, removed: false });
        }
        Locked { held }
    }

    /// One of the locked inodes.
    pub(crate) fn get(&mut self, no: InodeNo) -> &mut Held<'a> {
        self.held
            .iter_mut()
            .flatten()
            .find(|held| held.no == no)
            .expect("operations ask for what they have locked")
    }

    /// The draft of one of the locked inodes.
    pub(crate) fn draft(&mut self, no: InodeNo) -> &mut InodeItem {
        &mut self.get(no).draft
    }

    /// Puts every draft whose inode stays.
    pub(crate) fn put_all(&self, transaction: &mut Transaction) {
        for held in self.held.iter().flatten().filter(|held| !held.removed) {
            held.state.put(held.no, &held.draft, transaction);
        }
    }

    /// After the transaction was applied: the drafts are what is.
    pub(crate) fn took_all(&mut self, changed: Lsn) {
        for held in self.held.iter_mut().flatten() {
            held.state.took(held.draft, changed);
        }
    }
}
