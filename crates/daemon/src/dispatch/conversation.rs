//! The side of a command that asks a daemon for files: one question after the other.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use holdfast_service::outcome::{Failure, Outcome, plain_words};
use holdfast_service::work::At;
use holdfast_service::work::files::message::{self, Reply, Request};

use super::has_ended;
use crate::control_socket::Daemon;
use crate::control_socket::frames::{self, BODY_MAX, Ended, Kind, nonsense};

/// A daemon that works with files for this command, until this is dropped.
#[derive(Debug)]
pub struct Conversation {
    name: String,
    daemon: Daemon,
    note: fn(&str),
    /// What came of an answer, and is not read yet.
    came: Came,
}

/// Bytes of answers.
#[derive(Debug, Default)]
struct Came {
    bytes: Vec<u8>,
    read: usize,
    /// How the work has ended.
    ended: Option<Outcome>,
    /// Why it has failed was an answer already.
    is_told: bool,
}

impl Conversation {
    /// The daemon has agreed to what it is asked for. `None`: it has ended before it was told to begin.
    pub(super) fn begin(
        name: String,
        daemon: Daemon,
        note: fn(&str),
        hand_over: &dyn Fn(&[At]) -> Result<(), Failure>,
    ) -> Result<Option<Conversation>, Failure> {
        let mut stream = &daemon.stream;
        // A daemon may wait for its device, or for room, as long as a write of a program does.
        let waits = stream.set_nonblocking(false);
        let waits = waits.and_then(|()| stream.set_read_timeout(None));
        let waits = waits.and_then(|()| stream.set_write_timeout(None));
        let pages = waits.and_then(|()| match frames::read(&mut stream)? {
            (Kind::Pages, body) => Ok(serde_json::from_slice::<Vec<At>>(&body)?),
            _ => Err(nonsense()),
        });
        let begun = match pages {
            Ok(mounted) => {
                hand_over(&mounted)?;
                stream.write_all(&frames::frame(Kind::Go, &[]))
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(()) => Ok(Some(Conversation { name, daemon, note, came: Came::default() })),
            Err(error) if has_ended(&error) => Ok(None),
            Err(error) => Err(Failure::plain(format!("{name}: {}", plain_words(&error)))),
        }
    }

    /// Says something that has no answer.
    pub fn say(&mut self, request: &Request, data: &[u8]) -> io::Result<()> {
        let mut bytes = &message::written(request, data)?[..];
        while !bytes.is_empty() {
            let (some, rest) = bytes.split_at(bytes.len().min(BODY_MAX));
            if let Err(error) = (&self.daemon.stream).write_all(&frames::frame(Kind::Bytes, some)) {
                return Err(self.why(error));
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Asks, and waits for the answer, with bytes of a file in `data`.
    ///
    /// # Errors
    /// That of the answer, or the daemon has ended.
    pub fn ask(&mut self, request: &Request, data: &mut Vec<u8>) -> io::Result<Reply> {
        self.say(request, &[])?;
        let stream = &self.daemon.stream;
        let answer = message::read::<Reply>(
            &mut Answers { stream, note: self.note, came: &mut self.came },
            data,
        );
        match answer {
            Ok(Some(reply)) => reply.read(),
            Ok(None) => Err(self.why(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.why(error)),
        }
    }

    /// Why the daemon does not go on: what it has said, or what was met.
    fn why(&mut self, error: io::Error) -> io::Error {
        let stream = &self.daemon.stream;
        // It is to say the rest, and no more.
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Answers { stream, note: self.note, came: &mut self.came };
        let is_over = rest.came.ended.is_some() || io::copy(&mut rest, &mut io::sink()).is_ok();
        match &self.came.ended {
            Some(Err(failure)) if is_over => {
                self.came.is_told = true;
                io::Error::other(failure.sentence.clone())
            }
            _ => error,
        }
    }

    /// Asks for no more, and waits until all is done.
    ///
    /// # Errors
    /// It is not durable; or the daemon has ended before. Without a sentence: its notes or answers have said why the exit code is not 0.
    pub fn end(mut self) -> Result<(), Failure> {
        let stream = &self.daemon.stream;
        let said = (&*stream).write_all(&frames::frame(Kind::EndOfInput, &[]));
        let mut rest = Answers { stream, note: self.note, came: &mut self.came };
        let read = io::copy(&mut rest, &mut io::sink());
        let _ = stream.shutdown(Shutdown::Both);
        match self.came.ended.take() {
            Some(Ok(code @ 1..)) => Err(Failure::new(code, "")),
            Some(Err(failure)) if self.came.is_told => Err(Failure::new(failure.code, "")),
            Some(outcome) => outcome.map(drop),
            None => {
                let error = said.err().or(read.err());
                let why = error.map_or_else(|| "it has ended".into(), |error| plain_words(&error));
                Err(Failure::plain(format!(
                    "{}: its daemon (process {}) has not said that all is done: {why}",
                    self.name, self.daemon.pid
                )))
            }
        }
    }
}

/// What a daemon answers, as bytes, up to the end of its work.
struct Answers<'a> {
    stream: &'a std::os::unix::net::UnixStream,
    note: fn(&str),
    came: &'a mut Came,
}

impl Read for Answers<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.came.read == self.came.bytes.len() {
            if self.came.ended.is_some() {
                return Ok(0);
            }
            self.frame()?;
        }
        let left = &self.came.bytes[self.came.read..];
        let some = left.len().min(into.len());
        into[..some].copy_from_slice(&left[..some]);
        self.came.read += some;
        Ok(some)
    }
}

impl Answers<'_> {
    /// Takes the next frame.
    fn frame(&mut self) -> io::Result<()> {
        let (kind, body) = frames::read(&mut &*self.stream)?;
        match kind {
            Kind::Bytes => (self.came.bytes, self.came.read) = (body, 0),
            Kind::Note => (self.note)(&String::from_utf8_lossy(&body)),
            Kind::Progress => {}
            Kind::End => {
                self.came.ended = Some(Ended::read(&body).ok_or_else(nonsense)?.into());
            }
            Kind::EndOfInput | Kind::Pages | Kind::Go => return Err(nonsense()),
        }
        Ok(())
    }
}
