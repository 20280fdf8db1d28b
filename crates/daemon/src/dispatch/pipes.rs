//! What a command reads and writes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use holdfast_service::outcome::{Context, Failure, printed};
use holdfast_service::work::Ends;
use holdfast_stream::Progress;

use crate::interrupt::Interrupt;

/// What may be kept in memory of what is known of a tree: this process serves no other command.
const MOST_BYTES: usize = 1 << 30;
/// Bytes that are read to see whether something comes.
const FIRST: usize = 4096;

/// Where a command's bytes come from and go to.
pub struct Pipes<'a> {
    /// A program reads the answer of work that has one: it is JSON.
    pub json: bool,
    /// What is read, one behind the other.
    pub inputs: Vec<Input>,
    /// Where bytes go that it writes.
    pub output: Box<dyn Write + 'a>,
    /// Hears how far it has come, up to its end.
    pub progress: Option<Box<dyn FnMut(Progress)>>,
    /// What it means that the output cannot be written.
    pub not_written: fn(io::Error) -> Failure,
    /// Ctrl-C stops the work, and its last words are shown. Without it the command just ends.
    pub interrupt: Option<Interrupt>,
    /// How long a daemon may take; `None`: for ever.
    pub patience: Option<Duration>,
}

impl<'a> Pipes<'a> {
    /// Only an output: a reader that has gone is no failure.
    pub fn to(output: impl Write + 'a) -> Pipes<'a> {
        Pipes {
            json: false,
            inputs: Vec::new(),
            output: Box::new(output),
            progress: None,
            not_written: |error| printed(Err(error)).expect_err("an error is one"),
            interrupt: None,
            patience: None,
        }
    }
}

/// The ends of the pipes of work that is carried out in this process.
pub(super) struct Here<'a> {
    pipes: RefCell<Pipes<'a>>,
    note: fn(&str),
}

impl Here<'_> {
    pub(super) fn new(pipes: Pipes<'_>, note: fn(&str)) -> Here<'_> {
        Here { pipes: RefCell::new(pipes), note }
    }
}

impl Ends for Here<'_> {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.pipes.borrow_mut().output.write(bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.pipes.borrow_mut().output.flush()
    }

    fn last(&self, bytes: &[u8]) {
        // What reads it sees that it is not whole.
        let _ = self.pipes.borrow_mut().output.write_all(bytes);
    }

    fn read(&self, input: usize, into: &mut [u8]) -> io::Result<usize> {
        let mut pipes = self.pipes.borrow_mut();
        pipes.inputs.get_mut(input).map_or(Ok(0), |input| input.read(into))
    }

    fn note(&self, sentence: &str) {
        (self.note)(sentence);
    }

    fn progress(&self, at: Progress) {
        if let Some(progress) = &mut self.pipes.borrow_mut().progress {
            progress(at);
        }
    }

    fn check(&self) -> io::Result<()> {
        self.wait(Duration::ZERO)
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        match &self.pipes.borrow().interrupt {
            Some(interrupt) => interrupt.wait(time),
            None => {
                std::thread::sleep(time);
                Ok(())
            }
        }
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }
}

/// One input of a command.
pub enum Input {
    /// Perhaps a pipe, which may have nothing for long.
    File(File),
    /// The same, of which something was read already.
    Begun(Vec<u8>, File),
    /// What is made of files, and never waits for long.
    Made(Box<dyn Read>),
}

impl Input {
    /// Standard input.
    ///
    /// # Errors
    /// There is none, or there are too many open files.
    pub fn standard() -> Result<Input, Failure> {
        let input = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        Ok(Input::File(input.into()))
    }

    /// Waits until the first bytes are there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn begun(self) -> io::Result<Input> {
        let Input::File(mut file) = self else { return Ok(self) };
        let mut first = vec![0; FIRST];
        loop {
            match file.read(&mut first) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    first.truncate(read?);
                    return Ok(Input::Begun(first, file));
                }
            }
        }
    }

    /// Whether nothing has come before its end.
    pub fn is_empty(&self) -> bool {
        matches!(self, Input::Begun(first, _) if first.is_empty())
    }

    /// What to wait for before it is read.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::File(file) => Some(file.as_fd()),
            Input::Begun(first, file) => first.is_empty().then(|| file.as_fd()),
            Input::Made(_) => None,
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(into),
            Input::Begun(first, file) if first.is_empty() => file.read(into),
            Input::Begun(first, _) => {
                let some = first.len().min(into.len());
                into[..some].copy_from_slice(&first[..some]);
                first.drain(..some);
                Ok(some)
            }
            Input::Made(made) => made.read(into),
        }
    }
}
