//! The kernel of a mount hears of what work changes beside it.

use std::time::Duration;

use holdfast_base::Changed;
use holdfast_fuse::Remote;
use holdfast_service::work::Remembers;

/// The mount of a branch that work changes.
#[derive(Debug)]
pub(super) struct Kernel(pub(super) Remote);

impl Remembers for Kernel {
    fn forget(&self, changed: Vec<Changed>) {
        self.0.forget(changed);
    }

    fn has_forgotten(&self, patience: Duration) -> bool {
        self.0.has_forgotten(patience)
    }
}
