//! The watch over requests: one thread for all mounts of a process.
//!
//! A request that takes long and has not said so must not keep others from being read. Mounts in which nothing happens cost
//! the watch nothing: it looks only at those that have served a request lately, and sleeps while there are none.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::threads;

/// A request that takes longer has another thread read.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// What is watched: the threads of one mount.
pub(crate) trait Watched: Send + Sync {
    /// Called every tick: whether one request has kept all that read from reading for as long. `begun` is how many had begun at
    /// the last look. False: it need not look until something begins.
    fn look_after(self: Arc<Self>, begun: &mut u64) -> bool;
}

/// Ends its thread when it is dropped.
#[derive(Default)]
pub(crate) struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<WatchList>,
    called: Condvar,
}

#[derive(Default)]
struct WatchList {
    /// Readers that serve, and how many requests had begun there at the last look.
    awake: Vec<(Weak<dyn Watched>, u64)>,
    is_started: bool,
    is_over: bool,
}

impl Watch {
    /// Starts the thread unless that was done.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.is_started {
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        let run = move || {
            // It holds nothing of a volume: it begins anew.
            while catch_unwind(AssertUnwindSafe(|| shared.watch())).is_err() {
                tracing::error!("the watch over requests has panicked; it goes on");
                std::thread::sleep(TICK);
            }
        };
        threads::start("holdfast-watch", "requests", run)?;
        state.is_started = true;
        Ok(())
    }

    /// One that never looks, as if each request were short.
    #[cfg(test)]
    pub(crate) fn blind() -> Watch {
        let watch = Watch::default();
        watch.0.state.lock().is_started = true;
        watch
    }

    /// Looks at these readers from now on, until they serve nothing.
    pub(crate) fn over(&self, readers: Weak<dyn Watched>) {
        self.0.state.lock().awake.push((readers, u64::MAX));
        self.0.called.notify_one();
    }
}

impl Shared {
    fn watch(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            if state.awake.is_empty() {
                self.called.wait(&mut state);
                continue;
            }
            let _ = self.called.wait_for(&mut state, TICK);
            let mut looked_at = std::mem::take(&mut state.awake);
            // Readers that begin meanwhile wait for nothing.
            parking_lot::MutexGuard::unlocked(&mut state, || {
                looked_at.retain_mut(|(readers, begun)| {
                    readers.upgrade().is_some_and(|readers| readers.look_after(begun))
                });
            });
            state.awake.append(&mut looked_at);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.called.notify_one();
    }
}
