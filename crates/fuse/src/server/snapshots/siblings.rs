//! The mounts of one volume in one process, as far as they have something of each other in use.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::server::Server;

/// The servers of those mounts. It keeps none alive.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Mutex<Vec<Weak<Server>>>);

impl Siblings {
    /// One more.
    pub(crate) fn add(&self, server: &Arc<Server>) {
        let mut all = self.0.lock();
        all.retain(|of| of.strong_count() > 0);
        all.push(Arc::downgrade(server));
    }

    /// Closes snapshots that programs have looked at, and of which no file is open: they are not in use.
    pub(crate) fn close_idle_snapshots(&self) {
        let all: Vec<Arc<Server>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|of| of.close_idle_snapshots());
    }
}
