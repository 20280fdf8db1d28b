//! What a command reads.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::outcome::{Context, Failure};

/// One input of a command.
pub(crate) enum Input {
    /// Perhaps a pipe, which may have nothing for long.
    File(File),
    /// What is made of files, and never waits for long.
    Made(Box<dyn Read>),
}

impl Input {
    /// Standard input.
    ///
    /// # Errors
    /// There is none, or there are too many open files.
    pub(crate) fn standard() -> Result<Input, Failure> {
        let input = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        Ok(Input::File(input.into()))
    }

    /// What to wait for before it is read.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::File(file) => Some(file.as_fd()),
            Input::Made(_) => None,
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(into),
            Input::Made(made) => made.read(into),
        }
    }
}
