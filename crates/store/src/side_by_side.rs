//! The same work on many things, several at a time: a device answers several calls in little more time
//! than one.
//!
//! Knows nothing of what the work is.

use holdfast_sync::atomic::{AtomicUsize, Ordering};

use holdfast_base::wait;
use holdfast_sync::on_threads;
use parking_lot::Mutex;

use crate::Result;

/// Carries out `work` for each of `items` on `threads` threads, this one among them, or on fewer if the system gives
/// no more; on one, in their order. The results are in no order. After an error no further item is begun.
pub(crate) fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?);
        }
        Ok(done)
    };
    if threads.min(items.len()) > 1 {
        wait::will_share();
    }
    let parts: Mutex<Vec<Result<Vec<R>>>> = Mutex::default();
    on_threads(threads.min(items.len()), || {
        let part = run();
        parts.lock().push(part);
    });
    let mut all = Vec::with_capacity(items.len());
    for part in parts.into_inner() {
        all.append(&mut part?);
    }
    Ok(all)
}
