//! The ends of the pipes of work that is carried out in this process.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::time::Duration;

use holdfast_daemon::interrupt::Interrupt;
use holdfast_service::work::Ends;
use holdfast_stream::Progress;

use super::pump::Shown;
use super::{Input, Output, Pipes};
use crate::outcome::complain;

/// What may be kept in memory of what is known of a tree: this process serves no other command.
const MOST_BYTES: usize = 1 << 30;

/// Standard output, and what is read.
pub(super) struct Here {
    inputs: Vec<RefCell<Input>>,
    output: RefCell<Output>,
    shown: RefCell<Shown>,
    interrupt: Option<Interrupt>,
}

impl Here {
    pub(super) fn new(pipes: Pipes) -> Here {
        let shown = RefCell::new(Shown::new(pipes.shows_progress, pipes.counts));
        let output = RefCell::new(pipes.output);
        let inputs = pipes.inputs.into_iter().map(RefCell::new).collect();
        Here { inputs, output, shown, interrupt: pipes.interrupt }
    }

    /// It is over.
    pub(super) fn end(&self) {
        self.shown.borrow_mut().end();
    }
}

impl Ends for Here {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.output.borrow_mut().write(bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.output.borrow_mut().flush()
    }

    fn last(&self, bytes: &[u8]) {
        // What reads it sees that it is not whole.
        let _ = self.output.borrow_mut().write_all(bytes);
    }

    fn read(&self, input: usize, into: &mut [u8]) -> io::Result<usize> {
        self.inputs.get(input).map_or(Ok(0), |file| file.borrow_mut().read(into))
    }

    fn note(&self, sentence: &str) {
        complain(sentence);
    }

    fn progress(&self, at: Progress) {
        self.shown.borrow_mut().show(at);
    }

    fn check(&self) -> io::Result<()> {
        self.wait(Duration::ZERO)
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        match &self.interrupt {
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
