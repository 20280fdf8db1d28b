//! The connection to a command while the daemon works for it.
//!
//! What waits here waits for the command or for the end of the daemon, whichever comes first, and holds no lock. A command that
//! reads nothing keeps its own work waiting, and what that looks at; one that is killed ends it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_stream::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::outcome::{Failure, Outcome};
use crate::work::Ends;
use crate::work::frames::{self, BODY_MAX, Ended, HEAD, Kind};

/// What a command hears whose work has no volume any more.
pub(super) const ENDED: &str = "the volume was unmounted before this was done";
/// How long it gets to take that.
const FAREWELL: Duration = Duration::from_secs(2);
/// Looks whether anybody waits still: one in so many checks.
const LOOKS: u32 = 64;
/// Bytes between two messages about progress, and files.
const PROGRESS_BYTES: u64 = 1 << 20;
const PROGRESS_FILES: u64 = 1 << 10;
/// Changes that are kept in memory for one command.
const MOST_KEPT: usize = 1 << 19;

/// The side of the daemon.
pub(super) struct Conduit {
    stream: UnixStream,
    /// It can be read when the daemon ends.
    stop: Arc<UnixStream>,
    /// What is left of a frame that could not be sent whole.
    unsent: RefCell<Vec<u8>>,
    input: RefCell<Input>,
    checks: Cell<u32>,
    told: Cell<Progress>,
    is_stopped: Cell<bool>,
}

/// Where in its input a command is.
#[derive(Debug, Default)]
struct Input {
    /// Inputs that are over.
    over: usize,
    /// Bytes of the present frame that have not come.
    left: usize,
}

impl Conduit {
    pub(super) fn new(stream: UnixStream, stop: Arc<UnixStream>) -> io::Result<Conduit> {
        stream.set_nonblocking(true)?;
        Ok(Conduit {
            stream,
            stop,
            unsent: RefCell::default(),
            input: RefCell::default(),
            checks: Cell::new(0),
            told: Cell::default(),
            is_stopped: Cell::new(false),
        })
    }

    /// Says how the work has ended.
    pub(super) fn end(self, outcome: Outcome) {
        let outcome = match outcome {
            // Whatever it has met, that is why.
            Err(failure) if self.is_stopped.get() => {
                Err(Failure { sentence: ENDED.into(), ..failure })
            }
            outcome => outcome,
        };
        let mut rest = self.unsent.take();
        rest.extend(frames::frame(Kind::End, &Ended::from(outcome).body()));
        let until = Deadline::after(FAREWELL);
        let mut sent = 0;
        while sent < rest.len() && !until.is_over() {
            match send(&self.stream, &rest[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(Errno::AGAIN | Errno::INTR) => {
                    let mut wanted = [PollFd::new(&self.stream, PollFlags::OUT)];
                    let left = Timespec::try_from(until.left()).unwrap_or_default();
                    let _ = poll(&mut wanted, Some(&left));
                }
                // It is gone.
                Err(_) => return,
            }
        }
    }

    /// Waits for the command; fails if the daemon ends.
    fn wait(&self, events: PollFlags, time: Option<&Timespec>) -> io::Result<PollFlags> {
        let mut wanted = [
            PollFd::new(&self.stream, events),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut wanted, time) {
            Err(Errno::INTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if !wanted[1].revents().is_empty() {
            self.is_stopped.set(true);
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, ENDED));
        }
        Ok(wanted[0].revents())
    }

    /// Fails if the daemon ends; what a command sends or takes without a pause would hide that.
    fn expect_wanted(&self) -> io::Result<PollFlags> {
        self.wait(PollFlags::empty(), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn send(&self, kind: Kind, body: &[u8]) -> io::Result<()> {
        self.expect_wanted()?;
        let mut unsent = self.unsent.borrow_mut();
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
                    if let Err(error) = self.wait(PollFlags::OUT, None) {
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
                Err(Errno::AGAIN) => drop(self.wait(PollFlags::IN, None)?),
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

/// The command was killed, or ended, and has not said that its input is over.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the command that sends it has ended")
}

impl Ends for Conduit {
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

    fn read(&self, number: usize, into: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input.borrow_mut();
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
            self.expect_wanted()?;
            let mut head = [0; HEAD];
            self.receive_all(&mut head)?;
            match frames::head(head)? {
                (Kind::Bytes, length) => input.left = length,
                (Kind::EndOfInput, 0) => input.over += 1,
                _ => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the command sends what is no input",
                    ));
                }
            }
        }
    }

    fn note(&self, sentence: &str) {
        let end = sentence.floor_char_boundary(BODY_MAX);
        // Who is gone hears nothing.
        let _ = self.send(Kind::Note, &sentence.as_bytes()[..end]);
    }

    fn progress(&self, at: Progress) {
        let told = self.told.get();
        let is_news = at.bytes.saturating_sub(told.bytes) >= PROGRESS_BYTES
            || at.files.saturating_sub(told.files) >= PROGRESS_FILES;
        if is_news {
            self.told.set(at);
            let _ = self.send(Kind::Progress, &frames::progress(at));
        }
    }

    fn check(&self) -> io::Result<()> {
        let checks = self.checks.get().wrapping_add(1);
        self.checks.set(checks);
        if !checks.is_multiple_of(LOOKS) {
            return Ok(());
        }
        match self.expect_wanted()?.intersects(PollFlags::HUP | PollFlags::ERR) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }

    fn most_kept(&self) -> usize {
        MOST_KEPT
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::*;
    use crate::work::In;

    /// A conduit, the command's side of it, and what stops the daemon.
    fn conduit() -> (Conduit, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (stop, stopper) = UnixStream::pair().unwrap();
        (Conduit::new(ours, Arc::new(stop)).unwrap(), theirs, stopper)
    }

    #[test]
    fn inputs_come_one_behind_the_other_and_what_is_left_of_one_is_passed_over() {
        let (conduit, mut command, _stop) = conduit();
        for (kind, body) in [
            (Kind::Bytes, &b"one"[..]),
            (Kind::Bytes, b"more"),
            (Kind::EndOfInput, b""),
            (Kind::Bytes, b"two"),
            (Kind::EndOfInput, b""),
        ] {
            command.write_all(&frames::frame(kind, body)).unwrap();
        }
        let mut start = [0; 2];
        In(&conduit, 0).read_exact(&mut start).unwrap();
        assert_eq!(&start, b"on");
        let mut second = String::new();
        In(&conduit, 1).read_to_string(&mut second).unwrap();
        assert_eq!(second, "two");
        assert_eq!(In(&conduit, 0).read(&mut start).unwrap(), 0, "it is over");
        // Without an end it is not whole.
        command.write_all(&frames::frame(Kind::Bytes, b"thr")).unwrap();
        drop(command);
        let error = In(&conduit, 2).read_to_string(&mut second).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(second, "twothr");
    }

    #[test]
    fn who_waits_for_a_command_wakes_up_when_it_or_the_daemon_ends() {
        for by_stop in [true, false] {
            let (conduit, command, stop) = conduit();
            let ended = std::thread::spawn(move || {
                let error = loop {
                    if let Err(error) = conduit.write(&[7; 4096]) {
                        break error;
                    }
                };
                let kind = error.kind();
                let input = In(&conduit, 0).read(&mut [0]).map_err(|error| error.kind());
                let checked = (0..LOOKS).try_for_each(|_| conduit.check()).is_err();
                conduit.end(Err(Failure::new(2, "broken")));
                (kind, input, checked)
            });
            // It reads nothing: the other side fills the pipe, and waits.
            let mut wanted = [PollFd::new(&command, PollFlags::IN)];
            poll(&mut wanted, None).unwrap();
            assert!(!ended.is_finished());
            if by_stop {
                stop.shutdown(Shutdown::Both).unwrap();
                // What was begun is sent whole, and then why.
                let mut all = Vec::new();
                (&command).read_to_end(&mut all).unwrap();
                let tail = String::from_utf8_lossy(&all[all.len() - 100..]).into_owned();
                assert!(tail.contains(ENDED) && tail.contains("\"code\":2"), "{tail}");
                let mut rest = &all[..];
                while let Some((start, behind)) = rest.split_first_chunk::<HEAD>() {
                    let (_, length) = frames::head(*start).unwrap();
                    rest = &behind[length..];
                }
                let aborted = io::ErrorKind::ConnectionAborted;
                assert_eq!(ended.join().unwrap(), (aborted, Err(aborted), true));
            } else {
                drop(command);
                let (kind, input, checked) = ended.join().unwrap();
                assert_eq!((kind, checked), (io::ErrorKind::BrokenPipe, true));
                assert_eq!(input, Err(io::ErrorKind::UnexpectedEof));
            }
        }
    }
}
