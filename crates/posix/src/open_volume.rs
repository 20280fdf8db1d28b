//! A volume with the thread that commits: it ends with the last branch that is open.

use std::sync::Arc;

use crate::Result;
use crate::committer::Committer;
use crate::volume::Volume;

/// A volume with its threads.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    /// Ends first.
    pub(crate) committer: Option<Committer>,
    pub(crate) volume: Arc<Volume>,
}

impl OpenVolume {
    /// The last branch is closed: makes everything durable at its location and ends the threads.
    pub(crate) fn close(self) -> Result<()> {
        let OpenVolume { committer, volume } = self;
        drop(committer);
        let mut volume = volume;
        let Volume { mut store, deletions, .. } = loop {
            // What looks at a branch that has just been closed holds the volume for a moment.
            match Arc::try_unwrap(volume) {
                Ok(volume) => break volume,
                Err(shared) => volume = shared,
            }
            holdfast_sync::thread::yield_now();
        };
        drop(deletions);
        let store = loop {
            match Arc::try_unwrap(store) {
                Ok(store) => break store,
                Err(shared) => store = shared,
            }
            holdfast_sync::thread::yield_now();
        };
        Ok(store.close()?)
    }
}
