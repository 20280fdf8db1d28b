//! The host's page cache in front of a device that several machines have, where the host refuses direct I/O.

use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

use super::FileDevice;

/// Pages are at most so large; one that is dropped in part is kept.
const PAGE_MAX: u64 = 64 << 10;

impl FileDevice {
    /// Takes clean pages around these bytes out of the cache. One that is dirty or under writeback stays, until a flush.
    ///
    /// Network filesystems and FUSE then ask their server with the next read. Overlays pass it on to the filesystem below.
    /// On tmpfs the page is the data, and nothing happens.
    pub(super) fn drop_pages(&self, at: u64, len: u64) {
        let start = at - at % PAGE_MAX;
        let Some(end) = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE_MAX))
        else {
            return;
        };
        let dropped = fadvise(&self.file, start, NonZeroU64::new(end - start), Advice::DontNeed);
        if let Err(error) = dropped {
            tracing::debug!(path = %self.path.display(), %error, "the host keeps its cache");
        }
    }
}
