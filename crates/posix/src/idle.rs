//! What keeps branches or snapshots open that nobody uses, and closes them before something is deleted.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Keeps branches or snapshots open after they were used, because they may be wanted soon again.
pub trait CloseIdle: Send + Sync {
    /// Closes those that nobody uses; of all, or of this number alone.
    fn close_idle(&self, only: Option<u64>);
}

/// All that do so with one volume. It keeps none alive.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Vec<Weak<dyn CloseIdle>>>);

impl Idle {
    /// One more.
    pub(crate) fn add(&self, of: Weak<dyn CloseIdle>) {
        let mut all = self.0.lock();
        all.retain(|of| of.strong_count() > 0);
        all.push(of);
    }

    /// Has closed what nobody uses, see [`CloseIdle::close_idle`]. Says whether there is anybody who may close something later.
    pub(crate) fn close(&self, only: Option<u64>) -> bool {
        // Closing takes other locks.
        let all: Vec<Arc<_>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|of| of.close_idle(only));
        !all.is_empty()
    }
}
