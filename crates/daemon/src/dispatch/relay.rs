//! The side of a command whose work a daemon does: what it reads goes there, and what comes is shown. One thread for both
//! directions, since neither side may wait for the other to be read.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_service::outcome::{Failure, Outcome};
use holdfast_service::work::At;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::{Input, Pipes};
use crate::control_socket::frames::{self, BODY_MAX, Ended, HEAD, Kind, nonsense};
use crate::interrupt::Interrupt;

/// What is on its way to the daemon.
struct Going {
    inputs: VecDeque<Input>,
    /// Bytes of frames that were not sent.
    unsent: Vec<u8>,
    sent: usize,
    /// The daemon was told to begin. Nothing is read before.
    has_begun: bool,
}

impl Going {
    fn is_waiting(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Reads a piece of the input, which is there.
    fn read(&mut self) -> io::Result<()> {
        let Some(input) = self.inputs.front_mut() else { return Ok(()) };
        let mut body = vec![0; BODY_MAX];
        let len = match input.read(&mut body) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            read => read?,
        };
        self.sent = 0;
        self.unsent = match len {
            0 => {
                self.inputs.pop_front();
                frames::frame(Kind::EndOfInput, &[])
            }
            len => frames::frame(Kind::Bytes, &body[..len]),
        };
        Ok(())
    }

    /// Pages of mapped files were handed over: that is said behind what is on its way.
    fn go(&mut self) {
        self.unsent.drain(..self.sent);
        self.sent = 0;
        self.unsent.extend(frames::frame(Kind::Go, &[]));
    }

    fn send(&mut self, to: BorrowedFd<'_>) {
        match send(to, &self.unsent[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(some) => {
                self.sent += some;
                self.has_begun |= !self.is_waiting();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // It wants no more. What it says last may be there still.
            Err(_) => {
                if self.has_begun {
                    self.inputs.clear();
                }
                self.sent = self.unsent.len();
            }
        }
    }
}

/// What is to be done about what has come.
#[derive(Debug)]
enum Next {
    /// Pages of files that are mapped in these mounts are to be handed over.
    Pages(Vec<At>),
    End(Outcome),
    /// The daemon ended before it had said anything.
    Cut(Outcome),
}

/// How it went.
#[derive(Debug)]
pub(super) enum Ran {
    To(Outcome),
    /// The daemon ended before it was told to begin; or pages of mapped files were not handed over, and why.
    NotBegun(Option<Failure>),
    /// The daemon ended before anything was shown, and nothing was read: it can be done anew.
    Cut(Outcome),
    /// The connection broke before anything was shown, and nothing was read.
    Broken(io::Error),
}

/// What has come from the daemon.
#[derive(Default)]
struct Came {
    bytes: Vec<u8>,
    /// Something of it was shown.
    any: bool,
}

/// Goes on until the daemon says how it has ended. Pages of mapped files are handed over by `hand_over` when it asks for them.
///
/// # Errors
/// The connection breaks before that (`UnexpectedEof`), or nonsense comes.
pub(super) fn run(
    daemon: BorrowedFd<'_>,
    pipes: &mut Pipes<'_>,
    note: fn(&str),
    hand_over: &dyn Fn(&[At]) -> Result<(), Failure>,
) -> io::Result<Ran> {
    let until = pipes.patience.map(Deadline::after);
    let mut interrupt = pipes.interrupt.clone();
    let inputs = VecDeque::from(std::mem::take(&mut pipes.inputs));
    let has_inputs = !inputs.is_empty();
    let mut going = Going { inputs, unsent: Vec::new(), sent: 0, has_begun: false };
    let mut came = Came::default();
    let mut piece = vec![0; BODY_MAX];
    loop {
        let heard = interrupt.as_ref().filter(|_| going.has_begun);
        let (can_read, can_send, can_take) = wait(daemon, &going, heard, until)?;
        if heard.is_some_and(Interrupt::has_come) {
            interrupt = None;
            // The daemon stops, and says how far it has come.
            let _ = shutdown(daemon, Shutdown::Write);
        }
        if can_take {
            match recv(daemon, &mut piece[..], RecvFlags::DONTWAIT) {
                Ok((some @ 1.., _)) => came.bytes.extend_from_slice(&piece[..some]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                _ if !going.has_begun => {
                    pipes.inputs = going.inputs.into();
                    return Ok(Ran::NotBegun(None));
                }
                broken => {
                    let ended = |_| io::ErrorKind::UnexpectedEof.into();
                    let error = broken.map_or_else(io::Error::from, ended);
                    return if came.any || has_inputs {
                        Err(error)
                    } else {
                        Ok(Ran::Broken(error))
                    };
                }
            }
            match take(&mut came, pipes, note)? {
                Some(Next::Cut(outcome)) if !has_inputs => return Ok(Ran::Cut(outcome)),
                Some(Next::End(outcome) | Next::Cut(outcome)) => return Ok(Ran::To(outcome)),
                Some(Next::Pages(mounted)) => match hand_over(&mounted) {
                    Ok(()) => going.go(),
                    Err(failure) if !going.has_begun => return Ok(Ran::NotBegun(Some(failure))),
                    Err(failure) => return Ok(Ran::To(Err(failure))),
                },
                None => {}
            }
        }
        if can_send {
            going.send(daemon);
        }
        if can_read && let Err(error) = going.read() {
            // The daemon sees that the command is gone, and that the input is not whole.
            return Ok(Ran::To(Err(Failure::of("the input", &error))));
        }
    }
}

/// Waits until the input can be read, the daemon takes more, or something has come from it.
fn wait(
    daemon: BorrowedFd<'_>,
    going: &Going,
    interrupt: Option<&Interrupt>,
    until: Option<Deadline>,
) -> io::Result<(bool, bool, bool)> {
    let is_waiting = going.is_waiting();
    let events = if is_waiting { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut wanted = vec![PollFd::from_borrowed_fd(daemon, events)];
    let input = going.inputs.front().filter(|_| going.has_begun && !is_waiting);
    let waited_for = input.and_then(Input::descriptor);
    wanted.extend(waited_for.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
    let inputs = wanted.len();
    wanted.extend(interrupt.map(|of| PollFd::from_borrowed_fd(of.as_fd(), PollFlags::IN)));
    let is_there = input.is_some() && waited_for.is_none();
    let left = if is_there { Some(Duration::ZERO) } else { until.map(Deadline::left) };
    let left = left.map(|left| Timespec::try_from(left).unwrap_or_default());
    match poll(&mut wanted, left.as_ref()) {
        Err(Errno::INTR) => return Ok((false, false, false)),
        Ok(0) if !is_there => return Err(io::ErrorKind::TimedOut.into()),
        done => done?,
    };
    let seen = wanted[0].revents();
    let can_read = is_there || wanted[1..inputs].iter().any(|input| !input.revents().is_empty());
    let can_take = seen.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
    Ok((can_read, is_waiting && seen.contains(PollFlags::OUT), can_take))
}

/// Shows what has come whole, and keeps the rest.
fn take(came: &mut Came, to: &mut Pipes<'_>, note: fn(&str)) -> io::Result<Option<Next>> {
    let mut rest = &came.bytes[..];
    let mut next = None;
    while let Some((start, behind)) = rest.split_first_chunk::<HEAD>() {
        let (kind, length) = frames::head(*start)?;
        let Some((body, behind)) = behind.split_at_checked(length) else { break };
        rest = behind;
        match kind {
            Kind::Bytes => {
                came.any = true;
                if let Err(error) = to.output.write_all(body) {
                    return Ok(Some(Next::End(Err((to.not_written)(error)))));
                }
            }
            Kind::Note => {
                came.any = true;
                note(&String::from_utf8_lossy(body));
            }
            Kind::Progress => {
                let at = frames::read_progress(body).ok_or_else(nonsense)?;
                to.progress.iter_mut().for_each(|progress| progress(at));
            }
            Kind::End => {
                let ended = Ended::read(body).ok_or_else(nonsense)?;
                let is_cut = ended.is_cut && !came.any;
                if let Err(error) = to.output.flush() {
                    return Ok(Some(Next::End(Err((to.not_written)(error)))));
                }
                next = Some((if is_cut { Next::Cut } else { Next::End })(ended.into()));
                break;
            }
            // Nothing follows before it is answered.
            Kind::Pages => {
                next = Some(Next::Pages(serde_json::from_slice(body)?));
                break;
            }
            Kind::EndOfInput | Kind::Go => return Err(nonsense()),
        }
    }
    let length = rest.len();
    came.bytes.drain(..came.bytes.len() - length);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_part_waits_for_the_rest() {
        let whole = [
            frames::frame(Kind::Bytes, b"some"),
            frames::frame(Kind::Bytes, b" more"),
            frames::frame(Kind::End, &Ended::from(Ok(7)).body()),
        ]
        .concat();
        for cut in 0..whole.len() {
            let (mut came, mut out) = (Came::default(), Vec::new());
            let mut pipes = Pipes::to(&mut out);
            let mut take = |bytes: &[u8]| {
                came.bytes.extend_from_slice(bytes);
                take(&mut came, &mut pipes, |_| {}).unwrap()
            };
            assert!(take(&whole[..cut]).is_none(), "{cut}");
            let next = take(&whole[cut..]);
            assert!(matches!(next, Some(Next::End(Ok(7)))), "{cut}: {next:?}");
            drop(pipes);
            assert_eq!(out, b"some more", "{cut}");
        }
        let mut nonsense = Came { bytes: vec![9; 64], any: false };
        assert!(take(&mut nonsense, &mut Pipes::to(io::sink()), |_| {}).is_err());
    }
}
