//! The threads of a mounted volume: how they start, and what it means when one dies.
//!
//! All of them start with the mount, which fails if the system gives one too few. One that panics stops the volume
//! (P7): its work would be left undone without a word, and with it what was promised (P11).

use std::sync::Arc;

use holdfast_sync::thread::JoinHandle;

use holdfast_store::Store;

use crate::{FsError, Result};

/// Starts a thread called `name`, whose work is to `work`.
#[track_caller]
pub(crate) fn start(
    store: &Arc<Store>,
    name: &str,
    work: &'static str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let store = store.clone();
    let started = holdfast_sync::start(name, move || {
        let step = store.step(work);
        body();
        step.end();
    });
    started.map_err(|error| {
        FsError::Io(format!(
            "the system gives no thread for {work} ({error}); raise its limit of processes"
        ))
    })
}

/// Waits for the end of a thread.
pub(crate) fn join(thread: Option<JoinHandle<()>>, work: &str) {
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::error!("the thread for {work} panicked");
    }
}
