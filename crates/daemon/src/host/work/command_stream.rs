//! The connection to a command while the daemon works for it.
//!
//! What waits here waits for the command or for the end of the daemon, whichever comes first, and holds no lock that others take. A
//! command that reads nothing keeps its own work waiting, and what that looks at: one of a stranger only for a while. One that is
//! killed ends it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_service::outcome::{Failure, Outcome};
use holdfast_service::work::{At, Ends};
use holdfast_stream::Progress;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::control_socket::frames::{self, BODY_MAX, Ended, HEAD, Kind};

/// What a command hears whose work has no volume any more.
pub(super) const ENDED: &str = "the volume was unmounted before this was done";
/// How long it gets to take that.
const FAREWELL: Duration = Duration::from_secs(2);
/// Looks whether a caller waits still: one in so many checks.
const LOOKS: u32 = 64;
/// Bytes between two messages about progress, and files.
const PROGRESS_BYTES: u64 = 1 << 20;
const PROGRESS_FILES: u64 = 1 << 10;
/// What one command may keep in memory of what is known of a tree: some half a million changes.
const MOST_BYTES: usize = 128 << 20;

/// The side of the daemon.
pub(super) struct CommandStream {
    stream: UnixStream,
    /// It can be read when the daemon ends.
    stop: Arc<UnixStream>,
    /// How long the command may take and send nothing; `None`: for ever.
    patience: Option<Duration>,
    /// Until when it has to let the work begin, whatever it sends meanwhile.
    begins: Mutex<Option<Deadline>>,
    /// What is left of a frame that could not be sent whole. One thread works; the locks are for the compiler.
    unsent: Mutex<Vec<u8>>,
    input: Mutex<Input>,
    checks: AtomicU32,
    told: Mutex<Progress>,
    is_stopped: AtomicBool,
}

/// Where in its input a command is.
#[derive(Debug, Default)]
struct Input {
    /// Inputs that are over.
    over: usize,
    /// Bytes of the present frame that have not come.
    left: usize,
}

/// Waits until something can be done with `stream`, or the time is over; fails if the daemon ends.
fn wait_for(
    stream: &UnixStream,
    stop: &UnixStream,
    events: PollFlags,
    time: Option<Duration>,
) -> io::Result<Option<PollFlags>> {
    let time = time.map(|time| Timespec::try_from(time).unwrap_or_default());
    let mut wanted =
        [PollFd::new(stream, events), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    let is_over = match poll(&mut wanted, time.as_ref()) {
        Err(Errno::INTR) => false,
        Err(error) => return Err(error.into()),
        Ok(some) => some == 0,
    };
    if !wanted[1].revents().is_empty() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, ENDED));
    }
    Ok((!is_over).then(|| wanted[0].revents()))
}

impl CommandStream {
    pub(super) fn new(
        stream: UnixStream,
        stop: Arc<UnixStream>,
        patience: Option<Duration>,
    ) -> io::Result<CommandStream> {
        stream.set_nonblocking(true)?;
        Ok(CommandStream {
            stream,
            stop,
            patience,
            begins: Mutex::default(),
            unsent: Mutex::default(),
            input: Mutex::default(),
            checks: AtomicU32::new(0),
            told: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Says how the work has ended, when the command has taken all that was said before. Once the daemon ends it gets a moment for
    /// that.
    pub(super) fn end(&self, outcome: Outcome) {
        let is_stopped = self.is_stopped.load(Ordering::Relaxed);
        let outcome = match outcome {
            // Whatever it has met, that is why.
            Err(failure) if is_stopped => Err(Failure { sentence: ENDED.into(), ..failure }),
            outcome => outcome,
        };
        let is_cut = outcome.as_ref().is_err_and(|failure| failure.sentence == ENDED);
        let mut ended = Ended::from(outcome);
        ended.is_cut = is_cut;
        let mut rest = std::mem::take(&mut *self.unsent.lock());
        rest.extend(frames::frame(Kind::End, &ended.body()));
        let mut until = is_stopped.then(|| Deadline::after(FAREWELL));
        let mut sent = 0;
        while sent < rest.len() && !until.is_some_and(Deadline::is_over) {
            match send(&self.stream, &rest[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(Errno::AGAIN | Errno::INTR) => match &until {
                    Some(until) => {
                        let mut wanted = [PollFd::new(&self.stream, PollFlags::OUT)];
                        let left = Timespec::try_from(until.left()).unwrap_or_default();
                        let _ = poll(&mut wanted, Some(&left));
                    }
                    None => match self.wait(PollFlags::OUT) {
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                            until = Some(Deadline::after(FAREWELL));
                        }
                        Err(_) => return,
                        Ok(()) => {}
                    },
                },
                // It is gone.
                Err(_) => return,
            }
        }
    }

    /// As [`CommandStream::hand_over_pages`], for a command whose work has not begun: one that never lets it would keep its place.
    ///
    /// # Errors
    /// As there, or `time` is over.
    pub(super) fn begin(&self, mounted: &[At], time: Duration) -> io::Result<()> {
        *self.begins.lock() = Some(Deadline::after(time));
        let done = self.hand_over_pages(mounted);
        *self.begins.lock() = None;
        done
    }

    /// Has the command bring what programs have stored into mapped files of these mounts into the volume.
    ///
    /// # Errors
    /// The command is gone, or the daemon ends.
    pub(super) fn hand_over_pages(&self, mounted: &[At]) -> io::Result<()> {
        self.send(Kind::Pages, &serde_json::to_vec(mounted)?)?;
        let mut input = self.input.lock();
        loop {
            // What it had sent before it was asked, unneeded.
            self.skip(&mut input.left)?;
            if self.begins.lock().is_some_and(Deadline::is_over) {
                return Err(too_long());
            }
            match self.next_frame()? {
                (Kind::Bytes, length) => input.left = length,
                (Kind::EndOfInput, 0) => input.over += 1,
                (Kind::Go, 0) => return Ok(()),
                _ => return Err(nonsense()),
            }
        }
    }

    /// Waits for the command; fails if the daemon ends, a stranger does nothing for too long, or the work does not begin.
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let left = self.begins.lock().map(Deadline::left);
        let time = [self.patience, left].into_iter().flatten().min();
        match self.heard(wait_for(&self.stream, &self.stop, events, time))? {
            Some(_) => Ok(()),
            None => Err(too_long()),
        }
    }

    /// Remembers that the daemon ends.
    fn heard<T>(&self, waited: io::Result<T>) -> io::Result<T> {
        waited.inspect_err(|error| {
            if error.kind() == io::ErrorKind::ConnectionAborted {
                self.is_stopped.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Fails if the daemon ends; what a command sends or takes without a pause would hide that.
    fn expect_wanted(&self) -> io::Result<PollFlags> {
        let now = Some(Duration::ZERO);
        let seen = wait_for(&self.stream, &self.stop, PollFlags::empty(), now);
        self.heard(seen).map(|seen| seen.unwrap_or(PollFlags::empty()))
    }

    fn send(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        self.expect_wanted()?;
        let mut unsent = self.unsent.lock();
        // A frame that was cut off by an error is never followed by another one.
        debug_assert!(unsent.is_empty());
        *unsent = frames::frame(kind, body);
        let mut sent = 0;
        let done = loop {
            if sent == unsent.len() {
                break Ok(());
            }
            match send(&self.stream, &unsent[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Err(error) = self.wait(PollFlags::OUT) {
                        break Err(error);
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    // Nothing can be said to it any more.
                    sent = unsent.len();
                    break Err(io::ErrorKind::BrokenPipe.into());
                }
                Err(error) => {
                    sent = unsent.len();
                    break Err(error.into());
                }
            }
        };
        unsent.drain(..sent);
        done
    }

    /// Receives some bytes.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.stream, &mut *into, RecvFlags::empty()) {
                Ok((0, _)) if !into.is_empty() => return Err(gone()),
                Ok((some, _)) => return Ok(some),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::CONNRESET) => return Err(gone()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive_all(&self, into: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            filled += self.receive(&mut into[filled..])?;
        }
        Ok(())
    }

    /// The head of the next frame.
    fn next_frame(&self) -> io::Result<(Kind, usize)> {
        self.expect_wanted()?;
        let mut head = [0; HEAD];
        self.receive_all(&mut head)?;
        frames::head(head)
    }

    /// Passes what is left of the present frame over.
    fn skip(&self, left: &mut usize) -> io::Result<()> {
        let mut nowhere = [0; 4096];
        while *left > 0 {
            let most = nowhere.len().min(*left);
            *left -= self.receive(&mut nowhere[..most])?;
        }
        Ok(())
    }
}

fn too_long() -> io::Error {
    let why = "the command has taken and sent nothing for too long";
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the command sends what is no input")
}

/// The command was killed, or ended, and has not said that its input is over.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the command that sends it has ended")
}

impl Ends for CommandStream {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let some = &bytes[..bytes.len().min(BODY_MAX)];
        if !some.is_empty() {
            self.send(Kind::Bytes, some)?;
        }
        Ok(some.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn last(&self, bytes: &[u8]) {
        let mut unsent = self.unsent.lock();
        bytes.chunks(BODY_MAX).for_each(|some| unsent.extend(frames::frame(Kind::Bytes, some)));
    }

    fn read(&self, number: usize, into: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input.lock();
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if input.over > number {
                return Ok(0);
            }
            if input.over < number {
                // What is left of the inputs before.
                self.skip(&mut input.left)?;
            }
            if input.left > 0 {
                let most = into.len().min(input.left);
                let some = self.receive(&mut into[..most])?;
                input.left -= some;
                return Ok(some);
            }
            match self.next_frame()? {
                (Kind::Bytes, length) => input.left = length,
                (Kind::EndOfInput, 0) => input.over += 1,
                _ => return Err(nonsense()),
            }
        }
    }

    fn note(&self, sentence: &str) {
        let end = sentence.floor_char_boundary(BODY_MAX);
        // A caller that is gone hears nothing.
        let _ = self.send(Kind::Note, &sentence.as_bytes()[..end]);
    }

    fn progress(&self, at: Progress) {
        let told = *self.told.lock();
        let is_news = at.bytes.saturating_sub(told.bytes) >= PROGRESS_BYTES
            || at.files.saturating_sub(told.files) >= PROGRESS_FILES;
        if is_news {
            *self.told.lock() = at;
            // A caller that is gone, or ends, is seen by the next bytes.
            let _ = self.send(Kind::Progress, &frames::progress(at));
        }
    }

    fn check(&self) -> io::Result<()> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !checks.is_multiple_of(LOOKS) {
            return Ok(());
        }
        match self.expect_wanted()?.intersects(PollFlags::HUP | PollFlags::ERR) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        // A command that was interrupted says no more, and hears the rest.
        let seen = wait_for(&self.stream, &self.stop, PollFlags::RDHUP, Some(time));
        match self.heard(seen)?.unwrap_or(PollFlags::empty()).is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }
}

#[cfg(test)]
mod tests;
