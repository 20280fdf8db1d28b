//! One process at a time makes or removes sockets in a directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// A file of the lock's own: a user who can open a file can lock it, and the directory may be open to others.
const NAME: &str = "lock";
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Taken until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "its descriptor has the lock")] File);

/// Takes the lock of `dir`, in which only this user makes names.
///
/// # Errors
/// Another process has had it for all of `patience` (`TimedOut`).
pub(super) fn take(dir: &Path, patience: Duration) -> io::Result<Lock> {
    let until = Deadline::after(patience);
    let path = dir.join(NAME);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut how = File::options();
    how.write(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = how.open(&path)?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock(file)),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if until.is_over() => {
                let (path, seconds) = (path.display(), patience.as_secs());
                let why = format!(
                    "another process has held {path} for {seconds} seconds; find it with `fuser {path}` and end it"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE.min(until.left())),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_lock_that_is_held_is_waited_for_with_a_limit_and_others_cannot_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let soon = Duration::from_millis(30);
        // Each user who may open the directory can lock it.
        let directory = File::open(dir.path()).unwrap();
        flock(&directory, FlockOperation::LockExclusive).unwrap();
        let lock = take(dir.path(), soon).unwrap();
        let found = std::fs::metadata(dir.path().join(NAME)).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        let refused = take(dir.path(), soon).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(refused.to_string().contains("fuser"), "{refused}");
        drop(lock);
        assert!(take(dir.path(), soon).is_ok());
    }
}
