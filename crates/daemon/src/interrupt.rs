//! Ctrl-C and SIGTERM, for a command that stops cleanly: the first of them can be waited for, the second ends the process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Can be read once a signal has come.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<UnixStream>);

impl Interrupt {
    /// Catches them from now on.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn catch() -> io::Result<Interrupt> {
        let (ours, theirs) = UnixStream::pair()?;
        let again = Arc::<AtomicBool>::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first one does not see what it sets.
            signal_hook::flag::register_conditional_default(signal, again.clone())?;
            signal_hook::flag::register(signal, again.clone())?;
            pipe::register(signal, theirs.try_clone()?)?;
        }
        Ok(Interrupt(Arc::new(ours)))
    }

    /// Whether one has come.
    pub(crate) fn has_come(&self) -> bool {
        self.wait(Duration::ZERO).is_err()
    }

    /// Waits so long.
    ///
    /// # Errors
    /// `Interrupted`: one has come, at any time.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let mut wanted = [PollFd::new(&*self.0, PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap_or_default();
        match poll(&mut wanted, Some(&time)) {
            // It lies in the pipe by now, or was another one.
            Err(Errno::INTR) => self.wait(Duration::ZERO),
            Err(error) => Err(error.into()),
            Ok(0) => Ok(()),
            Ok(_) => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
