//! What shows the snapshots of a volume to programs, under their names.

use std::sync::{Arc, Weak};

use holdfast_store::NameChange;
use parking_lot::Mutex;

/// Shows snapshots to programs, which may go on using what lies in one when its name is gone, as they may with a file.
pub trait ShowsSnapshots: Send + Sync {
    /// The snapshot of this number is about to be deleted: what programs use of it stays open from now on, as a
    /// [view](crate::FileSystem::view), until they have let go of it.
    fn keep(&self, snapshot: u64);
    /// Looks whether programs have let go of what was kept. Called now and then, while the volume is in use. Must not wait.
    fn tidy(&self);
    /// Names have come, gone, or become others. Must not wait, nor call the filesystem: branches and snapshots are locked.
    fn named(&self, what: &NameChange);
}

/// All that do so with one volume. It keeps none alive.
#[derive(Default)]
pub(crate) struct Showing(Mutex<Vec<Weak<dyn ShowsSnapshots>>>);

impl Showing {
    /// One more.
    pub(crate) fn add(&self, of: Weak<dyn ShowsSnapshots>) {
        let mut all = self.0.lock();
        all.retain(|of| of.strong_count() > 0);
        all.push(of);
    }

    /// See [`ShowsSnapshots::keep`].
    pub(crate) fn keep(&self, snapshot: u64) {
        self.all().iter().for_each(|of| of.keep(snapshot));
    }

    /// See [`ShowsSnapshots::tidy`].
    pub(crate) fn tidy(&self) {
        self.all().iter().for_each(|of| of.tidy());
    }

    /// See [`ShowsSnapshots::named`].
    pub(crate) fn named(&self, what: &NameChange) {
        self.all().iter().for_each(|of| of.named(what));
    }

    /// They take other locks.
    fn all(&self) -> Vec<Arc<dyn ShowsSnapshots>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
