//! Holes that are being made in several transactions, see [`crate::data::punch`].

use std::collections::BTreeMap;

use holdfast_base::InodeNo;
use holdfast_format::item::PunchItem;
use holdfast_sync::atomic::{AtomicUsize, Ordering};
use parking_lot::Mutex;

/// The files that have a [`PunchItem`] now: few, and mostly none.
#[derive(Debug, Default)]
pub(crate) struct Punches {
    count: AtomicUsize,
    items: Mutex<BTreeMap<InodeNo, PunchItem>>,
}

impl Punches {
    /// The item of a file, if it has one. One load if no file has.
    pub(crate) fn of(&self, inode: InodeNo) -> Option<PunchItem> {
        match self.count.load(Ordering::Acquire) {
            0 => None,
            _ => self.items.lock().get(&inode).copied(),
        }
    }

    /// The tree has this item now.
    pub(crate) fn begin(&self, inode: InodeNo, item: PunchItem) {
        let mut items = self.items.lock();
        items.insert(inode, item);
        self.count.store(items.len(), Ordering::Release);
    }

    /// The tree is another one.
    pub(crate) fn clear(&self) {
        let mut items = self.items.lock();
        items.clear();
        self.count.store(0, Ordering::Release);
    }

    /// The tree has no item any more.
    pub(crate) fn end(&self, inode: InodeNo) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut items = self.items.lock();
        items.remove(&inode);
        self.count.store(items.len(), Ordering::Release);
    }
}
