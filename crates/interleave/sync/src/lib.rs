//! What replaces `holdfast-sync`: atomics, threads and channels whose every use is a point where another
//! thread may go on.
//!
//! They work only inside a run of shuttle, which chooses the thread that goes on.

pub use shuttle::sync::{atomic, mpsc};
pub use shuttle::thread;

/// Starts a thread. Here the system always gives one, and its name is not kept.
pub fn start<T: Send + 'static>(
    _name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<thread::JoinHandle<T>> {
    Ok(thread::spawn(body))
}

/// Does `work` on `threads` threads at once, the calling one among them. Returns when all are done.
pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
    if threads <= 1 {
        return work();
    }
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}
