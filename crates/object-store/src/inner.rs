//! What all calls of a store share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::{Dir, Volume};
use parking_lot::Mutex;

use crate::object::STAGING;

pub(crate) struct Inner {
    /// The volume stays open as long as the store is there.
    pub(crate) volume: Arc<Volume>,
    pub(crate) root: Dir,
    /// What has returned is durable.
    pub(crate) durable: bool,
    /// Held where names and directories of objects change. Never while the device is waited for.
    pub(crate) changes: Arc<Mutex<()>>,
    staged: Arc<AtomicU64>,
}

impl Inner {
    pub(crate) fn new(volume: Arc<Volume>, root: Dir, durable: bool) -> Inner {
        let store =
            Inner { volume, root, durable, changes: Arc::default(), staged: Arc::default() };
        store.remove_leftovers();
        store
    }

    /// The same store, whose changes are durable when they return, or not.
    pub(crate) fn with_durable(&self, durable: bool) -> Inner {
        let Inner { volume, root, changes, staged, .. } = self;
        let (volume, root) = (volume.clone(), root.clone());
        Inner { volume, root, durable, changes: changes.clone(), staged: staged.clone() }
    }

    /// What a crash has left of replacements goes. Where others may have the volume as well it stays.
    fn remove_leftovers(&self) {
        if self.volume.mounted_at().is_none() {
            let _ = self.root.remove_dir_all(STAGING);
        }
    }

    pub(crate) fn next_staged(&self) -> String {
        let number = self.staged.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", std::process::id())
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("root", &self.root).field("durable", &self.durable).finish()
    }
}
