//! Signals while a command runs: it decides what they mean, and its exit code says so.
//!
//! A terminal sends SIGINT and SIGQUIT to the command as well, so here they are only noticed. SIGTERM and SIGHUP, which may
//! come to this process alone, are passed on.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;

use super::SIGNAL;

/// The signals that are caught.
const CAUGHT: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

/// Signals that have come to this process. None of them ends it any more.
pub struct Signals {
    /// Each has a pipe in which a byte for each time lies.
    pipes: Vec<(i32, UnixStream)>,
}

impl Signals {
    /// Catches them from now on. What the caller has ignored, as nohup(1) does, stays ignored, for the command too.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn catch() -> io::Result<Signals> {
        let ignored = ignored();
        let mut pipes = Vec::new();
        for signal in CAUGHT.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            pipe::register(signal, theirs)?;
            pipes.push((signal, ours));
        }
        Ok(Signals { pipes })
    }

    /// The exit code for those that have come since it was asked last; of several, for one.
    pub fn came(&self) -> Option<u8> {
        self.take().last().map(|signal| code(*signal))
    }

    /// The same, when the command has ended by itself. What a terminal sends it had as well, and has decided; SIGTERM and
    /// SIGHUP could not be passed on to it any more.
    pub fn came_too_late(&self) -> Option<u8> {
        self.take().into_iter().find(|signal| is_passed_on(*signal)).map(code)
    }

    /// All that have come since it was asked last.
    fn take(&self) -> Vec<i32> {
        let came = self.pipes.iter().filter(|(_, pipe)| {
            let mut pipe = pipe;
            let mut came = false;
            let mut bytes = [0; 64];
            while pipe.read(&mut bytes).is_ok_and(|length| length > 0) {
                came = true;
            }
            came
        });
        came.map(|(signal, _)| *signal).collect()
    }

    /// Returns when the child has ended, which can be waited for then.
    ///
    /// # Errors
    /// The child cannot be watched.
    pub(super) fn pass_on_to(&self, child: &std::process::Child) -> io::Result<()> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            let pipes = self.pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN));
            let mut all: Vec<PollFd<'_>> = pipes.collect();
            all.push(PollFd::new(&process, PollFlags::IN));
            match poll(&mut all, None::<&Timespec>) {
                Err(Errno::INTR) => continue,
                polled => drop(polled?),
            }
            if !all.last().is_some_and(|it| it.revents().is_empty()) {
                return Ok(());
            }
            // Each of them: an init system sends two at once.
            let came = self.take().into_iter().filter(|signal| is_passed_on(*signal));
            for signal in came.filter_map(Signal::from_named_raw) {
                // It may have ended meanwhile.
                let _ = pidfd_send_signal(&process, signal);
            }
        }
    }
}

fn is_passed_on(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGHUP)
}

fn code(signal: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The signals that this process ignores: a bit for each, the lowest for signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// How long a child that has said why it fails may take to end.
pub(super) const ENDING: Duration = Duration::from_secs(5);
