//! The thread that writes data before memory is full of it.
//!
//! Woken long before as much waits as may, so that writers rarely have to
//! settle something themselves. Owned by the mounted volume; ends when dropped,
//! without writing what is left.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;

use crate::core::Core;
use crate::{FsError, Result};

/// The thread.
#[derive(Debug)]
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(core: Arc<Core>) -> Result<Background> {
        let seen = core.clone();
        let thread = holdfast_sync::thread::Builder::new()
            .name("holdfast-writeback".into())
            .spawn(move || run(&seen))
            .map_err(|error| FsError::Io(format!("the writeback thread did not start: {error}")))?;
        Ok(Background { core, thread: Some(thread) })
    }
}

fn run(core: &Core) {
    while core.data.wait_for_pressure() {
        if core.store.stop_reason().is_some() {
            continue;
        }
        if let Err(error) = core.write_back() {
            // Whoever syncs the file is told; nobody waits here.
            tracing::warn!("background writeback: {error}");
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.data.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writeback thread panicked");
        }
    }
}
