//! Which state of a file's extents, size and pages a reader has seen.

use holdfast_sync::atomic::{AtomicU64, Ordering, fence};

/// Odd during a change. For every reader that checks it, a change of extents, size and pages is one step.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU64);

/// Extents, size and pages are changing: readers retry.
pub(crate) struct Changing<'a>(&'a AtomicU64);

impl Version {
    /// Begins a change of the extents. The caller has the state locked for writing.
    pub(crate) fn begin_change(&self) -> Changing<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        Changing(&self.0)
    }

    /// The version now; `None` while a change is going on.
    pub(crate) fn now(&self) -> Option<u64> {
        let version = self.0.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether nothing has changed since `version` was read.
    pub(crate) fn is(&self, version: u64) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == version
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
