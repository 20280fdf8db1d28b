//! How a session ends: told once, by the first of its threads that fails, or by the last that returns.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

type Tell = Box<dyn FnOnce(io::Result<()>) + Send>;

/// What `body` answers; a panic is an error, so that the session ends with it.
pub(super) fn told(body: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let done = catch_unwind(AssertUnwindSafe(body));
    done.unwrap_or_else(|_| Err(io::Error::other("a thread that serves requests has panicked")))
}

/// Held by each thread that serves a session, and by what may start another one.
#[derive(Clone)]
pub(crate) struct Ending(Arc<Told>);

struct Told(Mutex<Option<Tell>>);

impl Ending {
    /// `tell` is called with how the session has ended, on whatever thread ends it: it must not wait for the session.
    pub(crate) fn new(tell: impl FnOnce(io::Result<()>) + Send + 'static) -> Ending {
        Ending(Arc::new(Told(Mutex::new(Some(Box::new(tell))))))
    }

    /// One of the threads has ended so. A failure ends the session, though other threads go on.
    pub(crate) fn note(&self, outcome: io::Result<()>) {
        if outcome.is_err() {
            self.0.tell(outcome);
        }
    }
}

impl Told {
    fn tell(&self, outcome: io::Result<()>) {
        let tell = self.0.lock().take();
        if let Some(tell) = tell {
            tell(outcome);
        }
    }
}

/// The last holder has gone.
impl Drop for Told {
    fn drop(&mut self) {
        self.tell(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_first_failure_ends_a_session_and_so_does_the_last_thread() {
        for fails in [true, false] {
            let (send, ends) = channel();
            let ending =
                Ending::new(move |outcome: io::Result<()>| send.send(outcome.is_ok()).unwrap());
            let other = ending.clone();
            ending.note(Ok(()));
            assert!(ends.try_recv().is_err(), "another one goes on");
            if fails {
                other.note(Err(io::ErrorKind::BrokenPipe.into()));
                other.note(Err(io::ErrorKind::BrokenPipe.into()));
                assert_eq!(ends.try_recv(), Ok(false));
            }
            drop((ending, other));
            assert_eq!(ends.iter().collect::<Vec<_>>(), if fails { vec![] } else { vec![true] });
        }
    }
}
