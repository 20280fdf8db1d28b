//! The mounts of one volume in one process, as far as they have something of each other in use.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A mount that opens snapshots when programs look at them.
pub(crate) trait Sibling: Send + Sync {
    /// Closes those of which no file is open: they are not in use.
    fn close_idle_snapshots(&self);
}

/// Those mounts. It keeps none alive.
#[derive(Default)]
pub(crate) struct Siblings(Mutex<Vec<Weak<dyn Sibling>>>);

impl Siblings {
    /// One more.
    pub(crate) fn add(&self, sibling: Weak<dyn Sibling>) {
        let mut all = self.0.lock();
        all.retain(|of| of.strong_count() > 0);
        all.push(sibling);
    }

    /// Closes snapshots that programs have looked at, in each of them.
    pub(crate) fn close_idle_snapshots(&self) {
        let all: Vec<Arc<dyn Sibling>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|of| of.close_idle_snapshots());
    }
}
