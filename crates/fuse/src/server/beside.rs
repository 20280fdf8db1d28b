//! What changed without a request of the kernel, by calls of the filesystem beside this server.
//!
//! The kernel believes names and attributes for long. It hears of each name that came or went, and of each inode that changed. An
//! answer that is on its way meanwhile does no harm: the kernel obeys a notice about a name when no look-up in that directory
//! is under way, and drops attributes that were asked for before a notice about their inode.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Changed;

use super::Server;
use crate::notices::Notice;

impl Server {
    /// The kernel forgets what it knows of these. Never waits.
    pub(crate) fn changed_beside(&self, changed: impl IntoIterator<Item = Changed>) {
        // Before the kernel has said what it understands, it knows nothing.
        if self.kernel.get().is_none() {
            return;
        }
        let notices = Arc::clone(&self.notices);
        notices.note_all(changed.into_iter().map(|of| match of {
            Changed::Name { dir, name } => Notice::Name(dir, name),
            Changed::Inode(inode) => Notice::Inode(inode),
        }));
    }

    /// Waits until the kernel has forgotten what it was told to, but no longer than `patience`. Says whether it has.
    pub(crate) fn has_forgotten(&self, patience: Duration) -> bool {
        self.kernel.get().is_none() || self.notices.drain_within(patience)
    }
}
