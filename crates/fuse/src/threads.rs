//! The threads that a mount cannot do without.

use std::io;

use holdfast_sync::thread::JoinHandle;

/// Starts one. `work`: what it does, as a message says it.
///
/// # Errors
/// The system gives none, and the message says what an administrator can do.
#[track_caller]
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    holdfast_sync::start(name, body).map_err(|error| {
        let why = format!("the system gives no thread for {work} ({error})");
        io::Error::new(error.kind(), format!("{why}; raise its limit of processes"))
    })
}
