//! What the open branches of a volume share: the store, the thread that commits, and the list of open branches.
//!
//! A branch has a [`Core`] of its own with inodes, delayed data and a thread that writes it. The volume ends with the last
//! of its branches.

use std::sync::{Arc, Weak};

use holdfast_base::counters::Counters;
use holdfast_base::show;
use holdfast_store::{Branch, Store};
use parking_lot::{Mutex, MutexGuard};

use crate::core::Core;
use crate::delayed::losses::Losses;
use crate::deletions::Deletions;
use crate::showing::Showing;
use crate::which::name_of;
use crate::{FsError, MountOptions, Result};

/// A volume, as the threads of its branches know it.
pub(crate) struct Volume {
    pub(crate) store: Arc<Store>,
    /// The statistics, shared with the store.
    pub(crate) counters: Arc<Counters>,
    /// How the first of the branches was mounted: what it says of the volume holds for all.
    pub(crate) options: MountOptions,
    open: Mutex<Vec<Open>>,
    /// Held by the thread that commits while it has branches in hand.
    visit: Mutex<()>,
    /// Held while what is open must stay as it is.
    opening: Mutex<()>,
    pub(crate) showing: Arc<Showing>,
    pub(crate) deletions: Arc<Deletions>,
    /// Data of its branches that was given up.
    pub(crate) losses: Arc<Losses>,
}

/// A branch or snapshot that is open.
struct Open {
    number: u64,
    core: Weak<Core>,
}

impl Volume {
    /// Nothing is open yet. What an earlier mount left of deletions goes on.
    pub(crate) fn new(store: Arc<Store>, counters: Arc<Counters>, options: MountOptions) -> Volume {
        let deletions = Arc::new(Deletions::new(store.clone()));
        let showing = Arc::<Showing>::default();
        let shown = Arc::clone(&showing);
        store.listen_to_names(move |what| shown.named(what));
        Volume {
            store,
            counters,
            options,
            open: Mutex::default(),
            visit: Mutex::default(),
            opening: Mutex::default(),
            showing,
            deletions,
            losses: Arc::default(),
        }
    }

    /// Until the guard is dropped nothing else is opened or deleted.
    pub(crate) fn lock_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock()
    }

    /// As [`Volume::lock_opening`], if nothing is being opened.
    pub(crate) fn try_lock_opening(&self) -> Option<MutexGuard<'_, ()>> {
        self.opening.try_lock()
    }

    /// Whether a branch or snapshot is open.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.lock().iter().any(|of| of.number == number && of.core.strong_count() > 0)
    }

    /// The numbers of all branches and snapshots that are open.
    pub(crate) fn all_open(&self) -> Vec<u64> {
        let open = self.open.lock();
        open.iter().filter(|of| of.core.strong_count() > 0).map(|of| of.number).collect()
    }

    /// The branch of this number, if it is open.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Core>> {
        self.open.lock().iter().find(|of| of.number == number)?.core.upgrade()
    }

    /// Whether nothing of it changes any more: it was opened to be read, or has stopped (P7). Then a branch is looked at as it is, and no
    /// snapshot can be taken for that.
    pub(crate) fn stands_still(&self) -> bool {
        self.options.read_only || self.store.is_stopped()
    }

    /// Fails if `branch` is open: there is one [`Core`] for each. Snapshots do not change.
    pub(crate) fn expect_closed(&self, branch: &Branch) -> Result<()> {
        if branch.is_snapshot() || !self.is_open(branch.number()) {
            return Ok(());
        }
        let name = name_of(self.store.tree(branch.number())?);
        Err(FsError::InUse(show::name(&name)))
    }

    /// From now on it is open.
    pub(crate) fn opened(&self, core: &Arc<Core>) {
        let of = Open { number: core.store.number(), core: Arc::downgrade(core) };
        let mut open = self.open.lock();
        open.retain(|of| of.core.strong_count() > 0);
        open.push(of);
    }

    /// It is open no more.
    pub(crate) fn closed(&self, core: &Arc<Core>) {
        self.open.lock().retain(|of| !std::ptr::eq(of.core.as_ptr(), Arc::as_ptr(core)));
    }

    /// Waits until the thread that commits has no branch in hand that was closed before.
    pub(crate) fn wait_for_visit(&self) {
        drop(self.visit.lock());
    }

    /// Something that deletions have waited for is over.
    pub(crate) fn go_on_with_deletions(&self) {
        if !self.options.read_only {
            self.deletions.begin();
        }
    }

    /// Writes the delayed data of all branches that are open, without making it durable. One that stands still is waited for. What cannot
    /// be written keeps nothing else from it; the first error is returned.
    pub(crate) fn write_back(&self) -> Result<()> {
        // One at a time: a branch that is held is not closed.
        let open: Vec<_> = self.open.lock().iter().map(|of| of.core.clone()).collect();
        let mut first = Ok(());
        for core in open.iter().filter_map(Weak::upgrade).filter(|core| !core.options.read_only) {
            let _inside = core.gate.enter();
            first = first.and(core.write_back());
        }
        first
    }

    /// Calls `visit` with all branches that are open for writing.
    pub(crate) fn visit<R>(&self, visit: impl FnOnce(&[Arc<Core>]) -> R) -> R {
        let _visit = self.visit.lock();
        let cores: Vec<Arc<Core>> =
            self.open.lock().iter().filter_map(|of| of.core.upgrade()).collect();
        let writable: Vec<Arc<Core>> =
            cores.into_iter().filter(|core| !core.options.read_only).collect();
        visit(&writable)
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("options", &self.options).finish_non_exhaustive()
    }
}
