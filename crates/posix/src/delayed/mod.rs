//! What all files of a volume share on the way of their data into the tree: what waits, how much, and what limits it.
//!
//! [`Totals`] count the delayed data, [`Pressure`] wakes the background.
//! Large writes are counted ([`InFlight`]), and what was written last is kept ([`Recent`]).

#[cfg(feature = "before")]
pub(crate) mod completions;
mod gain;
mod in_flight;
pub(crate) mod losses;
pub(crate) mod ordered;
mod pressure;
mod punches;
mod recent;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_store::{Branch, Idle};
use parking_lot::{Mutex, MutexGuard};

use crate::MountOptions;
use crate::file_data::Content;
use crate::inode::Inode;
#[cfg(feature = "before")]
use completions::Completions;
use in_flight::InFlight;
pub(crate) use in_flight::UnderWay;
use losses::LossesSeen;
use pressure::Pressure;
use punches::Punches;
use recent::Recent;
use totals::Totals;

/// What writeback shares between all files of a volume.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Where ordered extents queue, if a worker completes them (M5).
    #[cfg(feature = "before")]
    pub(crate) completions: Completions,
    /// Large writes on their way to the device.
    pub(crate) in_flight: Arc<InFlight>,
    /// Holes that are being made.
    pub(crate) punches: Punches,
    /// What was written last.
    pub(crate) recent: Recent,
    /// Data that was given up.
    pub(crate) losses: LossesSeen,
    /// Woken when data becomes dirty: the thread that writes delayed data while the volume rests.
    idle: Arc<Idle>,
    /// How much is delayed.
    pub(crate) totals: Totals,
    /// Inodes that have pages, by number. Keeps them in memory.
    waiting: Mutex<BTreeMap<InodeNo, Arc<Inode>>>,
    /// Held by the thread that waits for the last space.
    last: Mutex<()>,
    /// What the background is to write.
    pub(crate) pressure: Pressure,
}

impl Shared {
    /// Nothing waits yet.
    pub(crate) fn new(store: &Branch, options: &MountOptions, losses: LossesSeen) -> Shared {
        Shared {
            #[cfg(feature = "before")]
            completions: Completions::default(),
            in_flight: Arc::new(InFlight::new(options.threads)),
            punches: Punches::default(),
            recent: Recent::new(options.recent_bytes),
            losses,
            idle: store.idle().clone(),
            totals: Totals::new(options),
            waiting: Mutex::default(),
            last: Mutex::new(()),
            pressure: Pressure::default(),
        }
    }

    /// As [`Shared::account`], after a write: one that changes no sum is counted, too. Pages that are given back are
    /// not written, so a volume rests although its data is tried again and again.
    pub(crate) fn account_write(&self, inode: &Arc<Inode>, content: &mut Content) {
        let before = inode.data.pages();
        self.account(inode, content);
        if content.pages.count() == before {
            self.totals.count_rewrite();
        }
    }

    /// Updates the totals for a file whose pages changed, and lists or unlists it.
    pub(crate) fn account(&self, inode: &Arc<Inode>, content: &mut Content) {
        self.totals.add(&inode.data, &content.pages);
        content.shrink_kept_nodes();
        let wanted = !content.pages.is_empty();
        if wanted == content.listed {
            return;
        }
        content.listed = wanted;
        if wanted {
            let mut waiting = self.waiting.lock();
            waiting.insert(inode.no, inode.clone());
            self.totals.set_files(waiting.len());
            drop(waiting);
            self.idle.stir();
        } else {
            // No page is left that could need it.
            content.reserved = None;
            self.unlist(inode);
        }
    }

    fn unlist(&self, inode: &Inode) {
        let mut waiting = self.waiting.lock();
        waiting.remove(&inode.no);
        self.totals.set_files(waiting.len());
    }

    /// Like [`Shared::account`] for an inode that is going away and whose pages are all dropped.
    pub(crate) fn forget(&self, inode: &Inode, content: &mut Content) {
        debug_assert!(content.pages.is_empty());
        self.totals.add(&inode.data, &content.pages);
        content.shrink_kept_nodes();
        content.reserved = None;
        if std::mem::take(&mut content.listed) {
            self.unlist(inode);
        }
    }

    /// Whether pages wait that go to reserved blocks, or are about to.
    pub(crate) fn waits_in_place(&self) -> bool {
        self.totals.in_place() > 0
    }

    /// Waits until no other thread waits for the last space.
    pub(crate) fn lock_last(&self) -> MutexGuard<'_, ()> {
        self.last.lock()
    }

    /// The inodes that have pages.
    pub(crate) fn waiting(&self) -> Vec<Arc<Inode>> {
        self.waiting.lock().values().cloned().collect()
    }
}
