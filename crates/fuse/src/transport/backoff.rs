//! What the system refuses at one moment, and may give at the next.

use std::io;
use std::time::Duration;

/// Before the second try; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// In all, over about 1.3 s.
const TRIES: u32 = 8;

/// Whether it may pass: no thread or no memory is left, or a signal came.
fn may_pass(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted
    )
}

/// Tries `start` again while it is refused for what may pass. The error is that of the last try.
pub(super) fn with_backoff<R>(mut start: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match start() {
            Err(error) if may_pass(&error) => std::thread::sleep(pause),
            done => return done,
        }
        pause *= 2;
    }
    start()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(times: u32, kind: io::ErrorKind) -> (u32, io::Result<()>) {
        let mut tries = 0;
        let done = with_backoff(|| {
            tries += 1;
            if tries <= times { Err(kind.into()) } else { Ok(()) }
        });
        (tries, done)
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let (tries, done) = refused(3, io::ErrorKind::WouldBlock);
        assert!(done.is_ok() && tries == 4, "{tries}: {done:?}");
        let (tries, done) = refused(u32::MAX, io::ErrorKind::OutOfMemory);
        assert!(done.is_err() && tries == TRIES, "{tries}: {done:?}");
        let (tries, done) = refused(1, io::ErrorKind::PermissionDenied);
        assert!(done.is_err() && tries == 1, "{tries}: {done:?}");
    }
}
