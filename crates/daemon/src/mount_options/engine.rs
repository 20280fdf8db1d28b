//! Options as the engine takes them.

use holdfast::VolumeOptions;

use super::DaemonOptions;

impl DaemonOptions {
    /// For the engine.
    pub(crate) fn volume(&self) -> VolumeOptions {
        let mut volume = VolumeOptions::new().read_only(self.read_only).discard(self.discard);
        if let Some(branch) = &self.branch {
            volume = volume.branch(branch);
        }
        if let Some(snapshot) = &self.snapshot {
            volume = volume.snapshot(snapshot);
        }
        if let Some(atime) = self.atime {
            volume = volume.atime(atime);
        }
        if let Some(seconds) = self.commit {
            volume = volume.commit_secs(seconds);
        }
        if let Some(bytes) = self.cache {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            volume = volume.cache_bytes(bytes).recent_bytes((bytes / 16).min(16 << 20));
        }
        if let Some(bytes) = self.dirty_bytes {
            volume = volume.dirty_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(budget) = self.recover {
            volume = volume.recover(budget);
        }
        if let Some(bytes) = self.log_data {
            volume = volume.log_data_bytes(bytes);
        }
        volume = volume.dirty(self.dirty).accounting(self.accounting);
        volume =
            volume.batching(self.batching).rename_log(self.rename_log).fsync_wait(self.fsync_wait);
        volume
    }
}
